package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
)

const (
	// backlogSize is how much of one tenant waits, of the highest priority and
	// since an hour, while another tenant asks for askedFor single runs.
	backlogSize = 100_000
	// backlogRunTime is how long each of those runs takes, so that they hold the
	// slots that they get.
	backlogRunTime = 50 * time.Millisecond
	askedFor       = 20
)

// besideBacklogs measures how late single runs of one tenant start beside another's
// backlog, with Redis and without.
func besideBacklogs(ctx context.Context, s *stack) (rows []row, err error) {
	for _, backend := range []string{withRedis, withoutRedis} {
		one, err := s.besideBacklog(ctx, backend)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", backend, err)
		}
		rows = append(rows, one)
	}
	return rows, nil
}

func (s *stack) besideBacklog(ctx context.Context, backend string) (r row, err error) {
	s.say("single runs beside %d of another tenant, QUEUE_BACKEND=%s", backlogSize, backend)
	many, err := s.sleeper(ctx, 0, 9, backlogRunTime)
	if err != nil {
		return row{}, err
	}
	if err := s.store.insertBacklog(ctx, backlog{jobs: []uuid.UUID{many}, size: backlogSize}); err != nil {
		return row{}, err
	}
	defer func() { err = errors.Join(err, s.stop(s.running...)) }()
	for _, name := range slices.Concat([]string{promoterName}, slices.Repeat([]string{workerName}, s.Workers)) {
		if _, err := s.start(ctx, name, backend); err != nil {
			return row{}, err
		}
	}
	single, err := s.sleeper(ctx, 1, 0, 0)
	if err != nil {
		return row{}, err
	}
	from, err := s.read(ctx)
	if err != nil {
		return row{}, err
	}
	for range askedFor { // at moments that have nothing to do with what goes on
		if _, _, err := execution.NewStore(s.api, execution.Config{}).Trigger(ctx, s.tenants[1], single, nil, idempotency.Key{}); err != nil {
			return row{}, err
		}
		if err := until(ctx, clock.Now().Add(130*time.Millisecond)); err != nil {
			return row{}, err
		}
	}
	return s.besideBacklogRow(ctx, backend, single, many, from)
}

// besideBacklogRow waits for the end of all of it.
func (s *stack) besideBacklogRow(ctx context.Context, backend string, single, many uuid.UUID, from reading) (row, error) {
	waiting, err := s.store.waiting(ctx) // when the last single one was asked for
	if err != nil {
		return row{}, err
	}
	err = s.await(ctx, 3*time.Minute, "the backlog to be done", func() (bool, error) {
		n, err := s.store.waiting(ctx)
		return n == 0, err
	})
	if err != nil {
		return row{}, err
	}
	to, err := s.read(ctx)
	if err != nil {
		return row{}, err
	}
	late, done, err := s.store.jobLags(ctx, single)
	if err != nil {
		return row{}, err
	}
	_, of, err := s.store.jobLags(ctx, many)
	if err == nil && (done != askedFor || of != backlogSize) {
		err = fmt.Errorf("of %d and %d runs %d and %d are on record", askedFor, backlogSize, done, of)
	}
	r := costs(from, to, backlogSize+askedFor)
	r.lag, r.backlog, r.perSecond = late, none, float64(backlogSize+askedFor)/to.at.Sub(from.at).Seconds()
	r.what = fmt.Sprintf("%d single runs beside %d waiting of another tenant of %v each, QUEUE_BACKEND=%s; %d were left when the last was asked for",
		askedFor, backlogSize, backlogRunTime, backend, waiting)
	return r, err
}

// sleeper makes a job of a tenant that has no schedule.
func (s *stack) sleeper(ctx context.Context, tenant, priority int, d time.Duration) (uuid.UUID, error) {
	made, _, err := s.jobs.Create(ctx, s.tenants[tenant], job.Spec{
		Name: "beside", Type: "function", Retry: job.DefaultRetry(), Config: fmt.Appendf(nil, `{"modulePath":"builtin","functionName":"sleep","parameters":{"durationMs":%d}}`, d.Milliseconds()),
		Policy: job.Policy{Priority: priority, MaxConcurrent: 100},
	}.WithDefaults(), idempotency.Key{})
	if err != nil {
		return uuid.Nil, fmt.Errorf("create a job: %w", err)
	}
	return made.ID, nil
}
