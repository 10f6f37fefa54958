package promoter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/partition"
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
	// maxLost is how many workers one execution may lose before it fails: one
	// that kills its worker must not go round the fleet for ever, and three
	// losses by chance are rare.
	maxLost = 3
)

// SweepReport is what a sweep did.
type SweepReport struct {
	Dead      int  // workers marked dead
	Reclaimed int  // executions taken from them, or past their deadline
	Ended     int  // of those, how many are over
	Pooled    int  // executions whose hint was lost, and which workers look for now
	RedisLost bool // Redis had lost what it held
}

// Sweep marks dead workers, hands on or ends what they ran and what passed its
// deadline, and puts into the pool what waits although its hint should have
// come; a zero now means the database's clock.
// Every statement skips what is locked and is a no-op the second time, so any
// number of promoters may sweep at once.
func (p *Promoter) Sweep(ctx context.Context, now time.Time) (report SweepReport, err error) {
	dead, err := p.fleet.Bury(ctx, now)
	if err != nil {
		return report, err
	}
	for _, d := range dead {
		p.Log.WarnContext(ctx, "worker is dead", "worker_id", d.ID, "host", d.Host, "pid", d.PID)
	}
	report.Dead = len(dead)
	if err := p.reclaim(ctx, now, &report); err != nil {
		return report, err
	}
	reason, ahead := "lost", time.Duration(0)
	lost, err := p.Hints.Watch(ctx)
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
		n, err := p.store.poolLate(ctx, now, ahead)
		if err != nil {
			return report, err
		}
		p.Metrics.Redispatched(reason, n)
		report.Pooled += n
		if n < sweepBatch {
			break
		}
	}
	return report, nil
}

func (p *Promoter) reclaim(ctx context.Context, now time.Time, report *SweepReport) error {
	for range maxRounds {
		rows, err := p.store.reclaim(ctx, now)
		if err != nil {
			return err
		}
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
			report.Ended++
			ended = append(ended, r)
			p.Metrics.ExecutionOver(r.jobType, r.verdict, 0)
		}
		next, err := p.store.next(ctx, now, ended, p.TenantMaxRunning)
		if err != nil {
			return err
		}
		p.hint(ctx, append(again, next...))
		report.Reclaimed += len(rows)
		if len(rows) < sweepBatch {
			return nil
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

// Gauge takes the numbers about the whole service. Without Redis the queue is
// what waits in the database.
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
// that promoters started together drift apart.
func (p *Promoter) tick(ctx context.Context, name string, every time.Duration, pass func(context.Context) error) {
	for ctx.Err() == nil {
		p.once(ctx, name, pass)
		sleep(ctx, spread(every))
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
