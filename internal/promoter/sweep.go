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
	// partitionsEvery is often enough: partitions are made three months ahead.
	partitionsEvery = time.Hour
	// sweepBatch bounds one statement of a sweep, and maxRounds how often a
	// sweep repeats it while it comes back full.
	sweepBatch = 1000
	maxRounds  = 20
	// maxLost is how many workers one execution may lose before it fails: one
	// that kills its worker must not go round the fleet for ever, and three
	// losses by chance are rare.
	maxLost = 3
)

// SweepReport is what a sweep did.
type SweepReport struct {
	Dead         int  // workers marked dead
	Reclaimed    int  // executions taken from them, or past their deadline
	Ended        int  // of those, how many are over
	Redispatched int  // hints sent again
	RedisLost    bool // Redis had lost what it held
}

// Sweep marks dead workers, hands on or ends what they ran and what passed its
// deadline, and sends lost hints again; a zero now means the database's clock.
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
	reason := "lost"
	if report.RedisLost = p.redisLost(ctx); report.RedisLost {
		reason = "redis_generation"
		if _, err := p.store.expedite(ctx, now); err != nil {
			return report, err
		}
	}
	return report, p.redispatch(ctx, now, reason, &report)
}

func (p *Promoter) reclaim(ctx context.Context, now time.Time, report *SweepReport) error {
	for range maxRounds {
		rows, err := p.store.reclaim(ctx, now)
		if err != nil {
			return err
		}
		var again []waiting
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
			p.Metrics.ExecutionOver(r.jobType, r.verdict, 0)
		}
		p.hint(ctx, again)
		report.Reclaimed += len(rows)
		if len(rows) < sweepBatch {
			return nil
		}
	}
	return nil
}

func (p *Promoter) redispatch(ctx context.Context, now time.Time, reason string, report *SweepReport) error {
	for range maxRounds {
		rows, err := p.store.redispatch(ctx, now)
		if err != nil {
			return err
		}
		p.hint(ctx, rows)
		p.Metrics.Redispatched(reason, len(rows))
		report.Redispatched += len(rows)
		if len(rows) < sweepBatch {
			return nil
		}
	}
	return nil
}

// redisLost looks whether Redis lost what it held. While Redis is away there
// is nothing to look at: what is lost then is seen when it is back.
func (p *Promoter) redisLost(ctx context.Context) bool {
	lost, err := p.Hints.Watch(ctx)
	if err != nil || !lost {
		return false
	}
	p.Metrics.RedisGenerationChanged()
	p.Log.WarnContext(ctx, "redis is empty, sending every waiting execution's hint again")
	return true
}

// hint sends hints; an error only costs time.
func (p *Promoter) hint(ctx context.Context, rows []waiting) {
	lanes := map[queue.Lane][]uuid.UUID{}
	for _, r := range rows {
		lane := queue.LaneFor(r.priority)
		lanes[lane] = append(lanes[lane], r.id)
	}
	for lane, ids := range lanes {
		if err := p.Hints.Publish(ctx, lane, ids); err != nil {
			p.Log.DebugContext(ctx, "hints not sent, a later sweep repeats them", "error", err, "executions", len(ids))
		}
	}
}

// Upkeep makes the partitions that are missing, deletes what is old, and takes
// the gauges of the whole service; a zero now means the database's clock.
func (p *Promoter) Upkeep(ctx context.Context, now time.Time) error {
	made, err := partition.Keep(ctx, p.store.queries(), now)
	if err != nil {
		return err
	}
	if made > 0 {
		p.Log.InfoContext(ctx, "partitions made", "count", made)
	}
	if err := p.fleet.Forget(ctx, now); err != nil {
		return err
	}
	return p.store.forgetKeys(ctx)
}

// Gauge takes the numbers about the whole service.
func (p *Promoter) Gauge(ctx context.Context) error {
	depths, err := p.Hints.Depth(ctx)
	for lane, n := range depths {
		p.Metrics.SetQueueSize(string(lane), n)
	}
	if err != nil {
		p.Log.DebugContext(ctx, "queue depth not known", "error", err)
	}
	return p.store.gauge(ctx)
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
		sleep(ctx, every-every/10+rand.N(every/5))
	}
}
