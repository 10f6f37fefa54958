package retention_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/retention"
)

// keys makes so many that expired an hour ago, one after the other.
func (b *bundle) keys(n int) {
	b.t.Helper()
	b.exec(`INSERT INTO idempotency_keys (tenant_id, key, route, body_sha256, status, response, expires_at)
		SELECT $1, n::text, 'x', '', 0, '{}', now() - interval '1 hour' + n * interval '1 millisecond' FROM generate_series(1, $2::int) n`, b.tenant, n)
}

func (b *bundle) keysLeft() int {
	b.t.Helper()
	return b.count("SELECT count(*) FROM idempotency_keys")
}

// More than any number of batches: a pass goes on until nothing is left.
func TestAPassGoesOnUntilItIsDone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keys(120_000)
	if r := b.pass(13); r.IdempotencyKeys != 120_000 || r.More {
		t.Errorf("%d keys removed, more %v", r.IdempotencyKeys, r.More)
	}
}

// However short the budget is, each kind gets a batch, the report says that there
// is more, and the next pass goes on.
func TestABudgetEndsAPassAndNotTheWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keys(2500)
	for range 3 {
		b.backfill(b.job(1, 20), 1, "completed", 14)
	}
	k := b.bounded(13, time.Nanosecond)
	var removed []int
	for more := true; more; {
		r, err := k.Pass(t.Context(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		removed, more = append(removed, r.IdempotencyKeys, r.Backfills), r.More
	}
	if diff := cmp.Diff([]int{1000, 3, 1000, 0, 500, 0}, removed); diff != "" {
		t.Errorf("keys and backfills by pass (-want +got):\n%s", diff)
	}
}

// A kind that the database refuses does not keep the others, and a row that it
// refuses none of its kind.
func TestARowThatCannotBeDeletedIsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keys(2500)
	done := b.job(1, 20)
	b.backfill(done, 1, "completed", 14)
	many := b.job(1, 40)
	b.exec("UPDATE scheduled_jobs SET version = 11 WHERE id = $1", many)
	b.exec(`INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by, created_at)
		SELECT $1, n, $2, '{}', 'x', $3::timestamptz + n * interval '1 second' FROM generate_series(2, 11) n`, many, b.tenant, b.month.AddDate(0, -20, 0))
	b.exec("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '23514'; END $$")
	b.exec("CREATE TRIGGER refuse BEFORE DELETE ON idempotency_keys FOR EACH ROW WHEN (OLD.key IN ('7', '1700')) EXECUTE FUNCTION refuse()")
	b.exec("CREATE TRIGGER refuse BEFORE DELETE ON backfills FOR EACH ROW EXECUTE FUNCTION refuse()")
	b.exec("CREATE TRIGGER refuse BEFORE DELETE ON job_versions FOR EACH ROW WHEN (OLD.version = 4) EXECUTE FUNCTION refuse()")
	k := b.keeper(13)
	for try := range 2 {
		r, err := k.Pass(t.Context(), time.Time{})
		if err == nil || r.More {
			t.Fatalf("pass %d: more %v, error %v", try, r.More, err)
		}
		for _, said := range []string{"2 of the idempotency keys", "1 of the backfills", "of the job versions"} {
			if !strings.Contains(err.Error(), said) {
				t.Errorf("pass %d does not say %q: %v", try, said, err)
			}
		}
		got := []int{b.keysLeft(), b.count("SELECT count(*) FROM backfills"), b.versions(many)}
		// Of the versions the refused one, the last that goes with what is left, and the current one.
		if diff := cmp.Diff([]int{2, 1, 3}, got); diff != "" {
			t.Errorf("pass %d left of keys, backfills, versions (-want +got):\n%s", try, diff)
		}
	}
	b.exec("DROP FUNCTION refuse() CASCADE")
	if r, err := k.Pass(t.Context(), time.Time{}); err != nil || r.IdempotencyKeys != 2 || r.Backfills != 1 || r.JobVersions != 2 {
		t.Errorf("after it was mended: %+v, %v", r, err)
	}
}

// One tenant's many expired keys do not delay those of another that expired
// before the last of them.
func TestTheOldestKeysGoFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keys(3000)
	other := uuid.New()
	b.exec("INSERT INTO tenants (id, name) VALUES ($1, 'y')", other)
	b.exec(`INSERT INTO idempotency_keys (tenant_id, key, route, body_sha256, status, response, expires_at)
		SELECT $1, 'k', 'x', '', 0, '{}', min(expires_at) + interval '500 milliseconds' FROM idempotency_keys`, other)
	k := retention.New(retention.Config{DB: b.db, Executions: partition.Term{Months: 13}, MetricDays: 14, Budget: time.Nanosecond})
	if r, err := k.Pass(t.Context(), time.Time{}); err != nil || !r.More {
		t.Fatalf("%+v, %v", r, err)
	}
	if n := b.count("SELECT count(*) FROM idempotency_keys WHERE tenant_id = $1", other); n != 0 {
		t.Error("the first pass left the key of the other tenant")
	}
}
