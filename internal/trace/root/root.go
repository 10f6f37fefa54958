// Package root writes the root span of an execution's trace, and a span for each thing that
// it waited for, from its timeline: the same numbers as GET /executions/{id}/timeline.
//
// It owns when the timeline is read: once the execution has finished, in the background, so
// many a second and of traces that are kept alone. It refuses to hold up a worker that
// finished one: where more finish than are read, some traces have no root.
package root

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/tenant"
	"github.com/scheduler-service/scheduler/internal/trace"
)

const (
	// waiting is how many finished executions wait to be read; their ids take 8 kB.
	waiting = 256
	// apart is the least distance between two reads, which take the database some
	// milliseconds each.
	apart = 20 * time.Millisecond
	// readLimit bounds one read, and lastWords all those of a process that ends.
	readLimit = 10 * time.Second
	lastWords = 2 * time.Second
)

// Config is what a Writer is made of.
type Config struct {
	Traces *trace.Tracer // nil: nothing is written
	// Read is execution.Store.Timeline.
	Read func(ctx context.Context, who tenant.Actor, id uuid.UUID) (execution.Timeline, error)
	Log  *slog.Logger
}

// Writer writes root spans. Any number of goroutines may use it.
type Writer struct {
	c       Config
	in      chan finished
	omitted atomic.Int64
}

type finished struct{ tenant, execution uuid.UUID }

// New makes a writer.
func New(c Config) *Writer { return &Writer{c: c, in: make(chan finished, waiting)} }

// Finished says that an execution has finished. It does not wait.
func (w *Writer) Finished(tenant, execution uuid.UUID) {
	if !w.c.Traces.Keeps(execution) {
		return
	}
	select {
	case w.in <- finished{tenant, execution}:
	default:
		w.omitted.Add(1)
	}
}

// Run writes until ctx ends, and then what is left as far as two seconds go. It returns nil.
func (w *Writer) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			w.finish(context.WithoutCancel(ctx))
			return nil
		case next := <-w.in:
			w.write(context.WithoutCancel(ctx), next)
			clock.Sleep(ctx, apart)
		}
	}
}

func (w *Writer) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	for ctx.Err() == nil {
		select {
		case next := <-w.in:
			w.write(ctx, next)
		default:
			return
		}
	}
}

// write writes the spans of one execution.
func (w *Writer) write(ctx context.Context, next finished) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	t, err := w.c.Read(ctx, tenant.Actor{TenantID: next.tenant}, next.execution)
	if err != nil {
		w.c.Log.DebugContext(ctx, "a trace has no root: the timeline cannot be read", "execution_id", next.execution, "error", err)
		return
	}
	if n := w.omitted.Swap(0); n > 0 {
		w.c.Log.DebugContext(ctx, "more executions finish than timelines are read; some traces have no root", "executions", n)
	}
	tell(ctx, w.c.Traces, t)
}

// waits are the phases that become spans of their own. Attempts have theirs, from those who
// made them.
var waits = []execution.PhaseKind{
	execution.PhasePromotion, execution.PhaseDelay, execution.PhaseLimit, execution.PhaseBacklog, execution.PhaseQueue, execution.PhaseRetry,
}

func tell(ctx context.Context, traces *trace.Tracer, t execution.Timeline) {
	e := t.Execution
	var continues []uuid.UUID
	if e.RetryOf != nil {
		continues = append(continues, *e.RetryOf)
	}
	ctx, span := traces.Whole(ctx, e.ID, e.ScheduledAt, continues...)
	span.Set(
		slog.String("scheduler.execution_id", e.ID.String()), slog.String("scheduler.job_id", e.JobID.String()), slog.String("scheduler.tenant_id", e.TenantID.String()),
		slog.String("scheduler.job_type", e.JobType), slog.String("scheduler.trigger", string(e.Trigger)), slog.String("scheduler.status", string(e.Status)),
		slog.Int("scheduler.attempts", e.Attempt), slog.String("scheduler.timeline", t.Summary()), slog.Bool("scheduler.timeline_partial", t.Partial),
	)
	for _, kind := range waits {
		span.Set(slog.Duration("scheduler."+string(kind)+"_ms", t.Spent(kind)))
	}
	if late, known := t.Late(); known {
		span.Set(slog.Duration("scheduler.late_ms", late))
	}
	if e.Status == execution.Failed && e.Error != nil {
		span.Fail(e.Error.Type)
	}
	end := e.ScheduledAt
	for _, p := range t.Phases {
		to := p.From.Add(t.Length(p))
		end = clock.Later(end, to)
		if p.Kind == execution.PhaseAttempt {
			continue
		}
		_, wait := trace.StartAt(ctx, string(p.Kind), p.From)
		if p.Limit != "" {
			wait.Set(slog.String("scheduler.limit", string(p.Limit)))
		}
		wait.EndAt(to)
	}
	if e.CompletedAt != nil {
		end = clock.Later(end, *e.CompletedAt)
	}
	span.EndAt(end)
}
