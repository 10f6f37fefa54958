package maintenance_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/maintenance"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// waiting inserts executions; sql answers rows of an id, a tenant, a job, a scheduled
// time and a status.
func (b *bundle) waiting(t *testing.T, sql string) {
	t.Helper()
	exec(t, b.database.AdminURL, `INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, status,
			max_attempts, timeout_ms, available_at, sweep_at)
		SELECT x.id, x.tenant, x.job, 1, x.at, 'manual', 'function', x.status, 1, 1000, 'infinity', 'infinity' FROM (`+sql+`) x (id, tenant, job, at, status)`)
}

// count counts what waits, of all tenants.
func (b *bundle) count(t *testing.T) {
	t.Helper()
	for all := false; !all; {
		var err error
		if all, err = b.maintainer.CountWaiting(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// counted are the numbers that sql answers: of a tenant and a job.
func (b *bundle) counted(t *testing.T, sql string) map[string]int64 {
	t.Helper()
	rows, err := b.engine.Pool().Query(t.Context(), "SELECT x.tenant_id::text || ' ' || x.job_id::text, x.waiting FROM ("+sql+") x")
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string]int64{}
	var key string
	var n int64
	if _, err = pgx.ForEachRow(rows, []any{&key, &n}, func() error { numbers[key] = n; return nil }); err != nil {
		t.Fatal(err)
	}
	return numbers
}

// Statements read rows in pages. These end within tenants and jobs, and among rows of
// one scheduled time; the numbers are those of the whole.
func TestWhatWaitsIsCountedInPages(t *testing.T) {
	t.Parallel()
	const kept = "SELECT w.tenant_id, w.job_id, w.waiting FROM waiting_counts w"
	b := setup(t)
	b.waiting(t, `SELECT gen_random_uuid(), md5('tenant' || i % 3)::uuid, md5('job' || i % 3 || ' ' || i % 12)::uuid, now() - i / 500 * interval '1 s',
		CASE WHEN i % 5 = 0 THEN 'running' WHEN i % 5 = 1 THEN 'retrying' ELSE 'pending' END FROM generate_series(1, 12000) i`)
	b.waiting(t, `SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), now(), 'pending' FROM generate_series(1, 1200) i`) // too few of each
	b.count(t)
	want := b.counted(t, `SELECT e.tenant_id, coalesce(e.job_id, '00000000-0000-0000-0000-000000000000') AS job_id, count(*) AS waiting
		FROM active_executions e WHERE e.status <> 'running' GROUP BY GROUPING SETS ((e.tenant_id, e.job_id), (e.tenant_id)) HAVING count(*) >= 500`)
	if len(want) != 3+12 {
		t.Fatalf("%d numbers to count", len(want))
	}
	if diff := cmp.Diff(want, b.counted(t, kept)); diff != "" {
		t.Error("(-want +got)", diff)
	}
	exec(t, b.database.AdminURL, "DELETE FROM active_executions WHERE tenant_id <> md5('tenant1')::uuid")
	b.count(t)
	if got := b.counted(t, kept); len(got) != 1+4 {
		t.Errorf("afterwards %v", got)
	}
}

// The limit of a tenant's own may be so small that each of many jobs has a number.
func TestManyNumbersAreKeptInPages(t *testing.T) {
	t.Parallel()
	const numbers = "SELECT count(*) FROM waiting_counts WHERE waiting = 2 OR waiting = 24000"
	b := setup(t)
	exec(t, b.database.AdminURL, "UPDATE tenants SET max_waiting_per_job = 1 WHERE id = '"+b.who.TenantID.String()+"'")
	b.waiting(t, `SELECT gen_random_uuid(), '`+b.who.TenantID.String()+`'::uuid, md5('job' || i % 12000)::uuid, now() - i * interval '1 ms', 'pending' FROM generate_series(1, 24000) i`)
	b.count(t)
	if n := b.number(t, numbers); n != 12_001 {
		t.Errorf("%d numbers", n)
	}
	exec(t, b.database.AdminURL, "DELETE FROM active_executions WHERE right(job_id::text, 1) < '8'")
	left := b.number(t, "SELECT count(DISTINCT job_id) + 1 FROM active_executions")
	b.count(t)
	if n, all := b.number(t, numbers), b.number(t, "SELECT count(*) FROM waiting_counts"); n != left-1 || all != left {
		t.Errorf("afterwards %d numbers of jobs and %d in all, want %d", n, all, left)
	}
}

// A count does not add what waits now to what was read before a pause.
func TestCountsBeginAgainAfterAPause(t *testing.T) {
	t.Parallel()
	const backlog = `SELECT gen_random_uuid(), md5('tenant')::uuid, md5('job')::uuid, now() - i * interval '1 ms', 'pending' FROM generate_series(1, 3000) i`
	b := setup(t)
	b.waiting(t, backlog+" WHERE i <= 1000")
	if err := b.maintainer.CountPage(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, b.database.AdminURL, "DELETE FROM active_executions")
	b.waiting(t, backlog+" WHERE i > 1000")
	b.count(t)
	if n := b.number(t, "SELECT waiting FROM waiting_counts WHERE job_id = md5('job')::uuid"); n != 2000 {
		t.Errorf("%d wait, want 2000", n)
	}
}

// A statement costs by the rows that it may read and not by what a tenant has.
func TestCountsReadNoMoreThanAPage(t *testing.T) {
	t.Parallel()
	const page = 500
	b := setup(t)
	b.waiting(t, `SELECT gen_random_uuid(), md5('tenant' || i % 2)::uuid, md5('job')::uuid, now() - i * interval '1 ms', 'pending' FROM generate_series(1, 20000) i`)
	exec(t, b.database.AdminURL, "ANALYZE active_executions")
	conn, err := b.engine.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	var first uuid.UUID
	if err := conn.QueryRow(t.Context(), "SELECT tenant_id FROM active_executions ORDER BY tenant_id LIMIT 1").Scan(&first); err != nil {
		t.Fatal(err)
	}
	for name, after := range map[string]db.CountNextWaitingParams{
		"from the first tenant": {Most: page},
		"within a tenant":       {Within: true, Most: page, AfterTenant: first, AfterAt: clock.Now().Add(-time.Second), AfterID: uuid.Max},
	} {
		var touched, read float64
		pgtest.Explain(t, conn.Conn(), "force_generic_plan", uuid.Nil, func(ctx context.Context, s *pgtest.Statement) error {
			_, err := db.New(s).CountNextWaiting(ctx, after)
			return err
		}).Walk(func(n pgtest.PlanNode) {
			if touched += n.Touched(); n.Relation == "active_executions" {
				read += n.Touched()
			}
		})
		if read != page || touched > 10*page {
			t.Errorf("%s: %v rows are read and %v touched for %d", name, read, touched, page)
		}
	}
}

// Where nobody is near a limit, a round is left alone for a while. Its numbers stay meanwhile.
func TestCountsRestWhereNobodyIsNearALimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.waiting(t, `SELECT gen_random_uuid(), '`+b.who.TenantID.String()+`'::uuid, md5('job' || i % 2)::uuid, now(), 'pending' FROM generate_series(1, 2000) i`)
	var most tenant.Backlog
	m := b.anotherMaintainer(func(c *maintenance.Config) { c.Backlog = func() tenant.Backlog { return most } })
	for _, test := range []struct {
		name  string
		most  tenant.Backlog
		own   string
		rests bool
	}{
		{"without limits", tenant.Backlog{}, "NULL", true},
		{"of a tenant, far", tenant.Backlog{Max: 4001}, "NULL", true},
		{"of a tenant, near", tenant.Backlog{Max: 4000}, "NULL", false},
		{"of a job, far", tenant.Backlog{MaxPerJob: 2001}, "NULL", true},
		{"of a job, near", tenant.Backlog{MaxPerJob: 2000}, "NULL", false},
		{"of the tenant's own, near", tenant.Backlog{MaxPerJob: 9000}, "2000", false},
		{"far again", tenant.Backlog{MaxPerJob: 9000}, "9000", true},
	} {
		exec(t, b.database.AdminURL, "UPDATE tenants SET max_waiting_per_job = "+test.own)
		most = test.most
		for all := false; !all; {
			var err error
			if all, err = m.CountWaiting(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if rest := m.CountRest(); rest > 0 != test.rests || rest > 5*time.Second {
			t.Errorf("%s: rests for %s", test.name, rest)
		}
	}

	passes := m.Passes()
	count := passes[slices.IndexFunc(passes, func(p loop.Pass) bool { return p.Name == "count-waiting" })]
	exec(t, b.database.AdminURL, "DELETE FROM active_executions")
	for _, test := range []struct {
		rest time.Duration
		kept int
	}{{time.Hour, 3}, {0, 0}} {
		m.RestCounting(test.rest)
		if err := count.Do(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if n := b.number(t, "SELECT count(*) FROM waiting_counts"); n != test.kept {
			t.Errorf("with a rest of %s %d numbers are kept, want %d", test.rest, n, test.kept)
		}
	}
}
