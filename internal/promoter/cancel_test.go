package promoter_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
)

// An attempt that fails in the very moment in which its job is deleted is not
// made again: the deletion waits for the outcome that is being written.
func TestDeletionMeetsARetry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	due := *j.NextExecutionAt
	b.pass(t, b.promoter, due)
	id := execution.ScheduledID(j.ID, due)
	b.claimBy(t, id.String(), due.Add(time.Hour), due.Add(time.Hour))

	worker, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = worker.Close(t.Context()) })
	tx, err := worker.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// As a completion writes for an attempt that failed.
	if _, err := tx.Exec(t.Context(), "UPDATE active_executions SET status = 'retrying', worker_id = NULL, lease_token = NULL WHERE id = $1", id); err != nil {
		t.Fatal(err)
	}
	deleted := make(chan error, 1)
	go func() { deleted <- b.jobs.Delete(t.Context(), b.who, j.ID, "", 0) }()
	b.untilBlocked(t)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	if row := b.rows(t, j)[0]; row.Status != execution.Cancelled {
		t.Errorf("the job was deleted and its execution is %s", row.Status)
	}
}

// untilBlocked waits until a session of this database waits for a lock.
func (b *bundle) untilBlocked(t *testing.T) { t.Helper(); b.untilWaiting(t, 1) }

// untilWaiting waits until so many sessions of this database wait for a lock.
func (b *bundle) untilWaiting(t *testing.T, sessions int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for waiting := 0; waiting < sessions; {
		select {
		case <-limit:
			t.Fatalf("%d sessions wait for a lock, want %d", waiting, sessions)
		case <-tick.C:
		}
		err := conn.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A run whose end was asked for and which its worker gives back is finished: it
// does not wait for a claim that nobody may make.
func TestCancelledRunThatIsGivenBackIsOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	due := *j.NextExecutionAt
	b.pass(t, b.promoter, due)
	id := execution.ScheduledID(j.ID, due)
	b.claimBy(t, id.String(), due.Add(time.Hour), due.Add(time.Hour))
	if err := b.jobs.Delete(t.Context(), b.who, j.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	q := db.New(b.engine.Pool())
	var token uuid.UUID
	if err := b.engine.Pool().QueryRow(t.Context(), "SELECT lease_token FROM active_executions WHERE id = $1", id).Scan(&token); err != nil {
		t.Fatal(err)
	}
	if _, err := q.ReleaseExecutions(t.Context(), db.ReleaseExecutionsParams{Now: &due, Ids: []uuid.UUID{id}, LeaseTokens: []uuid.UUID{token}}); err != nil {
		t.Fatal(err)
	}
	b.sweep(t, due.Add(time.Second))
	if row := b.rows(t, j)[0]; row.Status != execution.Cancelled {
		t.Errorf("the job was deleted, its run was given back and is %s", row.Status)
	}
}

// A pass that cancels what is active of several jobs locks it in the order in
// which completions do, whatever the order of the jobs: neither waits for the
// other in a circle.
func TestCancellingSeveralJobsLocksInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cancelling := func(s *job.Spec) { s.Overlap, s.MaxConcurrent = job.OverlapCancel, 1 }
	first, second := b.create(t, cancelling), b.create(t, cancelling)
	admin, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(context.WithoutCancel(t.Context())) })
	low, high := uuid.UUID{15: 1}, uuid.UUID{15: 2}
	_, err = admin.Exec(t.Context(), `INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts, timeout_ms, available_at, sweep_at)
		SELECT u.id, $1, u.job_id, 1, now(), 'manual', 'function', 5, 1, 1000, now(), 'infinity'
		FROM (SELECT unnest($2::uuid[]) AS id, unnest($3::uuid[]) AS job_id) u`, b.who.TenantID, []uuid.UUID{high, low}, []uuid.UUID{first.ID, second.ID})
	if err != nil {
		t.Fatal(err)
	}
	now := first.NextExecutionAt.Add(time.Second)
	if _, err := admin.Exec(t.Context(), "UPDATE scheduled_jobs SET next_execution_at = $2 WHERE id = $1", second.ID, now); err != nil {
		t.Fatal(err)
	}
	tx, err := admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT id FROM active_executions WHERE id = $1 FOR UPDATE", low); err != nil {
		t.Fatal(err)
	}
	passed := make(chan error, 1)
	go func() { _, err := b.promoter.Pass(t.Context(), now); passed <- err }()
	b.untilBlocked(t)
	if _, err := tx.Exec(t.Context(), "SELECT id FROM active_executions WHERE id = $1 FOR UPDATE NOWAIT", high); err != nil {
		t.Errorf("the pass waits for the first execution and holds the second: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-passed; err != nil {
		t.Fatal(err)
	}
	for _, j := range []job.Job{first, second} {
		if n := slices.IndexFunc(b.rows(t, j), func(e execution.Execution) bool { return e.Status == execution.Cancelled }); n < 0 {
			t.Errorf("what was active of job %s is not cancelled", j.ID)
		}
	}
}
