package chaos

import (
	"context"
	"net/http"
	"sync"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
)

// tryForeignJob tries as a tenant to see and to run a job of another, and takes down
// what it is shown of jobs.
func (l *load) tryForeignJob(ctx context.Context, tenant int, foreign uuid.UUID) {
	code, _ := l.requestUntilFinal(ctx, tenant, "peep", func(c *api.ClientWithResponses) (int, error) {
		answer, err := c.GetJobWithResponse(ctx, foreign)
		if err != nil {
			return 0, err
		}
		return answer.StatusCode(), nil
	})
	run, _ := l.requestUntilFinal(ctx, tenant, "run another's", func(c *api.ClientWithResponses) (int, error) {
		answer, err := c.TriggerJobWithResponse(ctx, foreign, &api.TriggerJobParams{}, api.TriggerRequest{})
		if err != nil {
			return 0, err
		}
		return answer.StatusCode(), nil
	})
	for _, code := range []int{code, run} {
		if code != 0 && code != http.StatusNotFound {
			l.addViolation("I22", "tenant %d asked for a job of another and was answered %d", tenant, code)
		}
	}
	l.requestUntilFinal(ctx, tenant, "list", func(c *api.ClientWithResponses) (int, error) {
		answer, err := c.ListExecutionsWithResponse(ctx, &api.ListExecutionsParams{})
		if err != nil {
			return 0, err
		}
		if answer.JSON200 == nil {
			return answer.StatusCode(), nil
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, one := range answer.JSON200.Items {
			l.shown = append(l.shown, shownJob{tenant, one.JobID})
		}
		return answer.StatusCode(), nil
	})
}

// burst makes the last tenant ask for many executions at once, a third into
// the run.
func (l *load) burst(ctx context.Context, c Config) {
	l.mu.Lock()
	w, spec := l.burstJob()
	l.mu.Unlock()
	l.make(ctx, w, spec)
	if w.id == uuid.Nil || !sleep(ctx, c.Duration/3) {
		return
	}
	left := make(chan struct{}, c.Burst)
	for range c.Burst {
		left <- struct{}{}
	}
	close(left)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for range left {
				l.trigger(ctx, w, nil)
			}
		})
	}
	all.Wait()
}

// known is an execution of the job that a trigger made; zero: none is.
func (l *load) known(w *work) uuid.UUID {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range w.triggers {
		if id != uuid.Nil {
			return id
		}
	}
	return uuid.Nil
}

// cancel cancels what runs of a job, or else an execution that may be finished.
func (l *load) cancel(ctx context.Context, w *work) {
	id := l.stack.sink.running(w.id)
	if id == uuid.Nil {
		id = l.known(w)
	}
	if id == uuid.Nil {
		return
	}
	code, window := l.requestUntilFinal(ctx, w.tenant, "cancel", func(c *api.ClientWithResponses) (int, error) {
		answer, err := c.CancelExecutionWithResponse(ctx, id, api.CancelExecutionJSONRequestBody{})
		if err != nil {
			return 0, err
		}
		return answer.StatusCode(), nil
	})
	if code == http.StatusOK || code == http.StatusAccepted {
		l.mu.Lock()
		defer l.mu.Unlock()
		w.cancels[id] = window
	}
}

// retry runs an execution again, if it is finished.
func (l *load) retry(ctx context.Context, w *work) {
	of := l.known(w)
	if of == uuid.Nil {
		return
	}
	name := uuid.NewString()
	l.mu.Lock()
	w.retries[name] = uuid.Nil
	l.mu.Unlock()
	var id uuid.UUID
	code, _ := l.requestUntilFinal(ctx, w.tenant, "retry", func(c *api.ClientWithResponses) (int, error) {
		answer, err := c.RetryExecutionWithResponse(ctx, of, &api.RetryExecutionParams{IdempotencyKey: &name})
		if err != nil {
			return 0, err
		}
		if answer.JSON202 != nil {
			id = answer.JSON202.ID
		}
		return answer.StatusCode(), nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case code == http.StatusAccepted:
		w.retries[name] = id
	case code != 0: // refused: it must have no effect
		delete(w.retries, name)
	}
}
