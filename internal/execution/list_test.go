package execution_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// past is a history of one tenant, and a store that tells what its transactions
// hold locked when they end.
type past struct {
	t     *testing.T
	admin *pgx.Conn
	api   *postgres.DB
	store *execution.Store
	who   tenant.Actor

	mu    sync.Mutex
	locks []int // tables of the history, at each commit
}

func newPast(t *testing.T) *past {
	t.Helper()
	database := pgtest.New(t)
	p := &past{t: t, who: tenant.Actor{TenantID: uuid.New(), Subject: "ada"}}
	var err error
	if p.admin, err = pgx.Connect(t.Context(), database.AdminURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.admin.Close(context.WithoutCancel(t.Context())) })
	api, err := postgres.Open(t.Context(), postgres.Config{
		URL: database.URL, Role: postgres.API, Name: "test", MaxConns: 1, StatementTimeout: pgtest.Patience,
		RoundTrip: func(statement string) {
			if statement == "commit" {
				p.count()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	p.api, p.store = api, execution.NewStore(api, execution.Config{})
	p.exec("INSERT INTO tenants (id, name) VALUES ($1, 'x')", p.who.TenantID)
	return p
}

func (p *past) exec(sql string, args ...any) {
	p.t.Helper()
	if _, err := p.admin.Exec(p.t.Context(), sql, args...); err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
}

// months makes the partitions of so many months, up to this one. They are months of UTC: counted in the session's zone, which
// changes its clocks, one of them was left out each year if the test ran in the last half hour of a month.
func (p *past) months(n int) {
	p.t.Helper()
	p.exec("SELECT create_job_executions_partition((now() AT TIME ZONE 'UTC' - n * interval '1 month') AT TIME ZONE 'UTC') FROM generate_series(0, $1::int - 1) n", n)
}

// runs makes executions, one each second back from so many months ago.
func (p *past) runs(n, monthsAgo int, by string) {
	p.t.Helper()
	p.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, status,
			attempt, max_attempts, started_at, completed_at, duration_ms, created_at)
		SELECT gen_random_uuid(), at, $1, gen_random_uuid(), 1, 'manual', $4, 'http', 'completed', 1, 1, at, at, 1, at
		FROM generate_series(1, $2::int) n,
		     LATERAL (SELECT date_trunc('month', now(), 'UTC') - $3::int * interval '1 month' + interval '10 days' - n * interval '1 second' AS at) i`,
		p.who.TenantID, n, monthsAgo, by)
}

func (p *past) count() {
	var n int
	err := p.admin.QueryRow(context.WithoutCancel(p.t.Context()), `SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
		JOIN pg_inherits i ON i.inhrelid = c.oid WHERE i.inhparent = 'job_executions'::regclass AND l.pid <> pg_backend_pid()
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n)
	if err != nil {
		p.t.Error(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.locks = append(p.locks, n)
}

// most is the largest number of months that a transaction held locked since the
// last call.
func (p *past) most() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.locks {
		n = max(n, one)
	}
	p.locks = nil
	return n
}

// walk follows a list to its end, and tells how many pages that took.
func (p *past) walk(f execution.Filter) (found []execution.Execution, pages int) {
	p.t.Helper()
	for {
		list, next, err := p.store.List(p.t.Context(), p.who, f)
		if err != nil {
			p.t.Fatal(err)
		}
		found, pages = append(found, list...), pages+1
		if f.After = next; next == nil {
			return found, pages
		}
		if pages > 100 {
			p.t.Fatal("the list has no end")
		}
	}
}

// Rows that a filter leaves out cost a page 10,000 rows at most; the page is then
// empty, and the next one goes on. Nothing is left out or comes twice.
func TestAListReadsABoundedNumberOfRows(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	p.months(3)
	p.runs(25_000, 0, "ada")
	p.runs(3, 2, "bob")
	for _, oldest := range []bool{false, true} {
		list, next, err := p.store.List(t.Context(), p.who, execution.Filter{TriggeredBy: "nobody", Limit: 20, OldestFirst: oldest})
		if err != nil || len(list) != 0 || next == nil {
			t.Errorf("oldest first %v: the first page is %v, next %v, %v", oldest, list, next, err)
		}
		if list, pages := p.walk(execution.Filter{TriggeredBy: "nobody", Limit: 20, OldestFirst: oldest}); len(list) != 0 || pages != 3 {
			t.Errorf("oldest first %v: %d runs of nobody on %d pages", oldest, len(list), pages)
		}
		if list, _ := p.walk(execution.Filter{TriggeredBy: "bob", Limit: 2, OldestFirst: oldest}); len(list) != 3 {
			t.Errorf("oldest first %v: %d runs of bob, want 3", oldest, len(list))
		}
		all, _ := p.walk(execution.Filter{Limit: 1000, OldestFirst: oldest})
		seen := map[uuid.UUID]bool{}
		for i, e := range all {
			if seen[e.ID] || i > 0 && all[i-1].ScheduledAt.After(e.ScheduledAt) == oldest {
				t.Fatalf("oldest first %v: %v at %d comes twice or out of order", oldest, e.ScheduledAt, i)
			}
			seen[e.ID] = true
		}
		if len(all) != 25_003 {
			t.Errorf("oldest first %v: %d runs, want 25003", oldest, len(all))
		}
	}
}

// lockOldMonths begins a transaction that locks all months but the last one, this one and
// those to come.
func (p *past) lockOldMonths() {
	p.t.Helper()
	p.exec("BEGIN")
	p.exec(`DO $$
		DECLARE month record;
		BEGIN
			FOR month IN SELECT part FROM job_executions_months() WHERE to_at <= date_trunc('month', now(), 'UTC') - interval '1 month' LOOP
				EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', month.part);
			END LOOP;
		END $$`)
	var n int
	if err := p.admin.QueryRow(p.t.Context(), "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND pid = pg_backend_pid()").Scan(&n); err != nil || n < 60 {
		p.t.Fatalf("%d months are locked, %v", n, err)
	}
}

// A list locks only the months that it reads at a time, and a look for one id
// only its own month, also once the server may keep a plan.
func TestAListLocksOnlyTheMonthsItReads(t *testing.T) {
	t.Parallel()
	const ahead = 3 // months to come that have a partition
	p := newPast(t)
	p.months(64)
	p.runs(50, 0, "ada")
	p.runs(5, 40, "bob")
	p.lockOldMonths() // which the newest page would wait for
	for range 8 {
		newest, next, err := p.store.List(t.Context(), p.who, execution.Filter{Limit: 20})
		if err != nil || len(newest) != 20 || next == nil {
			t.Fatalf("%d of the newest, %v", len(newest), err)
		}
		if _, err := p.store.Get(t.Context(), p.who, execution.ScheduledID(uuid.New(), newest[0].ScheduledAt)); fault.KindOf(err) != fault.NotFound {
			t.Errorf("an execution that nobody made: %v", err)
		}
	}
	p.exec("ROLLBACK")
	p.most()
	list, pages := p.walk(execution.Filter{TriggeredBy: "bob", Limit: 20})
	if n := p.most(); n > 2+ahead || len(list) != 5 || pages > 4 {
		t.Errorf("found %d of 5 on %d pages, and locked %d months at a time, want %d at most", len(list), pages, n, 2+ahead)
	}
	if list, _ := p.walk(execution.Filter{OldestFirst: true, Limit: 20}); len(list) != 55 || p.most() > 4+ahead {
		t.Errorf("oldest first, %d of 55", len(list))
	}
	from := list[0].ScheduledAt.AddDate(0, 0, -1)
	to := from.AddDate(0, 0, 3)
	if list, pages := p.walk(execution.Filter{From: &from, To: &to, Limit: 20}); len(list) != 5 || pages != 1 || p.most() > 1 {
		t.Errorf("in a range, %d of 5 on %d pages", len(list), pages)
	}
}

// Where each day has a partition, the newest page locks yesterday's, today's and those
// to come, and the pages after it find what is older, each once.
func TestAListOverDays(t *testing.T) {
	t.Parallel()
	const ahead = 2
	p := newPast(t)
	p.exec(`DO $$ DECLARE part text; BEGIN
		FOR part IN SELECT p.part FROM job_executions_partitions() p LOOP EXECUTE format('DROP TABLE %I', part); END LOOP; END $$`)
	p.exec("SELECT make_job_executions_partition(now() + n * interval '1 day', 'day') FROM generate_series(-44, $1::int) n", ahead)
	p.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, attempt, max_attempts, completed_at, created_at)
		SELECT gen_random_uuid(), at, $1, gen_random_uuid(), 1, 'manual', 'http', 'completed', 1, 1, at, at
		FROM generate_series(0, 420) n, LATERAL (SELECT now() - n * interval '150 minutes' AS at) i`, p.who.TenantID)
	store := execution.NewStore(p.api, execution.Config{Spans: func() partition.Span { return partition.Day }})
	p.most()
	newest, next, err := store.List(t.Context(), p.who, execution.Filter{Limit: 8})
	if n := p.most(); err != nil || len(newest) != 8 || next == nil || n > 2+ahead {
		t.Errorf("the newest page has %d of 8 and locks %d days, want %d at most: %v", len(newest), n, 2+ahead, err)
	}
	for _, p.store = range []*execution.Store{store, p.store} {
		for _, oldest := range []bool{false, true} {
			list, _ := p.walk(execution.Filter{OldestFirst: oldest, Limit: 50})
			for i := range list[1:] {
				if list[i].ScheduledAt.Before(list[i+1].ScheduledAt) != oldest {
					t.Fatalf("oldest first %v: %v comes before %v", oldest, list[i].ScheduledAt, list[i+1].ScheduledAt)
				}
			}
			if len(list) != 421 {
				t.Errorf("oldest first %v: %d of 421", oldest, len(list))
			}
		}
	}
}

// A list of unfinished executions has them all, however old they are, on the first page and
// in one transaction, and no finished ones.
func TestAListOfUnfinishedExecutions(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	p.months(20)
	p.runs(12_000, 0, "ada")
	p.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at, status)
		SELECT gen_random_uuid(), $1, gen_random_uuid(), 1, at, 'manual', 'http', 1, 1, at, at, CASE WHEN n % 2 = 0 THEN 'pending' ELSE 'retrying' END
		FROM generate_series(0, 3) n, LATERAL (SELECT now() - n * interval '5 months' AS at) i`, p.who.TenantID)
	for _, oldest := range []bool{false, true} {
		for _, test := range []struct {
			statuses []execution.Status
			want     int
		}{{[]execution.Status{execution.Pending, execution.Running, execution.Retrying}, 4}, {[]execution.Status{execution.Pending}, 2}, {[]execution.Status{execution.Running}, 0}} {
			p.most()
			list, pages := p.walk(execution.Filter{Statuses: test.statuses, Limit: 20, OldestFirst: oldest})
			if len(list) != test.want || pages > 1 {
				t.Errorf("%v, oldest first %v: %d executions on %d pages, want %d on one", test.statuses, oldest, len(list), pages, test.want)
			}
		}
	}
	day := clock.Now().AddDate(0, 0, -1)
	if list, _ := p.walk(execution.Filter{Statuses: []execution.Status{execution.Pending, execution.Retrying}, From: &day, Limit: 20}); len(list) != 1 {
		t.Errorf("of the last day, %d executions, want 1", len(list))
	}
	if list, _ := p.walk(execution.Filter{Statuses: []execution.Status{execution.Pending}, To: &day, Limit: 1}); len(list) != 1 {
		t.Errorf("before the last day, %d pending executions, want 1", len(list))
	}
}

// Rows at the edges of windows are found once, in either order.
func TestAListGoesOnAtTheEdgesOfMonths(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	p.months(14)
	p.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status,
			attempt, max_attempts, completed_at, created_at)
		SELECT gen_random_uuid(), at + d * interval '1 microsecond', $1, gen_random_uuid(), 1, 'manual', 'http', 'completed', 1, 1, at, at
		FROM generate_series(-1, 1) d, generate_series(0, 12) m, LATERAL (SELECT (date_trunc('month', now() AT TIME ZONE 'UTC') - m * interval '1 month') AT TIME ZONE 'UTC' AS at) i`, p.who.TenantID)
	var want []string
	for _, limit := range []int{1, 3, 7, 1000} {
		for _, oldest := range []bool{false, true} {
			list, _ := p.walk(execution.Filter{Limit: limit, OldestFirst: oldest})
			got := make([]string, len(list))
			for i, e := range list {
				if at := i; oldest {
					got[len(list)-1-at] = fmt.Sprint(e.ScheduledAt)
				} else {
					got[at] = fmt.Sprint(e.ScheduledAt)
				}
			}
			if want == nil {
				want = got
			}
			if diff := cmp.Diff(want, got); diff != "" || len(got) != 39 {
				t.Errorf("pages of %d, oldest first %v: %d of 39 (-want +got):\n%s", limit, oldest, len(got), diff)
			}
		}
	}
}
