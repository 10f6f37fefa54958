package worker

import (
	"context"
	"log/slog"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/trace"
)

// traced begins the span of an attempt, as of its claim. Log lines of the run name it.
func (w *Worker) traced(ctx context.Context, c claimed) (context.Context, *trace.Span) {
	if w.c.Traces == nil {
		return ctx, nil
	}
	now := clock.Now()
	asked := now.Add(-c.asked.Elapsed())
	ctx, span := w.c.Traces.Execution(ctx, c.ID, "attempt", asked,
		slog.String("scheduler.execution_id", c.ID.String()), slog.String("scheduler.job_id", c.Job.String()), slog.String("scheduler.tenant_id", c.Tenant.String()),
		slog.String("scheduler.job_type", c.JobType), slog.String("scheduler.trigger", c.Trigger), slog.Int("scheduler.attempt", c.Attempt),
		slog.Duration("scheduler.late_ms", c.ClaimedAt.Sub(c.ScheduledAt)), slog.Duration("scheduler.waited_ms", c.lateness()),
	)
	if span == nil {
		return ctx, nil
	}
	_, claim := trace.StartAt(ctx, "claim", asked)
	claim.EndAt(now)
	ids := telemetry.IDs{Tenant: c.Tenant.String(), Job: c.Job.String(), Execution: c.ID.String(), Trace: trace.ID(ctx)}
	return telemetry.WithIDs(ctx, ids), span
}

// endSpan ends the span of an attempt and begins that of writing its outcome.
func (a *attempt) endSpan(outcome *executor.Outcome, instead string) (writes *trace.Span) {
	if a.span == nil {
		return nil
	}
	ended := "completed"
	switch {
	case instead != "":
		ended = instead
	case outcome.Await:
		ended = "awaits a callback"
	case a.held.span > 0:
		ended = "held back by a circuit breaker"
	case outcome.Err != nil:
		ended = "failed"
		a.span.Fail(string(outcome.Err.Type))
	}
	a.span.Set(slog.String("scheduler.outcome", ended))
	if instead == "" {
		_, writes = trace.Start(a.ctx, "write outcome")
	}
	a.span.End()
	return writes
}

// finished tells of an execution that has finished.
func (w *Worker) finished(e ended) {
	if w.c.Finished != nil {
		w.c.Finished(e.Tenant, e.ID)
	}
}

// named is a context whose log lines name the trace of an execution.
func (w *Worker) named(ctx context.Context, execution uuid.UUID) context.Context {
	if !w.c.Traces.Keeps(execution) {
		return ctx
	}
	return telemetry.WithIDs(ctx, telemetry.IDs{Trace: trace.IDOf(execution)})
}
