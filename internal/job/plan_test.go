package job_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
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
	for _, statement := range []string{"ANALYZE scheduled_jobs", "SET ROLE scheduler_api", "SET enable_sort = off"} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	past, far := time.Unix(0, 0), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name string
		most float64
		ask  func(q *db.Queries) error
	}{
		{"newest", 22, func(q *db.Queries) error {
			_, err := q.ListJobs(t.Context(), db.ListJobsParams{TenantID: tenantID, BeforeCreatedAt: far, CreatedFrom: past, CreatedTo: far, ScanRows: 10_000, PageSize: 21})
			return err
		}},
		{"oldest", 22, func(q *db.Queries) error {
			_, err := q.ListOldestJobs(t.Context(), db.ListOldestJobsParams{TenantID: tenantID, AfterCreatedAt: past, CreatedFrom: past, CreatedTo: far, ScanRows: 10_000, PageSize: 21})
			return err
		}},
		{"of nobody, over 100 rows", 100, func(q *db.Queries) error {
			nobody := "nobody"
			_, err := q.ListJobs(t.Context(), db.ListJobsParams{
				TenantID: tenantID, BeforeCreatedAt: far, CreatedFrom: past, CreatedTo: far, CreatedBy: &nobody, ScanRows: 100, PageSize: 21,
			})
			return err
		}},
		{"by name", float64(each), func(q *db.Queries) error {
			_, err := q.ListSortedJobs(t.Context(), db.ListSortedJobsParams{TenantID: tenantID, SortBy: "name", CreatedFrom: past, CreatedTo: far, PageSize: 21})
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
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
