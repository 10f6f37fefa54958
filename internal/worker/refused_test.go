package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/maintenance"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/refusal"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// together has n runs end at the same time, so that their outcomes are one batch.
func together(n int, end func(executor.Run) executor.Outcome) func(context.Context, executor.Run) executor.Outcome {
	var here sync.WaitGroup
	here.Add(n)
	return func(_ context.Context, run executor.Run) executor.Outcome {
		here.Done()
		here.Wait()
		return end(run)
	}
}

func (b *bundle) sweeper() *maintenance.Maintainer {
	return maintenance.New(maintenance.Config{
		DB: b.engine, Hints: b.hints, Metrics: telemetry.NewMetrics(telemetry.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	})
}

// count answers one number.
func (b *bundle) count(sql string, args ...any) (n int) {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.database.AdminURL)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close(b.t.Context())
	if err := conn.QueryRow(b.t.Context(), sql, args...).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// parked waits until an execution is shown as one whose outcome is not stored.
func (b *bundle) parked(id uuid.UUID) (e execution.Execution) {
	b.t.Helper()
	eventually(b.t, "the execution is parked", func() bool {
		var err error
		if e, err = b.executions.Get(b.t.Context(), b.who, id); err != nil {
			b.t.Fatal(err)
		}
		return isParked(e)
	})
	return e
}

func isParked(e execution.Execution) bool {
	return e.WaitingOn != nil && e.WaitingOn.Reason == execution.WaitStorage
}

// tryAtOnce has the next sweep try an execution that is parked.
func (b *bundle) tryAtOnce(id uuid.UUID) {
	b.t.Helper()
	if e, _, err := b.executions.Cancel(b.t.Context(), b.who, id, ""); err != nil || e.Cancelling {
		b.t.Errorf("one request to have it tried at once: %v, %v", e.Cancelling, err)
	}
}

// A claim puts executions that it cannot start into the pool, and then is refused another one. Other
// workers are called for the first.
func TestARefusedClaimCallsForWhatItPooled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.pending(func(s *job.Spec) { s.Type, s.Config = "http", []byte(`{"url":"http://example.com"}`) }) // this worker runs functions
	keyed := b.pending(func(s *job.Spec) { s.ConcurrencyKey = "one" })
	b.hinted()
	b.exec(refusal.Refusal{Name: "claim", Table: "active_executions", Event: "UPDATE", Rows: "NEW.status = 'running' AND NEW.id = '" + keyed.ID.String() + "'", SQLSTATE: "22023"}.Begin())
	var called atomic.Int32
	w := b.start(func(c *worker.Config) { c.CallWorkers = func(context.Context) { called.Add(1) } })
	b.hint(w, other.ID, keyed.ID)
	eventually(t, "it is in the pool", func() bool {
		return b.count("SELECT count(*) FROM active_executions WHERE pooled AND id = $1", other.ID) == 1
	})
	eventually(t, "others are called", func() bool { return called.Load() > 0 })
}

// TestRefusedOutcomeHoldsUpNobody ends five runs in one batch for each SQLSTATE
// that repeating cannot mend: three healthy ones, one whose result the database
// refuses, and one of which it refuses any record. On the commit before, the
// worker repeated the batch for ever.
func TestRefusedOutcomeHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	results := map[uuid.UUID]string{}
	var mu sync.Mutex
	var end func(context.Context, executor.Run) executor.Outcome
	b.run = func(ctx context.Context, run executor.Run) executor.Outcome {
		mu.Lock()
		end := end
		mu.Unlock()
		return end(ctx, run)
	}
	w := b.start(nil) // with more than five slots: one may not be free yet when the next five begin
	var parked []uuid.UUID
	for _, code := range refusal.SQLSTATEs() {
		mu.Lock() // an end of the runs before may start them before the hint does
		healthy := []execution.Execution{b.pending(nil), b.pending(nil), b.pending(nil)}
		poison, lonely := b.pending(nil), b.pending(func(s *job.Spec) { s.ConcurrencyKey = "of " + code })
		results[poison.ID] = `{"poison": true}`
		byResult := refusal.Refusal{Name: "by_result", Table: "job_executions", Rows: "NEW.result ? 'poison'", SQLSTATE: code}
		byJob := refusal.Refusal{Name: "job_" + strings.ToLower(code), Table: "job_executions", Rows: "NEW.job_id = '" + lonely.JobID.String() + "'", SQLSTATE: code}
		b.exec(byResult.Begin() + byJob.Begin())
		end = together(5, func(run executor.Run) executor.Outcome {
			mu.Lock()
			defer mu.Unlock()
			if text, ok := results[run.ExecutionID]; ok {
				return executor.Outcome{Result: json.RawMessage(text)}
			}
			return executor.Outcome{Result: json.RawMessage(`{"kept": "` + run.ExecutionID.String() + `"}`)}
		})
		mu.Unlock()
		b.handle(w, healthy[0].ID, healthy[1].ID, poison.ID, healthy[2].ID, lonely.ID)
		for _, e := range healthy {
			if got := b.reaches(e.ID, execution.Completed); !strings.Contains(string(got.Result), e.ID.String()) {
				t.Errorf("%s: a healthy one has %s", code, got.Result)
			}
		}
		if got := b.reaches(poison.ID, execution.Completed); !strings.Contains(string(got.Result), "SQLSTATE "+code) {
			t.Errorf("%s: the one with a refused result has %s", code, got.Result)
		}
		if got := b.parked(lonely.ID); !strings.Contains(got.Reason, "SQLSTATE "+code) || got.Status != execution.Pending {
			t.Errorf("%s: the one with no record is %s: %s", code, got.Status, got.Reason)
		}
		parked = append(parked, lonely.ID)
		b.exec(byResult.End())
	}
	if n := b.count("SELECT sum(running)::int + (SELECT count(*) FROM running_keys)::int FROM running_totals"); n != 0 {
		t.Errorf("%d running and keys held while all are parked or over", n)
	}
	w.stop() // all slots are free, or this would not end
	b.storesWhatWasParked(parked)
}

// storesWhatWasParked sweeps while all is refused, and again once nothing is.
func (b *bundle) storesWhatWasParked(parked []uuid.UUID) {
	b.t.Helper()
	sweeper := b.sweeper()
	if report, err := sweeper.Sweep(b.t.Context(), time.Time{}); err != nil || report.Settled != 0 {
		b.t.Errorf("while refused: %+v, %v", report, err)
	}
	for _, code := range refusal.SQLSTATEs() {
		b.exec(refusal.Refusal{Name: "job_" + strings.ToLower(code), Table: "job_executions"}.End())
	}
	for _, id := range parked {
		b.tryAtOnce(id)
	}
	if report, err := sweeper.Sweep(b.t.Context(), time.Time{}); err != nil || report.Settled != len(parked) {
		b.t.Errorf("settled: %+v, %v; want %d", report, err, len(parked))
	}
	for _, id := range parked {
		if got := b.reaches(id, execution.Completed); !strings.Contains(string(got.Result), id.String()) || got.DurationUS == nil || got.WorkerID == nil {
			b.t.Errorf("what was parked has lost something: %+v", got)
		}
	}
	if n := b.count("SELECT count(*) FROM active_executions"); n != 0 {
		b.t.Errorf("%d rows are left", n)
	}
}

// TestParkedExecutionGivesItsSlotsBack lets another run of the same job and key
// start while one is parked.
func TestParkedExecutionGivesItsSlotsBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run = func(context.Context, executor.Run) executor.Outcome { return executor.Outcome{} }
	w := b.start(func(c *worker.Config) { c.Slots = 1 })
	first := b.pending(func(s *job.Spec) { s.Overlap, s.MaxConcurrent, s.ConcurrencyKey = job.OverlapSkip, 1, "k" })
	b.exec(refusal.Refusal{Name: "one", Table: "job_executions", Rows: "NEW.id = '" + first.ID.String() + "'", SQLSTATE: "P0001"}.Begin())
	b.handle(w, first.ID)
	b.parked(first.ID)
	second, _, err := b.executions.Trigger(t.Context(), b.who, first.JobID, nil, idempotency.Key{})
	if err != nil {
		t.Fatalf("a second run of the job: %v", err)
	}
	b.handle(w, second.ID)
	b.reaches(second.ID, execution.Completed)
}

// TestFailureThatIsRefusedIsRetried refuses what an attempt failed with: the
// backoff begins all the same, and the attempt says why it says nothing.
func TestFailureThatIsRefusedIsRetried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		if run.Attempt > 1 {
			return executor.Outcome{}
		}
		return executor.Outcome{Err: &executor.Error{Type: executor.NetworkError, Message: "poison", Stack: "poison"}}
	}
	b.exec(refusal.Refusal{Name: "message", Table: "active_executions", Event: "UPDATE", Rows: `NEW.attempts::text LIKE '%"poison"%'`, SQLSTATE: "22P05"}.Begin())
	w := b.start(nil)
	e := b.pending(func(s *job.Spec) { s.Retry = job.DefaultRetry() })
	b.handle(w, e.ID)
	b.reaches(e.ID, execution.Retrying)
	b.exec("UPDATE active_executions SET available_at = now()")
	b.poll(w)
	got := b.reaches(e.ID, execution.Completed)
	if len(got.Attempts) != 2 || !strings.Contains(got.Attempts[0].Error.Message, "NETWORK_ERROR") || !strings.Contains(got.Attempts[0].Error.Message, "22P05") {
		t.Errorf("attempts: %+v", got.Attempts)
	}
}

// TestLockedOutcomeHoldsUpNobody has somebody hold one execution locked: the
// others of its batch and those after it are stored meanwhile.
func TestLockedOutcomeHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var err error
	b.engine, err = postgres.Open(t.Context(), postgres.Config{URL: b.database.URL, Role: postgres.Engine, Name: "impatient", MaxConns: 4, StatementTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.engine.Close)
	b.run = together(3, func(executor.Run) executor.Outcome { return executor.Outcome{} })
	w := b.start(nil)
	locked, first, second := b.pending(nil), b.pending(nil), b.pending(nil)
	b.handle(w, locked.ID, first.ID) // they run until the third does
	conn, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), fmt.Sprintf("BEGIN; SELECT 1 FROM active_executions WHERE id = '%s' FOR UPDATE", locked.ID)); err != nil {
		t.Fatal(err)
	}
	b.handle(w, second.ID)
	b.reaches(first.ID, execution.Completed)
	b.reaches(second.ID, execution.Completed)
	if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	b.reaches(locked.ID, execution.Completed)
}

// TestOutcomeThatChangesNothingFreesItsSlot refuses any change of a row, so that
// not even parking helps: with one slot, others run, and its outcome lands once
// the cause is mended.
func TestOutcomeThatChangesNothingFreesItsSlot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stuck := b.pending(nil)
	frozen := refusal.Refusal{
		Name: "frozen", Table: "active_executions", Event: "UPDATE OR DELETE", Rows: "OLD.id = '" + stuck.ID.String() + "' AND OLD.status = 'running'", SQLSTATE: "55000",
	}
	b.exec(frozen.Begin())
	b.run = func(context.Context, executor.Run) executor.Outcome {
		return executor.Outcome{Result: json.RawMessage(`"kept"`)}
	}
	w := b.start(func(c *worker.Config) { c.Slots = 1 })
	b.handle(w, stuck.ID)
	other := b.pending(nil)
	eventually(t, "the other one runs", func() bool {
		b.handle(w, other.ID)
		e, err := b.executions.Get(t.Context(), b.who, other.ID)
		return err == nil && e.Status == execution.Completed
	})
	b.exec(frozen.End())
	// Where the cause is mended between the try with the result and the one without it,
	// a note stands in the result's place. Where it is mended before the try to park it,
	// it is parked, and the next sweep stores it.
	var got execution.Execution
	sweeper := b.sweeper()
	eventually(t, "the outcome lands", func() bool {
		var err error
		if got, err = b.executions.Get(t.Context(), b.who, stuck.ID); err != nil {
			t.Fatal(err)
		}
		if isParked(got) {
			b.tryAtOnce(stuck.ID)
			if _, err := sweeper.Sweep(t.Context(), time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		return got.Status == execution.Completed
	})
	if string(got.Result) != `"kept"` && !strings.Contains(string(got.Result), "SQLSTATE 55000") {
		t.Errorf("stored: %s", got.Result)
	}
}

// TestRefusedClaimHoldsUpNobody has the database refuse the claim of one of three
// executions of a hint. On the commit before, none of the three was ever claimed,
// and the worker claimed nothing more.
func TestRefusedClaimHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run = func(context.Context, executor.Run) executor.Outcome { return executor.Outcome{} }
	w := b.start(nil)
	first, poison, second := b.pending(nil), b.pending(nil), b.pending(nil)
	refused := refusal.Refusal{Name: "claim", Table: "active_executions", Event: "UPDATE", Rows: "NEW.id = '" + poison.ID.String() + "'", SQLSTATE: "22003"}
	b.exec(refused.Begin())
	eventually(t, "the others are completed", func() bool { b.hint(w, first.ID, poison.ID, second.ID); return b.over(first.ID, second.ID) })
	later := b.pending(nil)
	eventually(t, "a later one is completed", func() bool { b.hint(w, poison.ID, later.ID); return b.over(later.ID) })
	b.exec(refused.End())
	b.handle(b.start(nil), poison.ID)
	b.reaches(poison.ID, execution.Completed)
}

// TestRefusedReleaseHoldsUpNobody gives the worker three executions that it does
// not run, of which the database refuses to take one back.
func TestRefusedReleaseHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run = func(context.Context, executor.Run) executor.Outcome { return executor.Outcome{} }
	poison := b.pending(nil)
	others := []execution.Execution{b.pending(nil), b.pending(nil)}
	b.losesClaims()
	b.exec(refusal.Refusal{Name: "release", Table: "active_executions", Event: "UPDATE", Rows: "NEW.id = '" + poison.ID.String() + "' AND NEW.status <> 'running'", SQLSTATE: "22003"}.Begin())
	b.start(nil)
	for _, e := range others {
		b.reaches(e.ID, execution.Pending)
	}
}

// An execution whose scheduled time has its outcome already is only removed when it ends, and
// keeps the first outcome: also where that is written at the same moment, which refuses
// the batch once.
func TestAnOutcomeThatIsThereStays(t *testing.T) {
	t.Parallel()
	for _, atTheSameMoment := range []bool{false, true} {
		t.Run(fmt.Sprint(atTheSameMoment), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			release := make(chan struct{})
			b.run = func(context.Context, executor.Run) executor.Outcome {
				<-release
				return executor.Outcome{}
			}
			w := b.start(nil)
			recorded, other := b.pending(nil), b.pending(nil)
			b.handle(w, recorded.ID, other.ID)
			conn, err := pgx.Connect(t.Context(), b.database.AdminURL)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), `INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, reason, completed_at, created_at)
				SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, 'skipped', 'first', now(), now() FROM active_executions WHERE id = $1`, recorded.ID); err != nil {
				t.Fatal(err)
			}
			if atTheSameMoment {
				close(release)
				eventually(t, "the outcome waits for the other", func() bool {
					return b.count("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'") > 0
				})
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !atTheSameMoment {
				close(release)
			}
			b.reaches(other.ID, execution.Completed)
			eventually(t, "both are finished", func() bool { return b.count("SELECT count(*) FROM active_executions") == 0 })
			if n := b.count("SELECT count(*) FROM job_executions WHERE id = $1 AND status = 'skipped' AND reason = 'first'", recorded.ID); n != 1 {
				t.Errorf("%d rows of the first outcome, want one", n)
			}
			w.stop() // both slots are free, or this would not end
		})
	}
}
