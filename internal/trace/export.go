package trace

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// sayEvery is how often the log says that spans are lost.
const sayEvery = time.Minute

// exporter sends spans, and says when they are lost. The SDK itself would say so on a
// logger that is one for the whole program.
type exporter struct {
	sdk.SpanExporter

	log  *slog.Logger
	mu   sync.Mutex
	lost int        // since it was said last; guarded by mu, as is said
	said clock.Mark // the zero one: never
}

func newExporter(ctx context.Context, client otlptrace.Client, log *slog.Logger) (*exporter, error) {
	inner, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, err
	}
	return &exporter{SpanExporter: inner, log: log}, nil
}

// ExportSpans sends spans. Those that the collector does not take are lost.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += len(spans)
	if e.said == (clock.Mark{}) || e.said.Elapsed() >= sayEvery {
		e.log.WarnContext(ctx, "the collector did not take spans; they are lost", "spans", e.lost, "error", err)
		e.lost, e.said = 0, clock.Start()
	}
	return nil
}
