// Package trace is how spans are made and where they go: OpenTelemetry, over OTLP and HTTP.
//
// It owns the ids of traces, which of them are kept, the header by which they go on
// (W3C Trace Context), and the exporter. The trace of an execution has the execution's id,
// so every process knows it from the id alone: nothing of it is stored, no row grows, and
// no hint carries it. A request of the API is a trace of its own, or part of its caller's;
// it and the executions that it makes are linked in both directions.
//
// It refuses to keep anything global: package app makes one Tracer and passes it to those
// who begin traces, and everybody else goes on with the span of their context. Without a
// Tracer there are no spans, and nothing costs more than a look into the context. It
// refuses texts of tenants in attributes: no URL beyond its host, no parameter, no message.
// otel is imported nowhere else.
package trace

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Config says where spans go, and of which traces.
type Config struct {
	URL     string            // of the collector, without /v1/traces
	Headers map[string]string // of the calls to it
	Service string            // service.name
	Version string            // service.version
	Host    string            // host.name
	// Resource are further attributes of the process.
	Resource map[string]string
	// Share is how many of the traces are kept, from 0 to 1, by their ids: the same ones in
	// every process that has the same share.
	Share float64
	// Trusting keeps what the caller of a request keeps, and nothing else of callers that
	// send a trace; otherwise Share says so for them as well.
	Trusting bool
	Log      *slog.Logger
}

// instrumentation is what makes the spans.
const instrumentation = "github.com/scheduler-service/scheduler"

const (
	// exportLimit is how long one call to the collector may take, with its repetitions.
	exportLimit = 10 * time.Second
	// lastWords is how long a process that ends waits for its last spans to be taken.
	lastWords = 3 * time.Second
)

// Tracer begins traces. A nil one begins none. Any number of goroutines may use it.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	share    share
}

// New makes a tracer. It calls nobody yet: a collector that is away costs spans, and
// nothing else.
func New(ctx context.Context, c Config) (*Tracer, error) {
	client := otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(strings.TrimSuffix(c.URL, "/")+"/v1/traces"), otlptracehttp.WithHeaders(c.Headers), otlptracehttp.WithTimeout(exportLimit))
	into, err := newExporter(ctx, client, c.Log)
	if err != nil {
		return nil, fmt.Errorf("open the exporter of traces: %w", err)
	}
	about := []attribute.KeyValue{attribute.String("service.name", c.Service), attribute.String("service.version", c.Version), attribute.String("host.name", c.Host)}
	for key, value := range c.Resource {
		about = append(about, attribute.String(key, value))
	}
	t := &Tracer{share: shareOf(c.Share)}
	t.provider = sdk.NewTracerProvider(
		sdk.WithBatcher(into), sdk.WithSampler(sampler{share: t.share, trusting: c.Trusting}),
		sdk.WithIDGenerator(ids{}), sdk.WithResource(resource.NewSchemaless(about...)),
	)
	t.tracer = t.provider.Tracer(instrumentation, trace.WithInstrumentationVersion(c.Version))
	return t, nil
}

// Close sends what was not sent yet, as far as the collector takes it within three seconds.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // what was lost, the exporter has said
}

// Request begins the span of a request of the API, as part of the trace that its header
// names, if any.
func (t *Tracer) Request(ctx context.Context, header http.Header) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	if caller, ok := parent(header.Get(traceparent)); ok {
		ctx = trace.ContextWithRemoteSpanContext(ctx, caller)
	}
	ctx, span := t.tracer.Start(ctx, "request", trace.WithSpanKind(trace.SpanKindServer))
	return ctx, kept(span)
}

// Made links the request of a context and an execution that it made, in both directions.
func (t *Tracer) Made(ctx context.Context, execution uuid.UUID) {
	if t == nil {
		return
	}
	request := trace.SpanFromContext(ctx)
	request.AddLink(trace.Link{SpanContext: t.of(execution)})
	_, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, t.of(execution)), "trigger",
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithLinks(trace.Link{SpanContext: request.SpanContext()}))
	span.End()
}

// Execution begins a span in the trace of an execution, as of a time.
func (t *Tracer) Execution(ctx context.Context, execution uuid.UUID, name string, at time.Time, attrs ...slog.Attr) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	ctx, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, t.of(execution)), name,
		trace.WithTimestamp(at), trace.WithSpanKind(trace.SpanKindConsumer))
	s := kept(span)
	s.Set(attrs...)
	return ctx, s
}

// Whole begins the span of an execution as a whole: the root of its trace. The executions
// that it continues are linked.
func (t *Tracer) Whole(ctx context.Context, execution uuid.UUID, at time.Time, continues ...uuid.UUID) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	options := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithTimestamp(at)}
	for _, id := range continues {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: t.of(id)}))
	}
	_, span := t.tracer.Start(context.WithValue(ctx, wholeKey{}, execution), "execution", options...)
	return trace.ContextWithSpan(ctx, span), kept(span)
}

// Keeps says whether the trace of an execution is kept.
func (t *Tracer) Keeps(execution uuid.UUID) bool {
	return t != nil && t.share.has(trace.TraceID(execution))
}

// of is the root of an execution's trace, for those who have only its id.
func (t *Tracer) of(execution uuid.UUID) trace.SpanContext {
	flags := trace.TraceFlags(0).WithSampled(t.Keeps(execution))
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID(execution), SpanID: rootOf(execution), TraceFlags: flags, Remote: true})
}

// rootOf is the id of the root span. Its first bits are those of a UUID's variant, so it is
// never zero; the others are a hash.
func rootOf(execution uuid.UUID) trace.SpanID { return trace.SpanID(execution[8:]) }

// wholeKey is the key of the execution whose root span is begun.
type wholeKey struct{}

// ids are random but for the root of an execution's trace.
type ids struct{}

// NewIDs is sdk.IDGenerator's.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if execution, ok := ctx.Value(wholeKey{}).(uuid.UUID); ok {
		return trace.TraceID(execution), rootOf(execution)
	}
	var id trace.TraceID
	_, _ = rand.Read(id[:]) // it never fails; see its documentation
	return id, spanID()
}

// NewSpanID is sdk.IDGenerator's.
func (ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return spanID() }

func spanID() (id trace.SpanID) {
	_, _ = rand.Read(id[:])
	return id
}
