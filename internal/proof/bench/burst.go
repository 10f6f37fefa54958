package bench

import (
	"context"
	"errors"
	"fmt"
)

// burst lets many jobs be due at one time while everything runs: what
// happens at each full hour.
func burst(ctx context.Context, s *stack) (rows []row, err error) {
	stop, err := s.startAll(ctx, withRedis)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	s.say("%d jobs due at one time", s.Burst)
	start, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	l, err := s.create(ctx, s.Burst, 1, false)
	if err != nil {
		return nil, err
	}
	from, err := s.readAt(ctx, l.from.Add(-before))
	if err != nil {
		return nil, err
	}
	err = s.finish(ctx, l, start.counters)
	to, readErr := s.read(ctx)
	if err = errors.Join(err, readErr, s.verify(ctx, l, start.counters)); err != nil {
		return nil, err
	}
	s.sayCosts(from, to, float64(s.Burst))
	e, err := s.store.ends(ctx, l.from, l.to, l.from)
	if err != nil {
		return nil, err
	}
	r := costs(from, to, float64(s.Burst))
	if err = s.lags(ctx, &r, l, l.from, l.to); err != nil {
		return nil, err
	}
	took := e.last.Sub(l.from).Seconds()
	r.what = fmt.Sprintf("%d due at one time, all done after %.2f s", s.Burst, took)
	r.perSecond, r.backlog = float64(s.Burst)/took, none
	return []row{r}, nil
}
