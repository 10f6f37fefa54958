package telemetry

import (
	"context"
	"io"
	"log/slog"
)

// IDs names what a piece of work is about. Empty ones are not known.
type IDs struct {
	Request   string // request_id: one call of the API
	Tenant    string // tenant_id
	Job       string // job_id
	Execution string // execution_id
	Trace     string // trace_id: of a trace that is kept
}

// idsKey is the key of the IDs in a context.
type idsKey struct{}

// WithIDs returns a context that carries ids into every log line written
// with it, on top of those that it carries already.
func WithIDs(ctx context.Context, ids IDs) context.Context {
	carried := IDsFrom(ctx)
	for _, one := range []struct{ into, from *string }{
		{&carried.Request, &ids.Request},
		{&carried.Tenant, &ids.Tenant},
		{&carried.Job, &ids.Job},
		{&carried.Execution, &ids.Execution},
		{&carried.Trace, &ids.Trace},
	} {
		if *one.from != "" {
			*one.into = *one.from
		}
	}
	return context.WithValue(ctx, idsKey{}, carried)
}

// IDsFrom is what WithIDs put into a context; all empty if nothing was put.
func IDsFrom(ctx context.Context) IDs {
	ids, _ := ctx.Value(idsKey{}).(IDs)
	return ids
}

// NewLogger writes one line per record of at least level, which may be a
// *slog.LevelVar to change it while running: for a person to read where text is
// set, and of JSON otherwise. Records written with a context carry its IDs, and
// nothing that looks like a secret is written. Durations are written as 1.5s.
func NewLogger(w io.Writer, level slog.Leveler, text bool) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, attr slog.Attr) slog.Attr {
		if attr.Value.Kind() == slog.KindDuration {
			return slog.String(attr.Key, attr.Value.Duration().String())
		}
		return redact(groups, attr)
	}}
	if text {
		return slog.New(idHandler{slog.NewTextHandler(w, options), level})
	}
	return slog.New(idHandler{slog.NewJSONHandler(w, options), level})
}

// SetLevel changes the level of a logger that NewLogger made with a *slog.LevelVar, and of
// all loggers derived from it. Of any other it changes nothing.
func SetLevel(log *slog.Logger, level slog.Level) {
	if h, ok := log.Handler().(idHandler); ok {
		if held, ok := h.level.(*slog.LevelVar); ok {
			held.Set(level)
		}
	}
}

// idHandler adds the IDs of the context to each record.
type idHandler struct {
	slog.Handler
	level slog.Leveler
}

// Handle is slog.Handler's. An id that the record names itself is not written
// twice.
func (h idHandler) Handle(ctx context.Context, record slog.Record) error {
	ids := IDsFrom(ctx)
	if ids == (IDs{}) {
		return h.Handler.Handle(ctx, record)
	}
	named := make(map[string]bool, record.NumAttrs())
	record.Attrs(func(attr slog.Attr) bool {
		named[attr.Key] = true
		return true
	})
	record = record.Clone()
	for _, id := range []slog.Attr{
		slog.String("request_id", ids.Request),
		slog.String("tenant_id", ids.Tenant),
		slog.String("job_id", ids.Job),
		slog.String("execution_id", ids.Execution),
		slog.String("trace_id", ids.Trace),
	} {
		if id.Value.String() != "" && !named[id.Key] {
			record.AddAttrs(id)
		}
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs is slog.Handler's; it keeps the IDs.
func (h idHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return idHandler{h.Handler.WithAttrs(attrs), h.level}
}

// WithGroup is slog.Handler's; it keeps the IDs.
func (h idHandler) WithGroup(name string) slog.Handler {
	return idHandler{h.Handler.WithGroup(name), h.level}
}
