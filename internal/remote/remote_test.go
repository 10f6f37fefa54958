package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/hint"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/maintenance"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/remote"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// unsent takes hints that nobody waits for.
type unsent struct{}

func (unsent) Publish(context.Context, queue.Lane, []uuid.UUID) error { return nil }

func (unsent) PublishTogether(context.Context, queue.Lane, []uuid.UUID) error { return nil }
func (unsent) LostContents(context.Context) (bool, error)                     { return false, nil }
func (unsent) Depth(context.Context) (map[queue.Lane]int, error)              { return nil, nil }

// bundle is a database with two tenants, and an API process that hands executions out.
type bundle struct {
	t            *testing.T
	api, engine  *postgres.DB
	keys         *keyring.Ring
	store        *remote.Store
	desk         *remote.Desk
	callbacks    *callback.Desk
	maintains    *maintenance.Maintainer
	jobs         *job.Store
	executions   *execution.Store
	ours, theirs tenant.Actor
}

func setup(t *testing.T) *bundle {
	t.Helper()
	url := pgtest.New(t).URL
	open := func(role postgres.Role) *postgres.DB {
		db, err := postgres.Open(t.Context(), postgres.Config{URL: url, Role: role, Name: "test", MaxConns: 4, StatementTimeout: pgtest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	b := &bundle{
		t: t, api: open(postgres.API), engine: open(postgres.Engine),
		ours: tenant.Actor{TenantID: uuid.New(), Subject: "ada"}, theirs: tenant.Actor{TenantID: uuid.New(), Subject: "eve"},
	}
	var err error
	if b.keys, err = keyring.Parse(keyring.Generate("k1")); err != nil {
		t.Fatal(err)
	}
	metrics, log := telemetry.NewMetrics(telemetry.NewRegistry()), slog.New(slog.DiscardHandler)
	b.callbacks = callback.New(callback.Config{DB: b.engine, Hints: hint.New(hint.Config{DB: b.engine, Queue: unsent{}, Log: log}), Metrics: metrics, Log: log, Keys: b.keys})
	b.desk = remote.NewDesk(remote.Config{DB: b.engine, Keys: b.keys, Callbacks: b.callbacks, Log: log})
	b.maintains = maintenance.New(maintenance.Config{DB: b.engine, Hints: unsent{}, Metrics: metrics, Log: log})
	b.store, b.jobs, b.executions = remote.NewStore(b.api), job.NewStore(b.api, job.Config{Keys: b.keys}), execution.NewStore(b.api, execution.Config{})
	for _, who := range []tenant.Actor{b.ours, b.theirs} {
		if err := tenant.NewStore(b.api, true).Admit(t.Context(), who.TenantID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.engine.Pool().Exec(t.Context(), "SELECT create_job_executions_partition(now())"); err != nil {
		t.Fatal(err)
	}
	return b
}

// register registers a worker of a tenant that has functions.
func (b *bundle) register(who tenant.Actor, functions ...string) remote.Worker {
	b.t.Helper()
	spec := remote.Spec{Name: "w", Slots: 10, Lease: 30 * time.Second}
	for _, name := range functions {
		spec.Functions = append(spec.Functions, remote.Function{Name: name, Parameters: json.RawMessage(`{}`)})
	}
	w, err := b.store.Register(b.t.Context(), who, spec)
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

// job makes a job that calls a function.
func (b *bundle) job(who tenant.Actor, function string, change ...func(*job.Spec)) job.Job {
	b.t.Helper()
	spec := job.Spec{Name: "report", Type: "remote", Config: json.RawMessage(`{"functionName":"` + function + `"}`)}.WithDefaults()
	for _, alter := range change {
		alter(&spec)
	}
	made, _, err := b.jobs.Create(b.t.Context(), who, spec, idempotency.Key{})
	if err != nil {
		b.t.Fatal(err)
	}
	return made
}

func (b *bundle) trigger(who tenant.Actor, of job.Job, parameters string) execution.Execution {
	b.t.Helper()
	var over json.RawMessage
	if parameters != "" {
		over = json.RawMessage(parameters)
	}
	e, _, err := b.executions.Trigger(b.t.Context(), who, of.ID, over, idempotency.Key{})
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

func (b *bundle) get(who tenant.Actor, id uuid.UUID) execution.Execution {
	b.t.Helper()
	e, err := b.executions.Get(b.t.Context(), who, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

// claim claims without waiting.
func (b *bundle) claim(who tenant.Actor, w remote.Worker, most int) []remote.Assignment {
	b.t.Helper()
	got, err := b.desk.Claim(b.t.Context(), who.TenantID, remote.Request{Worker: w.ID, Most: most}, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

// claimOne claims the execution that waits. Claims read what waits for a slot or key from a
// place on that they choose at random, and so may miss it.
func (b *bundle) claimOne(who tenant.Actor, w remote.Worker) remote.Assignment {
	b.t.Helper()
	for range 200 {
		if got := b.claim(who, w, 10); len(got) == 1 {
			return got[0]
		} else if len(got) > 1 {
			b.t.Fatalf("%d executions at once", len(got))
		}
	}
	b.t.Fatal("nothing was claimed")
	return remote.Assignment{}
}

func (b *bundle) complete(a remote.Assignment, r callback.Report) (string, error) {
	b.t.Helper()
	at, err := b.callbacks.Open(a.CallToken)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.callbacks.Complete(b.t.Context(), at, r)
}

func (b *bundle) beat(who tenant.Actor, w remote.Worker, tokens ...string) []remote.Standing {
	b.t.Helper()
	got, err := b.desk.Heartbeat(b.t.Context(), who.TenantID, w.ID, tokens)
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

// endOverdue ends the waits that are overdue so long from now.
func (b *bundle) endOverdue(later time.Duration) int {
	b.t.Helper()
	return b.endOverdueAt(clock.Now().Add(later))
}

func (b *bundle) endOverdueAt(at time.Time) int {
	b.t.Helper()
	n, err := b.callbacks.EndOverdue(b.t.Context(), at)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.engine.Pool().Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

// asTenant runs statements with the role of the API, for one tenant.
func (b *bundle) asTenant(who tenant.Actor, do func(tx pgx.Tx)) {
	b.t.Helper()
	err := pgx.BeginFunc(b.t.Context(), b.api.Pool(), func(tx pgx.Tx) error {
		_, err := tx.Exec(b.t.Context(), "SELECT set_config('app.tenant_id', $1, true)", who.TenantID.String())
		do(tx)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func kind(t *testing.T, what string, err error, want fault.Kind, code fault.Code) {
	t.Helper()
	var known *fault.Error
	if !errors.As(err, &known) || known.Kind != want || known.Code != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

// A worker gets what it needs to run an execution, says that it lives, and reports the end once.
func TestWorkerRunsAnExecution(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.register(b.ours, "invoice", "other")
	made := b.job(b.ours, "invoice", func(s *job.Spec) { s.Config = json.RawMessage(`{"functionName":"invoice","parameters":{"a":1,"b":2}}`) })
	e := b.trigger(b.ours, made, `{"b":3}`)
	if got := b.get(b.ours, e.ID); got.WaitingOn == nil || got.WaitingOn.Reason != execution.WaitDispatching {
		t.Errorf("waits for %+v", got.WaitingOn)
	}
	a := b.claimOne(b.ours, w)
	if a.ID != e.ID || a.Function != "invoice" || string(a.Parameters) != `{"a":1,"b":3}` || a.Attempt != 1 || a.JobName != "report" || a.Timeout != 300*time.Second {
		t.Errorf("claimed %+v, parameters %s", a, a.Parameters)
	}
	if more := b.claim(b.ours, w, 10); len(more) != 0 {
		t.Errorf("claimed again: %+v", more)
	}
	running := b.get(b.ours, e.ID)
	if running.Status != execution.Running || running.WorkerID == nil || *running.WorkerID != w.ID {
		t.Errorf("runs as %+v", running)
	}
	if got := b.beat(b.ours, w, a.CallToken); !slices.Equal(got, []remote.Standing{remote.Running}) {
		t.Errorf("the attempt is %v", got)
	}
	if n := b.endOverdue(0); n != 0 {
		t.Errorf("%d waits ended", n)
	}
	for range 2 {
		if status, err := b.complete(a, callback.Report{Result: json.RawMessage(`{"sent": 3}`)}); err != nil || status != "completed" {
			t.Errorf("completed as %q, %v", status, err)
		}
	}
	_, err := b.complete(a, callback.Report{Err: &callback.Failure{Type: "USER_ERROR", Message: "no"}})
	kind(t, "another report", err, fault.Conflict, fault.CodeAttemptEnded)
	if got := b.get(b.ours, e.ID); string(got.Result) != `{"sent": 3}` {
		t.Errorf("stored %s", got.Result)
	}
	if got := b.beat(b.ours, w, a.CallToken); !slices.Equal(got, []remote.Standing{remote.Ended}) {
		t.Errorf("the attempt is %v after its end", got)
	}
	if drifted, err := b.maintains.ReconcileRunning(t.Context()); err != nil || drifted != 0 {
		t.Errorf("reconciling found %v tenants, %v", drifted, err)
	}
}

// A worker gets executions of its tenant and of its functions alone, and nobody else may act
// for it, its attempts and its rows.
func TestWorkersSeeTheirTenantAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ours, theirs := b.register(b.ours, "invoice"), b.register(b.theirs, "invoice")
	b.register(b.ours, "other")
	other := b.trigger(b.ours, b.job(b.ours, "other"), "")
	e := b.trigger(b.ours, b.job(b.ours, "invoice"), "")
	if got := b.claim(b.theirs, theirs, 10); len(got) != 0 {
		t.Fatalf("another tenant's worker claimed %+v", got)
	}
	_, err := b.desk.Claim(t.Context(), b.theirs.TenantID, remote.Request{Worker: ours.ID, Most: 1}, nil)
	kind(t, "a claim for another tenant's worker", err, fault.NotFound, fault.CodeWorkerNotFound)
	a := b.claimOne(b.ours, ours)
	if a.ID != e.ID {
		t.Errorf("claimed %v, which is of another function (%v)", a.ID, other.ID)
	}
	b.exec("UPDATE active_executions SET last_heartbeat_at = last_heartbeat_at - interval '1 hour' WHERE id = $1", e.ID)
	if got := b.beat(b.theirs, theirs, a.CallToken, strings.Repeat("x", 40)); !slices.Equal(got, []remote.Standing{remote.Ended, remote.Ended}) {
		t.Errorf("another tenant hears %v", got)
	}
	if n := b.endOverdue(40 * time.Second); n != 1 {
		t.Errorf("%d waits ended: another tenant's heartbeat prolonged one", n)
	}
	kind(t, "deregistered by another tenant", b.store.Deregister(t.Context(), b.theirs, ours.ID), fault.NotFound, fault.CodeWorkerNotFound)
	if list, err := b.store.List(t.Context(), b.theirs); err != nil || len(list) != 1 || list[0].ID != theirs.ID {
		t.Errorf("another tenant sees %+v, %v", list, err)
	}
	// The rows, without a condition: what row-level security lets the API's role see and write.
	for who, want := range map[uuid.UUID]int{b.ours.TenantID: 2, b.theirs.TenantID: 1, uuid.New(): 0} {
		var workers, functions int
		b.asTenant(tenant.Actor{TenantID: who}, func(tx pgx.Tx) {
			if err := tx.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM workers), (SELECT count(*) FROM remote_functions)").Scan(&workers, &functions); err != nil {
				t.Fatal(err)
			}
			if workers != want || functions != want {
				t.Errorf("sees %d workers and %d functions, want %d", workers, functions, want)
			}
			if tag, err := tx.Exec(t.Context(), "UPDATE workers SET dead = true"); err != nil || int(tag.RowsAffected()) != want {
				t.Errorf("may end %d workers, %v, want %d", tag.RowsAffected(), err, want)
			}
		})
	}
}

// A worker that vanishes loses its attempts, which the job's rule repeats; what it reports
// later changes nothing.
func TestWorkerVanishes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.register(b.ours, "invoice")
	e := b.trigger(b.ours, b.job(b.ours, "invoice", func(s *job.Spec) { s.Retry.MaxRetries, s.Retry.DelayMS, s.Retry.Jitter = 1, 0, 0 }), "")
	before := clock.Now() // a busy machine may stand still between the claim and what follows
	lost := b.claimOne(b.ours, first)
	if n := b.endOverdueAt(before.Add(29 * time.Second)); n != 0 {
		t.Errorf("%d attempts ended before their lease", n)
	}
	if n := b.endOverdue(31 * time.Second); n != 1 {
		t.Fatalf("%d attempts ended after their lease", n)
	}
	if got := b.get(b.ours, e.ID); got.Status != execution.Retrying || !strings.Contains(got.Attempts[0].Error.Message, "no heartbeat came for 30s") {
		t.Errorf("after the loss: %+v", got)
	}
	b.exec("UPDATE active_executions SET available_at = now()")
	b.exec("UPDATE workers SET expires_at = now() - interval '1 second' WHERE id = $1", first.ID)
	_, err := b.desk.Claim(t.Context(), b.ours.TenantID, remote.Request{Worker: first.ID, Most: 1}, nil)
	kind(t, "a claim after the lease", err, fault.NotFound, fault.CodeWorkerNotFound)
	if got := b.get(b.ours, e.ID); got.WaitingOn == nil || got.WaitingOn.Reason != execution.WaitWorker {
		t.Errorf("without a worker it waits for %+v", got.WaitingOn)
	}
	second := b.register(b.ours, "invoice") // of the same name, and another worker
	again := b.claimOne(b.ours, second)
	if again.ID != e.ID || again.Attempt != 2 || again.CallToken == lost.CallToken {
		t.Errorf("claimed again: %+v", again)
	}
	_, err = b.complete(lost, callback.Report{})
	kind(t, "a late report", err, fault.Conflict, fault.CodeAttemptEnded)
	if got := b.beat(b.ours, second, lost.CallToken, again.CallToken); !slices.Equal(got, []remote.Standing{remote.Ended, remote.Running}) {
		t.Errorf("the attempts are %v", got)
	}
	if n := b.endOverdue(31 * time.Second); n != 1 {
		t.Fatalf("%d attempts ended", n)
	}
	if got := b.get(b.ours, e.ID); got.Status != execution.Failed || got.Error.Type != "TIMEOUT" {
		t.Errorf("at last: %+v", got)
	}
}

// An attempt has no more time than its execution has left, and ends then; without any left
// it is not handed out.
func TestExecutionTimeoutBoundsRemoteAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.register(b.ours, "invoice")
	bounded := b.job(b.ours, "invoice", func(s *job.Spec) {
		s.Timeout, s.ExecutionTimeout = 300, 100
		s.Retry.MaxRetries, s.Retry.DelayMS, s.Retry.Jitter = 5, 0, 0
	})
	e := b.trigger(b.ours, bounded, "")
	before := clock.Now()
	if got := b.claimOne(b.ours, w); got.Timeout != 100*time.Second {
		t.Errorf("the worker is told %v, want 100 s", got.Timeout)
	}
	b.exec("UPDATE active_executions SET heartbeat_ms = 1000000") // it says that it goes on
	if n := b.endOverdueAt(before.Add(90 * time.Second)); n != 0 {
		t.Fatalf("%d attempts ended before their time", n)
	}
	if n := b.endOverdue(101 * time.Second); n != 1 {
		t.Fatalf("%d attempts ended with their time", n)
	}
	if got := b.get(b.ours, e.ID); got.Status != execution.Failed || got.Error == nil || !strings.Contains(got.Error.Message, "executionTimeout of 100 s") {
		t.Errorf("it is %s with %+v", got.Status, got.Error)
	}

	late := b.trigger(b.ours, bounded, "")
	got := b.claimOne(b.ours, w)
	again := true
	if _, err := b.complete(got, callback.Report{Err: &callback.Failure{Type: "SYSTEM_ERROR", Message: "x", Retry: &again}}); err != nil {
		t.Fatal(err)
	}
	b.exec("UPDATE active_executions SET started_at = started_at - interval '200 seconds', available_at = now()")
	if more := b.claim(b.ours, w, 5); len(more) != 0 {
		t.Errorf("handed out with no time left: %+v", more)
	}
	if got := b.get(b.ours, late.ID); got.Status != execution.Failed || got.Error == nil || !strings.Contains(got.Error.Message, "executionTimeout of 100 s has passed") {
		t.Errorf("it is %s with %+v", got.Status, got.Error)
	}
}

// A worker hears of a cancellation and ends the run; one that does not has its lease's time.
func TestCancelIsToldInTheHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.register(b.ours, "invoice")
	made := b.job(b.ours, "invoice", func(s *job.Spec) { s.MaxConcurrent = 10 })
	e, deaf := b.trigger(b.ours, made, ""), b.trigger(b.ours, made, "")
	tokens := map[uuid.UUID]remote.Assignment{}
	for len(tokens) < 2 {
		for _, a := range b.claim(b.ours, w, 2) {
			tokens[a.ID] = a
		}
	}
	for _, one := range []execution.Execution{e, deaf} {
		if _, _, err := b.executions.Cancel(t.Context(), b.ours, one.ID, ""); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.endOverdue(5 * time.Second); n != 0 {
		t.Errorf("%d attempts ended before their worker heard of it", n)
	}
	if got := b.beat(b.ours, w, tokens[e.ID].CallToken); !slices.Equal(got, []remote.Standing{remote.Cancelling}) {
		t.Errorf("the attempt is %v", got)
	}
	if status, err := b.complete(tokens[e.ID], callback.Report{Result: json.RawMessage(`1`)}); err != nil || status != "cancelled" {
		t.Errorf("ended as %q, %v", status, err)
	}
	if n := b.endOverdue(31 * time.Second); n != 1 {
		t.Errorf("%d attempts ended after their lease", n)
	}
	if got := b.get(b.ours, deaf.ID); got.Status != execution.Cancelled {
		t.Errorf("ended as %s", got.Status)
	}
}

// Concurrency slots and keys hold back executions of workers of tenants as of all others.
func TestLimitsHold(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*job.Spec){
		"slot": func(s *job.Spec) { s.MaxConcurrent, s.Overlap = 1, "queue_all" },
		"key":  func(s *job.Spec) { s.MaxConcurrent, s.ConcurrencyKey = 10, "k" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			w := b.register(b.ours, "invoice")
			made := b.job(b.ours, "invoice", limit)
			for range 3 {
				b.trigger(b.ours, made, "")
			}
			for range 3 {
				a := b.claimOne(b.ours, w)
				for range 8 {
					if more := b.claim(b.ours, w, 10); len(more) != 0 {
						t.Fatalf("%d run beside it", len(more))
					}
				}
				if status, err := b.complete(a, callback.Report{}); err != nil || status != "completed" {
					t.Fatalf("ended as %q, %v", status, err)
				}
			}
			if drifted, err := b.maintains.ReconcileRunning(t.Context()); err != nil || drifted != 0 {
				t.Errorf("reconciling found %v tenants, %v", drifted, err)
			}
		})
	}
}

// The most urgent comes first, then the oldest.
func TestClaimsAreOrdered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.register(b.ours, "invoice", "other")
	var want []uuid.UUID
	for _, priority := range []int{9, 5, 5, 0} {
		name := "invoice"
		if priority == 0 {
			name = "other"
		}
		e := b.trigger(b.ours, b.job(b.ours, name, func(s *job.Spec) { s.Priority = priority }), "")
		b.exec("UPDATE active_executions SET available_at = now() - make_interval(secs => $2) WHERE id = $1", e.ID, 4-len(want))
		want = append(want, e.ID)
	}
	slices.Reverse(want[1:3])
	b.exec("UPDATE active_executions SET available_at = now() - interval '35 seconds' WHERE id = $1", want[1])
	var got []uuid.UUID
	for len(got) < 4 {
		for _, a := range b.claim(b.ours, w, 1) {
			got = append(got, a.ID)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
