package replay_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/deadletter"
	"github.com/scheduler-service/scheduler/internal/deadletter/replay"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// bundle is a tenant with a job, its store, and a replayer.
type bundle struct {
	t        *testing.T
	admin    *pgx.Conn
	engine   *postgres.DB
	store    *replay.Store
	replayer *replay.Replayer
	who      tenant.Actor
	job      uuid.UUID
	n        int // dead letters so far
}

func setup(t *testing.T) *bundle {
	t.Helper()
	database := pgtest.New(t)
	b := &bundle{t: t, who: tenant.Actor{TenantID: uuid.New(), Subject: "ada"}, job: uuid.New()}
	open := func(role postgres.Role) *postgres.DB {
		d, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: role, Name: "test", MaxConns: 4, StatementTimeout: pgtest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		return d
	}
	b.engine, b.store = open(postgres.Engine), replay.NewStore(open(postgres.API))
	b.replayer = b.newReplayer()
	var err error
	if b.admin, err = pgx.Connect(t.Context(), database.AdminURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.admin.Close(context.WithoutCancel(t.Context())) })
	b.exec("SELECT create_job_executions_partition(now() - interval '1 day'), create_job_executions_partition(now())")
	b.exec("INSERT INTO tenants (id, name) VALUES ($1, 'a')", b.who.TenantID)
	b.makeJob(b.job)
	return b
}

func (b *bundle) newReplayer() *replay.Replayer {
	metrics := telemetry.NewMetrics(telemetry.NewRegistry())
	return replay.New(b.engine, execution.NewStore(b.engine, execution.Config{}), metrics, func(context.Context) {})
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.admin.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bundle) count(sql string, args ...any) (n int) {
	b.t.Helper()
	if err := b.admin.QueryRow(b.t.Context(), sql, args...).Scan(&n); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (b *bundle) makeJob(job uuid.UUID) {
	b.t.Helper()
	b.exec(`INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds)
		VALUES ($1, $2, $3, 'x', 'http', '{}', 1, 1)`, job, b.who.TenantID, job.String())
}

// dead makes so many dead letters of a job, each a second younger than the one before, of a minute ago
// and before.
func (b *bundle) dead(job uuid.UUID, n int) (ids []uuid.UUID) {
	b.t.Helper()
	for range n {
		b.n++
		at := clock.Now().UTC().Add(-time.Hour + time.Duration(b.n)*time.Second).Truncate(time.Microsecond)
		id := execution.ScheduledID(uuid.New(), at)
		b.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, error_type, attempt, completed_at, created_at)
			VALUES ($1, $2, $3, $4, 1, 'scheduled', 'http', 'failed', 'TIMEOUT', 1, $2, $2)`, id, at, b.who.TenantID, job)
		b.exec(`INSERT INTO dead_letters (execution_id, tenant_id, job_id, error_type, error_message, fingerprint, failed_at, scheduled_at)
			VALUES ($1, $3, $4, 'TIMEOUT', '', '0123456789abcdef', $2, $2)`, id, at, b.who.TenantID, job)
		ids = append(ids, id)
	}
	return ids
}

// create asks for a replay of all with the fingerprint of dead.
func (b *bundle) create(rate int, canary bool) replay.Replay {
	b.t.Helper()
	made, _, err := b.store.Create(b.t.Context(), b.who, replay.Request{Filter: deadletter.Filter{Fingerprint: "0123456789abcdef"}, RatePerMinute: rate, NoCanary: !canary}, idempotency.Key{})
	if err != nil {
		b.t.Fatal(err)
	}
	return made
}

func (b *bundle) pass(at time.Time) replay.Report {
	b.t.Helper()
	report, err := b.replayer.Pass(b.t.Context(), at)
	if err != nil {
		b.t.Fatal(err)
	}
	return report
}

// all passes at one time until nothing is due then, and says how many were replayed. A pass ends
// after half a second, which one step may take on a busy machine.
func (b *bundle) all(at time.Time) (replayed int) {
	b.t.Helper()
	for range 100 {
		report := b.pass(at)
		if replayed += report.Replayed; !report.Active {
			break
		}
	}
	return replayed
}

func (b *bundle) get(id uuid.UUID) replay.Replay {
	b.t.Helper()
	found, err := b.store.Get(b.t.Context(), b.who, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// ends moves an execution to the history.
func (b *bundle) ends(id uuid.UUID, status string) {
	b.t.Helper()
	b.exec(`WITH moved AS (DELETE FROM active_executions WHERE id = $1 RETURNING *)
		INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, attempt, completed_at, created_at)
		SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, $2, 1, now(), created_at FROM moved`, id, status)
}

func (b *bundle) left() int {
	b.t.Helper()
	return b.count("SELECT count(*) FROM dead_letters")
}

// until passes once for each second until the replay ends.
func (b *bundle) until(r replay.Replay) replay.Replay {
	b.t.Helper()
	for second := range 120 {
		b.pass(r.CreatedAt.Add(time.Duration(second) * time.Second))
		if r = b.get(r.ID); r.FinishedAt != nil {
			return r
		}
	}
	b.t.Fatalf("it does not end: %+v", r)
	return r
}

func TestTheCanaryGoesFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.dead(b.job, 3)
	r := b.create(60, true)
	if r.Total != 3 || r.Status != replay.Canary {
		t.Fatalf("it begins as %+v", r)
	}
	for second := range 5 {
		b.pass(r.CreatedAt.Add(time.Duration(second) * time.Second))
	}
	waits := b.get(r.ID)
	if b.left() != 2 || waits.Replayed != 1 || waits.CanaryID == nil || waits.Reason == "" || waits.Status != replay.Canary {
		t.Fatalf("%d dead letters are left while the canary runs: %+v", b.left(), waits)
	}
	if n := b.count("SELECT count(*) FROM execution_retries WHERE execution_id = $1 AND retry_of = $2", *waits.CanaryID, ids[0]); n != 1 {
		t.Error("the canary does not repeat the oldest one")
	}
	b.ends(*waits.CanaryID, "completed")
	if done := b.until(r); done.Status != replay.Completed || done.Replayed != 3 || done.Refused != 0 || done.Reason != "" || b.left() != 0 {
		t.Errorf("%d are left: %+v", b.left(), done)
	}
	if n := b.count("SELECT count(*) FROM active_executions WHERE triggered_by = 'ada' AND trigger_type = 'retry'"); n != 2 {
		t.Errorf("%d executions wait, want 2", n)
	}
}

func TestAFailedCanaryHaltsTheReplay(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"failed", "cancelled"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.dead(b.job, 3)
			r := b.create(3000, true)
			b.all(r.CreatedAt)
			b.ends(*b.get(r.ID).CanaryID, status)
			if done := b.until(r); done.Status != replay.Halted || done.Reason != "the canary ended "+status || done.Replayed != 1 || b.left() != 2 {
				t.Errorf("%d are left: %+v", b.left(), done)
			}
		})
	}
}

// A replay keeps to its rate, and a pass that comes late makes up for a second at most.
func TestTheRateBoundsAReplay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.dead(b.job, 12)
	r := b.create(120, false)
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {0, 0}, {400 * time.Millisecond, 0}, {500 * time.Millisecond, 1}, {time.Second, 1}, {time.Minute, 3}, {time.Minute + 499*time.Millisecond, 0}} {
		if got := b.all(r.CreatedAt.Add(step.after)); got != step.want {
			t.Errorf("after %v it replayed %d, want %d", step.after, got, step.want)
		}
	}
}

// A dead letter that cannot be replayed is named, stays, and keeps none of the others.
func TestARefusedDeadLetterStays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	gone := uuid.New()
	b.makeJob(gone)
	refused := b.dead(gone, 1)[0]
	b.dead(b.job, 2)
	b.exec("UPDATE scheduled_jobs SET deleted_at = now() WHERE id = $1", gone)
	done := b.until(b.create(3000, false))
	if done.Status != replay.Completed || done.Replayed != 2 || done.Refused != 1 || len(done.Faults) != 1 || b.left() != 1 {
		t.Fatalf("%d are left: %+v", b.left(), done)
	}
	if f := done.Faults[0]; f.ExecutionID != refused || f.Code != "CONFLICT" || f.Message == "" {
		t.Errorf("the fault is %+v", f)
	}
}

// A limit holds a replay up, which says so and goes on by itself.
func TestALimitHoldsAReplay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.dead(b.job, 2)
	b.exec("UPDATE tenants SET max_waiting = 1 WHERE id = $1", b.who.TenantID)
	r := b.create(3000, false)
	b.all(r.CreatedAt)
	b.all(r.CreatedAt.Add(time.Second))
	if held := b.get(r.ID); held.Replayed != 1 || held.Refused != 0 || held.Reason == "" || held.Status != replay.Running || b.left() != 1 {
		t.Fatalf("%d are left: %+v", b.left(), held)
	}
	b.exec("UPDATE tenants SET max_waiting = 5 WHERE id = $1", b.who.TenantID)
	if done := b.until(r); done.Status != replay.Completed || done.Replayed != 2 || done.Reason != "" {
		t.Errorf("it ended as %+v", done)
	}
}

// Failures of its own executions, and all that come later, are not in a replay.
func TestAReplayEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.dead(b.job, 1)
	r := b.create(3000, false)
	late := b.dead(b.job, 1)[0]
	b.exec("UPDATE dead_letters SET failed_at = $2 WHERE execution_id = $1", late, r.CreatedAt)
	if done := b.until(r); done.Status != replay.Completed || done.Replayed != 1 || b.left() != 1 {
		t.Errorf("%d are left: %+v", b.left(), done)
	}
}

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	create := func(f deadletter.Filter) error {
		_, _, err := b.store.Create(t.Context(), b.who, replay.Request{Filter: f}, idempotency.Key{})
		return err
	}
	if err := create(deadletter.Filter{ErrorTypes: []string{"TIMEOUT"}}); fault.KindOf(err) != fault.Conflict {
		t.Errorf("where nothing fits: %v", err)
	}
	b.dead(b.job, 1)
	r := b.create(1, true)
	if err := create(deadletter.Filter{Fingerprint: "0123456789abcdef"}); fault.KindOf(err) != fault.Conflict {
		t.Errorf("the same filter: %v", err)
	}
	for n := range 9 {
		from := time.Unix(int64(n), 0).UTC()
		if err := create(deadletter.Filter{From: &from}); err != nil {
			t.Errorf("number %d: %v", n+2, err)
		}
	}
	if err := create(deadletter.Filter{JobID: &b.job}); fault.KindOf(err) != fault.Conflict {
		t.Errorf("the eleventh: %v", err)
	}
	for range 2 {
		if cancelled, err := b.store.Cancel(t.Context(), b.who, r.ID); err != nil || cancelled.Status != replay.Cancelled || cancelled.FinishedAt == nil {
			t.Errorf("cancelled as %+v: %v", cancelled, err)
		}
	}
	if b.pass(r.CreatedAt); b.get(r.ID).Replayed != 0 {
		t.Error("it is replayed after it was cancelled")
	}
	stranger := tenant.Actor{TenantID: uuid.New(), Subject: "eve"}
	if _, err := b.store.Get(t.Context(), stranger, r.ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("another tenant: %v", err)
	}
}

// However many processes advance a replay, each dead letter is replayed once.
func TestEachIsReplayedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.dead(b.job, 20)
	r := b.create(3000, false)
	others := []*replay.Replayer{b.replayer, b.newReplayer(), b.newReplayer()}
	for second := 0; b.get(r.ID).FinishedAt == nil; second++ {
		var group sync.WaitGroup
		for _, one := range others {
			group.Go(func() {
				if _, err := one.Pass(t.Context(), r.CreatedAt.Add(time.Duration(second)*time.Second)); err != nil {
					t.Error(err)
				}
			})
		}
		if group.Wait(); second > 100 {
			t.Fatal("it does not end")
		}
	}
	if got := fmt.Sprint(b.get(r.ID).Replayed, b.count("SELECT count(*) FROM execution_retries"), b.count("SELECT count(DISTINCT retry_of) FROM execution_retries")); got != "20 20 20" {
		t.Errorf("counted, made and repeated are %s", got)
	}
}

// Tenants take turns: one with many replays does not keep another waiting.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, two, suspended := uuid.New(), uuid.New(), uuid.New()
	b.exec("INSERT INTO tenants (id, name, status) VALUES ($1, 'b', 'active'), ($2, 'c', 'active'), ($3, 'd', 'suspended')", one, two, suspended)
	for n, owner := range []uuid.UUID{one, one, one, two, suspended} {
		b.exec(`INSERT INTO dead_letter_replays (id, tenant_id, selected, from_at, to_at, rate_per_minute, no_secrets, status, after_at, after_id, total, next_at, requested_by, created_at)
			VALUES (gen_random_uuid(), $1, $2, now(), now(), 1, true, 'running', now(), $1, 1, now() - interval '1 minute' + $3::int * interval '1 second', 'x', now())`, owner, fmt.Sprint(n), n)
	}
	rows, err := db.New(b.engine.Pool()).ListDueReplays(t.Context(), db.ListDueReplaysParams{Most: 10})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range rows {
		got = append(got, map[uuid.UUID]string{one: "b", two: "c"}[row.TenantID])
	}
	if text := fmt.Sprint(got); text != "[b c b b]" {
		t.Errorf("the turns are %s", text)
	}
}
