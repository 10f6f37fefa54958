package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// said takes down the statement that a generated method sends.
type said struct {
	sql  string
	args []any
}

var errSaid = errors.New("taken down")

func (s *said) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	s.sql, s.args = sql, args
	return pgconn.CommandTag{}, errSaid
}

func (s *said) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	s.sql, s.args = sql, args
	return nil, errSaid
}

func (s *said) QueryRow(context.Context, string, ...any) pgx.Row {
	panic("no statement of one row here")
}

func (s *said) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults {
	panic("no batch here")
}

// node is a step of a plan as EXPLAIN (ANALYZE, FORMAT JSON) tells it.
type node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Loops    float64 `json:"Actual Loops"`
	Rows     float64 `json:"Actual Rows"`
	Dropped  float64 `json:"Rows Removed by Filter"`
	Plans    []node  `json:"Plans"`
}

// touched is the most rows that one step of the plan read, and whether it read
// any table from end to end.
func (n node) touched() (most float64, sequential bool) {
	if n.Relation != "" {
		most, sequential = n.Loops*(n.Rows+n.Dropped), n.Type == "Seq Scan"
	}
	for _, below := range n.Plans {
		m, s := below.touched()
		most, sequential = max(most, m), sequential || s
	}
	return most, sequential
}

// A list of one tenant's jobs does not read another's, and by createdAt reads
// about a page.
func TestListsReadOneTenantsJobs(t *testing.T) {
	t.Parallel()
	const tenants, each = 20, 500
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
	for _, statement := range []string{"ANALYZE scheduled_jobs", "SET ROLE scheduler_api"} {
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
		{"newest", 21, func(q *db.Queries) error {
			_, err := q.ListJobs(t.Context(), db.ListJobsParams{TenantID: tenantID, BeforeCreatedAt: far, CreatedFrom: past, CreatedTo: far, PageSize: 21})
			return err
		}},
		{"oldest", 21, func(q *db.Queries) error {
			_, err := q.ListOldestJobs(t.Context(), db.ListOldestJobsParams{TenantID: tenantID, AfterCreatedAt: past, CreatedFrom: past, CreatedTo: far, PageSize: 21})
			return err
		}},
		{"by name", each, func(q *db.Queries) error {
			_, err := q.ListSortedJobs(t.Context(), db.ListSortedJobsParams{TenantID: tenantID, SortBy: "name", CreatedFrom: past, CreatedTo: far, PageSize: 21})
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				plan := explain(t, conn, mode, tenantID, test.ask)
				if most, sequential := plan.touched(); most > test.most || sequential {
					t.Errorf("%s: a step reads %v rows, want %v at most; in sequence: %v", mode, most, test.most, sequential)
				}
			}
		})
	}
}

// explain runs a statement of a tenant and says how.
func explain(t *testing.T, conn *pgx.Conn, mode string, tenantID uuid.UUID, ask func(*db.Queries) error) node {
	t.Helper()
	var s said
	if err := ask(db.New(&s)); !errors.Is(err, errSaid) {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "SELECT set_config('app.tenant_id', $1, true), set_config('plan_cache_mode', $2, true)", tenantID.String(), mode); err != nil {
		t.Fatal(err)
	}
	var raw []byte
	if err := tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+s.sql, s.args...).Scan(&raw); err != nil {
		t.Fatal(err)
	}
	var plans []struct{ Plan node }
	if err := json.Unmarshal(raw, &plans); err != nil || len(plans) != 1 {
		t.Fatal(err, len(plans))
	}
	return plans[0].Plan
}
