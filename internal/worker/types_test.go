package worker_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/worker"
)

func ofType(name string, edit func(*job.Spec)) func(*job.Spec) {
	return func(s *job.Spec) {
		s.Type = name
		if name == "http" {
			s.Config = []byte(`{"url":"http://127.0.0.1/"}`)
		}
		if edit != nil {
			edit(s)
		}
	}
}

// registry is a copy of the product's registry, with the types that the test added.
func (b *bundle) registry() *executor.Registry {
	known := map[string]executor.Executor{"function": scripted(b.run), "http": calling{scripted(b.run)}}
	for _, one := range b.added {
		known[one] = scripted(b.run)
	}
	return executor.NewRegistry(known)
}

// mixed is a worker for calls and one for functions.
func (b *bundle) mixed() (calls, functions member) {
	b.t.Helper()
	b.types = []string{"http"}
	calls = b.start(nil)
	b.types = []string{"function"}
	return calls, b.start(nil)
}

// Of what is in the pool each worker finds what it runs, and leaves the rest
// to others, however old and urgent that is.
func TestWorkersLookForWhatTheyRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.instantly()
	calls, functions := b.mixed()
	b.many(b.pending(func(s *job.Spec) { s.Priority = 9 }), 300, 9, time.Minute)
	call := b.pending(ofType("http", nil))
	if won := b.poll(calls); won != 1 {
		t.Errorf("the worker for calls claimed %d, want the one call", won)
	}
	b.reaches(call.ID, execution.Completed)
	if won := b.poll(calls); won != 0 {
		t.Errorf("the worker for calls claimed %d functions", won)
	}
	if won := b.poll(functions); won == 0 {
		t.Error("the worker for functions found none")
	}
}

// A hint that comes to a worker which does not run what it names costs no more
// than the next look of one that does.
func TestHintForAnotherType(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.instantly()
	calls, functions := b.mixed()
	free, call := b.pending(nil), b.pending(ofType("http", nil))
	b.hinted()
	if won := b.poll(functions); won != 0 {
		t.Fatalf("%d of what is hinted was found by a look", won)
	}
	eventually(t, "the call is completed", func() bool { b.hint(calls, free.ID, call.ID); return b.over(call.ID) })
	if e := b.reaches(free.ID, execution.Pending); e.Attempt != 0 || e.WorkerID != nil {
		t.Errorf("the worker for calls touched a function: %+v", e)
	}
	if won := b.poll(functions); won != 1 {
		t.Errorf("a look after the hint found %d, want the one", won)
	}
	b.reaches(free.ID, execution.Completed)
}

// The same where it waits for a place of its job or for a key: those are never
// in the pool.
func TestPlacesOfAnotherType(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.instantly()
	calls, functions := b.mixed()
	gated := b.pending(nil)
	b.exec("UPDATE active_executions SET pooled = false, concurrency_limit = 1 WHERE id = $1", gated.ID)
	keyed := b.pending(func(s *job.Spec) { s.ConcurrencyKey = "press" })
	behind := b.pending(ofType("http", func(s *job.Spec) { s.ConcurrencyKey = "press" }))
	// The first in line of the key is nobody's here, so the next has its turn.
	eventually(t, "the next is completed", func() bool { b.hint(calls, gated.ID, keyed.ID, behind.ID); return b.over(behind.ID) })
	for _, id := range []uuid.UUID{gated.ID, keyed.ID} {
		if e := b.reaches(id, execution.Pending); e.Attempt != 0 {
			t.Errorf("the worker for calls touched a function: %+v", e)
		}
	}
	eventually(t, "who runs them finds them", func() bool { b.poll(functions); return b.over(gated.ID, keyed.ID) })
}

// No worker waits for an unknown type: the first that polls ends the execution, in the
// pool and among those that wait for a slot.
func TestUnknownTypeIsFound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.instantly()
	calls, _ := b.mixed()
	pooled, gated := b.pending(nil), b.pending(nil)
	b.exec("UPDATE active_executions SET job_type = 'pigeon'")
	b.exec("UPDATE active_executions SET pooled = false, concurrency_limit = 1 WHERE id = $1", gated.ID)
	eventually(t, "both have failed", func() bool {
		b.poll(calls)
		return b.reached(pooled.ID) == execution.Failed && b.reached(gated.ID) == execution.Failed
	})
	if e := b.reaches(pooled.ID, execution.Failed); e.Error == nil || e.Error.Type != "VALIDATION_ERROR" {
		t.Errorf("ended as %+v", e.Error)
	}
}

// Executions of a type that no worker runs hold up no other, and start with the first
// worker that runs it.
func TestTypeThatNobodyRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	end, _ := b.until()
	release := sync.OnceFunc(end)
	defer release()
	b.types = []string{"http"}
	calls := b.start(func(c *worker.Config) { c.TenantMaxRunning = func() int { return 1 } })
	older := b.pending(nil)
	first, second := b.pending(ofType("http", nil)), b.pending(ofType("http", nil))
	b.handle(calls, first.ID)
	b.reaches(first.ID, execution.Running)
	b.hint(calls, second.ID) // the tenant is full, and marked so
	release()
	b.reaches(first.ID, execution.Completed)
	b.poll(calls)
	b.reaches(second.ID, execution.Completed)
	if e := b.reaches(older.ID, execution.Pending); e.Attempt != 0 {
		t.Errorf("what nobody runs was touched: %+v", e)
	}
	b.types = []string{"function"}
	functions := b.start(nil)
	b.poll(functions)
	b.reaches(older.ID, execution.Completed)
}

// With more keys than one look takes, of tenants whose ids stand at the very
// beginning, each has its turn.
func TestLooksGoRoundAllKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.instantly()
	w := b.start(func(c *worker.Config) { c.Slots = 1000 })
	like := b.pending(nil)
	first := uuid.UUID{15: 1}
	b.exec("INSERT INTO running_counts (tenant_id) VALUES ($1)", first)
	b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts,
		timeout_ms, concurrency_limit, concurrency_key, pooled, available_at, sweep_at, created_at)
		SELECT gen_random_uuid(), $2, job_id, job_version, now(), 'manual', job_type, 5, max_attempts, timeout_ms,
		       0, 'key ' || i, false, now(), 'infinity', now()
		FROM active_executions, generate_series(1, 600) i WHERE id = $1`, like.ID, first)
	eventually(t, "all ran", func() bool {
		b.poll(w)
		var left int
		if err := b.engine.Pool().QueryRow(t.Context(), "SELECT count(*) FROM active_executions").Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
}

// A job type is an executor and its name: no statement, no function of the schema and
// no column names one. A type that only a copy of the registry has runs from its job to
// its outcome, keeps to its limit, and is left to the workers that run it.
func TestAddedTypeRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	end, _ := b.until()
	release := sync.OnceFunc(end)
	defer release()
	b.added = []string{"pigeon"}
	others := b.start(nil)
	b.types = []string{"pigeon"}
	pigeons := b.start(nil)
	b.exec("UPDATE tenants SET max_running_by_type = jsonb_build_object('pigeon', 1)")
	first, second := b.pending(ofType("pigeon", nil)), b.pending(ofType("pigeon", nil))
	if won := b.poll(others); won != 0 {
		t.Errorf("a worker that leaves the type to others claimed %d", won)
	}
	b.handle(pigeons, first.ID)
	b.reaches(first.ID, execution.Running)
	b.hint(pigeons, second.ID)
	got, err := b.executions.Get(t.Context(), b.who, second.ID)
	if err != nil || got.Status != execution.Pending || got.WaitingOn == nil || got.WaitingOn.Limit != 1 {
		t.Errorf("the second is %+v waiting on %+v, %v", got.Status, got.WaitingOn, err)
	}
	release()
	b.reaches(first.ID, execution.Completed)
	eventually(t, "the second has run", func() bool { b.poll(pigeons); return b.over(second.ID) })
	if n := b.count(`SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosrc ~ '[''{,](http|function|command)[''},]'`); n != 0 {
		t.Errorf("%d functions of the schema name a job type", n)
	}
}

// A claim says that it pooled what this worker leaves to others, so that they are called. It calls nobody
// for what another worker took, nor for what the limit of its tenant left behind: on the commit before, each
// of those had a whole fleet ask for what none of it may run.
func TestAClaimSaysWhetherItPooledForOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	left, taken, over := b.pending(nil), b.pending(nil), b.pending(nil)
	b.hinted()
	b.exec("UPDATE tenants SET max_running = 1")
	leaves, worker, _ := holding(t, b, dispatch.Config{LeftTypes: []string{"function"}})
	runs, other, _ := holding(t, b, dispatch.Config{})
	for _, test := range []struct {
		name   string
		store  *dispatch.Store
		worker uuid.UUID
		id     uuid.UUID
		won    int
		others bool
	}{
		{"of a type that it leaves", leaves, worker, left.ID, 0, true},
		{"of a type that it runs", runs, other, taken.ID, 1, false},
		{"that is taken", runs, other, taken.ID, 0, false},
		{"of a tenant at its limit", runs, other, over.ID, 0, false},
	} {
		won, _, others, err := test.store.Claim(t.Context(), test.worker, uuid.New(), []uuid.UUID{test.id})
		if err != nil || len(won) != test.won || others != test.others {
			t.Errorf("an execution %s: %d won, for others %v, %v; want %d, %v", test.name, len(won), others, err, test.won, test.others)
		}
	}
	if n := b.count("SELECT count(*) FROM active_executions WHERE pooled AND id = ANY ($1)", []uuid.UUID{left.ID, over.ID}); n != 2 {
		t.Errorf("%d of the two that were left are in the pool", n)
	}
}
