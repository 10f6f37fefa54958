package worker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/worker"
)

func TestWithoutSlotsTheRestGoesToThePool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	b.run = func(context.Context, executor.Run) executor.Outcome {
		<-release
		return executor.Outcome{}
	}
	w := b.start(func(c *worker.Config) { c.Slots = 2 })
	ids := []uuid.UUID{b.pending(nil).ID, b.pending(nil).ID, b.pending(nil).ID, b.pending(nil).ID}
	b.hinted()
	eventually(t, "two run", func() bool {
		b.hint(w, ids...)
		return b.counts("SELECT 1, count(*) FROM active_executions WHERE status = 'running'")[1] == 2
	})
	if got := b.counts("SELECT pooled::int, count(*) FROM active_executions WHERE status = 'pending' GROUP BY 1"); got[1] != 2 || got[0] != 0 {
		t.Errorf("in the pool: %v, want two", got)
	}
	close(release)
	eventually(t, "the rest runs too", func() bool { b.poll(w); return b.over(ids...) })
}

// hinted makes all that waits as if it had its hint under way.
func (b *bundle) hinted() {
	b.t.Helper()
	b.exec("UPDATE active_executions SET pooled = false, sweep_at = now() + interval '5 s' WHERE pooled")
}

// over says whether all of them are completed.
func (b *bundle) over(ids ...uuid.UUID) bool {
	for _, id := range ids {
		if b.reached(id) != execution.Completed {
			return false
		}
	}
	return true
}

// until has every run last until the test lets go of it, and answers how many of
// each tenant run.
func (b *bundle) until() (release func(), running func() map[uuid.UUID]int) {
	end := make(chan struct{})
	b.run = func(context.Context, executor.Run) executor.Outcome {
		<-end
		return executor.Outcome{}
	}
	return func() { close(end) }, func() map[uuid.UUID]int {
		b.t.Helper()
		rows, err := b.engine.Pool().Query(b.t.Context(), "SELECT tenant_id, count(*) FROM active_executions WHERE status = 'running' GROUP BY 1")
		if err != nil {
			b.t.Fatal(err)
		}
		got := map[uuid.UUID]int{}
		var tenant uuid.UUID
		var n int
		if _, err := pgx.ForEachRow(rows, []any{&tenant, &n}, func() error { got[tenant] = n; return nil }); err != nil {
			b.t.Fatal(err)
		}
		return got
	}
}

// line makes n runs of one tenant that wait in the pool, like one that exists.
func (b *bundle) line(like execution.Execution, tenant uuid.UUID, n int, age time.Duration) {
	b.t.Helper()
	b.exec("INSERT INTO running_counts (tenant_id) VALUES ($1) ON CONFLICT DO NOTHING", tenant)
	made := b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts,
		timeout_ms, pooled, available_at, sweep_at, created_at)
		SELECT gen_random_uuid(), $2, job_id, job_version, now() - $3::interval, 'manual', job_type, 9, max_attempts, timeout_ms,
		       true, now() - $3::interval + i * interval '1 us', 'infinity', now()
		FROM active_executions, generate_series(1, $4::int) i WHERE id = $1`, like.ID, tenant, age, n)
	if made != n {
		b.t.Fatalf("%d rows were made, want %d", made, n)
	}
}

// A tenant with a long line, old and urgent, leaves the others their turns.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release, running := b.until()
	w := b.start(func(c *worker.Config) { c.Slots = 32 }) // two of them kept
	defer release()
	like := b.pending(nil)
	long, short, other := uuid.New(), uuid.New(), uuid.New()
	b.line(like, long, 5000, time.Hour)
	b.line(like, short, 3, time.Second)
	b.line(like, other, 500, time.Second)
	b.exec("DELETE FROM active_executions WHERE id = $1", like.ID)
	if won := b.poll(w); won != 30 {
		t.Errorf("%d claimed, want every open slot", won)
	}
	// Three turns for all, and the other 21 for the two that have more.
	got := running()
	if got[short] != 3 || got[long]+got[other] != 27 || got[long] < 13 || got[other] < 13 {
		t.Errorf("running: the long line %d, the short one %d, the other %d; want 13 or 14, 3, 13 or 14", got[long], got[short], got[other])
	}
}

// However long the runs of one tenant last and however many wait, another's
// single one starts: slots are kept for those of whom nothing runs here.
func TestSlotIsKeptForTenantsThatHaveNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release, running := b.until()
	w := b.start(func(c *worker.Config) { c.Slots = 32 })
	defer release()
	like := b.pending(nil)
	long, second, third, fourth := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	b.line(like, long, 5000, time.Hour)
	b.exec("DELETE FROM active_executions WHERE tenant_id = $1", b.who.TenantID)
	for range 3 {
		b.poll(w)
	}
	if got := running()[long]; got != 30 {
		t.Fatalf("%d of the first tenant run, want all but the two kept slots", got)
	}
	// Hints are of tenants that nobody knows yet: they get no kept slot.
	var hinted uuid.UUID
	if err := b.engine.Pool().QueryRow(t.Context(), "SELECT id FROM active_executions WHERE pooled LIMIT 1").Scan(&hinted); err != nil {
		t.Fatal(err)
	}
	b.hint(w, hinted)
	like = execution.Execution{ID: hinted}
	for i, tenant := range []uuid.UUID{second, third, fourth} {
		b.line(like, tenant, 20, time.Second)
		b.poll(w)
		b.poll(w)
		want := 1
		if i == 2 {
			want = 0 // there are two
		}
		if got := running(); got[tenant] != want || got[long] != 30 {
			t.Errorf("tenant %d: %d of it run and %d of the first, want %d and 30", i+2, got[tenant], got[long], want)
		}
	}
}

// A poll reads what it returns and not all that waits, and the tenants after its page
// have their turn with the next.
func TestPollCostsNoMoreWhereMuchWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	like := b.pending(nil)
	b.line(like, uuid.New(), 20_000, time.Hour)
	for range 10 {
		b.line(like, uuid.New(), 30, time.Second)
	}
	b.exec("UPDATE scheduled_jobs SET status = 'active', next_execution_at = now()") // one is due
	conn, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	for _, analysed := range []bool{false, true} {
		if analysed {
			b.exec("ANALYZE active_executions")
		}
		for _, statement := range []struct {
			name string
			most float64
			send func(context.Context, *db.Queries) error
		}{
			{"100 of 20,300", 12_000, func(ctx context.Context, q *db.Queries) error {
				_, err := q.ListPooledExecutions(ctx, db.ListPooledExecutionsParams{BatchSize: 100, Spread: 100, Lines: 64, LeftTypes: []string{}})
				return err
			}},
			{"11 tenants with backlogs", 2000, func(ctx context.Context, q *db.Queries) error {
				_, err := q.ClaimDueJobs(ctx, db.ClaimDueJobsParams{BatchSize: 10, SeeBacklogs: true, BacklogOver: 16})
				return err
			}},
		} {
			if got := touched(t, conn, statement.send); got > statement.most {
				t.Errorf("%.0f rows were touched for %s, analysed: %v", got, statement.name, analysed)
			}
		}
	}
}

// With more tenants than one look takes, each has its turn within a round.
func TestLooksGoRoundAllTenants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release, running := b.until()
	w := b.start(func(c *worker.Config) { c.Slots = 1000 })
	defer release()
	like := b.pending(nil)
	const tenants = 150
	for range tenants {
		b.line(like, uuid.New(), 20, time.Second)
	}
	b.exec("DELETE FROM active_executions WHERE id = $1", like.ID)
	for range 3 { // 95 tenants each
		b.poll(w)
	}
	got := running()
	for tenant, n := range got {
		if n < 2 { // 256 for 95
			t.Errorf("%d runs of %v", n, tenant)
		}
	}
	if len(got) != tenants {
		t.Errorf("runs of %d tenants after three looks, want of all %d", len(got), tenants)
	}
}

// pollAs has a new worker poll for up to 16 and claim what choose leaves of it. It waits for its turn as
// long as that takes.
func (b *bundle) pollAs(turn dispatch.Turn, choose func(found []dispatch.Candidate, waited time.Duration) []dispatch.Candidate) (claimed []dispatch.Claimed) {
	id := uuid.New()
	if err := db.New(b.engine.Pool()).InsertWorker(b.t.Context(), db.InsertWorkerParams{ID: id, Slots: 1, LeaseSeconds: 3600, JobTypes: []string{"function"}}); err != nil {
		b.t.Error(err)
	}
	for {
		came := false
		claimed, _, err := dispatch.NewStore(b.engine, dispatch.Config{}).PollAndClaim(b.t.Context(), id, uuid.New(), 16, 0, uuid.Nil, nil, turn,
			func(found []dispatch.Candidate, waited time.Duration) (ids []uuid.UUID) {
				came = true
				for _, c := range choose(found, waited) {
					ids = append(ids, c.ID)
				}
				return ids
			})
		if !came && postgres.TimedOut(err) && b.t.Context().Err() == nil {
			continue
		}
		if err != nil {
			b.t.Error(err)
		}
		return claimed
	}
}

// A poll in turn that finds nothing goes on with the next part of the pool: here the
// first of five has one execution that may start, the last one, and those between none. On
// the commit before, the second was read twice.
func TestAPollGoesOnWhereItFindsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release, running := b.until()
	w := b.start(func(c *worker.Config) { c.Slots = 1000 })
	defer release()
	like := b.pending(nil)
	free := []uuid.UUID{{1, 1}, {4, 255}}
	var full []uuid.UUID
	for part := range byte(4) {
		for n := range byte(95) {
			full = append(full, uuid.UUID{part + 1, n + 2})
		}
	}
	b.exec("INSERT INTO tenants (id, name, max_running) SELECT t, 'full', 0 FROM unnest($1::uuid[]) t", full)
	b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, pooled, available_at, sweep_at)
		SELECT gen_random_uuid(), t, job_id, job_version, now(), 'manual', job_type, 1, timeout_ms, true, now(), 'infinity' FROM active_executions, unnest($2::uuid[]) t WHERE id = $1`, like.ID, full)
	for _, tenant := range free {
		b.line(like, tenant, 1, time.Second)
	}
	b.exec("DELETE FROM active_executions WHERE id = $1", like.ID)
	for polls := 1; polls <= 5; polls++ {
		b.poll(w)
	}
	if got := running(); got[free[0]] != 1 || got[free[1]] != 1 {
		t.Errorf("after five polls of five parts %v run", got)
	}
}

// A poll finds, and so locks, no more of a tenant than its limits leave room for. On the
// commit before it found 16 here. Three of them could start.
func TestAPollTakesWhatALimitLeavesRoomFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	like := b.pending(nil)
	b.line(like, b.who.TenantID, 40, time.Minute)
	b.exec("DELETE FROM active_executions WHERE id = $1", like.ID)
	for _, test := range []struct {
		limits string
		want   int
	}{{"max_running = 3", 3}, {`max_running = 5, max_running_by_type = '{"function": 4}'`, 1}, {"max_running = 3, max_running_by_type = '{}'", 0}} {
		b.exec("UPDATE tenants SET "+test.limits+" WHERE id = $1", b.who.TenantID)
		claimed := b.pollAs(dispatch.ShownTurn, func(found []dispatch.Candidate, _ time.Duration) []dispatch.Candidate {
			if len(found) != test.want {
				t.Errorf("%s: %d were found, want %d", test.limits, len(found), test.want)
			}
			return found
		})
		if len(claimed) != test.want {
			t.Errorf("%s: %d were claimed, want %d", test.limits, len(claimed), test.want)
		}
	}
}

// Workers that poll and claim at one time find different executions: a poll that begins
// while another has found and not claimed yet skips what that one found.
func TestPollsOfABacklogDoNotMeet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	like := b.pending(nil)
	b.line(like, uuid.New(), 40, time.Minute)
	b.exec("DELETE FROM active_executions WHERE id = $1", like.ID)
	claim := func(between func()) []dispatch.Claimed {
		return b.pollAs(dispatch.NoTurn, func(found []dispatch.Candidate, _ time.Duration) []dispatch.Candidate {
			if len(found) != 16 {
				t.Errorf("%d found, want 16", len(found))
			}
			between()
			return found
		})
	}
	var inner []dispatch.Claimed
	outer := claim(func() { inner = claim(func() {}) })
	if len(outer) != 16 || len(inner) != 16 {
		t.Errorf("%d and %d claimed, want 16 and 16", len(outer), len(inner))
	}
}

// waitForTurn counts the polls that wait for their turn.
const waitForTurn = `SELECT 0, count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// Polls in turn come one after the other: the next one finds none of what the one before
// claimed, and the others once they are free again, at its commit.
func TestPollsTakeTurns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	like := b.pending(nil)
	b.line(like, uuid.New(), 12, time.Minute)
	b.exec("DELETE FROM active_executions WHERE id = $1", like.ID)
	var second, rest []dispatch.Claimed
	var both sync.WaitGroup
	first := b.pollAs(dispatch.ShownTurn, func(found []dispatch.Candidate, _ time.Duration) []dispatch.Candidate {
		both.Go(func() {
			second = b.pollAs(dispatch.ShownTurn, func(found []dispatch.Candidate, waited time.Duration) []dispatch.Candidate {
				if len(found) > 7 || waited <= 0 {
					t.Errorf("the second finds %d after %v, want 7 at most and a wait", len(found), waited)
				}
				return found
			})
		})
		eventually(t, "the second waits", func() bool { return b.counts(waitForTurn)[0] == 1 })
		return found[:5]
	})
	both.Wait()
	rest = b.pollAs(dispatch.ShownTurn, func(found []dispatch.Candidate, _ time.Duration) []dispatch.Candidate { return found })
	if len(first) != 5 || len(second)+len(rest) != 7 {
		t.Errorf("%d, %d and %d claimed, want 5 and the other 7", len(first), len(second), len(rest))
	}
}

// A worker waits for its turn, and goes on without it where a process stands still in it.
func TestPollWhileTheTurnIsHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run = func(context.Context, executor.Run) executor.Outcome { return executor.Outcome{} }
	w := b.start(nil)
	first := b.pending(nil)
	b.poll(w) // it found something: the next one claims in turn
	var rest []uuid.UUID
	for range 3 {
		rest = append(rest, b.pending(nil).ID)
	}
	// The server ends a session that stands still in a transaction for 5 s. Here it must not.
	conn, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock(hashtext('turn'), hashtext('poll'))"); err != nil {
		t.Fatal(err)
	}
	var poll sync.WaitGroup
	poll.Go(func() {
		if _, err := w.Poll(t.Context()); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the poll waits", func() bool { return b.counts(waitForTurn)[0] == 1 })
	poll.Wait()
	eventually(t, "all are finished", func() bool { return b.over(append(rest, first.ID)...) })
}
