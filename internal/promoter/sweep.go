package promoter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/queue"
)

const (
	sweepEvery  = time.Second
	upkeepEvery = 5 * time.Second
	// partitionsEvery is often enough: partitions are made a month ahead and more.
	partitionsEvery = time.Hour
	// sweepBatch bounds one statement of a sweep, and maxRounds how often a
	// sweep repeats it while it comes back full.
	sweepBatch = 1000
	maxRounds  = 20
	// hintPatience is how long a hint may take while Redis is there; the
	// statements that insert executions state it too. While Redis is away,
	// what was hinted waits for awayPatience.
	hintPatience = 5 * time.Second
	awayPatience = time.Second
)

// SweepReport is what a sweep did.
type SweepReport struct {
	Dead      int  // workers marked dead
	Reclaimed int  // executions taken from them, or past their deadline
	Ended     int  // of those, how many are over
	Parked    int  // of those, how many the database refused to change so; see package parking
	Settled   int  // parked executions whose end is stored now
	Pooled    int  // executions whose hint was lost, and which workers look for now
	RedisLost bool // Redis had lost what it held
}

// Sweep marks dead workers, hands on or ends what they ran and what passed its
// deadline, puts into the pool what waits although its hint should have come, and
// tries again to store the ends of parked executions; a zero now means the
// database's clock. An error of one step skips none of the others.
// Every statement skips what is locked and is a no-op the second time, so any
// number of promoters may sweep at once.
func (p *Promoter) Sweep(ctx context.Context, now time.Time) (report SweepReport, err error) {
	return report, errors.Join(
		p.bury(ctx, now, &report), p.reclaim(ctx, now, &report), p.poolLate(ctx, now, &report), p.settleParked(ctx, now, &report),
	)
}

func (p *Promoter) bury(ctx context.Context, now time.Time, report *SweepReport) error {
	dead, err := p.fleet.MarkDead(ctx, now)
	if err != nil {
		return err
	}
	for _, d := range dead {
		p.Log.WarnContext(ctx, "worker is dead", "worker_id", d.ID, "host", d.Host, "pid", d.PID)
	}
	report.Dead = len(dead)
	return nil
}

// poolLate puts into the pool what waits although its hint should have come.
func (p *Promoter) poolLate(ctx context.Context, now time.Time, report *SweepReport) error {
	reason, ahead := "lost", time.Duration(0)
	lost, err := p.Hints.LostContents(ctx)
	switch {
	case err != nil:
		// Redis is away: no hint arrives, nor will those that it held.
		ahead = hintPatience - awayPatience
	case lost:
		report.RedisLost, reason, ahead = true, "redis_generation", hintPatience
		p.Metrics.RedisGenerationChanged()
		p.Log.WarnContext(ctx, "redis is empty, workers look for every execution that waits")
	}
	for range maxRounds {
		n, err := p.store.poolLate(ctx, now, ahead, nil)
		if postgres.Refused(err) {
			return p.poolDivided(ctx, now, ahead, report)
		}
		if err != nil {
			return err
		}
		p.Metrics.Redispatched(reason, n)
		report.Pooled += n
		if n < sweepBatch {
			break
		}
	}
	return nil
}

// poolDivided is poolLate where the database refuses some rows: it leaves these.
func (p *Promoter) poolDivided(ctx context.Context, now time.Time, ahead time.Duration, report *SweepReport) error {
	late, err := p.store.listLate(ctx, now, ahead)
	if err != nil {
		return err
	}
	d := divided[found]{
		do: func(some []found) error {
			n, err := p.store.poolLate(ctx, now, ahead, some)
			report.Pooled += n
			return err
		},
		alone: func(one found, err error) error { return fmt.Errorf("%s waits without a hint: %w", one, err) },
	}
	return d.all(late)
}

// reclaim reassigns or ends what lost its worker or passed its deadline.
func (p *Promoter) reclaim(ctx context.Context, now time.Time, report *SweepReport) error {
	for range maxRounds {
		rows, err := p.store.reclaim(ctx, now, nil)
		if postgres.Refused(err) {
			return p.reclaimDivided(ctx, now, report)
		}
		if err == nil {
			err = p.reclaimed(ctx, now, rows, report)
		}
		if err != nil || len(rows) < sweepBatch {
			return err
		}
	}
	return nil
}

// reclaimDivided is reclaim where the database refuses some rows: these are
// parked.
func (p *Promoter) reclaimDivided(ctx context.Context, now time.Time, report *SweepReport) error {
	taken, err := p.store.listLost(ctx, now)
	if err != nil {
		return err
	}
	d := divided[found]{
		do: func(some []found) error {
			rows, err := p.store.reclaim(ctx, now, some)
			if err != nil {
				return err
			}
			return p.reclaimed(ctx, now, rows, report)
		},
		alone: func(one found, refused error) error {
			freed, err := p.parking.ParkLost(ctx, now, one.id, postgres.Why(refused))
			if err != nil {
				return fmt.Errorf("%s can neither be reassigned nor parked: %w", one, err)
			}
			if len(freed) == 0 {
				return nil
			}
			p.Log.ErrorContext(ctx, "an execution is parked: the database refuses to reassign or to end it",
				"execution_id", one.id, "job_id", one.job, "tenant_id", one.tenant, "error", refused)
			report.Parked++
			return p.reclaimed(ctx, now, []lost{{waiting: waiting{id: one.id}, verdict: "parked", tenant: one.tenant, key: freed[0].Key}}, report)
		},
	}
	return d.all(taken)
}

// reclaimed counts what was taken from workers, and hints what may start now.
func (p *Promoter) reclaimed(ctx context.Context, now time.Time, rows []lost, report *SweepReport) error {
	var again []waiting
	var ended []lost
	for _, r := range rows {
		reason := "deadline"
		if r.workerLost {
			reason = "worker_dead"
		}
		p.Metrics.Reclaimed(reason, 1)
		if r.verdict == "pending" {
			again = append(again, r.waiting)
			continue
		}
		ended = append(ended, r)
		if r.verdict != "parked" {
			report.Ended++
			p.Metrics.ExecutionOver(r.jobType, r.verdict, 0)
		}
	}
	report.Reclaimed += len(rows)
	next, err := p.store.next(ctx, now, ended, p.TenantMaxRunning)
	p.hint(ctx, append(again, next...))
	return err
}

// settleParked tries to store the ends of parked executions.
func (p *Promoter) settleParked(ctx context.Context, now time.Time, report *SweepReport) error {
	for range maxRounds {
		tried, err := p.parking.Retry(ctx, now)
		for _, s := range tried.Stored {
			report.Settled++
			p.Log.InfoContext(ctx, "the end of a parked execution is stored", "execution_id", s.ID, "status", s.Status)
			if s.Status != "retrying" {
				p.Metrics.ExecutionOver(s.JobType, s.Status, s.Ran)
			}
		}
		for _, r := range tried.Refused {
			p.Log.WarnContext(ctx, "a parked execution stays parked", "execution_id", r.ID, "job_id", r.Job, "tenant_id", r.Tenant, "reason", r.Why)
		}
		p.Metrics.SetParked(tried.Parked)
		if err != nil || len(tried.Stored) == 0 || tried.Parked == 0 {
			return err
		}
	}
	return nil
}

// hint sends hints of what is to run again.
func (p *Promoter) hint(ctx context.Context, rows []waiting) {
	lanes := map[queue.Lane][]uuid.UUID{}
	for _, r := range rows {
		lane := queue.LaneFor(r.priority)
		lanes[lane] = append(lanes[lane], r.id)
	}
	for lane, ids := range lanes {
		p.publish(ctx, lane, ids)
	}
}

// publish sends hints, and puts into the pool what could not be hinted. When
// that fails too, a later sweep does it.
func (p *Promoter) publish(ctx context.Context, lane queue.Lane, ids []uuid.UUID) {
	err := p.Hints.Publish(ctx, lane, ids)
	if err == nil {
		return
	}
	p.Log.DebugContext(ctx, "hints not sent, workers look for the executions", "error", err, "executions", len(ids))
	if err := p.store.pool(ctx, ids); err != nil {
		p.Log.WarnContext(ctx, "executions without a hint are not in the pool; a sweep puts them there", "error", err, "executions", len(ids))
	}
}

// Upkeep makes the partitions that are missing; a zero now means the database's
// clock. It takes no lease: without partitions nothing is recorded, and several
// promoters that make them at once make each once.
func (p *Promoter) Upkeep(ctx context.Context, now time.Time) error {
	made, err := partition.Keep(ctx, p.store.queries(), max(1, p.PartitionsAhead), now)
	if err != nil {
		return err
	}
	if made > 0 {
		p.Log.InfoContext(ctx, "partitions made", "count", made)
	}
	return nil
}

// Gauge takes the numbers about the whole service, those of the database from
// whichever promoter counted them last. Without Redis the queue is what waits in
// the database.
func (p *Promoter) Gauge(ctx context.Context) error {
	waiting, err := p.store.gauge(ctx)
	if err != nil {
		return err
	}
	depths, err := p.Hints.Depth(ctx)
	if err != nil {
		depths = waiting
	}
	for lane, n := range depths {
		p.Metrics.SetQueueSize(string(lane), n)
	}
	return nil
}

func (p *Promoter) sweepNow(ctx context.Context) error {
	report, err := p.Sweep(ctx, time.Time{})
	if report.Reclaimed > 0 {
		p.Log.WarnContext(ctx, "executions taken from workers", "reclaimed", report.Reclaimed, "ended", report.Ended)
	}
	return err
}

func (p *Promoter) upkeepNow(ctx context.Context) error {
	if p.partitionsKept.Elapsed() < partitionsEvery && p.partitionsOnce {
		return p.Gauge(ctx)
	}
	if err := p.Upkeep(ctx, time.Time{}); err != nil {
		return err
	}
	p.partitionsKept, p.partitionsOnce = clock.Start(), true
	return p.Gauge(ctx)
}

// tick calls pass at once and then at a distance that varies by a fifth, so
// that promoters started together drift apart. It rests at least as long as the pass
// took: one that must read past millions of dead rows keeps half a core busy at most.
func (p *Promoter) tick(ctx context.Context, name string, every time.Duration, pass func(context.Context) error) {
	for ctx.Err() == nil {
		mark := clock.Start()
		p.once(ctx, name, pass)
		sleep(ctx, max(spread(every), mark.Elapsed()))
	}
}

// spread is a distance that varies by a fifth.
func spread(every time.Duration) time.Duration { return every - every/10 + rand.N(every/5) }

// once calls a pass, and counts and logs how it went.
func (p *Promoter) once(ctx context.Context, name string, pass func(context.Context) error) {
	mark := clock.Start()
	err := pass(ctx)
	if ctx.Err() != nil {
		return
	}
	outcome := "ok"
	if err != nil {
		outcome = "error"
		p.Metrics.Failure(name, fault.KindOf(err).String())
		p.Log.ErrorContext(ctx, "pass failed", "pass", name, "error", fmt.Errorf("%s: %w", name, err))
	}
	p.Metrics.Operation(name, outcome, mark.Elapsed())
}
