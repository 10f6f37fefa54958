package worker_test

import (
	"context"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// A claim whose second statement waits for a lock, over many heartbeats, keeps what its
// first statement took: given back, it would run here and elsewhere.
func TestWhatIsBeingClaimedIsNotGivenBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run = func(context.Context, executor.Run) executor.Outcome { return executor.Outcome{} }
	first := b.pending(nil)
	keyed := b.pending(func(s *job.Spec) { s.ConcurrencyKey = "key" })
	w := b.start(nil)
	conn, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "INSERT INTO running_keys (tenant_id, key, execution_id) VALUES ($1, 'key', $2)", b.who.TenantID, uuid.New()); err != nil {
		t.Fatal(err)
	}
	var claim sync.WaitGroup
	claim.Go(func() { b.handle(w, first.ID, keyed.ID) })
	eventually(t, "four heartbeats saw the claimed row", func() (seen bool) {
		err := tx.QueryRow(t.Context(), `SELECT coalesce((SELECT heartbeat_at > attempt_started_at + interval '1 second'
			FROM workers JOIN active_executions e ON e.worker_id = workers.id WHERE e.id = $1), false)`, first.ID).Scan(&seen)
		var attempts int
		if err == nil {
			err = tx.QueryRow(t.Context(), "SELECT max_attempts FROM active_executions WHERE id = $1", first.ID).Scan(&attempts)
		}
		return err == nil && (seen || attempts != first.MaxAttempts)
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	claim.Wait()
	if got := b.reaches(first.ID, execution.Completed); got.MaxAttempts != first.MaxAttempts || got.Attempt != 1 {
		t.Errorf("completed by attempt %d of %d, want 1 of %d: it was given back", got.Attempt, got.MaxAttempts, first.MaxAttempts)
	}
}

// Until a worker is registered it could only send hints on, for a second later.
func TestWorkerTakesHintsWhenItIsRegistered(t *testing.T) {
	t.Parallel()
	ready := make(chan bool, 1)
	setup(t).startWith(nil, func(w *worker.Worker, _ context.Context) error {
		ready <- w.Ready()
		return nil
	})
	if !<-ready {
		t.Error("it takes hints before it is registered")
	}
}
