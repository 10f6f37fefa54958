package worker_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// handedOn runs executions on two workers that are told of all of them once;
// after that only the hints that the workers themselves send, and their polls if they
// poll, keep it going. It answers how many ran at once.
func (b *bundle) handedOn(ids []uuid.UUID, polls bool) int64 {
	b.t.Helper()
	var now, most atomic.Int64
	b.run = func(context.Context, executor.Run) executor.Outcome {
		n := now.Add(1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		now.Add(-1)
		return executor.Outcome{}
	}
	loop := func(*worker.Worker, context.Context) error { return nil }
	if polls {
		loop = func(w *worker.Worker, ctx context.Context) error { return w.PollLoop(ctx) }
	}
	var workers []member
	for range 2 {
		workers = append(workers, b.startWith(func(c *worker.Config) { c.Slots = 50 }, loop))
	}
	tell := func() {
		for _, w := range workers {
			go func() { _ = w.Handle(b.t.Context(), "low", ids) }()
		}
	}
	tell()
	done := make(chan struct{})
	defer close(done)
	go func() {
		for i := 0; ; i++ {
			select {
			case hint := <-b.hints.sent:
				_ = workers[i%2].Handle(b.t.Context(), "low", hint.ids)
			case <-done:
				return
			}
		}
	}()
	b.complete(ids, tell)
	return most.Load()
}

func TestRunsOfOneKeyExcludeOneAnother(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []uuid.UUID
	for range 2 { // the key is the tenant's, not the job's
		first := b.pending(func(s *job.Spec) {
			s.Overlap, s.ConcurrencyKey, s.Config = job.OverlapAllow, "device-{{config.device}}", []byte(`{"device":7}`)
		})
		ids = append(ids, first.ID)
		for range 9 {
			ids = append(ids, b.again(first.JobID).ID)
		}
	}
	if most := b.handedOn(ids, false); most != 1 {
		t.Errorf("%d ran at once, want one", most)
	}
}

func TestPlacesOfATenantAreHandedOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("UPDATE tenants SET max_running = 2 WHERE id = $1", b.who.TenantID)
	var ids []uuid.UUID
	for range 10 {
		ids = append(ids, b.pending(nil).ID, b.pending(func(s *job.Spec) { s.Overlap = job.OverlapAllow }).ID)
	}
	if most := b.handedOn(ids, true); most > 2 {
		t.Errorf("%d ran at once, want at most two", most)
	}
}

func TestPlacesOfATypeAreHandedOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`UPDATE tenants SET max_running_by_type = '{"function": 1}' WHERE id = $1`, b.who.TenantID)
	var ids []uuid.UUID
	for range 10 {
		ids = append(ids, b.pending(nil).ID)
	}
	if most := b.handedOn(ids, true); most != 1 {
		t.Errorf("%d ran at once, want one", most)
	}
}
