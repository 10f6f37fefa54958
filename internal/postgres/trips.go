package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// trips counts each round trip to the database, by the name of its statement as
// db/queries has it. Statements that travel together are one, named after the first
// statement that has any; what has none is "begin", "commit" or another word that
// it begins with. Counted here, none is forgotten.
type trips struct{ count func(statement string) }

// TraceQueryStart counts a statement that goes by itself.
func (t trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	name, word := statementName(data.SQL)
	if name == "" {
		name = word
	}
	t.count(name)
	return ctx
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
	return ctx
}

// TracePrepareStart counts the preparation of a statement, once a connection.
func (t trips) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	t.count("prepare")
	return ctx
}

// TraceQueryEnd does nothing.
func (trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchQuery does nothing.
func (trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd does nothing.
func (trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

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
