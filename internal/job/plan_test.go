package job_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// A list of one tenant's jobs does not read another's, and by createdAt reads
// the page and one row more, of a tenant among many and of one that has them all.
func TestListsReadOneTenantsJobs(t *testing.T) {
	t.Parallel()
	t.Run("many tenants", func(t *testing.T) { t.Parallel(); listsReadAPage(t, 20, 500) })
	t.Run("one tenant", func(t *testing.T) { t.Parallel(); listsReadAPage(t, 1, 3000) })
}

func listsReadAPage(t *testing.T, tenants, each int) {
	database := pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	var tenantID uuid.UUID
	for range tenants {
		tenantID = uuid.New()
		if _, err := conn.Exec(t.Context(), "INSERT INTO tenants (id, name) VALUES ($1, 'x')", tenantID); err != nil {
			t.Fatal(err)
		}
		_, err := conn.Exec(t.Context(), `INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, created_at, job_type, config, max_attempts, timeout_seconds, next_execution_at)
			SELECT gen_random_uuid(), $1, 'job ' || n, 'ada', now() - n * interval '1 minute', 'http', '{}', 1, 1, now() + n * interval '1 minute'
			FROM generate_series(1, $2::int) n`, tenantID, each)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, statement := range []string{"ANALYZE job_definitions, job_schedule", "SET ROLE scheduler_api", "SET enable_sort = off"} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	// By createdAt and by name the plan is made for each call, as postgres.InList does.
	custom, anyPlan := []string{"force_custom_plan"}, []string{"force_custom_plan", "force_generic_plan"}
	past, far := time.Unix(0, 0), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name  string
		modes []string
		most  float64
		ask   func(q *db.Queries) error
	}{
		{"newest", custom, 22, func(q *db.Queries) error {
			_, err := q.ListJobs(t.Context(), db.ListJobsParams{TenantID: tenantID, PlaceAt: far, CreatedFrom: past, CreatedTo: far, ScanRows: 10_000, PageSize: 21})
			return err
		}},
		{"newest, without filters", []string{"force_generic_plan"}, 21, func(q *db.Queries) error { // as postgres.InNewest does
			_, err := q.ListNewestJobs(t.Context(), db.ListNewestJobsParams{TenantID: tenantID, PlaceAt: far, PageSize: 21})
			return err
		}},
		{"oldest", custom, 22, func(q *db.Queries) error {
			_, err := q.ListJobs(t.Context(), db.ListJobsParams{TenantID: tenantID, OldestFirst: true, PlaceAt: past, CreatedFrom: past, CreatedTo: far, ScanRows: 10_000, PageSize: 21})
			return err
		}},
		{"of nobody, over 100 rows", custom, 100, func(q *db.Queries) error {
			nobody := "nobody"
			_, err := q.ListJobs(t.Context(), db.ListJobsParams{
				TenantID: tenantID, PlaceAt: far, CreatedFrom: past, CreatedTo: far, CreatedBy: &nobody, ScanRows: 100, PageSize: 21,
			})
			return err
		}},
		{"keys", anyPlan, 22, func(q *db.Queries) error {
			_, err := q.ListJobKeys(t.Context(), db.ListJobKeysParams{TenantID: tenantID, BeforeCreatedAt: far, CreatedFrom: past, CreatedTo: far, ScanRows: 10_000, PageSize: 21})
			return err
		}},
		{"by name", custom, float64(each), func(q *db.Queries) error {
			_, err := q.ListSortedJobs(t.Context(), db.ListSortedJobsParams{TenantID: tenantID, SortBy: "name", CreatedFrom: past, CreatedTo: far, PageSize: 21})
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, mode := range test.modes {
				most, sequential := 0.0, false
				plan := pgtest.Explain(t, conn, mode, tenantID, func(_ context.Context, s *pgtest.Statement) error { return test.ask(db.New(s)) })
				plan.Walk(func(n pgtest.PlanNode) {
					if n.Relation != "" && n.Loops > 0 {
						most, sequential = max(most, n.Touched()), sequential || n.Type == "Seq Scan"
					}
				})
				if most > test.most || sequential && test.most < float64(each) {
					t.Errorf("%s: a step reads %v rows, want %v at most; in sequence: %v", mode, most, test.most, sequential)
				}
			}
		})
	}
}

// Counting jobs by their state reads those that are not active, by an index, and of the
// others the one that is due first.
func TestCountingJobsReadsNoActiveOnes(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.New(t).AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	var tenantID uuid.UUID
	for range 3 {
		tenantID = uuid.New()
		if _, err := conn.Exec(t.Context(), "INSERT INTO tenants (id, name) VALUES ($1, 'x')", tenantID); err != nil {
			t.Fatal(err)
		}
		_, err := conn.Exec(t.Context(), `INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds, next_execution_at, status, deleted_at)
			SELECT gen_random_uuid(), $1, 'job ' || n, 'ada', 'http', '{}', 1, 1, CASE WHEN n > 5 THEN now() + (n - 100) * interval '1 minute' END,
				CASE WHEN n <= 3 OR n > 2990 THEN 'inactive' WHEN n <= 5 THEN 'paused' ELSE 'active' END, CASE WHEN n > 2990 THEN now() END
			FROM generate_series(1, 3000) n`, tenantID)
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.PgConn().Exec(t.Context(), "ANALYZE job_definitions, job_schedule; SET ROLE scheduler_api").ReadAll(); err != nil {
		t.Fatal(err)
	}
	now := clock.Now()
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		pgtest.Explain(t, conn, mode, tenantID, func(ctx context.Context, s *pgtest.Statement) error {
			_, err := db.New(s).CountJobsByStatus(ctx, db.CountJobsByStatusParams{TenantID: tenantID, Now: now})
			return err
		}).Walk(func(n pgtest.PlanNode) {
			if (n.Relation == "job_definitions" || n.Relation == "job_schedule") && n.Loops > 0 && n.Touched() > 10 {
				t.Errorf("%s: %s on %s touches %v rows", mode, n.Type, n.Index, n.Touched())
			}
		})
	}
	if _, err := conn.Exec(t.Context(), "SELECT set_config('app.tenant_id', $1, false)", tenantID.String()); err != nil {
		t.Fatal(err)
	}
	got, err := db.New(conn).CountJobsByStatus(t.Context(), db.CountJobsByStatusParams{TenantID: tenantID, Now: now})
	if err != nil || got.Active != 2985 || got.Paused != 2 || got.Inactive != 3 || now.Sub(got.OldestDueAt) < 93*time.Minute || now.Sub(got.OldestDueAt) > 95*time.Minute {
		t.Errorf("%+v, %v", got, err)
	}
}
