package worker_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
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

// Ends name as many executions as they made room for, and one more: the last that fit. The first are
// those whose claims earlier ends have set going.
func TestEndsNameWhatTheyMadeRoomFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := clock.Now().Add(-time.Minute)
	b.exec(`INSERT INTO workers (id, host, pid, slots, expires_at) VALUES ($1, '', 1, 1, now() + interval '1 hour')`, uuid.New())
	b.exec(`UPDATE running_shards SET runs = 4, runs_by_type = '{"function": 4}' WHERE shard = 0 AND tenant_id = $1`, b.who.TenantID)
	ids := make([]uuid.UUID, 10)
	for i := range ids {
		ids[i] = uuid.New()
		b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at, concurrency_key)
			VALUES ($1::uuid, $2, gen_random_uuid(), 1, now(), 'manual', 'function', 1, 1000, $3, 'infinity', ($1::uuid)::text)`, ids[i], b.who.TenantID, first.Add(time.Duration(i)*time.Second))
	}
	for _, test := range []struct {
		limits string
		ends   int
		want   []uuid.UUID
	}{
		{"max_running = 5, max_running_by_type = '{}'", 1, ids[:1]},
		{"max_running = 6, max_running_by_type = '{}'", 1, ids[:2]},
		{"max_running = 10, max_running_by_type = '{}'", 1, ids[4:6]},
		{"max_running = 10, max_running_by_type = '{}'", 3, ids[2:6]},
		{"max_running = 10, max_running_by_type = '{}'", 9, ids[:6]},
		{"max_running = 15, max_running_by_type = '{}'", 1, ids[9:]},
		{"max_running = 16, max_running_by_type = '{}'", 1, nil},
		{"max_running = 1000, max_running_by_type = '{}'", 1, nil},
		{"max_running = NULL, max_running_by_type = '{}'", 1, nil},
		{"max_running = 1000, max_running_by_type = '{\"function\": 9}'", 1, ids[3:5]},
		{"max_running = NULL, max_running_by_type = '{\"function\": 9}'", 2, ids[2:5]},
		{"max_running = NULL, max_running_by_type = '{\"http\": 2}'", 1, nil},
	} {
		b.exec("UPDATE tenants SET "+test.limits+" WHERE id = $1", b.who.TenantID)
		next, err := dispatch.NewStore(b.engine, dispatch.Config{}).Next(t.Context(), time.Time{}, slices.Repeat([]dispatch.Freed{{Tenant: b.who.TenantID}}, test.ends), false)
		if err != nil {
			t.Fatal(err)
		}
		got := map[uuid.UUID]bool{}
		for _, one := range next {
			got[one.ID] = true
		}
		if len(got) != len(test.want) || slices.ContainsFunc(test.want, func(id uuid.UUID) bool { return !got[id] }) {
			t.Errorf("%s, %d ends: named %v, want %v", test.limits, test.ends, next, test.want)
		}
	}
}
