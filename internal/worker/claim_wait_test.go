package worker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// holding returns a store, a worker that may claim with it, and a transaction that stays
// open, as that of another process at work. No claim may wait for what it holds for long.
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
	if err := db.New(b.engine.Pool()).InsertWorker(t.Context(), db.InsertWorkerParams{ID: worker, Slots: 100, LeaseSeconds: 3600, JobTypes: []string{"function"}}); err != nil {
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
	won, _, _, err := store.Claim(t.Context(), worker, uuid.New(), append([]uuid.UUID{first.ID, rest[0].ID, rest[1].ID}, theirs[:2]...))
	if err != nil {
		t.Fatal(err)
	}
	if got := idsOf(won); len(got) != 2 || !slices.Contains(theirs, got[0]) || !slices.Contains(theirs, got[1]) {
		t.Errorf("claimed %v, want two of the other tenant's", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	won, _, _, err = store.Claim(t.Context(), worker, uuid.New(), []uuid.UUID{first.ID, rest[0].ID, rest[1].ID})
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
	won, held, _, err := store.Claim(t.Context(), worker, uuid.New(), ids)
	if err != nil || !slices.Equal(idsOf(won), ids[1:]) || !slices.Equal(held, ids[:1]) {
		t.Errorf("claimed %v, held %v, %v; want %v and %v", idsOf(won), held, err, ids[1:], ids[:1])
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	won, held, _, err = store.Claim(t.Context(), worker, uuid.New(), ids[:1])
	if err != nil || len(won) != 1 || len(held) != 0 {
		t.Errorf("claimed %v, held %v, %v once the job is free", idsOf(won), held, err)
	}
}

// ofKeys makes an execution for each key, and has the tenant's permits dealt: the first
// claim of a tenant counts exactly, as it has none.
func ofKeys(t *testing.T, b *bundle, store *dispatch.Store, worker uuid.UUID, keys ...string) (ids []uuid.UUID) {
	t.Helper()
	for _, key := range keys {
		ids = append(ids, b.pending(func(s *job.Spec) { s.Overlap, s.ConcurrencyKey = job.OverlapAllow, key }).ID)
	}
	first := b.pending(nil)
	if won, _, _, err := store.Claim(t.Context(), worker, uuid.New(), []uuid.UUID{first.ID}); err != nil || len(won) != 1 {
		t.Fatalf("the first claim: %d, %v", len(won), err)
	}
	return ids
}

// startOne has another process, of another shard than the worker's, start an execution that
// has a key.
const startOne = "SELECT start_runs(ARRAY[$1::uuid], ARRAY[$2::uuid], '{function}', ARRAY[$3], 0, now(), $4)"

// Two claims of one tenant's keys do not wait for each other, and one key starts one run. On
// the commit before, each waited until the other was committed.
func TestClaimsOfKeysDoNotWaitForOneAnother(t *testing.T) {
	t.Parallel()
	b := setup(t)
	store, worker, tx := holding(t, b, dispatch.Config{})
	ids := ofKeys(t, b, store, worker, "one", "one", "two")
	elsewhere := worker
	elsewhere[15] ^= 1
	started := uuid.Nil
	if err := tx.QueryRow(t.Context(), startOne, ids[0], b.who.TenantID, "one", elsewhere).Scan(&started); err != nil || started != ids[0] {
		t.Fatalf("started %s, %v", started, err)
	}
	won, _, _, err := store.Claim(t.Context(), worker, uuid.New(), ids[1:])
	if err != nil || !slices.Equal(idsOf(won), ids[2:]) {
		t.Errorf("claimed %v, %v; want the one whose key is free, %v", idsOf(won), err, ids[2:])
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	won, _, _, err = store.Claim(t.Context(), worker, uuid.New(), ids[:2])
	if err != nil || !slices.Equal(idsOf(won), ids[:1]) {
		t.Errorf("claimed %v, %v; want the first of its key, %v", idsOf(won), err, ids[:1])
	}
	if n := b.count("SELECT count(*) FROM running_keys WHERE execution_id = ANY ($1)", []uuid.UUID{ids[0], ids[2]}); n != 2 {
		t.Errorf("%d of two keys are taken", n)
	}
	if n := b.count("SELECT running FROM running_totals WHERE tenant_id = $1", b.who.TenantID); n != 3 {
		t.Errorf("%d count as running, want 3", n)
	}
}

// permitted makes a claim of the tenant, which deals its permits, and an execution of another
// tenant.
func permitted(t *testing.T, b *bundle, store *dispatch.Store, worker uuid.UUID) (ids []uuid.UUID, theirs uuid.UUID) {
	t.Helper()
	first := b.pending(nil)
	ids = ofKeys(t, b, store, worker, "one")
	other := uuid.New()
	b.line(first, other, 1, 0)
	return append(ids, first.ID), b.ids("SELECT id FROM active_executions WHERE tenant_id = '" + other.String() + "'")[0]
}

// A claim waits briefly for the count of a tenant that another claim has locked: one that
// counts exactly, or one of its own shard. It claims the executions of the other tenants,
// takes no key, and leaves the rest to polls. On the commit before, it waited until the
// other was committed.
func TestClaimsWaitBriefly(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]struct {
		runs  int
		shard byte // beside that of the worker
	}{
		"an exact count": {runs: 60, shard: 1}, "a claim of the same shard": {runs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			store, worker, tx := holding(t, b, dispatch.Config{TenantMaxRunning: func() int { return 80 }})
			ids, theirs := permitted(t, b, store, worker)
			elsewhere := worker
			elsewhere[15] ^= other.shard
			if _, err := tx.Exec(t.Context(), "SELECT start_runs(array_agg(gen_random_uuid()), array_agg($1::uuid), array_agg('function'::text), NULL, 80, now(), $2) FROM generate_series(1, $3::int)",
				b.who.TenantID, elsewhere, other.runs); err != nil {
				t.Fatal(err)
			}
			won, _, _, err := store.Claim(t.Context(), worker, uuid.New(), append([]uuid.UUID{theirs}, ids...))
			if err != nil || !slices.Equal(idsOf(won), []uuid.UUID{theirs}) {
				t.Errorf("claimed %v, %v; want the other tenant's %s", idsOf(won), err, theirs)
			}
			if keys, pooled := b.count("SELECT count(*) FROM running_keys"), b.count("SELECT count(*) FROM active_executions WHERE id = $1 AND pooled", ids[1]); keys != 0 || pooled != 1 {
				t.Errorf("%d keys are taken, and %d of what was left out is in the pool; want 0 and 1", keys, pooled)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			won, _, _, err = store.Claim(t.Context(), worker, uuid.New(), ids)
			if err != nil || len(won) != 2 {
				t.Errorf("claimed %v, %v once the count is free; want both", idsOf(won), err)
			}
		})
	}
}

// A claim of one tenant's executions looks at the permits, locks the row that counts, and looks
// again: the tenant may have been suspended between the two, and its permits used up.
func TestAClaimOfOneTenantLooksAgain(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]struct{ meanwhile, after string }{
		"permits": {"UPDATE running_shards SET permits = 0", "SELECT 1"},
		"status":  {"UPDATE running_counts SET suspended = true", "UPDATE running_counts SET suspended = false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			store, worker, tx := holding(t, b, dispatch.Config{})
			ofKeys(t, b, store, worker) // which deals the permits
			ids := []uuid.UUID{b.pending(nil).ID}
			b.exec(`DO $$ BEGIN EXECUTE (SELECT replace(pg_get_functiondef(p.oid), 's.shard = own AND p.permits', 's.shard = own AND (SELECT pg_advisory_xact_lock(1)) IS NOT NULL AND p.permits')
				FROM pg_proc p WHERE p.proname = 'start_runs' AND p.pronargs = 7); END $$`)
			if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(1)"); err != nil {
				t.Fatal(err)
			}
			var won []dispatch.Claimed
			var failure error
			var claim sync.WaitGroup
			claim.Go(func() { won, _, _, failure = store.Claim(t.Context(), worker, uuid.New(), ids) })
			eventually(t, "the claim has looked", func() bool {
				return b.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'") == 1
			})
			b.exec(change.meanwhile)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			claim.Wait()
			if failure != nil || len(won) != 0 {
				t.Errorf("claimed %d, %v; want none", len(won), failure)
			}
			b.exec(change.after)
			if won, _, _, err := store.Claim(t.Context(), worker, uuid.New(), ids); err != nil || len(won) != 1 {
				t.Errorf("claimed %d once it may, %v", len(won), err)
			}
		})
	}
}

// A claim of one tenant's executions waits briefly, too, for a claim of its shard.
func TestAClaimOfOneTenantWaitsBriefly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	store, worker, tx := holding(t, b, dispatch.Config{})
	ofKeys(t, b, store, worker)
	ids := []uuid.UUID{b.pending(nil).ID}
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM running_shards WHERE tenant_id = $1 FOR UPDATE", b.who.TenantID); err != nil {
		t.Fatal(err)
	}
	if won, _, _, err := store.Claim(t.Context(), worker, uuid.New(), ids); err != nil || len(won) != 0 {
		t.Errorf("claimed %d, %v; want none", len(won), err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if won, _, _, err := store.Claim(t.Context(), worker, uuid.New(), ids); err != nil || len(won) != 1 {
		t.Errorf("claimed %d once the row is free, %v", len(won), err)
	}
}

// A poll whose claim waits for a count has no turn any more: other workers poll meanwhile. On
// the commit before, they waited until its commit was answered.
func TestPollsDoNotWaitForClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := []uuid.UUID{b.pending(nil).ID, b.pending(nil).ID}
	b.exec("UPDATE active_executions SET pooled = true")
	_, _, tx := holding(t, b, dispatch.Config{})
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM running_shards WHERE tenant_id = $1 FOR UPDATE", b.who.TenantID); err != nil {
		t.Fatal(err)
	}
	all := func(found []dispatch.Candidate, _ time.Duration) []dispatch.Candidate { return found }
	var first []dispatch.Claimed
	var claim sync.WaitGroup
	claim.Go(func() { first = b.pollAs(dispatch.ShownTurn, all) })
	eventually(t, "the claim waits for the count", func() bool {
		return b.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1
	})
	if won := b.pollAs(dispatch.ShownTurn, all); len(won) != 0 {
		t.Errorf("%d claimed of what another poll has found", len(won))
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	claim.Wait()
	if len(first) != len(made) {
		t.Errorf("%d claimed once the count is free, want %d", len(first), len(made))
	}
}

// A claim takes its keys back where the permits were used up while it waited for its shard.
func TestClaimsThatMayNotStartTakeNoKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	store, worker, tx := holding(t, b, dispatch.Config{})
	ids := ofKeys(t, b, store, worker, "one")
	b.exec(`DO $$ BEGIN EXECUTE (SELECT replace(pg_get_functiondef(p.oid), '100 milliseconds', '1 minute') FROM pg_proc p WHERE p.proname = 'start_runs' AND p.pronargs = 7); END $$`)
	if _, err := tx.Exec(t.Context(), "UPDATE running_shards SET permits = 0 WHERE tenant_id = $1", b.who.TenantID); err != nil {
		t.Fatal(err)
	}
	var won []dispatch.Claimed
	var failure error
	done := make(chan struct{})
	go func() {
		defer close(done)
		won, _, _, failure = store.Claim(t.Context(), worker, uuid.New(), ids)
	}()
	eventually(t, "the claim waits for its shard", func() bool {
		return b.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'") == 1
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-done
	if failure != nil || len(won) != 0 || b.count("SELECT count(*) FROM running_keys") != 0 {
		t.Errorf("claimed %d, %v, %d keys are taken", len(won), failure, b.count("SELECT count(*) FROM running_keys"))
	}
	won, _, _, err := store.Claim(t.Context(), worker, uuid.New(), ids)
	if err != nil || !slices.Equal(idsOf(won), ids) {
		t.Errorf("claimed %v once the permits are dealt again, %v", idsOf(won), err)
	}
}

// A claim that wins nothing does not keep its jobs while its commit is written to the disk. It
// commits all the same: it met the limit of its tenant, and the mark of that has to stay.
func TestAClaimThatWinsNothingWaitsForNoDisk(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, limited := b.pending(nil), b.pending(func(s *job.Spec) { s.MaxConcurrent = 1 })
	b.exec("UPDATE active_executions SET concurrency_limit = 1 WHERE id = $1", limited.ID)
	b.exec("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = on', current_database()); END $$") // the server of tests has it off
	b.engine = open(t, b.database.URL, postgres.Engine)
	store, worker, _ := holding(t, b, dispatch.Config{TenantMaxRunning: func() int { return 1 }})
	b.exec(`CREATE TABLE commits (flushed boolean);
		CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN INSERT INTO public.commits VALUES (current_setting('synchronous_commit') = 'on'); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER note_commit AFTER UPDATE ON running_shards DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_commit()`)
	for _, want := range []struct {
		id      uuid.UUID
		won     int
		flushed bool
	}{{first.ID, 1, true}, {limited.ID, 0, false}} {
		b.exec("DELETE FROM commits")
		won, _, _, err := store.Claim(t.Context(), worker, uuid.New(), []uuid.UUID{want.id})
		if err != nil || len(won) != want.won {
			t.Fatalf("claimed %d, %v; want %d", len(won), err, want.won)
		}
		if n, other := b.count("SELECT count(*) FROM commits WHERE flushed = $1", want.flushed), b.count("SELECT count(*) FROM commits WHERE flushed <> $1", want.flushed); n == 0 || other != 0 {
			t.Errorf("a claim of %d waits for the disk: want %t; so it is for %d rows, and not for %d", want.won, want.flushed, n, other)
		}
	}
	if n := b.count("SELECT count(*) FROM running_shards WHERE tenant_id = $1 AND backlogged_at IS NOT NULL", b.who.TenantID); n != 1 {
		t.Error("that the tenant is at its limit was not kept")
	}
}

// A limited run starts when it is claimed, and not when its transaction began: before the
// claim, LockJobs may have waited for the end of another run of the job.
func TestALimitedRunStartsAtItsClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.pending(func(s *job.Spec) { s.MaxConcurrent = 1 })
	b.exec("UPDATE active_executions SET concurrency_limit = 1")
	_, worker, tx := holding(t, b, dispatch.Config{})
	var ended time.Time
	if err := tx.QueryRow(t.Context(), "SELECT clock_timestamp() FROM now()").Scan(&ended); err != nil {
		t.Fatal(err)
	}
	token := uuid.New()
	won, err := db.New(tx).ClaimLimitedExecutions(t.Context(), db.ClaimLimitedExecutionsParams{
		WorkerID: &worker, LeaseToken: &token, MaxRunning: 10, Ids: []uuid.UUID{made.ID}, LeftTypes: []string{},
	})
	if err != nil || len(won) != 1 {
		t.Fatalf("claimed %d, %v", len(won), err)
	}
	if won[0].StartedAt.Before(ended) {
		t.Errorf("it started at %s, and the run before it ended at %s", won[0].StartedAt, ended)
	}
}
