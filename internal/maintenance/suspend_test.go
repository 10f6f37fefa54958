package maintenance_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/maintenance"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func (b *bundle) suspend(t *testing.T) (paused, resumed, cancelled, purged int) {
	t.Helper()
	cancelled, err := b.maintainer.Cancel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.maintainer.Suspend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r.Paused, r.Resumed, cancelled, r.Purged
}

// A suspended tenant's jobs are paused, what waits is cancelled, what runs is
// asked to end; afterwards the jobs go on, but for those that somebody paused.
func TestASuspendedTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	running, paused := b.create(t, nil), b.create(t, nil)
	if _, err := b.jobs.Pause(t.Context(), b.who, paused.ID, "mine", nil); err != nil {
		t.Fatal(err)
	}
	now := running.NextExecutionAt.Add(time.Second)
	b.pass(t, now)
	if n := b.number(t, "SELECT count(*) FROM active_executions"); n == 0 {
		t.Fatal("nothing was promoted")
	}
	if _, err := b.engine.Pool().Exec(t.Context(), "UPDATE active_executions SET status = 'running', worker_id = gen_random_uuid(), lease_token = gen_random_uuid() WHERE id = (SELECT min(id::text)::uuid FROM active_executions)"); err != nil {
		t.Fatal(err)
	}
	tenants := b.tenants(t)
	if _, err := tenants.Suspend(t.Context(), b.who.TenantID, "unpaid"); err != nil {
		t.Fatal(err)
	}
	if paused, _, cancelled, _ := b.suspend(t); paused != 1 || cancelled != 2 {
		t.Errorf("%d jobs were paused and %d executions cancelled", paused, cancelled)
	}
	if n := b.number(t, "SELECT count(*) FROM active_executions WHERE status <> 'running' OR cancel_requested_at IS NULL"); n != 0 {
		t.Errorf("%d executions wait or were not asked to end", n)
	}
	if n := b.number(t, "SELECT count(*) FROM executions WHERE reason <> 'the tenant is suspended' OR cancelled_by <> 'platform'"); n != 0 {
		t.Errorf("%d executions do not say why they end", n)
	}
	if report := b.pass(t, now.Add(time.Minute)); report.Claimed != 0 {
		t.Errorf("%d jobs of a suspended tenant were promoted", report.Claimed)
	}
	if paused, resumed, cancelled, _ := b.suspend(t); paused+resumed+cancelled != 0 {
		t.Errorf("a second pass did something: %d %d %d", paused, resumed, cancelled)
	}
	if _, err := tenants.Activate(t.Context(), b.who.TenantID); err != nil {
		t.Fatal(err)
	}
	if _, resumed, _, _ := b.suspend(t); resumed != 1 {
		t.Errorf("%d jobs were resumed", resumed)
	}
	for id, want := range map[uuid.UUID]job.Status{running.ID: job.Active, paused.ID: job.Paused} {
		if got, err := b.jobs.Get(t.Context(), b.who, id); err != nil || got.Status != want {
			t.Errorf("the job is %s, want %s; %v", got.Status, want, err)
		}
	}
	b.promoter = b.anotherPromoter() // which looks for jobs that were due before
	if report := b.pass(t, now.Add(2*time.Minute)); report.Claimed != 1 {
		t.Errorf("%d jobs were promoted afterwards", report.Claimed)
	}
}

// Of a deleted tenant nothing is left but its id, and others keep theirs.
func TestADeletedTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	b.pass(t, j.NextExecutionAt.Add(time.Second))
	tenants := b.tenants(t)
	other := tenant.Actor{TenantID: uuid.New(), Subject: "eve"}
	if _, err := tenants.Create(t.Context(), other.TenantID, tenant.Spec{Name: "other"}); err != nil {
		t.Fatal(err)
	}
	spared := b.who
	b.who = other
	theirs := b.create(t, nil)
	b.who = spared
	if _, err := tenants.Delete(t.Context(), b.who.TenantID, 0); err != nil {
		t.Fatal(err)
	}
	if paused, _, cancelled, purged := b.suspend(t); paused != 1 || cancelled != 2 || purged != 0 {
		t.Errorf("paused %d, cancelled %d, purged %d", paused, cancelled, purged)
	}
	if _, err := b.engine.Pool().Exec(t.Context(), `INSERT INTO outcome_rollups (tenant_id, part, span, at, cells)
		SELECT t, n % 33, n % 3, now() + n * interval '1 hour', '\x01' FROM unnest($1::uuid[]) t, generate_series(1, 1500) n`, []uuid.UUID{b.who.TenantID, other.TenantID}); err != nil {
		t.Fatal(err)
	}
	// A request that was admitted before the deletion ends after it.
	late := b.create(t, nil)
	b.backdate(t, time.Minute)
	if _, err := tenants.Delete(t.Context(), b.who.TenantID, 0); err != nil { // again: it puts nothing off
		t.Fatal(err)
	}
	// A pass has a second: on a busy machine it takes several to purge the tenant.
	paused, _, _, purged := b.suspend(t)
	for passes := 1; purged == 0 && passes < 30; passes++ {
		_, _, _, purged = b.suspend(t)
	}
	if paused != 1 || purged != 1 {
		t.Errorf("half a minute later: paused %d, purged %d", paused, purged)
	}
	if _, err := b.jobs.Get(t.Context(), b.who, late.ID); err == nil {
		t.Error("a job that was created late is left")
	}
	for _, table := range []string{"scheduled_jobs", "job_versions", "active_executions", "job_executions", "outcome_rollups", "execution_days", "calendars", "api_keys", "secrets", "functions", "function_versions", "function_modules", "job_counts"} {
		if n := b.number(t, "SELECT count(*) FROM "+table+" WHERE tenant_id = $1", b.who.TenantID); n != 0 {
			t.Errorf("%s has %d rows of the deleted tenant", table, n)
		}
	}
	if n := b.number(t, "SELECT count(*) FROM tenants WHERE id = $1 AND status = 'deleted' AND name = 'deleted'", b.who.TenantID); n != 1 {
		t.Error("the tenant's id was not kept")
	}
	if n := b.number(t, "SELECT count(*) FROM outcome_rollups WHERE tenant_id = $1", other.TenantID); n != 1500 {
		t.Errorf("another tenant has %d of 1500 roll-ups", n)
	}
	if _, err := b.jobs.Get(t.Context(), other, theirs.ID); err != nil {
		t.Errorf("another tenant's job is gone: %v", err)
	}
	if err := tenant.NewStore(open(t, b.database.URL, postgres.API), true).Admit(t.Context(), b.who.TenantID); err == nil {
		t.Error("a token brings the tenant back to life")
	}
}

// Where the server gives a process one session alone, cancelling finds no second one, and leaves the
// session to others after two seconds. On the commit before it waited for itself.
func TestCancellingDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.pass(t, b.create(t, nil).NextExecutionAt.Add(time.Second))
	if _, err := b.tenants(t).Suspend(t.Context(), b.who.TenantID, "unpaid"); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		only, err := postgres.Open(t.Context(), postgres.Config{URL: b.database.URL, Role: postgres.Engine, Name: "test", MaxConns: 1, StatementTimeout: pgtest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		defer only.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if n, err := b.anotherMaintainer(func(c *maintenance.Config) { c.DB = only }).Cancel(ctx); n != 0 || err == nil || ctx.Err() != nil {
			t.Errorf("%d were cancelled, %v, and its time ended with %v", n, err, ctx.Err())
		}
		if err := only.Ping(ctx); err != nil {
			t.Errorf("the session is not free: %v", err)
		}
	})
}
