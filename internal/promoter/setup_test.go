package promoter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/maintenance"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// claimBy makes a waiting execution running on a worker whose lease ends at an
// time, as the worker's claim would.
func (b *bundle) claimBy(t *testing.T, id string, leaseEnds, deadline time.Time) {
	t.Helper()
	exec(t, b.database.AdminURL, fmt.Sprintf(`WITH w AS (
			INSERT INTO workers (id, host, pid, slots, expires_at) VALUES (gen_random_uuid(), 'test', 1, 1, '%s') RETURNING id)
		UPDATE active_executions SET status = 'running', attempt = attempt + 1, worker_id = w.id, lease_token = gen_random_uuid(), deadline_at = '%s',
			pooled = false, sweep_at = least(sweep_at, available_at + interval '5 seconds')
		FROM w WHERE active_executions.id = '%s'`, leaseEnds.Format(time.RFC3339Nano), deadline.Format(time.RFC3339Nano), id))
}

func (b *bundle) sweep(t *testing.T, now time.Time) maintenance.SweepReport {
	t.Helper()
	report, err := b.maintainer.Sweep(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func (b *bundle) tenants(t *testing.T) *tenant.Store {
	t.Helper()
	return tenant.NewStore(open(t, b.database.URL, postgres.API), false)
}

func (b *bundle) number(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	if err := b.engine.Pool().QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// backdate makes the tenant's last change one of a while ago.
func (b *bundle) backdate(t *testing.T, ago time.Duration) {
	t.Helper()
	tx, err := open(t, b.database.URL, postgres.API).Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		fmt.Sprintf("SET LOCAL app.tenant_id = '%s'", b.who.TenantID),
		fmt.Sprintf("UPDATE tenants SET updated_at = now() - interval '%d seconds' WHERE id = '%s'", int(ago.Seconds()), b.who.TenantID),
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}
