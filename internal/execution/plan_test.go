package execution_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// Lists and numbers touch the partitions of the months that are asked for and
// no others, by an index, and read about as many rows as they answer.
func TestReadersTouchWhatTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	conn, tenantID, jobID := history(t)
	month := func(m time.Month) time.Time { return time.Date(2026, m, 1, 0, 0, 0, 0, time.UTC) }
	failed := []string{"failed"}
	far := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	list := db.ListExecutionsParams{TenantID: tenantID, FromAt: month(3), ToAt: month(4), PlaceAt: far, PlaceID: uuid.Max, PageSize: 21}
	byJob := db.ListExecutionsByJobParams{TenantID: tenantID, JobID: jobID, FromAt: month(3), ToAt: month(4), PlaceAt: far, PlaceID: uuid.Max, PageSize: 21}
	oldest, oldestByJob := list, byJob
	oldest.PlaceAt, oldestByJob.PlaceAt, oldest.PlaceID, oldestByJob.PlaceID = month(1), month(1), uuid.Nil, uuid.Nil
	list.Statuses, byJob.Statuses = nil, nil
	rare, rareByJob := list, byJob
	rare.Statuses, rareByJob.Statuses = failed, failed
	for _, test := range []struct {
		name string
		most float64 // rows touched
		ask  func(q *db.Queries) error
	}{
		{"numbers", 10000, func(q *db.Queries) error {
			_, err := q.SummarizeExecutions(t.Context(), db.SummarizeExecutionsParams{TenantID: tenantID, FromAt: month(3), ToAt: month(4), GroupBy: "status", PageSize: 10})
			return err
		}},
		{"newest", 100, func(q *db.Queries) error { _, err := q.ListExecutions(t.Context(), list); return err }},
		{"oldest", 100, func(q *db.Queries) error {
			_, err := q.ListOldestExecutions(t.Context(), db.ListOldestExecutionsParams(oldest))
			return err
		}},
		{"rare", 100, func(q *db.Queries) error {
			_, err := q.ListUnsuccessfulExecutions(t.Context(), db.ListUnsuccessfulExecutionsParams(rare))
			return err
		}},
		{"of a job", 100, func(q *db.Queries) error { _, err := q.ListExecutionsByJob(t.Context(), byJob); return err }},
		{"oldest of a job", 100, func(q *db.Queries) error {
			_, err := q.ListOldestExecutionsByJob(t.Context(), db.ListOldestExecutionsByJobParams(oldestByJob))
			return err
		}},
		{"rare of a job", 100, func(q *db.Queries) error {
			_, err := q.ListUnsuccessfulExecutionsByJob(t.Context(), db.ListUnsuccessfulExecutionsByJobParams(rareByJob))
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var read, sequential []string
			touched := 0.0
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				plan := pgtest.Explain(t, conn, mode, tenantID, func(_ context.Context, s *pgtest.Statement) error { return test.ask(db.New(s)) })
				read, sequential, touched = nil, nil, 0
				plan.Walk(func(n pgtest.PlanNode) {
					if n.Relation == "" || n.Loops == 0 {
						return
					}
					touched = max(touched, n.Touched())
					if strings.HasPrefix(n.Relation, "job_executions") {
						read = append(read, n.Relation)
					}
					if n.Type == "Seq Scan" && n.Relation != "active_executions" && test.name != "numbers" { // of half a partition
						sequential = append(sequential, n.Relation)
					}
				})
				slices.Sort(read)
				if !slices.Equal(slices.Compact(read), []string{"job_executions_2026_03"}) || len(sequential) > 0 || touched > test.most {
					t.Errorf("%s: reads %v, in sequence %v, %v rows at most at one step", mode, read, sequential, touched)
				}
			}
		})
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
	if _, err := conn.Exec(t.Context(), "ANALYZE job_executions"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "SET ROLE scheduler_api"); err != nil {
		t.Fatal(err)
	}
	return conn, tenantID, jobID
}
