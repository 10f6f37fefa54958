package worker_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// instantly has every run succeed at once, and notes which came in what order.
func (b *bundle) instantly() (ran func() []uuid.UUID) {
	var mu sync.Mutex
	var order []uuid.UUID
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, run.ExecutionID)
		return executor.Outcome{}
	}
	return func() []uuid.UUID {
		mu.Lock()
		defer mu.Unlock()
		return append([]uuid.UUID{}, order...)
	}
}

// again triggers a job once more.
func (b *bundle) again(id uuid.UUID) execution.Execution {
	b.t.Helper()
	e, _, err := b.executions.Trigger(b.t.Context(), b.who, id, nil, idempotency.Key{})
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

func (b *bundle) poll(w member) int {
	b.t.Helper()
	won, err := w.Poll(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return won
}

// many makes n rows like one that must not be over yet: of its job, waiting in the
// pool, of a priority, the first made age ago and each a millisecond after the one before.
func (b *bundle) many(like execution.Execution, n, priority int, age time.Duration) {
	b.t.Helper()
	made := b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts,
		timeout_ms, concurrency_limit, pooled, available_at, sweep_at, created_at)
		SELECT gen_random_uuid(), tenant_id, job_id, job_version, now() - $2::interval + i * interval '1 ms', 'manual', job_type, $3, max_attempts, timeout_ms,
		       0, true, now() - $2::interval + i * interval '1 ms', 'infinity', now()
		FROM active_executions, generate_series(1, $4::int) i WHERE id = $1`, like.ID, age, priority, n)
	if made != n {
		b.t.Fatalf("%d rows were made, want %d: did a worker take the pattern?", made, n)
	}
}

// After a poll that claims many executions whose keys are free the next one is for the pool alone, and the one after it
// asks for free keys again, however little time has passed.
func TestPollsForKeysAndForThePoolTakeTurns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release, _ := b.until()
	w := b.start(func(c *worker.Config) { c.Slots = 100 })
	defer release()
	waits := func(keyed, pooled int) {
		b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at, pooled, concurrency_key)
			SELECT gen_random_uuid(), $1, j.id, j.version, now(), 'manual', j.job_type, 1, 60000, now(), 'infinity', i > $2, CASE WHEN i <= $2 THEN gen_random_uuid()::text END
			FROM scheduled_jobs j, generate_series(1, $2::int + $3::int) i`, b.who.TenantID, keyed, pooled)
	}
	b.exec("DELETE FROM active_executions WHERE id = $1", b.pending(nil).ID)
	for i, poll := range []struct{ keyed, pooled, want int }{{60, 0, 60}, {5, 4, 4}, {0, 0, 5}} {
		waits(poll.keyed, poll.pooled)
		if won := b.poll(w); won != poll.want {
			t.Errorf("poll %d claimed %d, want %d", i+1, won, poll.want)
		}
	}
}

func TestPollTakesWhatMayStartAndNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ran := b.instantly()
	w := b.start(nil)
	free := b.pending(nil)
	late, ended, hinted := b.pending(nil), b.pending(nil), b.pending(nil)
	b.exec("UPDATE active_executions SET available_at = now() + interval '1 hour' WHERE id = $1", late.ID)
	b.exec("UPDATE active_executions SET cancel_requested_at = now() WHERE id = $1", ended.ID)
	b.exec("UPDATE active_executions SET pooled = false, sweep_at = now() + interval '1 hour' WHERE id = $1", hinted.ID)
	if won := b.poll(w); won != 1 {
		t.Errorf("%d claimed, want the one that may start and has no hint", won)
	}
	b.reaches(free.ID, execution.Completed)
	if won := b.poll(w); won != 0 || len(ran()) != 1 {
		t.Errorf("%d more claimed, %d ran", won, len(ran()))
	}
	if len(b.hints.sent) != 0 {
		t.Errorf("a poll sent hints: %+v", <-b.hints.sent)
	}
}

func TestPollTakesNoMoreThanThereAreSlots(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	b.run = func(context.Context, executor.Run) executor.Outcome {
		<-release
		return executor.Outcome{}
	}
	w := b.start(func(c *worker.Config) { c.Slots = 3 })
	defer close(release)
	b.many(b.pending(nil), 20, 5, time.Minute)
	for i, want := range []int{3, 0} {
		if won := b.poll(w); won != want {
			t.Errorf("poll %d claimed %d, want %d", i, won, want)
		}
	}
	if len(b.hints.sent) != 0 {
		t.Errorf("what got no slot was hinted: %+v", <-b.hints.sent)
	}
}

// Among many that wait, the urgent ones get six of ten turns however late they
// came, and the others are not kept from theirs.
func TestPollSharesAmongLanes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	b.run = func(context.Context, executor.Run) executor.Outcome {
		<-release
		return executor.Outcome{}
	}
	w := b.start(func(c *worker.Config) { c.Slots = 106 }) // six of them are kept
	defer close(release)
	like := b.pending(nil)
	b.many(like, 2000, 1, time.Hour)
	b.many(like, 200, 5, time.Minute)
	b.many(like, 200, 9, time.Second)
	if won := b.poll(w); won != 100 {
		t.Fatalf("%d claimed", won)
	}
	got := b.counts("SELECT priority, count(*) FROM active_executions WHERE status = 'running' GROUP BY 1")
	// The place of each is moved at random, so the shares are not exact.
	if got[9] < 45 || got[9] > 75 || got[5] < 15 || got[5] > 45 || got[1] < 1 || got[1] > 25 {
		t.Errorf("claimed by priority: %v, want about 60, 30, 10", got)
	}
}

// counts asks the database itself for pairs of numbers.
func (b *bundle) counts(sql string) map[int]int {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.database.AdminURL)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close(b.t.Context())
	rows, err := conn.Query(b.t.Context(), sql)
	if err != nil {
		b.t.Fatal(err)
	}
	got := map[int]int{}
	var key, n int
	if _, err := pgx.ForEachRow(rows, []any{&key, &n}, func() error { got[key] = n; return nil }); err != nil {
		b.t.Fatal(err)
	}
	return got
}

// A long queue of one job that has no place free hides nobody.
func TestPollLooksPastFullQueues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	b.run = func(context.Context, executor.Run) executor.Outcome {
		<-release
		return executor.Outcome{}
	}
	w := b.start(func(c *worker.Config) { c.Slots = 50 })
	defer close(release)
	full := b.pending(func(s *job.Spec) { s.MaxConcurrent = 1 })
	queued := b.again(full.JobID)
	b.many(queued, 1200, 9, time.Hour)
	b.exec("UPDATE active_executions SET concurrency_limit = 1, pooled = false WHERE job_id = $1 AND id <> $2", full.JobID, full.ID)
	other := b.pending(func(s *job.Spec) { s.MaxConcurrent = 2 })
	b.exec("UPDATE active_executions SET concurrency_limit = 2, pooled = false WHERE id = $1", other.ID)
	third := b.pending(nil)
	eventually(t, "both of the others run", func() bool {
		b.poll(w)
		return b.reached(other.ID) == execution.Running && b.reached(third.ID) == execution.Running
	})
	if got := b.counts("SELECT 1, count(*) FROM active_executions WHERE status = 'running'"); got[1] != 3 {
		t.Errorf("%d run, want one of each job", got[1])
	}
}

func (b *bundle) reached(id uuid.UUID) execution.Status {
	b.t.Helper()
	e, err := b.executions.Get(b.t.Context(), b.who, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return e.Status
}

// Two workers that poll side by side run each execution once, and all of them;
// a worker without hints finds what comes, retries included.
func TestSeekRunsEverythingOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var runs atomic.Int64
	var seen sync.Map
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		runs.Add(1)
		if n, again := seen.LoadOrStore(run.ExecutionID, run.Attempt); again && n == run.Attempt {
			t.Errorf("%v ran twice as attempt %d", run.ExecutionID, run.Attempt)
		}
		if strings.Contains(string(run.Config), "2") && run.Attempt == 1 {
			return executor.Outcome{Err: &executor.Error{Type: executor.NetworkError, Message: "refused"}}
		}
		return executor.Outcome{}
	}
	seek := func(w *worker.Worker, ctx context.Context) error { return w.PollLoop(ctx) }
	b.many(b.pending(nil), 500, 5, time.Second)
	b.startWith(nil, seek)
	b.startWith(func(c *worker.Config) { c.Slots = 30 }, seek)
	retried := b.pending(func(s *job.Spec) { s.Config, s.Retry.MaxRetries, s.Retry.DelayMS = []byte(`{"n":2}`), 1, 200 })
	limited := b.pending(func(s *job.Spec) { s.MaxConcurrent = 2 })
	ids := []uuid.UUID{limited.ID}
	for range 20 {
		ids = append(ids, b.again(limited.JobID).ID)
	}
	if got := b.reaches(retried.ID, execution.Completed); got.Attempt != 2 {
		t.Errorf("retried: %+v", got)
	}
	for _, id := range ids {
		b.reaches(id, execution.Completed)
	}
	eventually(t, "all are finished", func() bool {
		return b.counts("SELECT 1, count(*) FROM active_executions GROUP BY 1")[1] == 0
	})
	if n := runs.Load(); n != 501+2+21 {
		t.Errorf("%d runs, want %d", n, 501+2+21)
	}
}

// While hints come, what was hinted is left to them; while they do not, it is
// looked for too, at once.
func TestSeekLeavesHintedWorkToHints(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.instantly()
	var away atomic.Bool
	b.away = away.Load
	hinted := b.pending(nil)
	b.hinted()
	b.startWith(nil, func(w *worker.Worker, ctx context.Context) error { return w.PollLoop(ctx) })
	free := b.pending(nil)
	b.reaches(free.ID, execution.Completed)
	if got := b.reached(hinted.ID); got != execution.Pending {
		t.Errorf("what has its hint under way is %s", got)
	}
	away.Store(true)
	b.reaches(hinted.ID, execution.Completed)
}

// A worker that is called does not poll while nothing waits without a hint, and at once when
// it is called. A little later it finds work for which nobody called, a retry of its own too. So it is
// where Redis is used and where there is none.
func TestCalledWorkerPollsWhenSomethingWaits(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func() bool{"with hints": func() bool { return false }, "without Redis": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pollsWhenSomethingWaits(t, away)
		})
	}
}

func pollsWhenSomethingWaits(t *testing.T, away func() bool) {
	t.Helper()
	b := setup(t)
	var polls, asked, described atomic.Int64
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		if run.Attempt == 1 {
			return executor.Outcome{Err: &executor.Error{Type: executor.NetworkError, Message: "refused"}}
		}
		return executor.Outcome{}
	}
	engine, err := postgres.Open(t.Context(), postgres.Config{URL: b.database.URL, Role: postgres.Engine, Name: "test", MaxConns: 2, StatementTimeout: pgtest.Patience, RoundTrip: func(statement string) {
		switch statement {
		case "ListPooledExecutions":
			polls.Add(1)
		case "HasUnhintedExecutions":
			asked.Add(1)
		case "DescribeOtherWorkers":
			described.Add(1)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	b.away = away
	w := b.startWith(func(c *worker.Config) { c.DB, c.Called = engine, func() bool { return true } },
		func(w *worker.Worker, ctx context.Context) error { return w.PollLoop(ctx) })
	eventually(t, "it asked whether anything waits", func() bool { return asked.Load() > 0 })
	before, from := polls.Load(), asked.Load()
	eventually(t, "it asked twice more", func() bool { return asked.Load() >= from+2 })
	if n := polls.Load() - before; n > 1 {
		t.Errorf("%d polls while nothing waits", n)
	}
	before, from = polls.Load(), asked.Load()
	eventually(t, "it asked at ten calls", func() bool { w.Wake(); return asked.Load() >= from+10 })
	most := int64(1)
	if away == nil {
		most = 3 // two are not yet reason enough to let others go first
	}
	if n := polls.Load() - before; n > most {
		t.Errorf("%d polls at ten calls while nothing waits", n)
	}
	uncalled := b.pending(func(s *job.Spec) { s.Retry.MaxRetries, s.Retry.DelayMS = 1, 200 })
	if got := b.reaches(uncalled.ID, execution.Completed); got.Attempt != 2 {
		t.Errorf("it has %d attempts, want 2", got.Attempt)
	}
	if described.Load() == 0 {
		t.Error("it polled and did not ask which others poll, too")
	}
	called := b.pending(nil)
	eventually(t, "it was called and ran", func() bool { w.Wake(); return b.reached(called.ID) != execution.Pending })
}

// The worker stops at any moment of a search.
func TestSeekStartsAndStops(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ran := b.instantly()
	b.many(b.pending(nil), 300, 5, time.Second)
	for i := range 10 {
		w := b.startWith(nil, func(w *worker.Worker, ctx context.Context) error { return w.PollLoop(ctx) })
		select {
		case <-time.After(time.Duration(i) * 3 * time.Millisecond):
		case <-t.Context().Done():
		}
		w.stop()
	}
	left := b.counts("SELECT 1, count(*) FROM active_executions GROUP BY 1")[1]
	twice := map[uuid.UUID]int{}
	for _, id := range ran() {
		twice[id]++
	}
	if len(ran())+left != 301 || len(twice) != len(ran()) {
		t.Errorf("%d ran, %d of them different, %d are left of 301", len(ran()), len(twice), left)
	}
	if diff := cmp.Diff(map[int]int{}, b.counts("SELECT attempt, count(*) FROM active_executions WHERE attempt > 0 GROUP BY 1")); diff != "" {
		t.Errorf("attempts were left behind:\n%s", diff)
	}
}
