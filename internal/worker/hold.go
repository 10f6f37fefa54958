package worker

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/breaker"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/executor"
)

// hold says for how long a circuit breaker holds an attempt back, and whose; zero: it does
// not.
type hold struct {
	host string
	span time.Duration
}

// guarded makes an attempt, unless the breaker of the host that it calls holds it back, and
// tells the breaker what became of it. While no call of its tenant fails it costs nothing.
func (a *attempt) guarded(ctx context.Context, run executor.Run, call func() executor.Outcome) executor.Outcome {
	board := a.worker.c.Breakers
	if board == nil {
		return call()
	}
	var to breaker.Target
	var known bool
	var admitted breaker.Admission
	if !board.Quiet(a.Tenant) {
		if to, known = a.target(run); known {
			if admitted = board.Admit(ctx, time.Time{}, to, run.Timeout); admitted.Hold > 0 {
				// One that would have no time left afterwards asks when its time is up, and ends.
				a.held = hold{host: to.Host, span: min(admitted.Hold, max(a.leftAfterStart(), time.Second))}
				return executor.Outcome{}
			}
		}
	}
	out := call()
	verdict := a.verdict(out)
	if !known && verdict.Failed {
		to, known = a.target(run)
	}
	if known {
		telling, done := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer done()
		board.Tell(telling, time.Time{}, to, admitted, verdict)
	}
	return out
}

// target is whom the attempt calls; false where its job type calls nobody that it names.
func (a *attempt) target(run executor.Run) (breaker.Target, bool) {
	return breaker.TargetOf(a.Tenant, a.worker.c.Executor.HostOf(a.JobType, run.Config))
}

// leftAfterStart is what the execution has left; one that has not begun has all its time
// still.
func (a *attempt) leftAfterStart() time.Duration {
	if a.Attempt == 1 {
		return a.limit.Left(0)
	}
	return a.limit.Left(a.elapsed())
}

// verdict is what an outcome says of the host that was called. A call that somebody ended, or
// that was not made, says nothing.
func (a *attempt) verdict(out executor.Outcome) breaker.Verdict {
	switch {
	case out.Err == nil:
		return breaker.Verdict{}
	case a.ctx.Err() != nil, out.Err.Type == executor.ValidationError:
		return breaker.Verdict{Void: true}
	case out.Err.Type == executor.UserError:
		return breaker.Verdict{} // it answers
	default:
		return breaker.Verdict{Failed: true, Reason: string(out.Err.Type) + ": " + out.Err.Message}
	}
}

// holdBack writes which attempts of a batch are held back, and frees their slots. It returns the
// others.
func (w *Worker) holdBack(ctx context.Context, batch []ended) (rest []ended) {
	return w.set(ctx, batch, func(e ended) bool { return e.held.span > 0 }, wait{
		what: "the circuit breaker", write: func(ctx context.Context, waiting []ended) (map[uuid.UUID]dispatch.Freed, error) {
			runs := make([]dispatch.Held, len(waiting))
			for i, e := range waiting {
				runs[i] = dispatch.Held{Run: dispatch.Run{ID: e.ID, Token: e.Token}, Host: e.held.host, For: e.held.span}
			}
			kept, err := w.store.Hold(ctx, runs)
			w.c.Metrics.ExecutionsHeld(len(kept))
			return kept, err
		},
	})
}
