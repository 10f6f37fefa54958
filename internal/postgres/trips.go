package postgres

import (
	"context"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/trace"
)

// trips counts each round trip to the database, by the name of its statement as
// db/queries has it. Statements that travel together are one, named after the first
// statement that has any; what has none is "begin", "commit" or another word that
// it begins with. Counted here, none is forgotten. A round trip that belongs to a trace
// becomes a span of it, without the statement's parameters.
type trips struct {
	count func(statement string)
	spans bool
}

// spanKey is the key of a round trip's span in the context of the driver.
type spanKey struct{}

// begin begins the span of a round trip.
func (t trips) begin(ctx context.Context, name string) context.Context {
	if !t.spans {
		return ctx
	}
	ctx, span := trace.Call(ctx, name, slog.String("db.system.name", "postgresql"), slog.String("db.operation.name", name))
	if span == nil {
		return ctx
	}
	return context.WithValue(ctx, spanKey{}, span)
}

// end ends it.
func (t trips) end(ctx context.Context, err error) {
	if !t.spans {
		return
	}
	span, _ := ctx.Value(spanKey{}).(*trace.Span)
	if err != nil {
		span.Fail("database")
	}
	span.End()
}

// TraceQueryStart counts a statement that goes by itself.
func (t trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	name, word := statementName(data.SQL)
	if name == "" {
		name = word
	}
	t.count(name)
	return t.begin(ctx, name)
}

// TraceBatchStart counts statements that go together.
func (t trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	var first string
	for _, q := range data.Batch.QueuedQueries {
		name, word := statementName(q.SQL)
		if name != "" {
			first = name
			break
		}
		if first == "" {
			first = word
		}
	}
	t.count(first)
	return t.begin(ctx, first)
}

// TracePrepareStart counts the preparation of a statement, once a connection.
func (t trips) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	t.count("prepare")
	return ctx
}

// TraceQueryEnd ends the span.
func (t trips) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	t.end(ctx, data.Err)
}

// TraceBatchQuery does nothing.
func (trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd ends the span.
func (t trips) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	t.end(ctx, data.Err)
}

// TracePrepareEnd does nothing.
func (trips) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

// statementName is the name that sqlc writes before a statement, and the first
// word of one that has none.
func statementName(sql string) (name, word string) {
	if rest, ok := strings.CutPrefix(sql, "-- name: "); ok {
		name, _, _ = strings.Cut(rest, " ")
		return name, ""
	}
	word, _, _ = strings.Cut(sql, " ")
	return "", strings.ToLower(word)
}
