package promoter

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// A kept plan of an insertion looks into the partitions of the history that its scheduled
// times lie in, and opens no other: with a partition a day there are hundreds.
func TestAnInsertionOpensOnePartition(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	now := clock.Now()
	months := make([]time.Time, 12)
	for i := range months {
		months[i] = now.AddDate(0, -i, 0)
	}
	if _, err := partition.Make(t.Context(), db.New(conn), months); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan"); err != nil { // as sessions of promoters have it
		t.Fatal(err)
	}
	opened := func() (n int) {
		t.Helper()
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		runs := make([]run, 2)
		for i := range runs {
			runs[i] = run{id: uuid.New(), job: &dueJob{id: uuid.New(), tenant: uuid.New(), version: 1, jobType: "function", maxAttempts: 1}, at: now, available: now}
		}
		runs[0].job.policy.Timeout, runs[1].job.policy.Timeout = 1, 1
		if err := db.New(tx).InsertDueExecutions(t.Context(), insertDue(runs, now)); err != nil {
			t.Fatal(err)
		}
		if err := tx.QueryRow(t.Context(), `SELECT count(DISTINCT i.indrelid) FROM pg_inherits p JOIN pg_index i ON i.indrelid = p.inhrelid
			JOIN pg_locks l ON l.relation = i.indexrelid AND l.pid = pg_backend_pid() WHERE p.inhparent = 'job_executions'::regclass`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := opened(); n < len(months) {
		t.Fatalf("making the plan opened %d partitions, want all of %d", n, len(months))
	}
	if n := opened(); n != 1 {
		t.Errorf("a kept plan opened %d partitions, want 1", n)
	}
}
