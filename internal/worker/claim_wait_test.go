package worker_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
)

// holding returns a store, a worker that may claim with it, and a transaction that stays
// open, as that of another process at work. No claim may wait for what it holds.
func holding(t *testing.T, b *bundle, c dispatch.Config) (*dispatch.Store, uuid.UUID, pgx.Tx) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	worker := uuid.New()
	if err := db.New(b.engine.Pool()).InsertWorker(t.Context(), db.InsertWorkerParams{ID: worker, Slots: 100, LeaseSeconds: 60, JobTypes: []string{"function"}}); err != nil {
		t.Fatal(err)
	}
	return dispatch.NewStore(b.engine, c), worker, tx
}

func idsOf(won []dispatch.Claimed) (ids []uuid.UUID) {
	for _, c := range won {
		ids = append(ids, c.ID)
	}
	return ids
}

// One claim counts a tenant that is at its limit. Another waits neither for it nor for
// what it locked, and claims the executions of other tenants. On the commit before it
// waited until the first was committed, and ended here with a lock time-out.
func TestClaimsDoNotWaitForATenantAtItsLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.pending(nil)
	rest := []execution.Execution{b.pending(nil), b.pending(nil)}
	other := uuid.New()
	b.line(first, other, 3, 0)
	theirs := b.ids("SELECT id FROM active_executions WHERE tenant_id = '" + other.String() + "'")
	store, worker, tx := holding(t, b, dispatch.Config{TenantMaxRunning: func() int { return 2 }})
	if _, err := tx.Exec(t.Context(), "SELECT start_runs(ARRAY[$1::uuid, $2::uuid, $3::uuid], ARRAY[$4::uuid, $4, $4], '{function,function,function}', NULL, 2, now(), $5)",
		first.ID, rest[0].ID, rest[1].ID, b.who.TenantID, worker); err != nil {
		t.Fatal(err)
	}
	won, _, err := store.Claim(t.Context(), worker, uuid.New(), append([]uuid.UUID{first.ID, rest[0].ID, rest[1].ID}, theirs[:2]...))
	if err != nil {
		t.Fatal(err)
	}
	if got := idsOf(won); len(got) != 2 || !slices.Contains(theirs, got[0]) || !slices.Contains(theirs, got[1]) {
		t.Errorf("claimed %v, want two of the other tenant's", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	won, _, err = store.Claim(t.Context(), worker, uuid.New(), []uuid.UUID{first.ID, rest[0].ID, rest[1].ID})
	if err != nil || len(won) != 2 {
		t.Errorf("%d claimed once the count is free, %v; want the 2 that may run", len(won), err)
	}
}

// A claim does not wait for a job that somebody else holds locked. It says which
// executions it did not try, and claims the others.
func TestClaimsDoNotWaitForALockedJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	limited := func(s *job.Spec) { s.MaxConcurrent = 1 }
	made := []execution.Execution{b.pending(limited), b.pending(limited)}
	b.exec("UPDATE active_executions SET concurrency_limit = 1")
	store, worker, tx := holding(t, b, dispatch.Config{})
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM scheduled_jobs WHERE id = $1 FOR UPDATE", made[0].JobID); err != nil {
		t.Fatal(err)
	}
	ids := []uuid.UUID{made[0].ID, made[1].ID}
	won, held, err := store.Claim(t.Context(), worker, uuid.New(), ids)
	if err != nil || !slices.Equal(idsOf(won), ids[1:]) || !slices.Equal(held, ids[:1]) {
		t.Errorf("claimed %v, held %v, %v; want %v and %v", idsOf(won), held, err, ids[1:], ids[:1])
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	won, held, err = store.Claim(t.Context(), worker, uuid.New(), ids[:1])
	if err != nil || len(won) != 1 || len(held) != 0 {
		t.Errorf("claimed %v, held %v, %v once the job is free", idsOf(won), held, err)
	}
}
