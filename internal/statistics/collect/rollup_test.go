package collect_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/statistics/rollup"
)

// ways are those in which roll-ups hold an execution: of all jobs and of each, by
// the hour, the day and the week.
type ways [6]int64

func every(n int64) ways { return ways{n, n, n, n, n, n} }

// fold folds everything that is counted.
func (b *bundle) fold() {
	b.t.Helper()
	for more := true; more; {
		var err error
		if _, more, err = b.collector.Fold(b.t.Context(), clock.Now().AddDate(0, 0, 1)); err != nil {
			b.t.Fatal(err)
		}
	}
}

// rolled counts a tenant's executions in each of them.
func (b *bundle) rolled(tenant uuid.UUID) (counts ways) {
	b.t.Helper()
	b.fold()
	rows, err := b.admin.Query(b.t.Context(), "SELECT part, span, cells FROM outcome_rollups WHERE tenant_id = $1", tenant)
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var part, span int16
		var cells []byte
		if err := rows.Scan(&part, &span, &cells); err != nil {
			b.t.Fatal(err)
		}
		way := span
		if part > 0 {
			way += 3
		}
		err := rollup.Walk(cells, nil, func(c *rollup.Cell, _ bool) {
			counts[way] += c.Rows
			if (c.Job == uuid.Nil) != (part == 0) || part > 0 && rollup.PartOf(c.Job) != part {
				b.t.Errorf("job %v is in part %d", c.Job, part)
			}
		})
		if err != nil {
			b.t.Fatal(err)
		}
	}
	if rows.Err() != nil {
		b.t.Fatal(rows.Err())
	}
	return counts
}

// many records so many executions that ended between two times.
func (b *bundle) many(tenant uuid.UUID, n int, from, to time.Duration) {
	b.t.Helper()
	b.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, attempt, duration_ms, completed_at, created_at)
		SELECT gen_random_uuid(), now() - interval '1 hour', $1, md5((n % 50)::text)::uuid, 1, 'scheduled', 'http', 'completed', 1, n % 100,
			now() - $3::interval - ($4::interval - $3::interval) * (n::float8 / $2), now()
		FROM generate_series(1, $2::int) n`, tenant, n, from, to)
}

// More than a transaction counts, some of it from before roll-ups were kept: each
// once, in bounded pieces, whatever the version before had counted of it.
func TestOutcomesAreRolledUpOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const ago = 90 * time.Minute
	b.exec("UPDATE rollup_cursor SET rolled_from = now() - $1::interval, rolled_to = now() - $1::interval", ago)
	b.countedTo(30 * time.Minute)
	b.many(b.a, 30_000, time.Minute, ago)   // it was counted and not rolled up
	b.many(b.a, 105_000, ago, 20*time.Hour) // more than a pass goes back
	b.many(b.b, 100, time.Minute, 2*time.Minute)
	b.pass()
	if got := b.rolled(b.b); got != every(100) {
		t.Errorf("the other tenant has %v", got)
	}
	first := b.rolled(b.a)
	if first[0] < 55_000 || first[0] >= 135_000 {
		t.Errorf("the first pass rolled up %v", first)
	}
	for range 3 {
		b.pass()
	}
	if diff := cmp.Diff(every(135_000), b.rolled(b.a)); diff != "" {
		t.Errorf("rolled up (-want +got):\n%s", diff)
	}
	var complete bool
	if err := b.admin.QueryRow(t.Context(), "SELECT rolled_from IS NULL FROM rollup_cursor").Scan(&complete); err != nil || !complete {
		t.Errorf("complete %v: %v", complete, err)
	}
}

// One statement ended more than a transaction counts, all at its time, before
// roll-ups were kept: they are rolled up together, and what was before them too.
func TestOutcomesOfOneTimeAreRolledUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("UPDATE rollup_cursor SET rolled_from = now() - interval '1 hour'")
	b.many(b.a, 30_000, 2*time.Hour, 2*time.Hour)
	b.many(b.a, 10, 3*time.Hour, 4*time.Hour)
	b.pass()
	if diff := cmp.Diff(every(30_010), b.rolled(b.a)); diff != "" {
		t.Errorf("rolled up (-want +got):\n%s", diff)
	}
}

// Runs under way when roll-ups began may commit after they were first made:
// they begin with what is finished for certain, and the rest is counted on the way
// forward, which stays behind.
func TestRollupsBeginBehindWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var behind bool
	// The migration's time is kept as a local time, which may have been put
	// back or forward in the minute between.
	err := b.admin.QueryRow(t.Context(), `SELECT r.rolled_from = r.rolled_to AND abs(extract(epoch FROM v.tstamp - r.rolled_to::timestamp)) > 15
		FROM rollup_cursor r, goose_db_version v WHERE v.version_id = 107`).Scan(&behind)
	if err != nil || !behind {
		t.Errorf("behind %v: %v", behind, err)
	}
}

// Roll-ups of a tenant that is being deleted were purged, or are about to be.
func TestADeletedTenantGetsNoRollups(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.many(b.a, 10, time.Minute, 2*time.Minute)
	b.many(b.b, 10, time.Minute, 2*time.Minute)
	b.exec("UPDATE tenants SET status = 'deleting' WHERE id = $1", b.a)
	b.pass()
	if got := b.rolled(b.a); got != every(0) {
		t.Errorf("it has %v", got)
	}
	if got := b.rolled(b.b); got[0] != 10 {
		t.Errorf("another has %v", got)
	}
}

func TestALateCollectorRollsUpNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.many(b.a, 10, time.Minute, 2*time.Minute)
	late, err := b.leases.Acquire(t.Context(), lease.Metrics)
	if err != nil {
		t.Fatal(err)
	}
	b.exec("UPDATE scheduler_locks SET expires_at = now()")
	if _, err := b.collector.Pass(t.Context(), late); err == nil {
		t.Error("it was not told")
	}
	if got := b.rolled(b.a); got != every(0) {
		t.Errorf("it has %v", got)
	}
	b.pass()
	if got := b.rolled(b.a); got[0] != 10 {
		t.Errorf("afterwards it has %v", got)
	}
}
