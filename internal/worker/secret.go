package worker

import (
	"context"
	"errors"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/secret"
)

// resolve puts secrets where the attempt needs them, and waits for a database
// that is away for as long as the attempt may take.
func (w *Worker) resolve(ctx context.Context, ask secret.Input) (secret.Ready, error) {
	for {
		ready, err := w.c.Secrets.Resolve(ctx, ask)
		if fault.KindOf(err) != fault.Unavailable || ctx.Err() != nil {
			return ready, err
		}
		clock.Sleep(ctx, 250*time.Millisecond)
	}
}

// unresolved is how an attempt ends that did not get its secrets. One that is
// not there is the job's fault, and no retry brings it; all else may pass.
func (w *Worker) unresolved(ctx context.Context, c claimed, err error) executor.Outcome {
	var known *fault.Error
	message := "the secrets of this job could not be read"
	if errors.As(err, &known) && known.Message != "" {
		message = known.Message
	}
	if fault.KindOf(err) == fault.NotFound {
		never := false
		return executor.Outcome{Err: &executor.Error{Type: executor.ValidationError, Message: message, Retry: &never}}
	}
	w.c.Log.WarnContext(ctx, "secrets not resolved", "error", err, "execution_id", c.ID, "job_id", c.Job, "tenant_id", c.Tenant)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || fault.KindOf(err) == fault.Unavailable {
		return executor.Outcome{Err: &executor.Error{Type: executor.Timeout, Message: "the secrets of this job could not be read in time"}}
	}
	return executor.Outcome{Err: &executor.Error{Type: executor.SystemError, Message: message}}
}

// masked is an outcome in which nothing stands that was resolved.
func masked(mask secret.Mask, out executor.Outcome) executor.Outcome {
	out.Result = mask.JSON(out.Result)
	if out.Err != nil {
		failure := *out.Err
		failure.Message, failure.Stack = mask.Text(failure.Message), mask.Text(failure.Stack)
		out.Err = &failure
	}
	return out
}
