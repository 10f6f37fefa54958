package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/hint"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/maintenance"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// awaited is a bundle whose executions await callbacks.
type awaited struct {
	*bundle
	ring    *keyring.Ring
	desk    *callback.Desk
	maintns *maintenance.Maintainer
	tokens  chan string
	called  atomic.Int64 // how often the desk called workers
	beat    time.Duration
	early   func(callback.Attempt) // before the worker hears that the target took the call
}

func setupAwaited(t *testing.T) *awaited {
	t.Helper()
	b := setup(t)
	ring, err := keyring.Parse(keyring.Generate("test"))
	if err != nil {
		t.Fatal(err)
	}
	metrics, log := telemetry.NewMetrics(telemetry.NewRegistry()), slog.New(slog.DiscardHandler)
	a := &awaited{bundle: b, ring: ring, tokens: make(chan string, 1000)}
	a.desk = callback.New(callback.Config{DB: b.engine, Hints: hint.New(hint.Config{DB: b.engine, Queue: b.hints, Log: log}), Metrics: metrics, Log: log, CallWorkers: func(context.Context) { a.called.Add(1) }})
	a.maintns = maintenance.New(maintenance.Config{DB: b.engine, Hints: b.hints, Metrics: metrics, Log: log})
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		token, err := run.Callback()
		if err != nil {
			t.Error(err)
		}
		if a.early != nil {
			a.early(a.open(token))
		}
		a.tokens <- token
		return executor.Outcome{Await: true, Heartbeat: a.beat}
	}
	return a
}

// work starts a worker whose targets report with tokens of the bundle's key.
func (a *awaited) work(slots int) member {
	return a.start(func(c *worker.Config) {
		c.Slots = slots
		c.Callback = func(d dispatch.Claimed) (string, error) {
			return callback.Token(a.ring, callback.Attempt{Tenant: d.Tenant, Fence: dispatch.Fence{ID: d.ID, Attempt: d.Attempt, Token: d.Token}})
		}
	})
}

func (a *awaited) open(token string) callback.Attempt {
	a.t.Helper()
	attempt, err := callback.Open(a.ring, token)
	if err != nil {
		a.t.Fatal(err)
	}
	return attempt
}

// waits waits until so many executions await a callback, and answers one of their tokens.
func (a *awaited) waits(n int) callback.Attempt {
	a.t.Helper()
	eventually(a.t, fmt.Sprintf("%d await a callback", n), func() bool {
		return a.number("SELECT count(*) FROM active_executions WHERE awaited_until IS NOT NULL") == n
	})
	return a.open(within(a.t, "a token", a.tokens))
}

func (a *awaited) number(sql string) (n int) {
	a.t.Helper()
	if err := a.engine.Pool().QueryRow(a.t.Context(), sql).Scan(&n); err != nil {
		a.t.Fatal(err)
	}
	return n
}

// exact holds the counts to the rows.
func (a *awaited) exact(running int) {
	a.t.Helper()
	if n := a.number("SELECT sum(running + coalesce((running_by_type->>'function')::int, 0)) FROM running_totals"); n != 2*running {
		a.t.Errorf("counted as running in all and by type: %d, want twice %d", n, running)
	}
	if drifted, err := a.maintns.ReconcileRunning(a.t.Context()); err != nil || drifted != 0 {
		a.t.Errorf("reconciling found %v tenants, %v", drifted, err)
	}
}

func (a *awaited) complete(at callback.Attempt, r callback.Report, want string) {
	a.t.Helper()
	if status, err := a.desk.Complete(a.t.Context(), at, r); err != nil || status != want {
		a.t.Fatalf("completed as %q, %v, want %q", status, err, want)
	}
}

func (a *awaited) refused(what string, err error) {
	a.t.Helper()
	if fault.KindOf(err) != fault.Conflict {
		a.t.Errorf("%s: %v, want a conflict", what, err)
	}
}

// One slot serves any number of executions that await callbacks; they outlive the worker,
// and keep the concurrency slot of their job.
func TestAwaitingHoldsNoWorkerSlot(t *testing.T) {
	t.Parallel()
	a := setupAwaited(t)
	w := a.work(1)
	var ids []uuid.UUID
	for range 3 {
		ids = append(ids, a.pending(nil).ID)
	}
	single := a.pending(func(s *job.Spec) { s.Overlap, s.MaxConcurrent = job.OverlapQueue, 1 })
	second, _, err := a.executions.Trigger(t.Context(), a.who, single.JobID, nil, idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	a.handle(w, ids[0])
	first := a.waits(1)
	a.handle(w, ids[1])
	a.waits(2)
	a.handle(w, ids[2])
	a.waits(3)
	a.handle(w, single.ID)
	a.waits(4)
	a.hint(w, second.ID) // its job runs as many as it may
	a.exact(0)
	if got, err := a.executions.Get(t.Context(), a.who, second.ID); err != nil || got.Status != execution.Pending || got.WaitingOn == nil || got.WaitingOn.Reason != execution.WaitJob {
		t.Errorf("the second of the job: %+v, %v", got, err)
	}
	got, err := a.executions.Get(t.Context(), a.who, first.ID)
	if err != nil || got.Status != execution.Running || got.WaitingOn == nil || got.WaitingOn.Reason != execution.WaitCallback || got.WaitingOn.Until == nil {
		t.Errorf("one that awaits its callback: %+v, %v", got, err)
	}
	released, err := dispatch.NewStore(a.engine, dispatch.Config{}).Release(t.Context(), []dispatch.Run{{ID: first.ID, Token: first.Token}})
	if err != nil || len(released) != 0 {
		t.Errorf("a worker that drains released %v, %v", released, err)
	}
	a.exact(0)
	w.stop()
	a.exec("DELETE FROM workers")
	if report, err := a.maintns.Sweep(t.Context(), clock.Now().Add(time.Minute)); err != nil || report.Reclaimed != 0 {
		t.Errorf("a sweep took %+v, %v", report, err)
	}
	a.complete(first, callback.Report{Result: json.RawMessage(`{"rows": 7}`)}, "completed")
	if got := a.reaches(first.ID, execution.Completed); string(got.Result) != `{"rows": 7}` || got.Progress != 100 || got.DurationUS == nil || *got.DurationUS <= 0 {
		t.Errorf("stored: %+v", got)
	}
	a.exact(0)
}

// A report that comes again changes nothing and gets the same answer; any other is late.
func TestRepeatedAndLateReports(t *testing.T) {
	t.Parallel()
	a := setupAwaited(t)
	w := a.work(2)
	success := callback.Report{Result: json.RawMessage(`[1, {"a": null}]`)}
	failure := callback.Report{Err: &callback.Failure{Type: "SYSTEM_ERROR", Message: "disk full"}}

	a.handle(w, a.pending(nil).ID)
	done := a.waits(1)
	a.complete(done, success, "completed")
	a.complete(done, success, "completed")
	a.complete(done, callback.Report{Result: json.RawMessage(`[1,{"a":null}]`)}, "completed")
	for what, r := range map[string]callback.Report{"another result": {Result: json.RawMessage(`2`)}, "no result": {}, "an error": failure} {
		_, err := a.desk.Complete(t.Context(), done, r)
		a.refused(what, err)
	}
	a.refused("a heartbeat", a.desk.Heartbeat(t.Context(), done, 5, "late"))

	e := a.pending(func(s *job.Spec) { s.Retry.MaxRetries, s.Retry.DelayMS = 1, 3_600_000 })
	a.handle(w, e.ID)
	first := a.waits(1)
	if n := a.called.Load(); n != 0 {
		t.Errorf("workers were called %d times for nothing", n)
	}
	if a.complete(first, failure, "retrying"); a.called.Load() != 1 {
		t.Error("no worker was called for what is tried again")
	}
	a.complete(first, failure, "retrying")
	_, err := a.desk.Complete(t.Context(), first, success)
	a.refused("a success after the failure", err)
	a.exec("UPDATE active_executions SET available_at = now()")
	a.handle(w, e.ID)
	last := a.waits(1)
	a.complete(first, failure, "running")
	a.refused("a heartbeat of the attempt before", a.desk.Heartbeat(t.Context(), first, -1, ""))
	stale := last
	stale.Token = uuid.New()
	_, err = a.desk.Complete(t.Context(), stale, success)
	a.refused("the right attempt under another lease", err)
	other := last
	other.Tenant = uuid.New()
	if _, err = a.desk.Complete(t.Context(), other, success); fault.KindOf(err) != fault.NotFound {
		t.Errorf("another tenant: %v", err)
	}
	a.complete(last, failure, "failed")
	a.complete(last, failure, "failed")
	got := a.reaches(e.ID, execution.Failed)
	if got.Error.Type != "SYSTEM_ERROR" || got.Error.Message != "disk full" || len(got.Attempts) != 2 {
		t.Errorf("stored: %+v", got)
	}
	a.exact(0)
}

// A callback may come before the worker knows that the target took the call.
func TestCallbackBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	a := setupAwaited(t)
	a.early = func(at callback.Attempt) {
		if err := a.desk.Heartbeat(t.Context(), at, 50, "half"); err != nil {
			t.Error(err)
		}
		if status, err := a.desk.Complete(t.Context(), at, callback.Report{}); err != nil || status != "completed" {
			t.Errorf("completed as %q, %v", status, err)
		}
	}
	w := a.work(1)
	for range 3 {
		e := a.pending(nil)
		a.handle(w, e.ID)
		a.reaches(e.ID, execution.Completed)
	}
	eventually(t, "the slot is free", func() bool { return len(a.tokens) == 3 })
	w.stop()
	a.exact(0)
}

// The timeout is the maximum. Heartbeats prolong only the wait for the next one.
func TestWaitsEndWithoutACallback(t *testing.T) {
	t.Parallel()
	a := setupAwaited(t)
	a.beat = 30 * time.Second
	w := a.work(1)
	e := a.pending(func(s *job.Spec) { s.Timeout, s.Retry.MaxRetries, s.Retry.DelayMS, s.Retry.Jitter = 600, 1, 5000, 0 })
	ends := func(at time.Time, want int) {
		t.Helper()
		if n, err := a.maintns.EndAwaited(t.Context(), at); err != nil || n != want {
			t.Errorf("ended %d, %v, want %d", n, err, want)
		}
	}
	now := clock.Now() // a busy machine may stand still for a while from here on
	a.handle(w, e.ID)
	at := a.waits(1)
	ends(now.Add(20*time.Second), 0)
	a.exec("UPDATE active_executions SET last_heartbeat_at = now() + interval '20 seconds'")
	ends(now.Add(40*time.Second), 0) // prolonged
	if n := a.number("SELECT count(*) FROM active_executions WHERE awaited_until > last_heartbeat_at + interval '15 seconds'"); n != 1 {
		t.Error("the heartbeat did not prolong the wait")
	}
	ends(clock.Now().Add(55*time.Second), 1)
	waiting := a.reaches(e.ID, execution.Retrying)
	if f := waiting.Attempts[0].Error; f.Type != "TIMEOUT" || f.Message != "no heartbeat came for 30s" {
		t.Errorf("ended with %+v", f)
	}
	_, err := a.desk.Complete(t.Context(), at, callback.Report{})
	a.refused("a report after it", err)

	a.exec("UPDATE active_executions SET available_at = now()")
	a.handle(w, e.ID)
	a.waits(1)
	a.exec("UPDATE active_executions SET last_heartbeat_at = now() + interval '599 seconds'")
	ends(clock.Now().Add(610*time.Second), 1)
	if got := a.reaches(e.ID, execution.Failed); got.Error.Message != "timed out after 10m0s: no callback reported the end" {
		t.Errorf("ended with %+v", got.Error)
	}
	a.exact(0)
}

// A request to cancel ends a wait, and so does the stop of its job.
func TestCancelledWaits(t *testing.T) {
	t.Parallel()
	a := setupAwaited(t)
	w := a.work(2) // a hint waits for a free slot for 25 ms only, and nobody polls
	one, two := a.pending(nil), a.pending(nil)
	a.handle(w, one.ID)
	a.handle(w, two.ID)
	a.waits(2)
	if _, _, err := a.executions.Cancel(t.Context(), a.who, one.ID, "not today"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.jobs.Stop(t.Context(), a.who, two.JobID, "never"); err != nil {
		t.Fatal(err)
	}
	if found, err := a.maintns.FindWork(t.Context(), time.Time{}); err != nil || found[0] != "end-awaited" {
		t.Errorf("found %v, %v", found, err)
	}
	if n, err := a.maintns.EndAwaited(t.Context(), time.Time{}); err != nil || n != 2 {
		t.Fatalf("ended %d, %v", n, err)
	}
	for id, reason := range map[uuid.UUID]string{one.ID: "not today", two.ID: "never"} {
		if got := a.reaches(id, execution.Cancelled); got.Reason != reason || got.Error != nil {
			t.Errorf("stored: %+v", got)
		}
	}
	a.exact(0)
}

// A cancelled wait whose end the database refuses is tried again a minute later: until then
// it takes no place in a pass.
func TestRefusedEndOfACancelledWait(t *testing.T) {
	t.Parallel()
	a := setupAwaited(t)
	w := a.work(2) // a hint waits for a free slot for 25 ms only, and nobody polls
	bad, good := a.pending(nil), a.pending(nil)
	a.handle(w, bad.ID)
	a.handle(w, good.ID)
	a.waits(2)
	a.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused' USING ERRCODE = 'check_violation'; END $$`)
	a.exec("CREATE TRIGGER refuse BEFORE INSERT ON job_executions FOR EACH ROW WHEN (NEW.id = '" + bad.ID.String() + "') EXECUTE FUNCTION refuse()")
	for _, one := range []execution.Execution{bad, good} {
		if _, _, err := a.executions.Cancel(t.Context(), a.who, one.ID, "not today"); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := a.maintns.EndAwaited(t.Context(), time.Time{}); err != nil || n != 1 {
		t.Fatalf("ended %d, %v", n, err)
	}
	a.reaches(good.ID, execution.Cancelled)
	if found, err := a.maintns.FindWork(t.Context(), time.Time{}); err != nil || slices.Contains(found, "end-awaited") {
		t.Errorf("found %v, %v", found, err)
	}
	later := clock.Now().Add(2 * time.Minute)
	if found, err := a.maintns.FindWork(t.Context(), later); err != nil || !slices.Contains(found, "end-awaited") {
		t.Errorf("two minutes later it found %v, %v", found, err)
	}
	a.exec("DROP TRIGGER refuse ON job_executions")
	if n, err := a.maintns.EndAwaited(t.Context(), later); err != nil || n != 1 {
		t.Fatalf("two minutes later it ended %d, %v", n, err)
	}
	if got := a.reaches(bad.ID, execution.Cancelled); got.Reason != "not today" {
		t.Errorf("stored: %+v", got)
	}
	a.exact(0)
}

// 100,000 that wait cost no statement more than what it is about, and those that are
// overdue no pass more than its bound.
func TestManyWaits(t *testing.T) {
	t.Parallel()
	const waiting = 100_000
	a := setupAwaited(t)
	e := a.pending(nil)
	conn, err := pgx.Connect(t.Context(), a.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	a.exec("DELETE FROM active_executions")
	a.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at,
			sweep_at, status, attempt, worker_id, lease_token, started_at, attempt_started_at, awaited_until, heartbeat_ms, last_heartbeat_at)
		SELECT gen_random_uuid(), $1, $2, 1, now(), 'scheduled', 'function', 1, 3600000, now(),
			'infinity', 'running', 1, gen_random_uuid(), gen_random_uuid(), now(), now(), now() + interval '10 minutes' + i * interval '1 millisecond', 600000, now()
		FROM generate_series(1, $3::int) i`, a.who.TenantID, e.JobID, waiting)
	a.exec("ANALYZE active_executions")
	now, due := clock.Now(), clock.Now().Add(10*time.Minute+300*time.Millisecond) // when some 300 are due
	worker := uuid.New()
	for name, ask := range map[string]func(ctx context.Context, q *db.Queries) error{
		"overdue, none": func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListOverdueAwaited(ctx, db.ListOverdueAwaitedParams{Now: &now, BatchSize: 500})
			return err
		},
		"prolong, none": func(ctx context.Context, q *db.Queries) error {
			_, err := q.ProlongAwaited(ctx, db.ProlongAwaitedParams{Now: &now, BatchSize: 500})
			return err
		},
		"overdue, some": func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListOverdueAwaited(ctx, db.ListOverdueAwaitedParams{Now: &due, BatchSize: 500})
			return err
		},
		"reassign": func(ctx context.Context, q *db.Queries) error {
			_, err := q.ReassignExecutions(ctx, db.ReassignExecutionsParams{Now: &now, MaxLost: 3, BatchSize: 1000})
			return err
		},
		"a worker's comparison": func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListExecutionsOfWorker(ctx, db.ListExecutionsOfWorkerParams{Now: &now, WorkerID: &worker})
			return err
		},
	} {
		if got := touched(t, conn, ask); got > 6000 {
			t.Errorf("%s: %.0f rows were touched with %d that wait", name, got, waiting)
		}
	}
	if n, err := a.maintns.EndAwaited(t.Context(), time.Time{}); err != nil || n != 0 {
		t.Errorf("ended %d that are not overdue, %v", n, err)
	}
	if n, err := a.maintns.EndAwaited(t.Context(), now.Add(time.Hour)); err != nil || n != 10_000 {
		t.Errorf("one pass ended %d, %v, want 10,000", n, err)
	}
	if n := a.number("SELECT count(*) FROM active_executions"); n != waiting-10_000 {
		t.Errorf("%d still wait", n)
	}
	a.exact(0)
}
