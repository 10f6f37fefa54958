package promoter_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/promoter"
)

var yearSeed = flag.Uint64("year.seed", 1, "seed of the simulated year; 0 draws one")

var yearJobs = flag.Int("year.jobs", 40, "jobs of the simulated year")

const outage = 3 * time.Hour

// TestYear lets two promoters go through a year, from the moment on at which
// the jobs are made. They take turns and race, are replaced by new ones, die
// inside their transactions, come late, and stay away for three hours around a
// clock change. Every row of the year, and what the jobs became, is what the
// oracle computes from the times at which promoters were there. The short
// form has two months.
func TestYear(t *testing.T) {
	t.Parallel()
	seed := *yearSeed
	if seed == 0 {
		seed = uint64(clock.Now().UnixNano())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again, but from another day on: go test -run TestYear -year.seed=%d", seed)
		}
	})
	y := newYear(t, seed)
	y.run(t)
	y.compare(t)
}

// year is a simulated year and who lives in it.
type year struct {
	*bundle
	random       *rand.Rand
	admin        *pgx.Conn
	promoters    [2]*promoter.Promoter
	asks         []*ask
	began, ended time.Time
	outage       time.Time
	passed       []moment

	races, deaths, restarts, audited int
}

func newYear(t *testing.T, seed uint64) *year {
	t.Helper()
	y := &year{bundle: setup(t), random: rand.New(rand.NewPCG(seed, 0))}
	engine, err := postgres.Open(t.Context(), postgres.Config{URL: y.database.URL, Role: postgres.Engine, Name: "test", MaxConns: 6, StatementTimeout: pgtest.Patience, Tracer: reaper{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	y.engine = engine
	if y.admin, err = pgx.Connect(t.Context(), y.database.AdminURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = y.admin.Close(context.WithoutCancel(t.Context())) })
	y.promoters = [2]*promoter.Promoter{y.another(), y.another()}

	jobs, months, now := *yearJobs, 12, clock.Now()
	y.outage = clockChange(t, "Europe/London", now.AddDate(0, 3, 0)).Add(-time.Hour)
	if testing.Short() {
		jobs, months, y.outage = 40, 2, now.AddDate(0, 1, 0)
	}
	for len(y.asks) < jobs {
		y.add(t, len(y.asks))
	}
	for _, a := range y.asks {
		if a.stored.CreatedAt.After(y.began) {
			y.began = a.stored.CreatedAt
		}
	}
	y.ended = y.began.AddDate(0, months, 0)
	return y
}

// clockChange is the first change of a zone's clock after a time.
func clockChange(t *testing.T, name string, after time.Time) time.Time {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	at := after.Truncate(time.Hour)
	for offset(zone, at.Unix()) == offset(zone, at.Add(time.Hour).Unix()) {
		at = at.Add(time.Hour)
	}
	return at.Add(time.Hour)
}

func (y *year) run(t *testing.T) {
	t.Helper()
	now := y.began
	for {
		now = y.after(now, y.due(t))
		if now.After(y.ended) {
			break
		}
		y.passed = append(y.passed, moment{at: now})
		alone := y.step(t, now)
		if y.settle(t, now, alone); y.random.IntN(5) == 0 {
			y.drain(t, now)
		}
		y.keep(t, now)
	}
	y.drain(t, y.ended)
}

// after is when promoters are there again, after now and not before the next
// scheduled time: often at once, sometimes late, and never in the outage.
func (y *year) after(now, due time.Time) time.Time {
	r := y.random
	if due.Before(now) {
		due = now
	}
	seconds := time.Duration(0)
	switch r.IntN(10) {
	case 0: // on the microsecond
	case 1, 2:
		seconds = time.Duration(r.IntN(62)) // about the grace time that is the default
	case 3:
		seconds = time.Duration(r.IntN(5 * 3600)) // a small outage
	default:
		seconds = time.Duration(r.IntN(3 * 3600))
	}
	next := due.Add(seconds * time.Second)
	if r.IntN(2) == 0 {
		next = next.Add(time.Duration(r.IntN(1e6)) * time.Microsecond)
	}
	if !next.After(now) {
		next = now.Add(time.Microsecond)
	}
	if !next.Before(y.outage) && next.Before(y.outage.Add(outage)) {
		next = y.outage.Add(outage + time.Duration(r.IntN(1e6))*time.Microsecond)
	}
	return next
}

// due is when the next active job is due; far away when none is.
func (y *year) due(t *testing.T) (at time.Time) {
	t.Helper()
	err := y.admin.QueryRow(t.Context(), `SELECT coalesce((SELECT next_execution_at FROM scheduled_jobs
		WHERE status = 'active' AND next_execution_at IS NOT NULL ORDER BY next_execution_at LIMIT 1), '9999-01-01')`).Scan(&at)
	if err != nil {
		t.Fatal(err)
	}
	return at.UTC()
}

// step lets promoters do what they do at now, one way or another, and reports
// whether one was alone.
func (y *year) step(t *testing.T, now time.Time) (alone bool) {
	t.Helper()
	one := y.random.IntN(2)
	switch dice := y.random.IntN(100); {
	case dice < 15:
		y.race(t, now, nil)
	case dice < 16:
		y.race(t, now, &death{promoter: one, steps: 1 + y.random.Int32N(24)})
	case dice < 17:
		y.race(t, now, &death{promoter: one, after: time.Duration(y.random.IntN(2_000_000))})
	case dice < 19:
		y.restart(one)
		fallthrough
	default:
		y.pass(t, y.promoters[one], now)
		return true
	}
	return false
}

func (y *year) restart(i int) {
	y.promoters[i] = y.another()
	y.restarts++
}

// race lets both promoters pass at the same time, while one of them sweeps.
// One that dies is followed by a new one, and leaves what it leaves.
func (y *year) race(t *testing.T, now time.Time, d *death) {
	t.Helper()
	y.races++
	var both sync.WaitGroup
	for i, p := range y.promoters {
		ctx := t.Context()
		if d != nil && d.promoter == i {
			ctx = d.doom(ctx)
		}
		both.Go(func() {
			if _, err := p.Pass(ctx, now); err != nil && ctx.Err() == nil {
				t.Errorf("pass at %v: %v", now, err)
			}
		})
	}
	if y.random.IntN(8) == 0 {
		both.Go(func() {
			if _, err := y.maintainer.Sweep(t.Context(), now); err != nil {
				t.Errorf("sweep at %v: %v", now, err)
			}
		})
	}
	both.Wait()
	if d != nil {
		d.kill()
		y.deaths++
		y.restart(d.promoter)
	}
	for _, p := range y.promoters {
		y.awaited(t, p, now)
	}
	if t.Failed() {
		t.FailNow()
	}
}

// awaited lets a promoter wait for jobs that it found locked, which its passes leave, and returns how
// many it claimed.
func (y *year) awaited(t *testing.T, p *promoter.Promoter, now time.Time) int {
	t.Helper()
	report, err := p.PromoteLocked(t.Context(), now)
	if err != nil {
		t.Errorf("promote what was locked at %v: %v", now, err)
	}
	return report.Claimed
}

// settle lets one promoter pass at now until nothing is due, as its loop
// would. One that was alone has left only what its 200 ms were too short for on a busy
// machine, and the next pass takes that. Where a statement took too long, the pass divides
// its batch and says that more may be due. Rows that a dead one holds locked are free when
// the database has noticed.
func (y *year) settle(t *testing.T, now time.Time, alone bool) {
	t.Helper()
	one := y.random.IntN(2)
	for mark := clock.Start(); !y.due(t).After(now); {
		report := y.pass(t, y.promoters[one], now)
		switch { // a pass does not see what an earlier one has left to be waited for
		case report.Claimed > 0 || y.awaited(t, y.promoters[one], now) > 0:
		case !alone:
			y.restart(one) // which looks without a lower bound
		case report.Next.After(now):
			t.Fatalf("at %v a pass says %+v, and denies what was due at %v", now, report, y.due(t))
		}
		if mark.Elapsed() > 2*time.Minute {
			t.Fatalf("at %v a job is due, and no promoter takes it", now)
		}
	}
	if y.random.IntN(100) > 0 {
		return
	}
	if report, due := y.pass(t, y.another(), now), y.due(t); report.Claimed != 0 || !report.Next.Equal(due) && due.Year() < 9999 {
		t.Fatalf("at %v all is promoted, and a pass says %+v; the next is due at %v", now, report, due)
	}
}

// drain ends every run that is pending, as workers would.
func (y *year) drain(t *testing.T, now time.Time) {
	t.Helper()
	_, err := y.admin.Exec(t.Context(), `WITH gone AS (DELETE FROM active_executions RETURNING *)
		INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, completed_at, created_at)
		SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, 'completed', $1, created_at FROM gone`, now)
	if err != nil {
		t.Fatal(err)
	}
	y.passed[len(y.passed)-1].drained = true
}

// keep does what promoters do between passes: partitions, now and then, and
// the audit, which has to agree.
func (y *year) keep(t *testing.T, now time.Time) {
	t.Helper()
	if n := len(y.passed); n%300 == 1 {
		if err := y.maintainer.MakePartitions(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	if y.random.IntN(500) > 0 {
		return
	}
	report, err := y.maintainer.ReconcileSchedules(t.Context(), now, y.asks[y.random.IntN(len(y.asks))].stored.ID)
	if err != nil || report.Differing > 0 {
		t.Fatalf("the audit at %v: %+v, %v", now, report, err)
	}
	y.audited += report.Times
}

// compare holds what is stored against the oracle.
func (y *year) compare(t *testing.T) {
	t.Helper()
	stored := y.stored(t)
	rows, times, differing := map[execution.Status]int{}, 0, 0
	for _, a := range y.asks {
		due := a.times(a.stored.CreatedAt, y.began.AddDate(0, 20, 0))
		want := a.fate(due, y.passed)
		for _, at := range due {
			if !at.After(y.ended) {
				times++
			}
		}
		for _, row := range want.Rows {
			rows[row.Status]++
		}
		if diff := difference(want, stored[a.stored.ID]); diff != "" {
			t.Errorf("job %s: %+v\n%s", a.stored.ID, a.spec, diff)
			if differing++; differing == 5 {
				t.Fatal("and perhaps more")
			}
		}
	}
	for _, status := range []execution.Status{execution.Completed, execution.Missed, execution.Skipped, execution.Cancelled} {
		if rows[status] == 0 && !testing.Short() {
			t.Errorf("no row is %s: the year does not show enough", status)
		}
	}
	t.Logf("%d jobs, %d times, %d moments: rows %v; %d races, %d deaths, %d restarts, %d times audited",
		len(y.asks), times, len(y.passed), rows, y.races, y.deaths, y.restarts, y.audited)
}

// stored reads what became of the jobs.
func (y *year) stored(t *testing.T) map[uuid.UUID]*fate {
	t.Helper()
	found := map[uuid.UUID]*fate{}
	for _, a := range y.asks {
		j, err := y.jobs.Get(t.Context(), y.who, a.stored.ID)
		if err != nil {
			t.Fatal(err)
		}
		f := &fate{Status: j.Status, Count: j.ExecutionCount}
		if j.LastExecutionAt != nil {
			f.Last = j.LastExecutionAt.UTC()
		}
		if j.NextExecutionAt != nil {
			f.Next = j.NextExecutionAt.UTC()
		}
		found[j.ID] = f
	}
	rows, err := y.admin.Query(t.Context(), `SELECT id, job_id, scheduled_at, status, coalesce(missed_count, 0),
		coalesce(missed_until, '0001-01-01 00:00:00+00') FROM executions ORDER BY job_id, scheduled_at`)
	if err != nil {
		t.Fatal(err)
	}
	var id, of uuid.UUID
	var o outcome
	_, err = pgx.ForEachRow(rows, []any{&id, &of, &o.At, &o.Status, &o.Count, &o.Until}, func() error {
		o.At, o.Until = o.At.UTC(), o.Until.UTC()
		if id != execution.ScheduledID(of, o.At) {
			return fmt.Errorf("the run of %s at %v has the id %s", of, o.At, id)
		}
		found[of].Rows = append(found[of].Rows, o)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
