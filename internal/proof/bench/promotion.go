package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
)

// Most active jobs are not due: what is due must not pay for them.
const (
	promotionJobs = 100_000
	promotionDue  = 1000
)

// promotion measures promotion alone, with 100,000 active jobs of which 1,000 are
// due each second: how late executions are committed, and how long the passes
// take.
func promotion(ctx context.Context, s *stack) (rows []row, err error) {
	s.say("%d active jobs", promotionJobs)
	if err := s.idle(ctx, promotionJobs-promotionDue); err != nil {
		return nil, err
	}
	stop, err := s.startAll(ctx, withRedis)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	start, err := s.counters(ctx)
	if err != nil {
		return nil, err
	}
	runs := int((warmUp+atEnd)/time.Second) + s.Seconds
	l, err := s.create(ctx, promotionDue, runs, false)
	if err != nil {
		return nil, err
	}
	from, err := s.readAt(ctx, l.from.Add(warmUp-before))
	if err != nil {
		return nil, err
	}
	to, err := s.readAt(ctx, l.to.Add(-atEnd-before))
	if err != nil {
		return nil, err
	}
	passes, slow, err := s.passes(ctx)
	if err = errors.Join(err, s.finish(ctx, l, start), s.verify(ctx, l, start)); err != nil {
		return nil, err
	}
	late, err := s.store.promotionLags(ctx, l.from.Add(warmUp), l.to.Add(-atEnd))
	if err != nil {
		return nil, err
	}
	r, err := s.steadyRow(ctx, l, from, to)
	r.what = fmt.Sprintf("%d active jobs, %d due each second; promotion alone p50 %s, p99 %s, max %s ms; %.0f passes, %.0f of them over 100 ms",
		promotionJobs, promotionDue, millis(late.p50), millis(late.p99), millis(late.max), passes, slow)
	return []row{r}, err
}

// One load for fleets of several sizes of promoters. There are so many workers in each
// case that they do not bound it.
const (
	promotedRate    = 4000
	promotedWorkers = 4
)

// byPromoters runs one load with fleets of several sizes of promoters: what a further
// promoter is worth, and what it costs.
func byPromoters(ctx context.Context, s *stack) (rows []row, err error) {
	for _, promoters := range s.PromoterFleets {
		one, err := s.withPromoters(ctx, promoters)
		if err != nil {
			return rows, fmt.Errorf("%d promoters: %w", promoters, err)
		}
		rows = append(rows, one)
	}
	return rows, nil
}

func (s *stack) withPromoters(ctx context.Context, promoters int) (r row, err error) {
	stop, err := s.startFleet(ctx, withRedis, promoters, promotedWorkers)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return row{}, err
	}
	r, err = s.atRate(ctx, promotedRate, true)
	r.what += fmt.Sprintf(", %d promoter(s) and %d workers", promoters, promotedWorkers)
	return r, err
}

// idle makes n active jobs that are not due for a day: one through the
// product's own store, and copies of it.
func (s *stack) idle(ctx context.Context, n int) error {
	who := s.tenants[0]
	template, _, err := s.jobs.Create(ctx, who, job.Spec{
		Name: "idle", Type: "function", Retry: job.DefaultRetry(),
		Config: []byte(`{"modulePath":"builtin","functionName":"noop"}`),
		Policy: job.Policy{CronExpression: "0 0 0 1 1 *"},
	}.WithDefaults(), idempotency.Key{})
	if err != nil {
		return fmt.Errorf("create an idle job: %w", err)
	}
	return copyJob(ctx, s.api, who.TenantID, template.ID, n-1)
}

// passes are how many passes of the promoter promoted something, and how many
// of them took more than 100 ms.
func (s *stack) passes(ctx context.Context) (all, slow float64, err error) {
	for _, p := range s.running {
		found, err := scrape(ctx, p.metrics)
		if err != nil {
			return 0, 0, err
		}
		count := found.sum("scheduler_operation_duration_seconds_count", `operation="promote"`)
		all += count
		slow += count - found[`scheduler_operation_duration_seconds_bucket{operation="promote",le="0.1"}`]
	}
	return all, slow, nil
}
