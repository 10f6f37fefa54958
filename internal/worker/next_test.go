package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// The worker of a run that ends starts the next in line itself, which waited for the slot of its job, its key or room
// of its tenant: nobody polls here, and no hint is sent. It hints the next where more than half of its slots are taken.
func TestAnEndStartsTheNextInLine(t *testing.T) {
	t.Parallel()
	slots := func(s *job.Spec) { s.Overlap, s.MaxConcurrent = job.OverlapQueue, 1 }
	key := func(s *job.Spec) { s.Overlap, s.ConcurrencyKey = job.OverlapAllow, "press" }
	ownKey := func(s *job.Spec) { s.Overlap, s.ConcurrencyKey = job.OverlapAllow, uuid.NewString() }
	for name, test := range map[string]struct {
		waits  func(*job.Spec)
		limit  int // of the tenant
		busy   int // of five slots
		hinted bool
	}{
		"a slot of its job": {waits: slots, limit: 9}, "a key": {waits: key, limit: 9}, "room of its tenant": {waits: ownKey, limit: 1},
		"half of the slots are taken":           {waits: key, limit: 9, busy: 2},
		"a slot, and more than half are taken":  {waits: slots, limit: 9, busy: 3, hinted: true},
		"a key, and more than half are taken":   {waits: key, limit: 9, busy: 3, hinted: true},
		"room, and more than half of the slots": {waits: ownKey, limit: 4, busy: 3, hinted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			release, done := make(chan struct{}), make(chan struct{})
			first := b.pending(test.waits)
			busy := map[uuid.UUID]bool{}
			for range test.busy {
				busy[b.pending(nil).ID] = true
			}
			b.run = func(_ context.Context, run executor.Run) executor.Outcome {
				switch {
				case busy[run.ExecutionID]:
					<-done
				case run.ExecutionID == first.ID:
					<-release
				}
				return executor.Outcome{}
			}
			w := b.start(func(c *worker.Config) { c.Slots, c.TenantMaxRunning = 5, func() int { return test.limit } })
			t.Cleanup(func() { close(done) })
			for id := range busy {
				b.handle(w, id)
			}
			b.handle(w, first.ID)
			next := b.behind(first, test.waits)
			b.hint(w, next.ID) // it may not start yet, and is left behind
			close(release)
			if test.hinted {
				if got := within(t, "the next is hinted", b.hints.sent); len(got.ids) != 1 || got.ids[0] != next.ID {
					t.Errorf("hinted %v, want the next, %v", got.ids, next.ID)
				}
				b.reaches(next.ID, execution.Pending)
				return
			}
			b.reaches(next.ID, execution.Completed)
			if n := len(b.hints.sent); n != 0 {
				t.Errorf("%d hints were sent", n)
			}
		})
	}
}

// behind makes an execution that waits for the same as another one: of its job, or of a job with its key.
func (b *bundle) behind(first execution.Execution, edit func(*job.Spec)) execution.Execution {
	b.t.Helper()
	var spec job.Spec
	edit(&spec)
	if spec.ConcurrencyKey != "" {
		return b.pending(edit)
	}
	next, _, err := b.executions.Trigger(b.t.Context(), b.who, first.JobID, nil, idempotency.Key{})
	if err != nil {
		b.t.Fatal(err)
	}
	return next
}

// A worker hints the next in line where it does not run its type.
func TestAnEndLeavesOtherTypesToOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.instantly()
	_, functions := b.mixed()
	key := func(s *job.Spec) { s.ConcurrencyKey = "press" }
	first, next := b.pending(key), b.pending(ofType("http", key))
	b.handle(functions, first.ID)
	if got := within(t, "the next is hinted", b.hints.sent); len(got.ids) != 1 || got.ids[0] != next.ID {
		t.Errorf("hinted %v, want the next, %v", got.ids, next.ID)
	}
	if e := b.reaches(next.ID, execution.Pending); e.Attempt != 0 {
		t.Errorf("the worker for functions touched a call: %+v", e)
	}
}

// A worker that stops starts nothing more, also not what a run that ends meanwhile makes room for.
func TestAnEndStartsNothingInAStop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := func(s *job.Spec) { s.ConcurrencyKey = "press" }
	first, next, long := b.pending(key), b.pending(key), b.pending(nil)
	begun, release, done := make(chan struct{}, 9), make(chan struct{}), make(chan struct{})
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		begun <- struct{}{}
		if run.ExecutionID == long.ID {
			<-done
		} else {
			<-release
		}
		return executor.Outcome{}
	}
	w := b.start(nil)
	b.start(nil) // nobody else would run what is hinted
	b.handle(w, first.ID, long.ID)
	within(t, "a run", begun)
	within(t, "the other run", begun)
	stopped := w.stopping()
	eventually(t, "the worker takes nothing more", func() bool { return !w.Ready() })
	close(release)
	if got := within(t, "the next is hinted", b.hints.sent); len(got.ids) != 1 || got.ids[0] != next.ID {
		t.Errorf("hinted %v, want the next, %v", got.ids, next.ID)
	}
	if e := b.reaches(next.ID, execution.Pending); e.Attempt != 0 || len(begun) != 0 {
		t.Errorf("the next was started: %+v", e)
	}
	close(done)
	within(t, "the stop", stopped)
}

// An end names as many as there is room for, also where more wait for a key than are read beyond those.
func TestAnEndNamesAllThatFit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start(nil) // or nobody would run them
	b.exec("UPDATE tenants SET max_running = 40 WHERE id = $1", b.who.TenantID)
	b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at, concurrency_key)
		SELECT gen_random_uuid(), $1, gen_random_uuid(), 1, now(), 'manual', 'function', 1, 1000, now(), 'infinity', 'key ' || i FROM generate_series(1, 60) i`, b.who.TenantID)
	next, err := dispatch.NewStore(b.engine, dispatch.Config{}).Next(t.Context(), time.Time{}, []dispatch.Freed{{Tenant: b.who.TenantID}}, true)
	if err != nil || len(next) != 40 {
		t.Errorf("named %d, %v; want the 40 that fit", len(next), err)
	}
}

// A tenant at its limit has executions in the pool and others that have a key. Neither kind takes all the room that
// ends make: without an order over both, the poll of the pool was nearly always quicker.
func TestPoolAndKeysShareTheRoom(t *testing.T) {
	t.Parallel()
	const each = 40
	b := setup(t)
	ran := b.instantly()
	like := b.pending(nil)
	b.exec("UPDATE tenants SET max_running = 2 WHERE id = $1", b.who.TenantID)
	b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts,
			timeout_ms, concurrency_key, pooled, available_at, sweep_at)
		SELECT ('00000000-0000-4000-8' || i % 2 || '00-' || lpad(i::text, 12, '0'))::uuid, tenant_id, job_id, job_version, now(), 'manual', job_type, priority, max_attempts,
		       timeout_ms, CASE WHEN i % 2 = 0 THEN 'key ' || i END, i % 2 = 1, now() - interval '1 hour' + i * interval '1 s', 'infinity'
		FROM active_executions, generate_series(1, $2::int) i WHERE id = $1`, like.ID, 2*each)
	b.startWith(nil, func(w *worker.Worker, ctx context.Context) error { return w.PollLoop(ctx) })
	eventually(t, "all ran", func() bool { return b.count("SELECT count(*) FROM active_executions") == 0 })
	keyed := 0
	for _, id := range ran()[:each] {
		if id != like.ID && id[8] == 0x80 {
			keyed++
		}
	}
	if keyed < each/5 || keyed > each-each/5 {
		t.Errorf("%d of the first %d had a key, and as many of both are as old", keyed, each)
	}
}
