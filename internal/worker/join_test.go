package worker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// A worker that did not drain a backlog before leaves it to the one that is in turn, and
// takes what is left when the turn is free.
func TestWorkersLeaveABacklogToWhoDrainsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.instantly()
	w := b.start(nil)
	first := b.pending(nil)
	if won := b.poll(w); won != 1 {
		t.Fatalf("%d claimed, want 1", won)
	}
	b.reaches(first.ID, execution.Completed)
	rest := b.pending(nil)
	err := db.New(b.engine.Pool()).InsertWorker(t.Context(), db.InsertWorkerParams{ID: uuid.New(), Slots: 1, LeaseSeconds: 3600, JobTypes: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	b.inTurn(true, func() {
		if won := b.poll(w); won != 0 {
			t.Errorf("%d claimed beside the one that is in turn, want none", won)
		}
	})
	if n := w.Others(); n != 1 {
		t.Errorf("it counts %d others, want 1", n)
	}
	eventually(t, "the worker claims what is left, when it has found the turn free for a while", func() bool { return b.poll(w) == 1 })
	b.reaches(rest.ID, execution.Completed)
}

// A worker that stood in line for its turn for longer than the turn took does not take the next one where others show
// theirs, however lately it had its own.
func TestWorkersLeaveABacklogWhereTheyStandInLine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.instantly()
	for wait := 100 * time.Millisecond; wait < time.Second; wait *= 2 { // a turn takes long on a busy machine
		w := b.start(nil)
		b.pending(nil)
		eventually(t, "it claims one without a turn, and more may wait", func() bool { return b.poll(w) == 1 })
		b.pending(nil)
		won := make(chan int, 1)
		b.inTurn(false, func() {
			go func() {
				n, err := w.Poll(t.Context())
				if err != nil {
					t.Error(err)
				}
				won <- n
			}()
			const inLine = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"
			eventually(t, "it stands in line", func() bool { return b.count(inLine) == 1 })
			waits := clock.Start()
			eventually(t, "it has stood there for a while", func() bool { return waits.Elapsed() >= wait })
		})
		if n := <-won; n != 1 {
			t.Fatalf("%d claimed after the wait, want 1", n)
		}
		b.pending(nil)
		left := false
		b.inTurn(true, func() { left = b.poll(w) == 0 })
		if left {
			return
		}
		w.stop()
	}
	t.Error("a worker that stood in line waits for its turn again, want it to leave the backlog to others")
}

// A session makes the plan of a poll before it stands in line for the first time: others would wait for that in its turn.
func TestAPollIsPlannedBeforeItsTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var asked []string
	engine, err := postgres.Open(t.Context(), postgres.Config{
		URL: b.database.URL, Role: postgres.Engine, Name: "test", MaxConns: 1, StatementTimeout: pgtest.Patience,
		RoundTrip: func(statement string) { asked = append(asked, statement) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	polls := func() (names []string) {
		asked = nil
		_, _, err := dispatch.NewStore(engine, dispatch.Config{}).PollAndClaim(t.Context(), uuid.New(), uuid.New(), 1, 0, uuid.Nil, nil, dispatch.PlainTurn,
			func([]dispatch.Candidate, time.Duration) []uuid.UUID { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(asked, func(name string) bool { return name == "prepare" })
	}
	first, second := polls(), polls()
	if want := append([]string{"ListPooledExecutions"}, second...); !slices.Equal(first, want) {
		t.Errorf("the first poll of a session asks %v and the second %v, want the first to ask the poll once more", first, second)
	}
}

// The time of a claim ends with its commit, so a worker sees that commits are slow.
func TestTheTimeOfAClaimIsUntilItsCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.instantly()
	w := b.start(nil)
	b.pending(nil)
	eventually(t, "it claims one, and more may wait", func() bool { return b.poll(w) == 1 })
	b.exec(`CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER wait_at_commit AFTER UPDATE ON active_executions DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
			WHEN (OLD.status = 'pending' AND NEW.status = 'running') EXECUTE FUNCTION wait_at_commit()`)
	one := b.pending(nil)
	if won := b.poll(w); won != 1 {
		t.Fatalf("%d claimed, want 1", won)
	}
	if took := w.ClaimTook(); took < 200*time.Millisecond { // a fourth of it, beside a claim before
		t.Errorf("a claim whose commit takes a second counts as one of about %v", took)
	}
	b.reaches(one.ID, execution.Completed)
}

// inTurn runs do while it has the turn.
func (b *bundle) inTurn(shown bool, do func()) {
	b.t.Helper()
	err := b.engine.InTurn(b.t.Context(), limit, shown, nil, func(tx *postgres.Tx) error {
		if _, err := tx.HasUnhintedExecutions(b.t.Context()); err != nil {
			return err
		}
		do()
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// A worker is needed beside others that do not run all of its types.
func TestOthersAreKnown(t *testing.T) {
	t.Parallel()
	all, some, one := []string{}, []string{"http", "function"}, []string{"http"}
	for _, test := range []struct {
		name         string
		mine, theirs []string
		change       string // of the other worker
		less         bool
		none         bool // lives
		able         int
	}{
		{name: "both all", mine: all, theirs: all, able: 1},
		{name: "both all, and the other is full", mine: all, theirs: all, change: "running = slots"},
		{name: "the other some", mine: all, theirs: some, less: true},
		{name: "the same", mine: some, theirs: []string{"function", "http"}, able: 1},
		{name: "the other one of two", mine: some, theirs: one, less: true},
		{name: "the other all", mine: some, theirs: all, able: 1},
		{name: "the other more", mine: one, theirs: some, able: 1},
		{name: "the other one of two, and dead", mine: some, theirs: one, change: "dead = true", none: true},
		{name: "the other one of two, and its lease has expired", mine: some, theirs: one, change: "expires_at = now()", none: true},
		{name: "the other one of two, and a tenant's", mine: some, theirs: one, change: "tenant_id = (SELECT id FROM tenants LIMIT 1)", none: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			id, other := uuid.New(), uuid.New()
			for who, types := range map[uuid.UUID][]string{id: test.mine, other: test.theirs} {
				err := db.New(b.engine.Pool()).InsertWorker(t.Context(), db.InsertWorkerParams{ID: who, Slots: 1, LeaseSeconds: 3600, JobTypes: types})
				if err != nil {
					t.Fatal(err)
				}
			}
			if test.change != "" {
				b.exec("UPDATE workers SET "+test.change+" WHERE id = $1", other)
			}
			live, less, able, err := dispatch.NewStore(b.engine, dispatch.Config{}).OtherWorkers(t.Context(), id)
			if err != nil || live == test.none || less != test.less || able != test.able {
				t.Errorf("one lives: %t, serves less: %t, able: %d, %v; want %t, %t, %d", live, less, able, err, !test.none, test.less, test.able)
			}
		})
	}
}

// Workers that register one after the other share a shard no sooner than they must.
func TestWorkersSpreadOverShards(t *testing.T) {
	t.Parallel()
	b := setup(t)
	members := fleet.NewStore(b.engine)
	register := func() uuid.UUID {
		id, err := members.Register(t.Context(), fleet.Member{Slots: 1, Types: []string{"function"}, Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	shard := func(id uuid.UUID) (n int) {
		if err := b.engine.Pool().QueryRow(t.Context(), "SELECT shard_of($1)", id).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	each := func(what string) {
		shards := map[int]int{}
		for range 8 {
			shards[shard(register())]++
		}
		if len(shards) != 8 {
			t.Errorf("%s: of 8 workers the shards have %v, want one in each of 8", what, shards)
		}
	}
	each("the first")
	each("the second")
	b.exec("UPDATE workers SET dead = true WHERE id = $1", register())
	b.exec("UPDATE workers SET expires_at = now() WHERE id = $1", register())
	each("some have gone")
	b.exec(`INSERT INTO workers (id, tenant_id, host, pid, slots, expires_at)
		SELECT overlay(gen_random_uuid()::text placing '0' FROM 36)::uuid, $1, '', 1, 1, now() + interval '1 hour' FROM generate_series(1, 9)`, b.who.TenantID)
	each("a tenant has some of one shard")
}
