package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// Of a load the first two seconds are not measured, in which processes read
// job versions for the first time, nor the last instant, at which jobs end.
const (
	warmUp = 2 * time.Second
	atEnd  = time.Second
	// before is how much before a whole second readings are taken, so that
	// what is due at that second is on one side of them.
	before = 50 * time.Millisecond
)

// steady runs loads of no-op jobs that are due every second, one for each
// rate, through the real processes.
func steady(ctx context.Context, s *stack) (rows []row, err error) {
	stop, err := s.startAll(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	for _, rate := range s.Rates {
		s.say("%d jobs due each second", rate)
		one, err := s.atRate(ctx, rate)
		if err != nil {
			return rows, fmt.Errorf("%d due a second: %w", rate, err)
		}
		rows = append(rows, one)
	}
	return rows, nil
}

// startAll starts a promoter and the workers, and answers how to stop them.
func (s *stack) startAll(ctx context.Context) (stop func() error, err error) {
	stop = func() error { return s.stop(s.running...) }
	if _, err := s.start(ctx, promoterName); err != nil {
		return stop, err
	}
	return stop, s.startWorkers(ctx)
}

func (s *stack) startWorkers(ctx context.Context) error {
	for range s.Workers {
		if _, err := s.start(ctx, workerName); err != nil {
			return err
		}
	}
	return nil
}

// reading is what all processes have taken and counted up to an instant.
type reading struct {
	at       time.Time
	counters counters
	usages   map[string]usage
}

func (s *stack) read(ctx context.Context) (reading, error) {
	counted, err := s.counters(ctx)
	return reading{at: clock.Now(), counters: counted, usages: usages()}, err
}

func (s *stack) readAt(ctx context.Context, at time.Time) (reading, error) {
	if err := until(ctx, at); err != nil {
		return reading{}, err
	}
	return s.read(ctx)
}

// costs of the executions between two readings, for the table.
func costs(from, to reading, executions float64) row {
	r := row{cpu: map[string]float64{}, memory: map[string]float64{}}
	for name, u := range to.usages {
		r.cpu[name] = (u.cpu - from.usages[name].cpu) / executions
		r.memory[name] = u.memory
	}
	r.trips = to.counters.since(from.counters).roundTrips / executions
	return r
}

func (s *stack) atRate(ctx context.Context, rate int) (row, error) {
	start, err := s.counters(ctx)
	if err != nil {
		return row{}, err
	}
	measured := time.Duration(s.Seconds) * time.Second
	l, err := s.create(ctx, rate, int((warmUp+measured+atEnd)/time.Second))
	if err != nil {
		return row{}, err
	}
	begin := l.from.Add(warmUp)
	end := begin.Add(measured)
	from, err := s.readAt(ctx, begin.Add(-before))
	if err != nil {
		return row{}, err
	}
	to, err := s.readAt(ctx, end.Add(-before))
	if err != nil {
		return row{}, err
	}
	if err := s.finish(ctx, l, start); err != nil {
		return row{}, err
	}
	return s.steadyRow(ctx, l, from, to)
}

// steadyRow reads, when all is over, what happened between the readings.
func (s *stack) steadyRow(ctx context.Context, l load, from, to reading) (row, error) {
	done, err := s.store.doneBetween(ctx, from.at, to.at)
	if err != nil {
		return row{}, err
	}
	e, err := s.store.ends(ctx, l.from, l.to, to.at)
	if err != nil {
		return row{}, err
	}
	r := costs(from, to, to.counters.since(from.counters).executions)
	if r.lag, err = s.store.lags(ctx, l.from.Add(warmUp), l.to.Add(-atEnd)); err != nil {
		return row{}, err
	}
	r.what = fmt.Sprintf("%d due each second", len(l.jobs))
	r.perSecond = float64(done) / to.at.Sub(from.at).Seconds()
	r.backlog = len(l.jobs)*(l.instants()-int(atEnd/time.Second)) - e.before
	return r, nil
}
