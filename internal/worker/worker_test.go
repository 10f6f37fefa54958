package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/maintenance"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// limit is how long a test waits for something that must happen.
const limit = time.Minute

// sent is a hint that a worker sent.
type sent struct {
	ids   []uuid.UUID
	delay time.Duration
}

// hints takes down what a worker sends.
type hints struct {
	sent chan sent
	hold bool // each is only given up, never sent
}

func (h hints) Publish(ctx context.Context, lane queue.Lane, ids []uuid.UUID) error {
	return h.PublishIn(ctx, lane, ids, 0)
}

func (h hints) PublishTogether(ctx context.Context, lane queue.Lane, ids []uuid.UUID) error {
	return h.Publish(ctx, lane, ids)
}

func (h hints) PublishIn(ctx context.Context, _ queue.Lane, ids []uuid.UUID, delay time.Duration) error {
	h.sent <- sent{slices.Clone(ids), delay}
	if h.hold {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (h hints) LostContents(context.Context) (bool, error)        { return false, nil }
func (h hints) Depth(context.Context) (map[queue.Lane]int, error) { return nil, nil }

// scripted runs what the test says.
type scripted func(ctx context.Context, run executor.Run) executor.Outcome

func (s scripted) Execute(ctx context.Context, run executor.Run) executor.Outcome { return s(ctx, run) }

type bundle struct {
	t          *testing.T
	database   *pgtest.Database
	jobs       *job.Store
	executions *execution.Store
	who        tenant.Actor
	engine     *postgres.DB
	hints      hints
	run        func(ctx context.Context, run executor.Run) executor.Outcome
	away       func() bool // what its workers believe about hints
	keys       *keyring.Ring
	types      []string     // that its workers run; none: function
	added      []string     // job types that the registry has beside those of the product
	beat       *postgres.DB // of its workers' heartbeats; nil: each has its own
	log        io.Writer    // of its workers' lines
}

func open(t *testing.T, url string, role postgres.Role) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: url, Role: role, Name: "test", MaxConns: 4, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

func setup(t *testing.T) *bundle {
	t.Helper()
	database := pgtest.New(t)
	api := open(t, database.URL, postgres.API)
	b := &bundle{
		t: t, log: io.Discard, database: database, jobs: job.NewStore(api, job.Config{}), executions: execution.NewStore(api, execution.Config{}),
		who: tenant.Actor{TenantID: uuid.New(), Subject: "ada"}, engine: open(t, database.URL, postgres.Engine),
		hints: hints{sent: make(chan sent, 1000)},
	}
	if err := tenant.NewStore(api, true).Admit(t.Context(), b.who.TenantID); err != nil {
		t.Fatal(err)
	}
	return b
}

// pending makes a job and triggers it.
func (b *bundle) pending(edit func(*job.Spec)) execution.Execution {
	b.t.Helper()
	spec := job.Spec{Name: "test", Type: "function", Config: []byte(`{"n":1}`), Retry: job.DefaultRetry()}
	if edit != nil {
		edit(&spec)
	}
	j, _, err := b.jobs.Create(b.t.Context(), b.who, spec.WithDefaults(), idempotency.Key{})
	if err != nil {
		b.t.Fatal(err)
	}
	e, _, err := b.executions.Trigger(b.t.Context(), b.who, j.ID, nil, idempotency.Key{})
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

// member is a worker that runs until stop.
type member struct {
	*worker.Worker
	stop func() // cancels it and waits for its end
}

// start runs a worker that hears of work through Handle and Poll only.
func (b *bundle) start(edit func(*worker.Config)) member {
	b.t.Helper()
	return b.startWith(edit, func(*worker.Worker, context.Context) error { return nil })
}

// startWith also has consume run, for as long as the worker does.
func (b *bundle) startWith(edit func(*worker.Config), consume func(*worker.Worker, context.Context) error) member {
	b.t.Helper()
	executors, err := b.registry().Only(append(b.types, "function")[:max(1, len(b.types))]...)
	if err != nil {
		b.t.Fatal(err)
	}
	beat := b.beat
	if beat == nil {
		beat = open(b.t, b.database.URL, postgres.Engine)
	}
	c := worker.Config{
		DB: b.engine, Beat: beat, Hints: b.hints, Away: b.away, Executor: executors, Secrets: secret.NewResolver(b.engine, b.keys),
		Metrics: telemetry.NewMetrics(telemetry.NewRegistry()), Log: slog.New(slog.NewTextHandler(b.log, nil)),
		Host: "test", PID: 1, Slots: 10, Heartbeat: 250 * time.Millisecond, Compare: 250 * time.Millisecond, Fence: 30 * time.Second, Lease: limit, Drain: limit,
		TenantMaxRunning: func() int { return 1000 },
	}
	if edit != nil {
		edit(&c)
	}
	w := worker.New(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := w.Run(ctx, func(ctx context.Context) error {
			defer func() { <-ctx.Done() }()
			return consume(w, ctx)
		})
		if err != nil {
			b.t.Errorf("worker: %v", err)
		}
		if n := w.Ending(); n != 0 {
			b.t.Errorf("a worker that has stopped still writes %d outcomes, by its count", n)
		}
	}()
	stop := sync.OnceFunc(func() { cancel(); <-done })
	b.t.Cleanup(stop)
	eventually(b.t, "the worker is ready", w.Ready)
	return member{w, stop}
}

// reaches waits until an execution has a state and answers it.
func (b *bundle) reaches(id uuid.UUID, status execution.Status) (e execution.Execution) {
	b.t.Helper()
	eventually(b.t, "execution is "+string(status), func() bool {
		var err error
		if e, err = b.executions.Get(b.t.Context(), b.who, id); err != nil {
			b.t.Fatal(err)
		}
		return e.Status == status
	})
	return e
}

func (b *bundle) exec(sql string, args ...any) (rows int) {
	b.t.Helper()
	return pgtest.Exec(b.t, b.database.AdminURL, sql, args...)
}

func within[T any](t *testing.T, what string, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(limit):
		t.Fatalf("not within %v: %s", limit, what)
	}
	return got
}

func TestRunsAnExecutionAndStoresItsResult(t *testing.T) {
	t.Parallel()
	b := setup(t)
	runs := make(chan executor.Run, 10)
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		runs <- run
		return executor.Outcome{Result: json.RawMessage(`{"answer": 42}`)}
	}
	w := b.start(nil)
	e := b.pending(nil)
	b.handle(w, e.ID)

	run := within(t, "the run", runs)
	if run.ExecutionID != e.ID || run.Attempt != 1 || !run.ScheduledAt.Equal(e.ScheduledAt) || run.TenantID != b.who.TenantID {
		t.Errorf("run: %+v", run)
	}
	got := b.reaches(e.ID, execution.Completed)
	if string(got.Result) != `{"answer": 42}` || got.Attempt != 1 || got.WorkerID == nil || got.StartedAt == nil || got.Progress != 100 {
		t.Errorf("stored: %+v", got)
	}
}

func TestDuplicateAndForgedHintsStartNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	runs := make(chan uuid.UUID, 100)
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		runs <- run.ExecutionID
		return executor.Outcome{}
	}
	w := b.start(nil)
	e, late := b.pending(nil), b.pending(nil)
	b.exec("UPDATE active_executions SET available_at = now() + interval '1 hour' WHERE id = $1", late.ID)
	b.handle(w, e.ID, e.ID, uuid.New(), late.ID, execution.ScheduledID(uuid.New(), clock.Now()))
	b.handle(w, e.ID)
	b.reaches(e.ID, execution.Completed)
	b.handle(w, e.ID, late.ID)
	w.stop()
	if id := within(t, "the run", runs); id != e.ID || len(runs) != 0 {
		t.Errorf("ran %v and %d more, want %v once", id, len(runs), e.ID)
	}
}

func TestFailedAttemptIsRetriedAndThenFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var lines bytes.Buffer
	b.log = &lines
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		return executor.Outcome{Err: &executor.Error{Type: executor.NetworkError, Message: "refused at attempt " + strconv.Itoa(run.Attempt)}}
	}
	w := b.start(nil)
	e := b.pending(func(s *job.Spec) { s.Retry.MaxRetries, s.Retry.DelayMS, s.Retry.Jitter = 1, 60_000, 0 })
	b.handle(w, e.ID)
	waiting := b.reaches(e.ID, execution.Retrying)
	if waiting.AvailableAt == nil || len(waiting.Attempts) != 1 || waiting.Attempts[0].Error.Message != "refused at attempt 1" {
		t.Errorf("between the attempts: %+v", waiting)
	}
	b.handle(w, e.ID) // too early: the backoff stands in the database
	b.poll(w)
	if early := b.reaches(e.ID, execution.Retrying); early.Attempt != 1 {
		t.Errorf("started before its backoff: %+v", early)
	}
	b.exec("UPDATE active_executions SET available_at = now()")
	b.poll(w) // nobody announces it
	got := b.reaches(e.ID, execution.Failed)
	if got.Attempt != 2 || got.Error == nil || got.Error.Message != "refused at attempt 2" || len(got.Attempts) != 2 ||
		got.Attempts[0].Status != execution.Failed || *got.Attempts[0].DurationUS >= 60e6 || got.Attempts[1].Error.Message != got.Error.Message ||
		!got.Attempts[1].StartedAt.After(*got.Attempts[0].EndedAt) || *got.Attempts[1].DurationUS != *got.DurationUS {
		t.Errorf("after the last attempt: %+v", got)
	}
	w.stop() // from here on nobody writes lines
	for attempt, status := range []string{"retrying", "failed"} {
		want := fmt.Sprintf("attempt=%d of=2 status=%s error_type=NETWORK_ERROR error=\"refused at attempt %d\"", attempt+1, status, attempt+1)
		if n := strings.Count(lines.String(), want); n != 1 {
			t.Errorf("%d lines with %q in:\n%s", n, want, lines.String())
		}
	}
}

func TestUserErrorIsNotRetried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run = func(context.Context, executor.Run) executor.Outcome {
		return executor.Outcome{Err: &executor.Error{Type: executor.UserError, Message: "no such thing"}}
	}
	w := b.start(nil)
	e := b.pending(nil)
	b.handle(w, e.ID)
	if got := b.reaches(e.ID, execution.Failed); got.Attempt != 1 || got.Error.Type != "USER_ERROR" {
		t.Errorf("%+v", got)
	}
}

func TestDeletedJobCancelsItsRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	started := make(chan struct{})
	b.run = func(ctx context.Context, _ executor.Run) executor.Outcome {
		close(started)
		<-ctx.Done()
		return executor.Outcome{Err: &executor.Error{Type: executor.SystemError, Message: "interrupted"}}
	}
	w := b.start(nil)
	e := b.pending(nil)
	b.handle(w, e.ID)
	within(t, "the start", started)
	if err := b.jobs.Delete(t.Context(), b.who, e.JobID, "", 0); err != nil {
		t.Fatal(err)
	}
	b.reaches(e.ID, execution.Cancelled)
}

// A worker whose lease the database gave up on while its run ignores that:
// the run is made again elsewhere and its late result is refused.
func TestZombieCannotOverwriteTheResult(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, release := make(chan struct{}), make(chan struct{})
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		if run.Attempt == 1 {
			close(first)
			<-release
			return executor.Outcome{Result: json.RawMessage(`"late"`)}
		}
		return executor.Outcome{Result: json.RawMessage(`"second"`)}
	}
	zombie := b.start(nil)
	e := b.pending(nil)
	b.handle(zombie, e.ID)
	within(t, "the first attempt", first)
	old := b.reaches(e.ID, execution.Running).WorkerID

	b.exec("UPDATE workers SET dead = true")
	sweeper := maintenance.New(maintenance.Config{
		DB: b.engine, Hints: b.hints, Metrics: telemetry.NewMetrics(telemetry.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	})
	report, err := sweeper.Sweep(t.Context(), time.Time{})
	if err != nil || report.Reclaimed != 1 {
		t.Fatalf("sweep: %+v, %v", report, err)
	}
	other := b.start(nil)
	b.poll(other) // nobody announces it: whatever took the worker may have taken the hint
	done := b.reaches(e.ID, execution.Completed)
	close(release)
	zombie.stop() // only once its outcome is accepted or refused
	after := b.reaches(e.ID, execution.Completed)
	if string(after.Result) != `"second"` || after.Attempt != 2 || *after.WorkerID == *old {
		t.Errorf("recorded: %s by %v in attempt %d", after.Result, after.WorkerID, after.Attempt)
	}
	if diff := cmp.Diff(done, after); diff != "" {
		t.Errorf("the terminal row changed:\n%s", diff)
	}
}

func TestLostLeaseEndsRunsAndAnotherIncarnationGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ended := make(chan struct{})
	b.run = func(ctx context.Context, run executor.Run) executor.Outcome {
		if run.Attempt > 1 {
			return executor.Outcome{}
		}
		<-ctx.Done()
		close(ended)
		return executor.Outcome{Err: &executor.Error{Type: executor.SystemError, Message: "interrupted"}}
	}
	w := b.start(nil)
	e := b.pending(nil)
	b.handle(w, e.ID)
	old := b.reaches(e.ID, execution.Running).WorkerID
	b.exec("UPDATE workers SET dead = true")
	within(t, "the end of the run", ended)
	// The interrupted attempt must not count as the job's failure.
	sweeper := maintenance.New(maintenance.Config{
		DB: b.engine, Hints: b.hints, Metrics: telemetry.NewMetrics(telemetry.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	})
	if _, err := sweeper.Sweep(t.Context(), time.Time{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new incarnation completes it", func() bool {
		b.handle(w, e.ID)
		got, err := b.executions.Get(t.Context(), b.who, e.ID)
		return err == nil && got.Status == execution.Completed && *got.WorkerID != *old
	})
}

func TestRowsThatNobodyRunsAreGivenBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run = func(context.Context, executor.Run) executor.Outcome { return executor.Outcome{} }
	e := b.pending(nil)
	b.losesClaims()
	b.start(nil)
	hint := within(t, "the hint", b.hints.sent)
	if diff := cmp.Diff([]uuid.UUID{e.ID}, hint.ids); diff != "" {
		t.Errorf("hint (-want +got):\n%s", diff)
	}
	// A worker's poll may have run it by now.
	if n := b.count("SELECT max_attempts FROM executions WHERE id = $1", e.ID); n != e.MaxAttempts+1 {
		t.Errorf("given back with %d attempts allowed, want %d", n, e.MaxAttempts+1)
	}
}

func TestStopLetsRunsFinishOrReleasesThem(t *testing.T) {
	t.Parallel()
	t.Run("finish", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		started, release := make(chan struct{}), make(chan struct{})
		b.run = func(context.Context, executor.Run) executor.Outcome {
			close(started)
			<-release
			return executor.Outcome{}
		}
		w := b.start(nil)
		e := b.pending(nil)
		b.handle(w, e.ID)
		within(t, "the start", started)
		stopped := make(chan struct{})
		go func() { w.stop(); close(stopped) }()
		eventually(t, "the intake is closed", func() bool { return !w.Ready() })
		close(release)
		within(t, "the stop", stopped)
		b.reaches(e.ID, execution.Completed)
	})
	t.Run("release", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.run = func(ctx context.Context, _ executor.Run) executor.Outcome {
			<-ctx.Done()
			return executor.Outcome{Err: &executor.Error{Type: executor.SystemError, Message: "interrupted"}}
		}
		w := b.start(func(c *worker.Config) { c.Drain = 0 })
		e := b.pending(nil)
		b.handle(w, e.ID)
		b.reaches(e.ID, execution.Running)
		w.stop()
		if got := b.reaches(e.ID, execution.Pending); got.MaxAttempts != e.MaxAttempts+1 || len(got.Attempts) != 0 {
			t.Errorf("released: %+v", got)
		}
		if hint := within(t, "the hint", b.hints.sent); hint.ids[0] != e.ID {
			t.Errorf("hinted %v", hint.ids)
		}
	})
}

// A worker that is told to stop while the database is away ends all the same:
// its lease runs out, and its executions are reassigned.
func TestStopEndsWithoutADatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	started, release := make(chan struct{}), make(chan struct{})
	b.run = func(context.Context, executor.Run) executor.Outcome {
		close(started)
		<-release
		return executor.Outcome{}
	}
	w := b.start(func(c *worker.Config) { c.Drain = 0 })
	e := b.pending(nil)
	b.handle(w, e.ID)
	within(t, "the start", started)
	b.engine.Close()
	stopped := make(chan struct{})
	go func() { w.stop(); close(stopped) }()
	close(release)
	within(t, "the stop", stopped)
}
