package worker_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/queue"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// eventually waits for a condition that other goroutines bring about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// hint brings a worker one hint.
func (b *bundle) hint(w member, ids ...uuid.UUID) {
	b.t.Helper()
	if err := w.Handle(b.t.Context(), queue.Low, ids); err != nil {
		b.t.Fatal(err)
	}
}

// handle brings a worker hints until it has claimed all that may start. A hint waits 25 ms for a
// free slot, and its claim a tenth of a second for the count of a tenant. A busy machine may need
// longer for both, and nobody polls here.
func (b *bundle) handle(w member, ids ...uuid.UUID) {
	b.t.Helper()
	before := b.attempts("true", ids)
	eventually(b.t, "the executions of a hint are claimed", func() bool {
		b.hint(w, ids...)
		waiting := b.attempts("status IN ('pending', 'retrying') AND available_at <= now() AND cancel_requested_at IS NULL", ids)
		ids = slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool {
			attempt, waits := waiting[id]
			return !waits || attempt != before[id]
		})
		return len(ids) == 0
	})
}

// attempts answers the attempts of executions that have not finished and fulfil a condition.
func (b *bundle) attempts(condition string, ids []uuid.UUID) map[uuid.UUID]int {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.database.AdminURL)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close(b.t.Context())
	rows, err := conn.Query(b.t.Context(), "SELECT id, attempt FROM active_executions WHERE id = ANY ($1) AND "+condition, ids)
	if err != nil {
		b.t.Fatal(err)
	}
	got := map[uuid.UUID]int{}
	var id uuid.UUID
	var attempt int
	if _, err := pgx.ForEachRow(rows, []any{&id, &attempt}, func() error { got[id] = attempt; return nil }); err != nil {
		b.t.Fatal(err)
	}
	return got
}

// complete waits until all executions are completed. The end of one has the next one hinted. A
// worker gives a hint up after a second, which is short on a busy machine, and nobody polls here.
// So the hints are sent again after ten seconds: three times at most, which is too seldom to hide a
// worker that hints nothing.
func (b *bundle) complete(ids []uuid.UUID, tell func()) {
	b.t.Helper()
	told := 0
	for _, id := range ids {
		since := clock.Start()
		eventually(b.t, "an execution is completed", func() bool {
			if told < 3 && since.Elapsed() > 10*time.Second {
				told, since = told+1, clock.Start()
				tell()
			}
			return b.reached(id) == execution.Completed
		})
	}
}

// losesClaims has the first worker that registers find all executions as its own, as after a claim
// whose answer was lost for good. They are there before its first comparison, because one that
// takes 60 ms is followed by none for a minute.
func (b *bundle) losesClaims() {
	b.t.Helper()
	b.exec(`CREATE FUNCTION lose_claims() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
		UPDATE active_executions SET status = 'running', pooled = false, sweep_at = now(), attempt = 1, lease_token = gen_random_uuid(),
			deadline_at = now() + interval '1 hour', worker_id = NEW.id WHERE attempt = 0;
		RETURN NULL; END $$`)
	b.exec("CREATE TRIGGER lose_claims AFTER INSERT ON workers FOR EACH ROW EXECUTE FUNCTION lose_claims()")
}

// locked returns a transaction that holds a table locked, until it ends or the test does.
func (b *bundle) locked(table string) pgx.Tx {
	b.t.Helper()
	return b.holds("LOCK TABLE " + pgx.Identifier{table}.Sanitize())
}

// holds returns a transaction that has done a statement, and so holds what that locks.
func (b *bundle) holds(lock string, args ...any) pgx.Tx {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.database.AdminURL)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := tx.Exec(b.t.Context(), lock, args...); err != nil {
		b.t.Fatal(err)
	}
	return tx
}
