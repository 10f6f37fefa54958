package collect_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
)

func (b *bundle) count(sql string, args ...any) (n int) {
	b.t.Helper()
	if err := b.admin.QueryRow(b.t.Context(), sql, args...).Scan(&n); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// each records an execution of so many jobs of a tenant, a job each, that ended after
// everything that is counted.
func (b *bundle) each(tenant uuid.UUID, jobs int) {
	b.t.Helper()
	b.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, attempt, duration_ms, completed_at, created_at)
		SELECT gen_random_uuid(), date_bin('1 hour', now(), '2000-01-01 00:00:00+00'), $1, gen_random_uuid(), 1, 'scheduled', 'http', 'completed', 1, n % 100,
			now() - interval '40 seconds', now()
		FROM generate_series(1, $2::int) n`, tenant, jobs)
}

// collected counts what each made; what was made before the last counting is left out.
func (b *bundle) collected() {
	b.t.Helper()
	b.pass()
	b.exec("UPDATE job_executions SET completed_at = completed_at - interval '1 hour'")
	b.exec("UPDATE rollup_cursor SET rolled_to = now() - interval '50 seconds'")
}

// foldAll folds what there is to fold now; a pass ends when its time is up.
func (b *bundle) foldAll() {
	b.t.Helper()
	for more := true; more; {
		var err error
		if _, more, err = b.collector.Fold(b.t.Context(), time.Time{}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// Counted outcomes are a row for each tenant and hour, however many jobs there are, and
// the roll-ups are left alone until there is enough to fold.
func TestCountingCostsARowForEachTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.each(b.a, 5000)
	b.each(b.b, 10)
	b.collected()
	b.foldAll()
	if got := [2]int{b.count("SELECT count(*) FROM outcome_deltas"), b.count("SELECT count(*) FROM outcome_rollups")}; got != [2]int{2, 0} {
		t.Errorf("%v rows of what is counted and of roll-ups, want 2 and 0", got)
	}
	b.each(b.a, 20_000)
	b.collected()
	b.foldAll()
	if n := b.count("SELECT count(*) FROM outcome_deltas WHERE tenant_id = $1", b.a); n != 0 {
		t.Errorf("%d rows of the tenant with 25,000 outcomes are not folded", n)
	}
	if n := b.count("SELECT count(*) FROM outcome_deltas WHERE tenant_id = $1", b.b); n != 1 {
		t.Errorf("%d rows of the tenant with 10 outcomes are left, want 1", n)
	}
	if diff := cmp.Diff([]ways{every(25_000), every(10)}, []ways{b.rolled(b.a), b.rolled(b.b)}); diff != "" {
		t.Errorf("rolled up (-want +got):\n%s", diff)
	}
}

// Processes at once fold each tenant's outcomes once.
func TestSeveralProcessesFold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tenants := []uuid.UUID{b.a, b.b}
	for range 10 {
		id := uuid.New()
		b.exec("INSERT INTO tenants (id, name) VALUES ($1, 'x')", id)
		tenants = append(tenants, id)
	}
	for range 2 {
		for _, id := range tenants {
			b.each(id, 500)
		}
		b.collected()
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for more := true; more; {
					var err error
					if _, more, err = b.collector.Fold(t.Context(), clock.Now().AddDate(0, 0, 1)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
	}
	for _, id := range tenants {
		if got := b.rolled(id); got != every(1000) {
			t.Errorf("a tenant has %v", got)
		}
	}
}

// A roll-up that cannot be read keeps its tenant's outcomes where they are, and
// nobody else's.
func TestATenantThatCannotBeFoldedIsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.each(b.a, 100)
	b.collected()
	b.exec("INSERT INTO outcome_rollups (tenant_id, part, span, at, cells) SELECT tenant_id, 0, 1, date_trunc('day', at, 'UTC'), 'x' FROM outcome_deltas")
	b.each(b.b, 100)
	b.exec("UPDATE fold_backlogs SET since = since - interval '1 day'")
	b.collected()
	var told error
	more := true
	for try := 0; try < 20 && more; try++ { // a pass ends after a second, which one tenant may take on a busy machine
		var err error
		_, more, err = b.collector.Fold(t.Context(), clock.Now().AddDate(0, 0, 1))
		told = errors.Join(told, err)
	}
	if more || told == nil {
		t.Errorf("more %v, error %v", more, told)
	}
	if n := b.count("SELECT coalesce(sum(outcomes), 0) FROM outcome_deltas WHERE tenant_id = $1", b.a); n == 0 {
		t.Error("what is counted of the tenant is gone")
	}
	if n := b.count("SELECT count(*) FROM outcome_deltas WHERE tenant_id = $1", b.b); n != 0 {
		t.Errorf("%d rows of the other tenant are not folded", n)
	}
	b.exec("DELETE FROM outcome_rollups WHERE cells = 'x'")
	if got := b.rolled(b.a); got[0] == 0 || got[0] != got[1] {
		t.Errorf("after it was mended: %v", got)
	}
}
