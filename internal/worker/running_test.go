package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// amiss is everything that must be nothing at any moment, seen in one snapshot:
// counts that are not the rows', keys that are not held by what runs, and
// limits exceeded.
const amiss = `
WITH ran AS (
    SELECT t.tenant_id, sum(t.n) AS running, jsonb_object_agg(t.job_type, t.n) AS by_type
    FROM (SELECT tenant_id, job_type, count(*) AS n FROM active_executions WHERE status = 'running' GROUP BY tenant_id, job_type) t GROUP BY t.tenant_id)
SELECT format('%s runs %s (%s), counted %s (%s)', c.tenant_id, coalesce(r.running, 0), r.by_type, c.running, c.running_by_type)
FROM running_totals c LEFT JOIN ran r USING (tenant_id)
WHERE c.running <> coalesce(r.running, 0)
   OR (SELECT coalesce(jsonb_object_agg(k.key, k.value), '{}') FROM jsonb_each(c.running_by_type) k WHERE k.value <> '0') <> coalesce(r.by_type, '{}')
UNION ALL
SELECT format('%s runs %s of %s, %s of %s by type', t.id, r.running, t.max_running, r.by_type, t.max_running_by_type) FROM ran r JOIN tenants t ON t.id = r.tenant_id
WHERE r.running > t.max_running OR (r.by_type->>'http')::int > (t.max_running_by_type->>'http')::int
UNION ALL
SELECT format('%s run with key %s', count(*), concurrency_key) FROM active_executions
WHERE status = 'running' AND concurrency_key IS NOT NULL GROUP BY tenant_id, concurrency_key HAVING count(*) > 1
UNION ALL
SELECT format('%s run of job %s', count(*), job_id) FROM active_executions
WHERE status = 'running' GROUP BY job_id HAVING count(*) > max(concurrency_limit) AND max(concurrency_limit) > 0
UNION ALL
SELECT format('key %s: %s', coalesce(k.key, e.concurrency_key), coalesce(e.id::text, 'held by nothing that runs')) FROM running_keys k
FULL JOIN (SELECT * FROM active_executions WHERE status = 'running' AND concurrency_key IS NOT NULL) e
  ON e.id = k.execution_id AND e.tenant_id = k.tenant_id AND e.concurrency_key = k.key
WHERE k.key IS NULL OR e.id IS NULL`

// watch asks for what is amiss until it is stopped, and counts how often it
// asked.
func (b *bundle) watch(ctx context.Context, asked *atomic.Int64) {
	conn, err := pgx.Connect(ctx, b.database.AdminURL)
	if err != nil {
		b.t.Error(err)
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for ctx.Err() == nil {
		rows, err := conn.Query(ctx, amiss)
		if err != nil {
			break
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err == nil && len(found) > 0 {
			b.t.Errorf("amiss: %v", found)
			return
		}
		asked.Add(1)
	}
}

// fill makes waiting executions of the tenant: of jobs of all types, some that wait
// for a concurrency slot of their job and some with a key.
func (b *bundle) fill(who tenant.Actor, n int) {
	b.t.Helper()
	j, _, err := b.jobs.Create(b.t.Context(), who, job.Spec{Name: "x", Type: "function", Config: []byte(`{}`), Retry: job.DefaultRetry()}.WithDefaults(), idempotency.Key{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts,
		timeout_ms, concurrency_limit, concurrency_key, available_at, sweep_at, created_at)
		SELECT gen_random_uuid(), $1, CASE WHEN i % 7 = 0 THEN $2 ELSE gen_random_uuid() END, 1, now() - i * interval '1 ms', 'manual',
		       CASE WHEN i % 3 = 0 THEN 'http' ELSE 'function' END, i % 10, 50, 60000, CASE WHEN i % 7 = 0 THEN 2 ELSE 0 END,
		       CASE WHEN i % 5 = 0 THEN 'key-' || i % 4 END, now(), now() + interval '5 s', now()
		FROM generate_series(1, $3::int) i`, who.TenantID, j.ID, n)
}

// ids are what a query answers.
func (b *bundle) ids(sql string) []uuid.UUID {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.database.AdminURL)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close(b.t.Context())
	rows, err := conn.Query(b.t.Context(), sql)
	if err != nil {
		b.t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		b.t.Fatal(err)
	}
	return ids
}

// other admits one more tenant.
func (b *bundle) other() tenant.Actor {
	b.t.Helper()
	who := tenant.Actor{TenantID: uuid.New(), Subject: "bob"}
	if err := tenant.NewStore(open(b.t, b.database.URL, postgres.API), true).Admit(b.t.Context(), who.TenantID); err != nil {
		b.t.Fatal(err)
	}
	return who
}

// The counts match what runs, and no limit is ever exceeded, also if runs start and end
// at once and in any order.
func TestCountsAreTheTruth(t *testing.T) {
	t.Parallel()
	b := setup(t)
	second, third := b.other(), b.other()
	for _, who := range []tenant.Actor{b.who, second, third} {
		b.fill(who, 300)
	}
	b.exec(`UPDATE tenants SET max_running = 9, max_running_by_type = '{"http": 4}' WHERE id = $1`, b.who.TenantID)
	b.exec(`UPDATE tenants SET max_running_by_type = '{"http": 0, "function": 30}' WHERE id = $1`, second.TenantID)
	ids := b.ids("SELECT id FROM active_executions")
	engine := open(t, b.database.URL, postgres.Engine)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var watching, acting sync.WaitGroup
	var asked, started, ended, reclaimed atomic.Int64
	watching.Go(func() { b.watch(ctx, &asked) })
	for range 8 {
		acting.Go(func() {
			a := actor{engine: engine, q: db.New(engine.Pool()), id: uuid.New()}
			for n := 0; n < 60 || asked.Load() < 10 && n < 1000; n++ {
				if err := a.act(t.Context(), ids); err != nil {
					t.Error(err)
					return
				}
			}
			started.Add(a.started)
			ended.Add(a.ended)
			reclaimed.Add(a.reclaimed)
		})
	}
	acting.Wait()
	stop()
	watching.Wait()
	t.Logf("%d started, %d ended, %d reclaimed, looked %d times", started.Load(), ended.Load(), reclaimed.Load(), asked.Load())
	if started.Load() < 100 || ended.Load() < 50 || reclaimed.Load() < 1 || asked.Load() < 10 {
		t.Error("too little happened for this to prove anything")
	}
}

// Workers of all shards that claim few executions at once stay within their permits, and
// together they start as many as the limit allows and not one more, also after ends,
// and after the limit became another one.
func TestPermitsAreTheLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(b.who, 600)
	ids := b.ids("SELECT id FROM active_executions WHERE concurrency_key IS NULL AND concurrency_limit = 0")
	engine := open(t, b.database.URL, postgres.Engine)
	workers := make([]*actor, 8)
	for i := range workers {
		workers[i] = &actor{engine: engine, q: db.New(engine.Pool()), id: uuid.New()}
		workers[i].id[15] = byte(i)
	}
	for _, limit := range []int{100, 40, 90} {
		b.exec("UPDATE tenants SET max_running = $1", limit)
		var all sync.WaitGroup
		for _, a := range workers {
			all.Go(func() {
				for range 40 {
					if err := a.claimFew(t.Context(), []uuid.UUID{ids[rand.N(len(ids))], ids[rand.N(len(ids))], ids[rand.N(len(ids))]}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if n := b.count("SELECT count(*)::int FROM active_executions WHERE status = 'running'"); n != limit {
			t.Errorf("%d run, the limit is %d", n, limit)
		}
		if n := b.count("SELECT count(*)::int FROM running_shards WHERE shard < 8 AND permits_of = $1", limit); n != 8 {
			t.Errorf("%d shards have permits of %d", n, limit)
		}
		for _, a := range workers { // so many that the next limit has room
			for len(a.running) > 3 {
				if err := a.end(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// claimFew claims what it can of ids.
func (a *actor) claimFew(ctx context.Context, ids []uuid.UUID) error {
	if !a.alive {
		if err := a.q.InsertWorker(ctx, db.InsertWorkerParams{ID: a.id, Slots: 1, LeaseSeconds: 3600, JobTypes: []string{"function"}}); err != nil {
			return err
		}
		a.alive = true
	}
	token := uuid.New()
	rows, err := a.q.ClaimExecutions(ctx, db.ClaimExecutionsParams{WorkerID: &a.id, LeaseToken: &token, Ids: ids, LeftTypes: []string{}})
	a.running = append(a.running, rows...)
	return err
}

// actor is a worker as the database sees one, that does things at random.
type actor struct {
	engine                    *postgres.DB
	q                         *db.Queries
	id                        uuid.UUID
	alive                     bool
	running                   []db.ClaimExecutionsRow
	started, ended, reclaimed int64
}

func (a *actor) act(ctx context.Context, ids []uuid.UUID) error {
	switch rand.N(8) {
	case 0:
		rows, err := a.q.ReassignExecutions(ctx, db.ReassignExecutionsParams{MaxLost: 3, BatchSize: 50})
		a.reclaimed += int64(len(rows))
		return err
	case 1: // it dies, and another takes its place
		err := a.q.RetireWorker(ctx, a.id)
		a.id, a.alive, a.running = uuid.New(), false, nil
		return err
	case 2, 3:
		return a.end(ctx)
	case 4:
		p := db.ReleaseExecutionsParams{Ids: []uuid.UUID{}, LeaseTokens: []uuid.UUID{}}
		for _, r := range a.some() {
			p.Ids, p.LeaseTokens = append(p.Ids, r.ID), append(p.LeaseTokens, *r.LeaseToken)
		}
		_, err := a.q.ReleaseExecutions(ctx, p)
		return err
	default:
		return a.claim(ctx, ids)
	}
}

func (a *actor) claim(ctx context.Context, ids []uuid.UUID) error {
	if !a.alive {
		if err := a.q.InsertWorker(ctx, db.InsertWorkerParams{ID: a.id, Slots: 1, LeaseSeconds: 3600, JobTypes: []string{"function"}}); err != nil {
			return err
		}
		a.alive = true
	}
	wanted := make([]uuid.UUID, 60)
	for i := range wanted {
		wanted[i] = ids[rand.N(len(ids))]
	}
	token := uuid.New()
	rows, err := a.q.ClaimExecutions(ctx, db.ClaimExecutionsParams{WorkerID: &a.id, LeaseToken: &token, Ids: wanted, LeftTypes: []string{}, MaxRunning: 20})
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	a.running, a.started = append(a.running, rows...), a.started+int64(len(rows))
	err = a.engine.InTx(ctx, func(tx *postgres.Tx) error {
		left, err := tx.ListUnclaimedExecutions(ctx, db.ListUnclaimedExecutionsParams{Ids: wanted, LeftTypes: []string{}})
		if err != nil {
			return err
		}
		var jobs []uuid.UUID
		for _, l := range left {
			jobs = append(jobs, l.JobID)
		}
		if _, err := tx.LockJobs(ctx, jobs); err != nil {
			return err
		}
		rows, err := tx.ClaimLimitedExecutions(ctx, db.ClaimLimitedExecutionsParams{WorkerID: &a.id, LeaseToken: &token, Ids: wanted, LeftTypes: []string{}, MaxRunning: 20})
		for _, r := range rows {
			a.running = append(a.running, db.ClaimExecutionsRow(r))
		}
		a.started += int64(len(rows))
		return err
	})
	if err != nil {
		return fmt.Errorf("claim what waits: %w", err)
	}
	return nil
}

func (a *actor) end(ctx context.Context) error {
	some := a.some()
	n := len(some)
	p := db.CompleteExecutionsParams{
		LeftTypes: []string{},
		Ids:       make([]uuid.UUID, n), Attempts: make([]int32, n), LeaseTokens: make([]uuid.UUID, n), Succeeded: make([]bool, n), RetryMs: make([]int64, n),
		DurationsUs: make([]int64, n), Results: make([]string, n), ErrorTypes: make([]string, n), ErrorMessages: make([]string, n),
		ErrorStacks: make([]string, n), MemoryMb: make([]float32, n), CpuMs: make([]int64, n),
	}
	for i, r := range some {
		p.Ids[i], p.Attempts[i], p.LeaseTokens[i], p.Succeeded[i], p.ErrorTypes[i] = r.ID, r.Attempt, *r.LeaseToken, rand.N(3) == 0, "USER_ERROR"
	}
	rows, err := a.q.CompleteExecutions(ctx, p)
	a.ended += int64(len(rows))
	if err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	return nil
}

// some takes about half of what it runs.
func (a *actor) some() (taken []db.ClaimExecutionsRow) {
	rand.Shuffle(len(a.running), func(i, j int) { a.running[i], a.running[j] = a.running[j], a.running[i] })
	half := (len(a.running) + 1) / 2
	taken, a.running = a.running[:half], a.running[half:]
	return taken
}

// Eight workers that look for themselves run a thousand executions of a tenant
// that may run five at once, beside those of another that may run more.
func TestNoMoreRunAtOnceThanATenantMayHave(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var now, most sync.Map
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		n, _ := now.LoadOrStore(run.TenantID, new(atomic.Int64))
		top, _ := most.LoadOrStore(run.TenantID, new(atomic.Int64))
		at := n.(*atomic.Int64).Add(1)
		for seen := top.(*atomic.Int64).Load(); at > seen && !top.(*atomic.Int64).CompareAndSwap(seen, at); seen = top.(*atomic.Int64).Load() {
		}
		n.(*atomic.Int64).Add(-1)
		return executor.Outcome{}
	}
	second := b.other()
	b.exec("UPDATE tenants SET max_running = 5 WHERE id = $1", b.who.TenantID)
	b.exec(`UPDATE tenants SET max_running_by_type = '{"function": 40}' WHERE id = $1`, second.TenantID)
	b.many(b.pending(nil), 999, 5, time.Minute)
	b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, pooled, available_at, sweep_at)
		SELECT gen_random_uuid(), $1, gen_random_uuid(), 1, now(), 'manual', 'function', 1, 60000, true, now(), 'infinity' FROM generate_series(1, 300)`, second.TenantID)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var watching sync.WaitGroup
	watching.Go(func() { b.watch(ctx, new(atomic.Int64)) })
	for range 8 {
		b.startWith(func(c *worker.Config) { c.Slots = 50 }, func(w *worker.Worker, ctx context.Context) error { return w.PollLoop(ctx) })
	}
	eventually(t, "all are finished", func() bool { return b.counts("SELECT 1, count(*) FROM active_executions")[1] == 0 })
	stop()
	watching.Wait()
	if top, _ := most.Load(b.who.TenantID); top.(*atomic.Int64).Load() > 5 {
		t.Errorf("%d ran at once, want at most 5", top.(*atomic.Int64).Load())
	}
}

// The backlog of a full tenant or a key hides no other execution, however many wait in it and
// for however long.
func TestPollPassesOverWhatIsHeldBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("UPDATE tenants SET max_running = 0 WHERE id = $1", b.who.TenantID)
	b.many(b.pending(nil), 3000, 9, time.Minute)
	second := b.other()
	b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at, pooled, concurrency_key)
		SELECT gen_random_uuid(), $1, gen_random_uuid(), 1, now(), 'manual', 'function', 1, 60000, now(), 'infinity', i >= 3000, CASE WHEN i < 3000 THEN 'k' END
		FROM generate_series(1, 3001) i`, second.TenantID)
	b.exec("INSERT INTO running_keys (tenant_id, key, execution_id) VALUES ($1, 'k', gen_random_uuid())", second.TenantID)
	w := b.start(nil)
	b.run = func(context.Context, executor.Run) executor.Outcome { return executor.Outcome{} }
	eventually(t, "executions that nothing holds back are finished", func() bool {
		b.poll(w)
		return b.counts("SELECT 1, count(*) FROM job_executions")[1] == 2
	})
	if n := b.counts("SELECT 1, count(*) FROM active_executions")[1]; n != 3001+2999 {
		t.Errorf("%d wait on, want what is held back", n)
	}
}

// Permits that were dealt out before say nothing once a limit was lifted and came back, or
// once reconciling has counted anew.
func TestOldPermitsAreWorthNothing(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(b *bundle, claim func(shard byte, n int) int){
		"a limit that was lifted": func(b *bundle, claim func(shard byte, n int) int) {
			b.exec("UPDATE tenants SET max_running = NULL")
			if n := claim(3, 50); n < 20 {
				b.t.Errorf("%d started without a limit", n)
			}
			b.exec("UPDATE tenants SET max_running = 20")
		},
		"counts that were corrected": func(b *bundle, claim func(shard byte, n int) int) {
			claim(3, 50)
			err := open(b.t, b.database.URL, postgres.Engine).InTx(b.t.Context(), func(tx *postgres.Tx) error {
				_, err := tx.LockRunningCount(b.t.Context(), b.who.TenantID)
				return errors.Join(err, tx.ReconcileRunning(b.t.Context(), b.who.TenantID))
			})
			if err != nil {
				b.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.fill(b.who, 300)
			b.exec("UPDATE tenants SET max_running = 20")
			engine := open(t, b.database.URL, postgres.Engine)
			running := func() int { return b.count("SELECT count(*)::int FROM active_executions WHERE status = 'running'") }
			claim := func(shard byte, n int) int {
				a, before := &actor{engine: engine, q: db.New(engine.Pool()), id: uuid.New()}, running()
				a.id[15] = shard
				ids := b.ids(`SELECT id FROM active_executions WHERE status = 'pending' AND concurrency_key IS NULL AND concurrency_limit = 0 LIMIT 50`)
				for _, id := range ids[:n] { // one by one, within the permits
					if err := a.claimFew(t.Context(), []uuid.UUID{id}); err != nil {
						t.Error(err)
					}
				}
				return running() - before
			}
			claim(3, 2) // deals the permits out
			claim(5, 1)
			between(b, claim)
			full := running()
			for _, shard := range []byte{0, 1, 2, 3, 5} {
				claim(shard, 4)
			}
			if n := running(); n > max(20, full) {
				t.Errorf("%d run, %d before; the limit is 20", n, full)
			}
		})
	}
}
