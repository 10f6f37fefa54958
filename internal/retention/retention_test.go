package retention_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/retention"
)

type bundle struct {
	t        *testing.T
	database *pgtest.Database
	db       *postgres.DB
	admin    *pgx.Conn
	tenant   uuid.UUID
	month    time.Time // the first time of the current one, by the database
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{t: t, database: pgtest.New(t), tenant: uuid.New()}
	var err error
	b.db, err = postgres.Open(t.Context(), postgres.Config{URL: b.database.URL, Role: postgres.Engine, Name: "test", MaxConns: 10, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.db.Close)
	b.admin = b.connect(b.database.AdminURL)
	b.exec("INSERT INTO tenants (id, name) VALUES ($1, 'x')", b.tenant)
	b.month = b.thisMonth()
	return b
}

// thisMonth is the first time of the current month, by the database. In the
// last minute of a month it waits for the next one, which would otherwise begin
// in the middle of a test.
func (b *bundle) thisMonth() (month time.Time) {
	b.t.Helper()
	for {
		var now time.Time
		if err := b.admin.QueryRow(b.t.Context(), "SELECT date_trunc('month', now(), 'UTC'), now()").Scan(&month, &now); err != nil {
			b.t.Fatal(err)
		}
		month = month.UTC()
		left := month.AddDate(0, 1, 0).Sub(now)
		if left > time.Minute {
			return month
		}
		<-time.After(left)
	}
}

func (b *bundle) connect(url string) *pgx.Conn {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), url)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
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

// insertExecution records one that is finished, due at a time.
const insertExecution = `INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, completed_at, created_at)
	VALUES (gen_random_uuid(), $1, $2, gen_random_uuid(), 1, 'scheduled', 'http', 'completed', $1, $1)`

// history makes partitions and an execution for each of the last so many months,
// beside the current one.
func (b *bundle) history(months int) {
	b.t.Helper()
	for n := range months {
		at := b.month.AddDate(0, -n-1, 14)
		b.exec("SELECT create_job_executions_partition($1)", at)
		b.exec(insertExecution, at, b.tenant)
	}
	b.exec(insertExecution, b.month, b.tenant)
}

// keeper makes one whose passes go on until they are done.
func (b *bundle) keeper(months int) *retention.Keeper { return b.bounded(months, time.Hour) }

func (b *bundle) bounded(months int, budget time.Duration) *retention.Keeper {
	return retention.New(retention.Config{DB: b.db, Executions: partition.Term{Months: months}, MetricDays: 14, Budget: budget})
}

func (b *bundle) pass(months int) retention.Report {
	b.t.Helper()
	r, err := b.keeper(months).Pass(b.t.Context(), time.Time{})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bundle) name(monthsAgo int) string {
	return "job_executions_" + b.month.AddDate(0, -monthsAgo, 0).Format("2006_01")
}

// tables are the tables of executions' months, whether they are partitions or not.
func (b *bundle) tables() []string {
	b.t.Helper()
	rows, err := b.admin.Query(b.t.Context(), "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'job_executions_%' ORDER BY relname")
	if err != nil {
		b.t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatal(err)
	}
	return names
}

func TestWholeMonthsGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.history(16)
	want := []string{b.name(16), b.name(15), b.name(14)}
	r := b.pass(13)
	if diff := cmp.Diff(want, r.Partitions); diff != "" || r.Busy || !r.Kept.Equal(b.month.AddDate(0, -13, 0)) {
		t.Errorf("removed, kept from %v, busy %v (-want +got):\n%s", r.Kept, r.Busy, diff)
	}
	if n := b.count("SELECT count(*) FROM job_executions"); n != 14 {
		t.Errorf("%d executions are left, want 14", n)
	}
	if r := b.pass(13); !r.Nothing() {
		t.Errorf("the second pass removed %+v", r)
	}
	if n := b.count(`SELECT count(*) FROM pg_class c WHERE relispartition AND relname LIKE 'job_executions_20__\___' ESCAPE '\'
		AND NOT (relrowsecurity AND relforcerowsecurity)`); n != 0 {
		t.Errorf("%d partitions do not force row-level security", n)
	}
}

func TestTheYoungestMonthsStayWhateverIsAsked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.history(3)
	if r := b.pass(1); len(r.Partitions) != 2 {
		t.Errorf("removed %v", r.Partitions)
	}
	if !slices.Contains(b.tables(), b.name(1)) || !slices.Contains(b.tables(), b.name(0)) {
		t.Errorf("left: %v", b.tables())
	}
	engine := b.connect(b.database.URL)
	if _, err := engine.Exec(t.Context(), "SET ROLE scheduler_engine"); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"SELECT detach_job_executions_partition(now())", "SELECT detach_job_executions_partition('infinity')",
		"SELECT detach_job_executions_partition(date_trunc('day', now(), 'UTC') - interval '6 days')",
		"ALTER TABLE job_executions DETACH PARTITION " + b.name(1), "DROP TABLE " + b.name(1), "TRUNCATE " + b.name(1),
	} {
		if _, err := engine.Exec(t.Context(), sql); err == nil {
			t.Errorf("the engine's role may %s", sql)
		}
	}
	if _, err := engine.Exec(t.Context(), "RESET ROLE; SET ROLE scheduler_api"); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Exec(t.Context(), "SELECT detach_job_executions_partition('2001-01-01')"); err == nil {
		t.Error("the API's role may detach partitions")
	}
}

// A run that is not finished keeps the partition that it ends in.
func TestAnOldRunThatIsNotOverKeepsItsMonth(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.history(16)
	b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at)
		VALUES (gen_random_uuid(), $1, gen_random_uuid(), 1, $2, 'backfill', 'http', 1, 1000, now(), now())`, b.tenant, b.month.AddDate(0, -15, 3))
	if diff := cmp.Diff([]string{b.name(16)}, b.pass(13).Partitions); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
}

func TestProcessesAtOnceRemoveEachMonthOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.history(20)
	var mu sync.Mutex
	var removed []string
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			r, err := b.keeper(13).Pass(t.Context(), time.Time{})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			removed = append(removed, r.Partitions...)
			mu.Unlock()
		})
	}
	group.Wait()
	removed = append(removed, b.pass(13).Partitions...) // what was busy
	slices.Sort(removed)
	if want := []string{b.name(20), b.name(19), b.name(18), b.name(17), b.name(16), b.name(15), b.name(14)}; !cmp.Equal(want, removed) {
		t.Errorf("removed %v, want %v", removed, want)
	}
}

func TestAnInterruptedRemovalIsFinished(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.history(16)
	// Stopped between the two steps.
	b.exec("SELECT detach_job_executions_partition($1)", b.month.AddDate(0, -15, 0))
	// An operator took this one out, to keep it.
	b.exec("ALTER TABLE job_executions DETACH PARTITION " + b.name(15))
	// Somebody began this one CONCURRENTLY and was stopped while it waited for a reader.
	reader := b.connect(b.database.AdminURL)
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM job_executions"} {
		if _, err := reader.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	owner := b.connect(b.database.OwnerURL)
	interrupted := make(chan error, 1)
	go func() {
		_, err := owner.Exec(t.Context(), "ALTER TABLE job_executions DETACH PARTITION "+b.name(14)+" CONCURRENTLY")
		interrupted <- err
	}()
	for b.count("SELECT count(*) FROM pg_inherits WHERE inhdetachpending") == 0 && len(interrupted) == 0 {
	}
	b.exec("SELECT pg_cancel_backend($1)", int32(owner.PgConn().PID()))
	if err := <-interrupted; err == nil {
		t.Fatal("the detach was not interrupted")
	}
	if r := b.pass(13); !r.Busy {
		t.Errorf("finished while somebody reads it: %+v", r)
	}
	if _, err := reader.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if r := b.pass(13); r.Busy || !slices.Contains(r.Partitions, b.name(14)) {
		t.Errorf("the interrupted detach was not finished: %+v", r)
	}
	left := b.tables()
	if slices.Contains(left, b.name(16)) || slices.Contains(left, b.name(14)) || !slices.Contains(left, b.name(15)) {
		t.Errorf("left: %v", left)
	}
}

// TestMonthsWithOtherNamesGoToo has a month whose name a detached table took: its
// partition has another name, goes with its month, and the table stays.
func TestMonthsWithOtherNamesGoToo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.history(15)
	kept := b.name(15)
	b.exec("ALTER TABLE job_executions DETACH PARTITION " + kept)
	b.exec("SELECT create_job_executions_partition($1)", b.month.AddDate(0, -15, 0))
	b.exec(insertExecution, b.month.AddDate(0, -15, 3), b.tenant)
	if r := b.pass(13); !slices.Contains(r.Partitions, kept+"_2") {
		t.Errorf("removed %v", r.Partitions)
	}
	if left := b.tables(); !slices.Contains(left, kept) || slices.Contains(left, kept+"_2") {
		t.Errorf("left: %v", left)
	}
}
