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
	// crowd is how many hints may wait for workers before none is repeated. A
	// sweep of 20,000 executions sends some 300.
	crowd = 1000
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
	lost, err := p.Hints.Watch(ctx)
	if err != nil {
		// Redis is away or there is none: no hint would arrive, and noting its
		// repetition would write every waiting row for nothing. Workers look for
		// themselves; what came due meanwhile is hinted when Redis is back.
		return report, nil //nolint:nilerr // the publisher has told of the outage
	}
	reason := "lost"
	if report.RedisLost = lost; lost {
		reason = "redis_generation"
		p.Metrics.RedisGenerationChanged()
		p.Log.WarnContext(ctx, "redis is empty, sending every waiting execution's hint again")
		if _, err := p.store.expedite(ctx, now); err != nil {
			return report, err
		}
	}
	if p.crowded(ctx) {
		return report, nil
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

// crowded says that the hints sent already are more than the workers take.
// Their executions wait for workers and not for hints: repeating them would
// fill Redis for as long as nobody consumes.
func (p *Promoter) crowded(ctx context.Context) bool {
	depths, err := p.Hints.Depth(ctx)
	waiting := 0
	for _, n := range depths {
		waiting += n
	}
	return err == nil && waiting >= crowd
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
