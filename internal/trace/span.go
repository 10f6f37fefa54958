package trace

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Span is something that takes time, in a trace that is kept. All methods of a nil one do
// nothing.
type Span struct{ span trace.Span }

// kept is a span where somebody will see it, and nil elsewhere.
func kept(span trace.Span) *Span {
	if !span.IsRecording() {
		return nil
	}
	return &Span{span: span}
}

// Start begins a span below that of the context; nil where there is none.
func Start(ctx context.Context, name string, attrs ...slog.Attr) (context.Context, *Span) {
	return start(ctx, name, attrs)
}

// StartAt is Start as of a time.
func StartAt(ctx context.Context, name string, at time.Time, attrs ...slog.Attr) (context.Context, *Span) {
	return start(ctx, name, attrs, trace.WithTimestamp(at))
}

// Call is Start for a call to a database or another server.
func Call(ctx context.Context, name string, attrs ...slog.Attr) (context.Context, *Span) {
	return start(ctx, name, attrs, trace.WithSpanKind(trace.SpanKindClient))
}

func start(ctx context.Context, name string, attrs []slog.Attr, options ...trace.SpanStartOption) (context.Context, *Span) {
	above := trace.SpanFromContext(ctx)
	if !above.IsRecording() {
		return ctx, nil
	}
	ctx, span := above.TracerProvider().Tracer(instrumentation).Start(ctx, name, options...)
	s := kept(span)
	s.Set(attrs...)
	return ctx, s
}

// Outgoing begins the span of a call over HTTP and names it in the call's header, unless
// the header names one. A trace that is not kept is named too, and that it is not.
func Outgoing(request *http.Request) *Span {
	if !trace.SpanContextFromContext(request.Context()).IsValid() {
		return nil
	}
	ctx, span := Call(request.Context(), request.Method, slog.String("http.request.method", request.Method),
		slog.String("server.address", request.URL.Hostname()), slog.String("url.scheme", request.URL.Scheme))
	if port := request.URL.Port(); port != "" {
		span.Set(slog.String("server.port", port))
	}
	if request.Header[traceparent] == nil {
		request.Header[traceparent] = []string{Parent(ctx)}
	}
	return span
}

// Parent is the traceparent for what is called in a context; empty where it belongs to no
// trace.
func Parent(ctx context.Context) string {
	at := trace.SpanContextFromContext(ctx)
	if !at.IsValid() {
		return ""
	}
	return written(at)
}

// Answered says with which status a call over HTTP was answered.
func (s *Span) Answered(status int) {
	if s == nil {
		return
	}
	s.span.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= http.StatusInternalServerError {
		s.Fail(strconv.Itoa(status))
	}
}

// Rename gives the span another name.
func (s *Span) Rename(name string) {
	if s != nil {
		s.span.SetName(name)
	}
}

// Set adds attributes.
func (s *Span) Set(attrs ...slog.Attr) {
	if s == nil {
		return
	}
	for _, a := range attrs {
		s.span.SetAttributes(attributeOf(a))
	}
}

// Fail says that it did not succeed; kind is an error type, and no text of a tenant.
func (s *Span) Fail(kind string) {
	if s == nil {
		return
	}
	s.span.SetStatus(codes.Error, kind)
	s.span.SetAttributes(attribute.String("error.type", kind))
}

// End ends the span.
func (s *Span) End() {
	if s != nil {
		s.span.End()
	}
}

// EndAt ends the span as of a time.
func (s *Span) EndAt(at time.Time) {
	if s != nil {
		s.span.End(trace.WithTimestamp(at))
	}
}

// attributeOf is a log's attribute as a span has it: durations are milliseconds.
func attributeOf(a slog.Attr) attribute.KeyValue {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindInt64:
		return attribute.Int64(a.Key, v.Int64())
	case slog.KindBool:
		return attribute.Bool(a.Key, v.Bool())
	case slog.KindFloat64:
		return attribute.Float64(a.Key, v.Float64())
	case slog.KindDuration:
		return attribute.Float64(a.Key, float64(v.Duration().Microseconds())/1000)
	default:
		return attribute.String(a.Key, v.String())
	}
}

// ID is the id of the trace that a context belongs to, as logs have it; empty where it
// belongs to none that is kept.
func ID(ctx context.Context) string {
	at := trace.SpanContextFromContext(ctx)
	if !at.IsSampled() {
		return ""
	}
	return at.TraceID().String()
}

// IDOf is the id of an execution's trace: the execution's without hyphens.
func IDOf(execution uuid.UUID) string { return trace.TraceID(execution).String() }
