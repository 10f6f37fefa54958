package execution_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// Lists and numbers touch the partitions of the months that are asked for and
// no others, by an index, and read about as many rows as they answer.
func TestReadersTouchWhatTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	conn, tenantID, jobID := history(t)
	if _, err := conn.Exec(t.Context(), "SET enable_sort = off"); err != nil { // as postgres.InList does
		t.Fatal(err)
	}
	far := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name string
		most float64 // rows touched
		with func(p *db.ListExecutionsParams)
	}{
		{"newest", 100, func(*db.ListExecutionsParams) {}},
		{"oldest", 100, oldest},
		{"rare", 100, rare},
		{"oldest of what is rare", 100, func(p *db.ListExecutionsParams) { oldest(p); rare(p) }},
		{"of nobody, over 1,000 rows", 1100, func(p *db.ListExecutionsParams) { p.TriggeredBy, p.ScanRows = ptr("nobody"), 1000 }},
		{"of a job", 100, func(p *db.ListExecutionsParams) { p.JobID = &jobID }},
		{"oldest of a job", 100, func(p *db.ListExecutionsParams) { p.JobID = &jobID; oldest(p) }},
		{"rare of a job", 100, func(p *db.ListExecutionsParams) { p.JobID = &jobID; rare(p) }},
		{"oldest of what is rare of a job", 100, func(p *db.ListExecutionsParams) { p.JobID = &jobID; oldest(p); rare(p) }},
		{"another's job", 1, func(p *db.ListExecutionsParams) { p.JobID = &tenantID }},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := db.ListExecutionsParams{TenantID: tenantID, FromAt: month(3), ToAt: month(4), PlaceAt: far, PlaceID: uuid.Max, ScanRows: 10_000, PageSize: 21}
			test.with(&p)
			// As postgres.InList does: this statement's plan is made for each call.
			u := used(pgtest.Explain(t, conn, "force_custom_plan", tenantID, func(_ context.Context, s *pgtest.Statement) error {
				_, err := db.New(s).ListExecutions(t.Context(), p)
				return err
			}))
			if !slices.Equal(u.partitions, []string{"job_executions_2026_03"}) || len(u.sequential) > 0 || len(u.sorts) > 0 || u.touched > test.most {
				t.Errorf("%+v", u)
			}
		})
	}
}

// The newest page without filters has one plan, see postgres.InNewest.
func TestTheNewestPageReadsItsRows(t *testing.T) {
	t.Parallel()
	conn, tenantID, _ := history(t)
	if _, err := conn.Exec(t.Context(), "SET enable_sort = off"); err != nil {
		t.Fatal(err)
	}
	far := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	u := used(pgtest.Explain(t, conn, "force_generic_plan", tenantID, func(_ context.Context, s *pgtest.Statement) error {
		_, err := db.New(s).ListNewestExecutions(t.Context(), db.ListNewestExecutionsParams{
			TenantID: tenantID, FromAt: month(3), ToAt: month(4), PlaceAt: far, PlaceID: uuid.Max, PageSize: 21,
		})
		return err
	}))
	if !slices.Equal(u.partitions, []string{"job_executions_2026_03"}) || len(u.sequential) > 0 || len(u.sorts) > 0 || u.touched > 21 {
		t.Errorf("%+v", u)
	}
}

// Unfinished executions are read without a look at the history, in either order.
func TestUnfinishedExecutionsAreReadFromOneTable(t *testing.T) {
	t.Parallel()
	conn, tenantID, jobID := history(t)
	if _, err := conn.Exec(t.Context(), "SET enable_sort = off"); err != nil {
		t.Fatal(err)
	}
	far := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, with := range []func(p *db.ListExecutionsParams){
		func(*db.ListExecutionsParams) {}, oldest, func(p *db.ListExecutionsParams) { p.JobID = &jobID },
	} {
		p := db.ListExecutionsParams{
			TenantID: tenantID, FromAt: month(1), ToAt: far, PlaceAt: far, PlaceID: uuid.Max, ScanRows: 10_000, PageSize: 21,
			Statuses: []string{"running"}, Unsuccessful: true, Unfinished: true,
		}
		with(&p)
		u := used(pgtest.Explain(t, conn, "force_custom_plan", tenantID, func(_ context.Context, s *pgtest.Statement) error {
			_, err := db.New(s).ListExecutions(t.Context(), p)
			return err
		}))
		if len(u.partitions) > 0 || len(u.sequential) > 0 || u.touched > 1 {
			t.Errorf("%+v", u)
		}
	}
}

// The last runs of some jobs touch the months that are asked for, by an index, and as
// many rows as they answer.
func TestRecentRunsTouchTheirRows(t *testing.T) {
	t.Parallel()
	conn, tenantID, jobID := history(t)
	if _, err := conn.Exec(t.Context(), "SET enable_sort = off"); err != nil {
		t.Fatal(err)
	}
	u := used(pgtest.Explain(t, conn, "force_custom_plan", tenantID, func(_ context.Context, s *pgtest.Statement) error {
		_, err := db.New(s).ListRecentRuns(t.Context(), db.ListRecentRunsParams{
			TenantID: tenantID, JobIds: []uuid.UUID{jobID, uuid.New()}, FromAt: month(3), ToAt: month(4), Most: 30,
		})
		return err
	}))
	if !slices.Equal(u.partitions, []string{"job_executions_2026_03"}) || len(u.sequential) > 0 || len(u.sorts) > 0 || u.touched > 31 {
		t.Errorf("%+v", u)
	}
}

func oldest(p *db.ListExecutionsParams) {
	p.OldestFirst, p.PlaceAt, p.PlaceID = true, month(1), uuid.Nil
}

func rare(p *db.ListExecutionsParams) { p.Statuses, p.Unsuccessful = []string{"failed"}, true }

// Executions that statistics count one by one are found by an index in the months
// that are asked for, and the roll-ups by their key. All are planned for each call.
func TestStatisticsTouchWhatTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	conn, tenantID, jobID := history(t)
	from, to := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC), time.Date(2026, 4, 4, 0, 0, 0, 0, time.UTC)
	late, early := time.Date(2026, 3, 22, 17, 0, 0, 0, time.UTC), time.Date(2026, 3, 2, 2, 0, 0, 0, time.UTC)
	march, both := []string{"job_executions_2026_03"}, []string{"job_executions_2026_03", "job_executions_2026_04"}
	outcomes := func(p db.SummarizeOutcomesParams) func(q *db.Queries) error {
		p.TenantID, p.Starts = tenantID, []time.Time{from, from.AddDate(0, 0, 1)}
		return func(q *db.Queries) error {
			_, err := q.SummarizeOutcomes(t.Context(), p)
			return err
		}
	}
	rollups := func(parts ...int16) func(q *db.Queries) error {
		return func(q *db.Queries) error {
			_, err := q.ListRollups(t.Context(), db.ListRollupsParams{
				TenantID: tenantID, Parts: parts, FirstHour: from, FirstDay: from.AddDate(0, 0, 1), FirstWeek: from.AddDate(0, 0, 4), LastWeek: to.AddDate(0, 0, -3),
				LastDay: to.AddDate(0, 0, -1), LastHour: to,
			})
			return err
		}
	}
	for _, test := range []struct {
		name       string
		partitions []string
		most       float64 // rows touched
		ask        func(q *db.Queries) error
	}{
		{"an edge", march, 10, outcomes(db.SummarizeOutcomesParams{FromAt: from, ToAt: from.Add(14 * time.Minute)})},
		{"executions that ended lately", march, 100, outcomes(db.SummarizeOutcomesParams{FromAt: from, ToAt: month(4), CompletedAfter: &late})},
		{"executions that are not rolled up yet", march, 50, outcomes(db.SummarizeOutcomesParams{FromAt: month(3), ToAt: month(4), CompletedUntil: &early})},
		{"a job", both, 6000, outcomes(db.SummarizeOutcomesParams{FromAt: from, ToAt: to, JobID: &jobID})},
		{"another's job", both, 0, outcomes(db.SummarizeOutcomesParams{FromAt: from, ToAt: to, JobID: &tenantID})},
		{"roll-ups", nil, 29 + 48, rollups(0)},
		{"roll-ups of all jobs", nil, 2 * (29 + 48), rollups(1, 2)},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := used(pgtest.Explain(t, conn, "force_custom_plan", tenantID, func(_ context.Context, s *pgtest.Statement) error { return test.ask(db.New(s)) }))
			if !slices.Equal(u.partitions, test.partitions) || len(u.sequential) > 0 || u.touched > test.most {
				t.Errorf("%+v", u)
			}
		})
	}
}

func ptr[T any](value T) *T { return &value }

func month(m time.Month) time.Time { return time.Date(2026, m, 1, 0, 0, 0, 0, time.UTC) }

// use is what a plan read.
type use struct {
	partitions []string // of the history
	sequential []string // relations that were read from end to end
	sorts      []string // steps that sort
	touched    float64  // rows, at the step that touched most
}

func used(plan pgtest.PlanNode) (u use) {
	plan.Walk(func(n pgtest.PlanNode) {
		if strings.HasSuffix(n.Type, "Sort") && n.Loops > 0 {
			u.sorts = append(u.sorts, n.Type)
		}
		if n.Relation == "" || n.Loops == 0 {
			return
		}
		u.touched = max(u.touched, n.Touched())
		if strings.HasPrefix(n.Relation, "job_executions") {
			u.partitions = append(u.partitions, n.Relation)
		}
		if n.Type == "Seq Scan" && n.Relation != "active_executions" {
			u.sequential = append(u.sequential, n.Relation)
		}
	})
	slices.Sort(u.partitions)
	u.partitions = slices.Compact(u.partitions)
	return u
}

// Many executions of a tenant may be of one moment, and so of one millisecond in their ids. One of them is found
// without the others.
func TestOneOfManyOfItsMoment(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	tenantID, at, lowest := uuid.New(), clock.Now().Truncate(time.Second), uuid.UUID{1}
	if _, err := conn.Exec(t.Context(), `INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, attempt, max_attempts, completed_at, created_at)
		SELECT CASE WHEN n = 1 THEN $3::uuid ELSE overlay(gen_random_uuid()::text PLACING 'ff' FROM 1)::uuid END, $2::timestamptz - greatest(0, n - 10000) * interval '1 s', $1, gen_random_uuid(),
			1, 'scheduled', 'http', 'completed', 1, 1, now(), now()
		FROM generate_series(1, 20000) n`, tenantID, at, lowest); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"VACUUM ANALYZE job_executions", "SET ROLE scheduler_api"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	plan := pgtest.Explain(t, conn, "force_generic_plan", tenantID, func(ctx context.Context, s *pgtest.Statement) error {
		_, err := db.New(s).GetExecution(ctx, db.GetExecutionParams{TenantID: tenantID, ID: lowest, FromAt: at, ToAt: at.Add(time.Millisecond)})
		return err
	})
	if got := plan.Buffers(); got > 30 {
		t.Errorf("it read %.0f pages", got)
	}
}

// history fills three months with runs of two tenants, of which few failed.
func history(t *testing.T) (conn *pgx.Conn, tenantID, jobID uuid.UUID) {
	t.Helper()
	database := pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	tenantID, jobID = uuid.New(), uuid.New()
	for month := 2; month <= 4; month++ {
		if _, err := conn.Exec(t.Context(), "SELECT create_job_executions_partition(make_timestamptz(2026, $1, 2, 0, 0, 0, 'UTC'))", month); err != nil {
			t.Fatal(err)
		}
		_, err := conn.Exec(t.Context(), `INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status,
				attempt, max_attempts, started_at, completed_at, duration_ms, created_at)
			SELECT gen_random_uuid(), at, CASE WHEN n % 2 = 0 THEN $2::uuid ELSE gen_random_uuid() END, CASE WHEN n % 4 = 0 THEN $3::uuid ELSE gen_random_uuid() END,
				1, 'scheduled', 'http', CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'completed' END, 1, 1, at, at, n % 1000, at
			FROM generate_series(1, 10000) n, LATERAL (SELECT make_timestamptz(2026, $1, 2, 0, 0, 0, 'UTC') + n * interval '3 minutes' AS at) i`, month, tenantID, jobID)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, sql := range []string{
		fmt.Sprintf(`INSERT INTO outcome_rollups (tenant_id, part, span, at, cells)
			SELECT CASE WHEN t = 1 THEN '%s'::uuid ELSE gen_random_uuid() END, part, span, at, '\x01' FROM generate_series(1, 3) t, generate_series(0, 5) part,
				(SELECT (n %% 25 = 0)::int AS span, timestamptz '2026-01-01 00:00:00+00' + n / 25 * interval '1 day' + greatest(n %% 25 - 1, 0) * interval '1 hour' AS at
				 FROM generate_series(0, 25 * 120 - 1) n) r`, tenantID),
		"ANALYZE job_executions, outcome_rollups",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(t.Context(), "SET ROLE scheduler_api"); err != nil {
		t.Fatal(err)
	}
	return conn, tenantID, jobID
}
