package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/tenant"
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
	if _, err := s.startFleet(ctx, withRedis, 0, s.Workers); err != nil {
		return row{}, err
	}
	err = s.finish(ctx, l, from.counters)
	to, readErr := s.read(ctx)
	if err = errors.Join(err, readErr, s.verify(ctx, l, from.counters)); err != nil {
		return row{}, err
	}
	s.sayCosts(from, to, float64(l.executions()))
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

// fleetSize is how many executions each fleet drains: of every tenant as many, all
// there at one moment, in the pool. keyedSize is how many that have a concurrency key each. No hints lead to them.
const (
	fleetSize = 40_000
	keyedSize = 10_000
)

// askEvery is how often the measurement asks whether a backlog is done. The records say
// when it was, and a question reads what others have just deleted.
const askEvery = 500 * time.Millisecond

// usualSlots is how many executions a worker runs at once where nobody says so.
const usualSlots = 100

// drainByFleets drains one backlog in the pool, and one of executions that have a concurrency key each, by fleets of
// several sizes, whose workers wait for it: what a further worker is worth. It drains both by workers of usualSlots, too.
func drainByFleets(ctx context.Context, s *stack) (rows []row, err error) {
	for _, workers := range s.Fleets {
		for _, b := range []backlog{{size: fleetSize}, {size: keyedSize, keyed: true}, {size: fleetSize, small: true}, {size: keyedSize, keyed: true, small: true}} {
			one, err := s.drainOfAll(ctx, workers, b)
			if err != nil {
				return rows, fmt.Errorf("%d workers: %w", workers, err)
			}
			rows = append(rows, one)
		}
	}
	return rows, nil
}

// drainOfAll drains a backlog of all tenants as often as is measured, and returns the middle row.
func (s *stack) drainOfAll(ctx context.Context, workers int, b backlog) (row, error) {
	var all []row
	for range s.Repeats {
		b.jobs, b.before = nil, nil
		for i := range s.tenants {
			for _, jobs := range []*[]uuid.UUID{&b.jobs, &b.before} {
				one, err := s.sleeper(ctx, i, 0, 0)
				if err != nil {
					return row{}, err
				}
				*jobs = append(*jobs, one)
			}
		}
		one, err := s.drainByFleet(ctx, workers, b)
		if err != nil {
			return row{}, err
		}
		all = append(all, one)
	}
	middle, where := median(all, func(a, b row) int { return cmp.Compare(a.perSecond, b.perSecond) }), "in the pool"
	if b.keyed {
		where = "with a key each"
	}
	middle.what = fmt.Sprintf("%d %s at once, drained by %d worker(s)", b.size, where, workers)
	if b.small {
		middle.what += fmt.Sprintf(" of %d slots", usualSlots)
	}
	return middle, nil
}

// A tenant may run atLimit executions at once. limitedSize of them wait, and each takes
// limitedTime. So its limit allows atLimit / limitedTime a second.
const (
	atLimit     = 40
	limitedSize = 8_000
	limitedTime = 50 * time.Millisecond
)

// drainAtLimit drains the backlog of one tenant that is at its limit all the while, by
// fleets of several sizes: what it costs to hand a place from one execution to the next. Then it drains one
// in which each execution has a concurrency key of its own, as those of jobs for one customer each, and one of a job
// that may run so many at once.
func drainAtLimit(ctx context.Context, s *stack) (rows []row, err error) {
	platform, most, limited := tenant.NewStore(s.api, true), atLimit, uuid.New()
	made, err := platform.Create(ctx, limited, tenant.Spec{Name: "limited", Limits: tenant.Limits{MaxRunning: &most}})
	if err != nil {
		return nil, err
	}
	s.tenants = append(s.tenants, tenant.Actor{TenantID: made.ID, Subject: "bench"})
	defer func() { s.tenants = s.tenants[:len(s.tenants)-1] }()
	for _, workers := range s.Fleets {
		for _, v := range []struct {
			of     string
			tenant int
			backlog
		}{
			{"a tenant that may run", len(s.tenants) - 1, backlog{}},
			{"a tenant, with a key each, that may run", len(s.tenants) - 1, backlog{keyed: true}},
			{"a job that may run", 0, backlog{slots: atLimit}},
		} {
			job, err := s.sleeper(ctx, v.tenant, 0, limitedTime)
			if err != nil {
				return rows, err
			}
			v.jobs, v.size = []uuid.UUID{job}, limitedSize
			one, err := s.drainByFleet(ctx, workers, v.backlog)
			if err != nil {
				return rows, fmt.Errorf("%d workers: %w", workers, err)
			}
			one.what = fmt.Sprintf("%d of %v of %s %d at once (%.0f a second), drained by %d worker(s)",
				limitedSize, limitedTime, v.of, atLimit, atLimit/limitedTime.Seconds(), workers)
			rows = append(rows, one)
		}
	}
	return rows, nil
}

// backlog is so many executions that wait, of each job as many. keyed: each has a concurrency
// key of its own. Of each job so many slots may be taken; 0: they need none.
type backlog struct {
	jobs   []uuid.UUID
	before []uuid.UUID // of these, one in warmPart of the size are drained first
	size   int
	keyed  bool
	slots  int
	small  bool // the workers have usualSlots
}

// warmPart is the part of a backlog that a fleet drains before it is measured. A worker that has just started spends half a
// second of processor time on its sessions and their plans: of 16 workers that took 5 s of the 12 s of a whole drain.
const warmPart = 4

// drainByFleet drains a backlog and measures
// from the first start: an idle worker, whom no hint tells of the backlog, looks for one
// every two seconds, and how long it had left when this one came is a matter of luck.
func (s *stack) drainByFleet(ctx context.Context, workers int, b backlog) (r row, err error) {
	if b.small {
		defer func(slots int) { s.Slots = slots }(s.Slots)
		s.Slots = usualSlots
	}
	s.say("draining %d executions with %d workers of %d slots", b.size, workers, s.Slots)
	defer func() { err = errors.Join(err, s.stop(s.running...)) }()
	for range workers {
		if _, err := s.start(ctx, workerName, withRedis); err != nil {
			return row{}, err
		}
	}
	if len(b.before) > 0 {
		if err := s.drainBacklog(ctx, backlog{jobs: b.before, size: b.size / warmPart, keyed: b.keyed, slots: b.slots}); err != nil {
			return row{}, err
		}
	}
	from, err := s.read(ctx)
	if err != nil {
		return row{}, err
	}
	if err := s.drainBacklog(ctx, b); err != nil {
		return row{}, err
	}
	to, err := s.read(ctx)
	if err != nil {
		return row{}, err
	}
	s.sayCosts(from, to, float64(b.size))
	done, took, err := s.store.doneOf(ctx, b.jobs)
	if err == nil && done != b.size {
		err = fmt.Errorf("of %d executions %d are on record", b.size, done)
	}
	r = costs(from, to, float64(b.size))
	r.perSecond, r.backlog = float64(b.size)/took, none
	return r, err
}

// drainBacklog makes a backlog and waits until it is done.
func (s *stack) drainBacklog(ctx context.Context, b backlog) error {
	if err := s.store.insertBacklog(ctx, b); err != nil {
		return err
	}
	asked := clock.Start()
	return s.await(ctx, 3*time.Minute, "the backlog to be done", func() (bool, error) {
		if asked.Elapsed() < askEvery {
			return false, nil
		}
		asked = clock.Start()
		more, err := s.store.anyWaiting(ctx)
		return !more, err
	})
}

// median is the middle one of an odd number, and the lower middle of an even.
func median[T any](all []T, compare func(a, b T) int) T {
	sorted := slices.SortedFunc(slices.Values(all), compare)
	return sorted[(len(sorted)-1)/2]
}
