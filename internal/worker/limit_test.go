package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// Triggered runs beyond maxConcurrent wait for a place, on whichever worker
// they are claimed, and each that ends hands its place on.
func TestNoMoreRunsAtOnceThanAJobMayHave(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var now, most atomic.Int64
	b.run = func(ctx context.Context, _ executor.Run) executor.Outcome {
		n := now.Add(1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
		now.Add(-1)
		return executor.Outcome{}
	}
	workers := []member{b.start(func(c *worker.Config) { c.Slots = 50 }), b.start(func(c *worker.Config) { c.Slots = 50 })}
	first := b.pending(func(s *job.Spec) { s.MaxConcurrent = 2 })
	ids := []uuid.UUID{first.ID}
	for range 19 {
		e, _, err := b.executions.Trigger(t.Context(), b.who, first.JobID, nil, idempotency.Key{})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	// Both workers are told of all of them at once; then only the hints that
	// the workers themselves send keep it going.
	tell := func() {
		for _, w := range workers {
			go func() { _ = w.Handle(t.Context(), "low", ids) }()
		}
	}
	tell()
	done := make(chan struct{})
	go func() {
		for i := 0; ; i++ {
			select {
			case hint := <-b.hints.sent:
				_ = workers[i%2].Handle(t.Context(), "low", hint.ids)
			case <-done:
				return
			}
		}
	}()
	b.complete(ids, tell)
	close(done)
	if got := most.Load(); got != 2 {
		t.Errorf("%d ran at once, want the 2 that the job may have", got)
	}
}

// A poll names nothing of a tenant that is at its limit for the keys that are free: the ends that make room do. It does
// again once there is room.
func TestPollsForKeysPassOverFullTenants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	waits := b.pending(func(s *job.Spec) { s.Overlap, s.ConcurrencyKey = job.OverlapAllow, "press" })
	for _, test := range []struct {
		limit, standard int // of the tenant, where not below zero, and of tenants without one
		want            int
	}{{-1, 0, 1}, {-1, 2, 1}, {-1, 1, 0}, {1, 0, 0}, {0, 9, 0}, {2, 1, 1}} {
		b.exec("UPDATE tenants SET max_running = nullif($2, -1) WHERE id = $1", b.who.TenantID, test.limit)
		b.exec("UPDATE running_shards SET runs = 1 WHERE shard = 3 AND tenant_id = $1", b.who.TenantID)
		store := dispatch.NewStore(b.engine, dispatch.Config{TenantMaxRunning: func() int { return test.standard }})
		found, _, err := store.PollUnblocked(t.Context(), 10, false, dispatch.Position{})
		if err != nil || len(found) != test.want || test.want == 1 && found[0].ID != waits.ID {
			t.Errorf("%+v: found %v, %v", test, found, err)
		}
	}
	b.exec("UPDATE running_counts SET suspended = true WHERE tenant_id = $1", b.who.TenantID)
	if found, _, err := dispatch.NewStore(b.engine, dispatch.Config{}).PollUnblocked(t.Context(), 10, false, dispatch.Position{}); err != nil || len(found) != 0 {
		t.Errorf("of a suspended tenant it found %v, %v", found, err)
	}
}

// A poll for few keys looks at twice as many as it wants executions, and the next one goes on behind them.
func TestPollsForFewKeysLookAtFew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("DELETE FROM active_executions WHERE id = $1", b.pending(nil).ID)
	b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at, concurrency_key)
		SELECT gen_random_uuid(), $1, j.id, j.version, now(), 'manual', j.job_type, 1, 60000, now(), 'infinity', to_char(i, 'FM0000')
		FROM scheduled_jobs j, generate_series(1, 600) i`, b.who.TenantID)
	store, after := dispatch.NewStore(b.engine, dispatch.Config{}), dispatch.Position{}
	from := 1
	for i, poll := range []struct {
		most  int
		few   bool
		looks int
	}{{1, true, 32}, {20, true, 40}, {200, true, 256}, {1, false, 256}, {50, true, 16}} {
		found, next, err := store.PollUnblocked(t.Context(), poll.most, poll.few, after)
		if err != nil {
			t.Fatal(err)
		}
		ids := make([]uuid.UUID, len(found))
		for i, c := range found {
			ids[i] = c.ID
		}
		among := b.count("SELECT count(*) FROM active_executions WHERE id = ANY ($1) AND concurrency_key::int BETWEEN $2 AND $3", ids, from, from+poll.looks-1)
		if want := min(poll.most, poll.looks); len(found) != want || among != want {
			t.Errorf("poll %d found %d, %d of them among the %d keys from %d; want %d", i+1, len(found), among, poll.looks, from, want)
		}
		from, after = from+poll.looks, next
	}
	if after != (dispatch.Position{}) {
		t.Errorf("behind the last key it goes on at %+v", after)
	}
}
