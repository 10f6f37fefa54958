package promoter_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres/refusal"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// many is more of one job than a request cancels itself.
const many = dispatch.CancelAtOnce + 500

// triggered is a job without a schedule.
func triggered(s *job.Spec) { s.CronExpression = "" }

// backlog gives a job so many executions that wait in the pool, an hour old.
func (b *bundle) backlog(t *testing.T, j job.Job, n int) {
	t.Helper()
	admin, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(t.Context())
	_, err = admin.Exec(t.Context(), `INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority,
			max_attempts, timeout_ms, pooled, available_at, sweep_at, created_at, generation)
		SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '8000' || '8000' || substr(md5(random()::text), 1, 12))::uuid,
			j.tenant_id, j.id, 1, at, 'manual', 'function', j.priority, 1, 1000, true, now() - interval '1 hour', 'infinity', now(), j.generation
		FROM scheduled_jobs j, generate_series(1, $2::int) i, LATERAL (SELECT date_trunc('milliseconds', now() - i * interval '1 millisecond' - interval '1 hour') AS at) a
		WHERE j.id = $1`, j.ID, n)
	if err != nil {
		t.Fatal(err)
	}
}

// agent claims and completes as a worker does.
type agent struct {
	*bundle
	q      *db.Queries
	worker uuid.UUID
	token  uuid.UUID
}

func (b *bundle) agent(t *testing.T) agent {
	t.Helper()
	a := agent{bundle: b, q: db.New(b.engine.Pool()), worker: uuid.New(), token: uuid.New()}
	if err := a.q.InsertWorker(t.Context(), db.InsertWorkerParams{ID: a.worker, Host: "test", Slots: 10, JobTypes: []string{"function"}, LeaseSeconds: 3600}); err != nil {
		t.Fatal(err)
	}
	return a
}

// claim asks for executions in both ways in which a worker does.
func (a agent) claim(ctx context.Context, ids ...uuid.UUID) (got []uuid.UUID, err error) {
	rows, err := a.q.ClaimExecutions(ctx, db.ClaimExecutionsParams{WorkerID: &a.worker, LeaseToken: &a.token, Ids: ids, LeftTypes: []string{}})
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		got = append(got, r.ID)
	}
	gated, err := a.q.ClaimLimitedExecutions(ctx, db.ClaimLimitedExecutionsParams{WorkerID: &a.worker, LeaseToken: &a.token, Ids: ids, LeftTypes: []string{}})
	for _, r := range gated {
		got = append(got, r.ID)
	}
	return got, err
}

func (a agent) claims(t *testing.T, ids ...uuid.UUID) []uuid.UUID {
	t.Helper()
	got, err := a.claim(t.Context(), ids...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// polls asks for whatever may start.
func (a agent) polls(t *testing.T) []uuid.UUID {
	t.Helper()
	found, err := a.q.ListPooledExecutions(t.Context(), db.ListPooledExecutionsParams{BatchSize: 100, Lines: 96, LeftTypes: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	placed, err := a.q.ListUnblockedExecutions(t.Context(), db.ListUnblockedExecutionsParams{BatchSize: 100, Step: 96, LeftTypes: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	return append(found.Ids, placed.Ids...)
}

// succeeds completes an execution that this worker runs.
func (a agent) succeeds(t *testing.T, id uuid.UUID) {
	t.Helper()
	rows, err := a.q.CompleteExecutions(t.Context(), db.CompleteExecutionsParams{
		LeftTypes: []string{},
		Ids:       []uuid.UUID{id}, Attempts: []int32{1}, LeaseTokens: []uuid.UUID{a.token}, Succeeded: []bool{true}, RetryMs: []int64{-1}, DurationsUs: []int64{1},
		Results: []string{""}, ErrorTypes: []string{""}, ErrorMessages: []string{""}, ErrorStacks: []string{""}, MemoryMb: []float32{0}, CpuMs: []int64{0},
	})
	if err != nil || len(rows) != 1 {
		t.Fatalf("the outcome was not accepted: %v %v", rows, err)
	}
}

func (b *bundle) waiting(t *testing.T, j job.Job) (ids []uuid.UUID) {
	t.Helper()
	rows, err := b.engine.Pool().Query(t.Context(), "SELECT id FROM active_executions WHERE job_id = $1 AND status <> 'running' ORDER BY scheduled_at", j.ID)
	if err != nil {
		t.Fatal(err)
	}
	if ids, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID]); err != nil {
		t.Fatal(err)
	}
	return ids
}

func (b *bundle) cancelAll(t *testing.T) (n int) {
	t.Helper()
	// On a busy machine a call may run out of time before it has done anything, and the server ends
	// a transaction that stands still for five seconds.
	for idle, lost := 0, 0; idle < 3; {
		cancelled, err := b.maintainer.Cancel(t.Context())
		if err != nil {
			if lost++; lost > 20 || fault.KindOf(err) != fault.Unavailable {
				t.Fatal(err)
			}
			idle = 0
		}
		n += cancelled
		switch {
		case cancelled > 0:
			idle = 0
		case err == nil:
			idle++
		}
	}
	return n
}

// statusOf is the status of one execution, and why.
func (b *bundle) statusOf(t *testing.T, id uuid.UUID) (execution.Status, string) {
	t.Helper()
	e, err := b.executions.Get(t.Context(), b.who, id)
	if err != nil {
		t.Fatal(err)
	}
	return e.Status, e.Reason + " by " + e.CancelledBy
}

// A job with a large backlog stops at once, whatever waits: nothing of it starts
// from then on, what runs ends as cancelled, and what is triggered afterwards
// runs while the rest is still being cancelled.
func TestLargeBacklogIsStoppedAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, triggered)
	b.backlog(t, j, many)
	worker, old := b.agent(t), b.waiting(t, j)
	running := worker.claims(t, old[0])
	stopped, err := b.jobs.Stop(t.Context(), b.who, j.ID, "too much")
	if err != nil {
		t.Fatal(err)
	}
	if c := stopped.Cancelling; c == nil || c.Remaining != many || c.RequestedAt.IsZero() {
		t.Errorf("the answer says that there is %+v to cancel, want %d", c, many)
	}
	if e, err := b.executions.Get(t.Context(), b.who, old[1]); err != nil || e.WaitingOn == nil || e.WaitingOn.Reason != execution.WaitCancelling {
		t.Errorf("an execution waits for %+v, %v", e.WaitingOn, err)
	}
	if n := len(b.waiting(t, j)); n != many-1 {
		t.Errorf("the request itself cancelled %d of %d executions", many-1-n, many-1)
	}
	if got := append(worker.claims(t, old[1:]...), worker.polls(t)...); len(got) != 0 {
		t.Errorf("%d executions of the stopped job may start", len(got))
	}
	later, _, err := b.executions.Trigger(t.Context(), b.who, j.ID, nil, idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	if got := worker.polls(t); !slices.Equal(got, []uuid.UUID{later.ID}) {
		t.Errorf("a poll finds %v, want what was triggered after the stop", got)
	}
	if got := worker.claims(t, append(old[1:], later.ID)...); !slices.Equal(got, []uuid.UUID{later.ID}) {
		t.Errorf("a claim takes %v, want what was triggered after the stop", got)
	}
	worker.succeeds(t, running[0])
	worker.succeeds(t, later.ID)
	if n := b.cancelAll(t); n != many-1 {
		t.Errorf("%d executions were cancelled, want %d", n, many-1)
	}
	if got, err := b.jobs.Get(t.Context(), b.who, j.ID); err != nil || got.Cancelling != nil {
		t.Errorf("with everything cancelled there is %+v left, %v", got.Cancelling, err)
	}
	for id, want := range map[uuid.UUID]execution.Status{running[0]: execution.Cancelled, old[1]: execution.Cancelled, old[many-1]: execution.Cancelled, later.ID: execution.Completed} {
		status, why := b.statusOf(t, id)
		if status != want || want == execution.Cancelled && why != "too much by ada" {
			t.Errorf("an execution is %s (%s), want %s", status, why, want)
		}
	}
	if n := b.number(t, "SELECT count(*) FROM cancellations") + b.number(t, "SELECT sum(cancelling) FROM running_counts"); n != 0 {
		t.Errorf("%d orders are left", n)
	}
}

// A deleted job's executions are cancelled in pieces, those that run included,
// and can be read all the time.
func TestLargeBacklogIsDeletedAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	b.backlog(t, j, many)
	worker, old := b.agent(t), b.waiting(t, j)
	running := worker.claims(t, old[0])[0]
	if err := b.jobs.Delete(t.Context(), b.who, j.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	if got := worker.claims(t, old[1:]...); len(got) != 0 {
		t.Errorf("%d executions of the deleted job started", len(got))
	}
	if status, _ := b.statusOf(t, old[1]); status != execution.Pending {
		t.Errorf("before its turn an execution is %s", status)
	}
	if report := b.pass(t, b.promoter, j.NextExecutionAt.Add(time.Minute)); report.Promoted != 0 {
		t.Errorf("%d executions were made of the deleted job", report.Promoted)
	}
	if n := b.cancelAll(t); n != many {
		t.Errorf("%d executions were cancelled or asked to end, want %d", n, many)
	}
	marked, err := worker.q.ListCancelledRuns(t.Context(), &worker.worker)
	if err != nil || len(marked) != 1 || marked[0].ID != running {
		t.Errorf("the worker is told to end %v (%v)", marked, err)
	}
	worker.succeeds(t, running)
	list, _, err := b.executions.List(t.Context(), b.who, execution.Filter{JobID: &j.ID, Limit: many + 1})
	if err != nil || len(list) != many {
		t.Fatalf("%d of %d executions can be read, %v", len(list), many, err)
	}
	if slices.ContainsFunc(list, func(e execution.Execution) bool { return e.Status != execution.Cancelled }) {
		t.Error("not all executions of the deleted job are cancelled")
	}
}

// A claim that is under way and waits for the tenant's count, when the job is
// stopped, reads the order although it began before.
func TestClaimUnderWayObeysAnOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, triggered)
	b.backlog(t, j, 3)
	worker, ids := b.agent(t), b.waiting(t, j)
	admin, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(context.WithoutCancel(t.Context())) })
	tx, err := admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	order := db.OrderCancellationsParams{TenantID: b.who.TenantID, JobIds: []uuid.UUID{j.ID}, Now: clock.Now(), Reason: "stopped"}
	if err := db.New(tx).OrderCancellations(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	claimed := make(chan []uuid.UUID, 1)
	go func() { got, _ := worker.claim(t.Context(), ids...); claimed <- got }()
	b.untilBlocked(t)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-claimed; len(got) != 0 {
		t.Errorf("%d executions started after the stop", len(got))
	}
}

// Four promoters that cancel at once cancel each execution once.
func TestManyProcessesCancelEachOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const each = 3000
	for range 2 {
		j := b.create(t, triggered)
		b.backlog(t, j, each)
		if _, err := b.jobs.Stop(t.Context(), b.who, j.ID, ""); err != nil {
			t.Fatal(err)
		}
	}
	sums := make([]int, 4)
	var group errgroup.Group
	for i := range sums {
		m := b.anotherMaintainer(nil)
		group.Go(func() error {
			for {
				n, err := m.Cancel(t.Context())
				sums[i] += n
				if fault.KindOf(err) == fault.Unavailable {
					return nil // the server ended a transaction that stood still: the rest is left to others
				}
				if err != nil || n == 0 {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	sums = append(sums, b.cancelAll(t)) // where all ran out of time
	if n := b.number(t, "SELECT count(*) FROM job_executions WHERE status = 'cancelled'"); n != 2*each || sums[0]+sums[1]+sums[2]+sums[3]+sums[4] != 2*each {
		t.Errorf("%d are cancelled, by %v, want %d", n, sums, 2*each)
	}
	if n := b.number(t, "SELECT count(*) FROM active_executions") + b.number(t, "SELECT sum(cancelling) FROM running_counts"); n != 0 {
		t.Errorf("%d executions or orders are left", n)
	}
}

// TestOneProcessCancelsAtATime has another process cancel, which is killed then.
func TestOneProcessCancelsAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, triggered)
	b.backlog(t, j, 1100) // more than are cancelled at once
	if _, err := b.jobs.Stop(t.Context(), b.who, j.ID, ""); err != nil {
		t.Fatal(err)
	}
	// A superuser's session: one of a process may stand in a transaction for five seconds only.
	other, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(context.WithoutCancel(t.Context())) }()
	if _, err := other.Exec(t.Context(), "BEGIN; SELECT pg_advisory_xact_lock(hashtext('cancellations'), 0)"); err != nil {
		t.Fatal(err)
	}
	if n, err := b.maintainer.Cancel(t.Context()); n != 0 || err != nil {
		t.Errorf("%d cancelled beside another process: %v", n, err)
	}
	if err := other.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for began := clock.Start(); began.Elapsed() < time.Minute; { // until the server has noticed
		if n, err := b.maintainer.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		} else if n > 0 {
			return
		}
	}
	t.Error("nothing is cancelled once the other process is gone")
}

// An execution whose end the database refuses is left alone: all others of its
// job and of other jobs are cancelled.
func TestExecutionThatCannotBeCancelledIsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	poisoned, healthy := b.create(t, triggered), b.create(t, triggered)
	b.backlog(t, poisoned, many)
	b.backlog(t, healthy, many)
	bad := b.waiting(t, poisoned)[many/2]
	exec(t, b.database.AdminURL, refusal.Refusal{Name: "poison", Table: "job_executions", Rows: "NEW.id = '" + bad.String() + "'", SQLSTATE: "23514"}.Begin())
	for _, j := range []job.Job{poisoned, healthy} {
		if err := b.jobs.Delete(t.Context(), b.who, j.ID, "", 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.cancelAll(t); n != 2*many-1 {
		t.Errorf("%d were cancelled, want all but one of %d", n, 2*many)
	}
	if left := b.waiting(t, poisoned); !slices.Equal(left, []uuid.UUID{bad}) {
		t.Errorf("%d executions are left, want the one that cannot be stored", len(left))
	}
	if got := b.agent(t).claims(t, bad); len(got) != 0 {
		t.Error("what cannot be cancelled started")
	}
	if e, err := b.executions.Get(t.Context(), b.who, bad); err != nil || !strings.Contains(e.Reason, "could not be stored") {
		t.Errorf("its owner reads %q, %v", e.Reason, err)
	}
	exec(t, b.database.AdminURL, refusal.Refusal{Name: "poison", Table: "job_executions"}.End())
	b.sweep(t, clock.Now().Add(time.Minute))
	if status, why := b.statusOf(t, bad); status != execution.Cancelled || why != "the job was deleted by ada" {
		t.Errorf("once its end could be stored, it is %s (%s)", status, why)
	}
	if n := b.number(t, "SELECT count(*) FROM cancellations"); n != 0 {
		t.Errorf("%d orders are left", n)
	}
}

// A suspended tenant whose executions cannot be cancelled keeps nobody else from
// being held, freed, cancelled and purged.
func TestSuspendedTenantsDoNotHoldUpOneAnother(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tenants, worker := b.tenants(t), b.agent(t)
	stuck := b.who
	clogged := b.create(t, nil)
	b.backlog(t, clogged, 10)
	waiting := b.waiting(t, clogged)
	// Every change of the rows of this tenant fails, and not for good.
	for _, table := range []string{"job_executions", "job_definitions"} {
		exec(t, b.database.AdminURL, refusal.Refusal{
			Name: "stuck", Table: table, Event: "INSERT OR UPDATE", Rows: "NEW.tenant_id = '" + stuck.TenantID.String() + "'", SQLSTATE: "57014",
		}.Begin())
	}
	if _, err := tenants.Suspend(t.Context(), stuck.TenantID, ""); err != nil {
		t.Fatal(err)
	}
	if got := append(worker.claims(t, waiting...), worker.polls(t)...); len(got) != 0 {
		t.Errorf("%d executions of the suspended tenant may start", len(got))
	}
	other := func(name string) {
		t.Helper()
		b.who = tenant.Actor{TenantID: uuid.New(), Subject: "eve"}
		if _, err := tenants.Create(t.Context(), b.who.TenantID, tenant.Spec{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	other("deleted")
	b.backlog(t, b.create(t, nil), 10)
	if _, err := tenants.Delete(t.Context(), b.who.TenantID, 0); err != nil {
		t.Fatal(err)
	}
	b.backdate(t, time.Minute)
	var cancelling, pausing error
	purged := 0
	// Each tenant is held, then cancelled, then purged, in any order of the tenants. On a busy machine
	// a pass may run out of time before it comes to one, so it is repeated.
	for n := 0; n < 3 || n < 30 && (cancelling == nil || pausing == nil || purged == 0); n++ {
		_, err := b.maintainer.Cancel(t.Context())
		cancelling = errors.Join(cancelling, err)
		_, err = b.maintainer.Suspend(t.Context())
		pausing = errors.Join(pausing, err)
		purged = b.number(t, "SELECT count(*) FROM tenants WHERE status = 'deleted' AND id = $1", b.who.TenantID)
	}
	if cancelling == nil || pausing == nil {
		t.Errorf("nobody hears of the tenant whose executions cannot be cancelled and whose jobs cannot be paused: %v, %v", cancelling, pausing)
	}
	if purged != 1 {
		t.Error("the deleted tenant is not purged")
	}
	b.who = stuck
	if n := len(b.waiting(t, clogged)); n != 10 {
		t.Errorf("%d executions of the stuck tenant are left", n)
	}
	if _, err := tenants.Activate(t.Context(), stuck.TenantID); err != nil {
		t.Fatal(err)
	}
	if got := worker.claims(t, waiting...); len(got) != 10 {
		t.Errorf("%d of 10 started once the tenant was active again", len(got))
	}
}

// A scheduled time that cancels what is active of a job with a large backlog (its
// policy was another before) leaves an order, and what it makes is not under it.
func TestScheduledTimeCancelsALargeBacklog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.Overlap, s.MaxConcurrent = job.OverlapCancel, 1 })
	b.backlog(t, j, many)
	worker, old := b.agent(t), b.waiting(t, j)
	now := *j.NextExecutionAt
	if report := b.pass(t, b.promoter, now); report.Promoted != 1 {
		t.Fatalf("%d executions were made", report.Promoted)
	}
	if n := len(b.waiting(t, j)); n != many+1 {
		t.Errorf("%d wait, want all %d and the new one", n, many)
	}
	if got := worker.claims(t, old...); len(got) != 0 {
		t.Errorf("%d of those that were cancelled started", len(got))
	}
	exec(t, b.database.AdminURL, "UPDATE active_executions SET available_at = now() - interval '1 second'")
	made := execution.ScheduledID(j.ID, now)
	if got := worker.claims(t, made); !slices.Equal(got, []uuid.UUID{made}) {
		t.Errorf("the new execution waits for those that are being cancelled: %v", got)
	}
	if n := b.cancelAll(t); n != many {
		t.Errorf("%d were cancelled, want %d", n, many)
	}
	if status, why := b.statusOf(t, old[0]); status != execution.Cancelled || why[len(why)-len(" by system"):] != " by system" {
		t.Errorf("the backlog is %s (%s)", status, why)
	}
}
