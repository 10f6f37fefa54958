package promoter

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// A kept plan of an insertion opens the partitions of the history that its scheduled
// times lie in, and no other: with a partition a day there are hundreds. Making the plan
// opens all. The locks of the indexes tell which partitions were opened.
func TestAnInsertionOpensOnePartition(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.New(t).AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	if _, err := conn.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan"); err != nil { // as sessions of promoters have it
		t.Fatal(err)
	}
	now := clock.Now()
	due, backfilled := insertDue([]run{{id: uuid.New(), job: &dueJob{id: uuid.New(), version: 1}, at: now, available: now}}, now),
		insertBackfilled([]backfillStep{{runningBackfill: runningBackfill{id: uuid.New()}, times: []time.Time{now}}}, now)
	for _, test := range []struct {
		name   string
		insert func(*db.Queries) error
	}{
		{"due", func(q *db.Queries) error { return q.InsertDueExecutions(t.Context(), due) }},
		{"backfilled", func(q *db.Queries) error { return q.InsertBackfillExecutions(t.Context(), backfilled) }},
	} {
		opened := func() (n int) {
			t.Helper()
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(t.Context()) }()
			if err := test.insert(db.New(tx)); err != nil {
				t.Fatal(err)
			}
			if err := tx.QueryRow(t.Context(), `SELECT count(DISTINCT i.indrelid) FROM pg_inherits p JOIN pg_index i ON i.indrelid = p.inhrelid
				JOIN pg_locks l ON l.relation = i.indexrelid AND l.pid = pg_backend_pid() WHERE p.inhparent = 'job_executions'::regclass`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if first, kept := opened(), opened(); first < 2 || kept != 1 {
			t.Errorf("%s: %d partitions were opened to make the plan, want all, and %d by the kept one, want 1", test.name, first, kept)
		}
	}
}
