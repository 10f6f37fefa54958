package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// Of a load the first two seconds are not measured, in which processes read
// job versions for the first time, nor the last second, at which jobs end.
const (
	warmUp = 2 * time.Second
	atEnd  = time.Second
	// before is how much before a whole second readings are taken, so that
	// what is due at that second is on one side of them.
	before = 50 * time.Millisecond
)

// steady runs loads of no-op jobs that are due every second, one for each
// rate, through the real processes: first all jobs of a load together at each
// whole second, as cron expressions have it, then spread over it.
func steady(ctx context.Context, s *stack) (rows []row, err error) {
	stop, err := s.startAll(ctx, withRedis)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	for _, rate := range s.Rates {
		one, err := s.atRate(ctx, rate, false)
		if err != nil {
			return rows, err
		}
		rows = append(rows, one)
	}
	for _, rate := range s.Spread {
		one, err := s.atRate(ctx, rate, true)
		if err != nil {
			return rows, err
		}
		rows = append(rows, one)
	}
	return rows, nil
}

// calledRate is how many jobs of type http are due each second, where the others are no-op
// functions.
const calledRate = 1000

// callTarget runs one load of jobs that call a target, so that the table says when a target
// sees a call. With -http all loads are of such jobs.
func callTarget(ctx context.Context, s *stack) (rows []row, err error) {
	if s.HTTP {
		return nil, nil
	}
	s.HTTP = true
	defer func() { s.HTTP = false }()
	stop, err := s.startAll(ctx, withRedis)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	one, err := s.atRate(ctx, calledRate, false)
	one.what += ", of type http, whose target is in the process of the measurement"
	return []row{one}, err
}

// polled runs the first of the loads that are spread without Redis.
func polled(ctx context.Context, s *stack) (rows []row, err error) {
	if len(s.Spread) == 0 {
		return nil, nil
	}
	stop, err := s.startAll(ctx, withoutRedis)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	one, err := s.atRate(ctx, s.Spread[0], true)
	one.what += ", QUEUE_BACKEND=postgres"
	return []row{one}, err
}

// Values of QUEUE_BACKEND.
const (
	withRedis    = "auto"
	withoutRedis = "postgres"
)

// startAll starts the promoters and the workers, and answers how to stop them.
func (s *stack) startAll(ctx context.Context, backend string) (stop func() error, err error) {
	return s.startFleet(ctx, backend, s.Promoters, s.Workers)
}

// startFleet starts so many promoters and workers, and answers how to stop them.
func (s *stack) startFleet(ctx context.Context, backend string, promoters, workers int) (stop func() error, err error) {
	stop = func() error { return s.stop(s.running...) }
	for _, name := range slices.Concat(slices.Repeat([]string{promoterName}, promoters), slices.Repeat([]string{workerName}, workers)) {
		if _, err := s.start(ctx, name, backend); err != nil {
			return stop, err
		}
	}
	return stop, nil
}

// reading is what all processes have taken and counted up to a time.
type reading struct {
	at       time.Time
	counters counters
	usages   map[string]usage
	all, own float64         // processor time of the machine, and of that ours, in µs
	wal      float64         // bytes that PostgreSQL wrote to its log ahead
	costs    map[string]cost // of statements, where they are counted
}

func (s *stack) read(ctx context.Context) (reading, error) {
	counted, err := s.counters(ctx)
	r := reading{at: clock.Now(), counters: counted, usages: usages()}
	r.all, r.own = busy()
	if err == nil {
		r.wal, err = s.store.walBytes(ctx)
	}
	if err == nil && s.Statements {
		r.costs, err = statementCosts(ctx, s.postgres.AdminURL)
	}
	return r, err
}

func (s *stack) readAt(ctx context.Context, at time.Time) (reading, error) {
	if err := until(ctx, at); err != nil {
		return reading{}, err
	}
	return s.read(ctx)
}

// others is the share of all processors that others had between two readings.
func others(from, to reading) float64 {
	took := to.at.Sub(from.at).Seconds() * 1e6 * float64(runtime.NumCPU())
	return max(0, ((to.all-from.all)-(to.own-from.own))/took)
}

// cores is how many processors the programs of the table took together between two
// readings.
func cores(from, to reading) (all float64) {
	for _, name := range groups() {
		all += to.usages[name].cpu - from.usages[name].cpu
	}
	return all / float64(to.at.Sub(from.at).Microseconds())
}

// costs of the executions between two readings, for the table.
func costs(from, to reading, executions float64) row {
	r := row{cpu: map[string]float64{}, memory: map[string]float64{}}
	for name, u := range to.usages {
		r.cpu[name] = (u.cpu - from.usages[name].cpu) / executions
		r.memory[name] = u.memory
	}
	r.cores = cores(from, to)
	r.trips = to.counters.since(from.counters).roundTrips / executions
	r.others, r.wal = others(from, to), (to.wal-from.wal)/executions
	return r
}

func (s *stack) atRate(ctx context.Context, rate int, spread bool) (row, error) {
	what := fmt.Sprintf("%d due each second, together", rate)
	if spread {
		what = fmt.Sprintf("%d due each second, spread over it", rate)
	}
	s.say("%s", what)
	start, err := s.counters(ctx)
	if err != nil {
		return row{}, err
	}
	measured := time.Duration(s.Seconds) * time.Second
	l, err := s.create(ctx, rate, int((warmUp+measured+atEnd)/time.Second), spread)
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
	err = s.finish(ctx, l, start)
	if err = errors.Join(err, s.verify(ctx, l, start)); err != nil {
		return row{}, fmt.Errorf("%s: %w", what, err)
	}
	r, err := s.steadyRow(ctx, l, from, to)
	r.what = what
	s.say("of its round trips each: %s", to.counters.since(from.counters).leading())
	return r, err
}

// steadyRow reads, when all is finished, what happened between the readings.
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
	if err = s.lags(ctx, &r, l, l.from.Add(warmUp), l.to.Add(-atEnd)); err != nil {
		return row{}, err
	}
	s.sayCosts(from, to, to.counters.since(from.counters).executions)
	r.perSecond = float64(done) / to.at.Sub(from.at).Seconds()
	r.backlog = e.backlog
	return r, nil
}

// sayCosts says what statements cost between two readings, where they are counted.
func (s *stack) sayCosts(from, to reading, executions float64) {
	if s.Statements {
		s.say("%s", dearest(from.costs, to.costs, executions))
	}
}
