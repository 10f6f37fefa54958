package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// drain lets executions wait while no worker runs, and measures from the
// workers' first claim to the last outcome: what comes after an outage.
func drain(ctx context.Context, s *stack) (rows []row, err error) {
	if _, err = s.start(ctx, promoterName, withRedis); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop(s.running...)) }()
	for i := range s.Repeats {
		s.say("draining %d executions (%d of %d)", 2*s.Burst, i+1, s.Repeats)
		one, err := s.drainOnce(ctx)
		if err != nil {
			return nil, err
		}
		rows = append(rows, one)
	}
	middle := median(rows, func(a, b row) int { return cmp.Compare(a.perSecond, b.perSecond) })
	middle.key = drainKey
	return []row{middle}, nil
}

func (s *stack) drainOnce(ctx context.Context) (row, error) {
	l, err := s.create(ctx, s.Burst, 2, false)
	if err != nil {
		return row{}, err
	}
	if err := until(ctx, l.to.Add(-time.Second)); err != nil {
		return row{}, err
	}
	err = s.await(ctx, time.Minute, "the executions to be promoted", func() (bool, error) {
		waiting, err := s.store.waiting(ctx)
		return waiting == l.executions(), err
	})
	if err != nil {
		return row{}, err
	}
	from, err := s.read(ctx)
	if err != nil {
		return row{}, err
	}
	if err := s.startWorkers(ctx, withRedis); err != nil {
		return row{}, err
	}
	err = s.finish(ctx, l, from.counters)
	to, readErr := s.read(ctx)
	if err = errors.Join(err, readErr, s.verify(ctx, l, from.counters)); err != nil {
		return row{}, err
	}
	return s.drainRow(ctx, l, costs(from, to, float64(l.executions())))
}

func (s *stack) drainRow(ctx context.Context, l load, r row) (row, error) {
	if err := s.stop(s.running[1:]...); err != nil { // all but the promoter
		return row{}, err
	}
	e, err := s.store.ends(ctx, l.from, l.to, l.to)
	if err != nil {
		return row{}, err
	}
	r.what = fmt.Sprintf("%d pending at once, drained", l.executions())
	r.perSecond, r.backlog = float64(l.executions())/e.last.Sub(e.first).Seconds(), none
	return r, nil
}

// median is the middle one of an odd number, and the lower middle of an even.
func median[T any](all []T, compare func(a, b T) int) T {
	sorted := slices.SortedFunc(slices.Values(all), compare)
	return sorted[(len(sorted)-1)/2]
}
