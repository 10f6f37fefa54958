package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
)

// creators is how many jobs are created at a time.
const creators = 8

// paceFrom is of how many jobs the creation says how long that of others takes.
const paceFrom = 100

// load is jobs that are due once in every second of [from, to): together at
// its beginning, or spread over it.
type load struct {
	jobs     []uuid.UUID
	from, to time.Time
	spread   bool
}

// runsPerJob is how often each job is due.
func (l load) runsPerJob() int { return int(l.to.Sub(l.from) / time.Second) }

// executions is how many there must be when it is finished.
func (l load) executions() int { return len(l.jobs) * l.runsPerJob() }

// create makes n jobs through the product's own store, for all tenants in
// turn. They begin together at a whole second that comes when all are made,
// and end by themselves after so many scheduled times.
func (s *stack) create(ctx context.Context, n, runs int, spread bool) (load, error) {
	making := seconds(1.5 * float64(n) / s.pace)
	from := clock.Now().Add(2*time.Second + making).Truncate(time.Second).Add(time.Second)
	l := load{jobs: make([]uuid.UUID, n), from: from, to: from.Add(time.Duration(runs) * time.Second), spread: spread}
	spec := job.Spec{
		Name: "bench", Retry: job.DefaultRetry(),
		Policy: job.Policy{CronExpression: "* * * * * *", StartDate: &l.from, EndDate: &l.to, Overlap: job.OverlapAllow},
	}.WithDefaults()
	spec = s.work(spec)
	if spread {
		spec.JitterSeconds = 1
	}
	took := clock.Start()
	var next atomic.Int64
	var group sync.WaitGroup
	failures := make([]error, creators)
	for i := range creators {
		group.Go(func() {
			for failures[i] == nil {
				at := int(next.Add(1)) - 1
				if at >= n {
					return
				}
				made, _, err := s.jobs.Create(ctx, s.tenants[at%s.Tenants], spec, idempotency.Key{})
				l.jobs[at], failures[i] = made.ID, err
			}
		})
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return load{}, fmt.Errorf("create jobs: %w", err)
	}
	if n >= paceFrom {
		s.pace = float64(n) / took.Elapsed().Seconds()
	}
	if clock.Now().After(l.from.Add(-100 * time.Millisecond)) {
		return load{}, fmt.Errorf("creating %d jobs took %v, longer than expected: they were due before all were there", n, took.Elapsed())
	}
	return l, nil
}

// until waits for a time.
func until(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(at.Sub(clock.Now()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// finish waits until the workers, which had counted so many executions before
// the load, have done all of it.
func (s *stack) finish(ctx context.Context, l load, before counters) error {
	return s.await(ctx, 2*time.Minute, fmt.Sprintf("%d executions to be done", l.executions()), func() (bool, error) {
		now, err := s.counters(ctx)
		return int(now.since(before).executions) >= l.executions(), err
	})
}

// verify fails when an execution of the load is missing, there twice, not
// completed, or was run more than once.
func (s *stack) verify(ctx context.Context, l load, before counters) error {
	f, err := s.store.census(ctx, l)
	if err != nil {
		return err
	}
	now, err := s.counters(ctx)
	if err != nil {
		return err
	}
	refused := int(now.since(before).stale)
	if f.rows == l.executions() && f.runsPerJob == f.rows && f.notCompleted+f.repeated+f.strangers+refused == 0 {
		s.loads = append(s.loads, l)
		return nil
	}
	return fmt.Errorf("of %d executions %d are lost, %d doubled, %d not completed, %d run again, %d of no scheduled time, %d outcomes refused",
		l.executions(), l.executions()-f.runsPerJob, f.rows-f.strangers-f.runsPerJob, f.notCompleted, f.repeated, f.strangers, refused)
}

// verifyRollUps fails when the roll-ups, from which statistics are answered, count another
// number of executions of a job than its records, which are verified. It waits until the
// promoter has rolled up all loads of this run, which takes up to a minute.
func verifyRollUps(ctx context.Context, s *stack) (none []row, err error) {
	if len(s.loads) == 0 {
		return nil, nil
	}
	s.say("waiting until all executions are rolled up")
	_, err = s.start(ctx, promoterName, withRedis)
	defer func() { err = errors.Join(err, s.stop(s.running...)) }()
	if err != nil {
		return nil, err
	}
	err = s.await(ctx, 3*time.Minute, "all executions to be rolled up", func() (bool, error) {
		return s.store.rolledUp(ctx, s.loads[0].from)
	})
	if err != nil {
		return nil, err
	}
	return nil, s.compareRollUps(ctx)
}

// compareRollUps compares the roll-ups of hours, days and weeks with the verified records: each
// job has as many, all completed at the first attempt.
func (s *stack) compareRollUps(ctx context.Context) error {
	want := map[uuid.UUID]int64{}
	for _, l := range s.loads {
		for _, job := range l.jobs {
			want[job] += int64(l.runsPerJob())
		}
	}
	held, err := s.store.rollUps(ctx, want, s.loads[0].from)
	if err != nil {
		return err
	}
	for span, t := range held {
		wrong := 0
		for job, n := range want {
			if t.jobs[job] != n {
				wrong++
			}
		}
		if wrong > 0 || t.others > 0 || t.whole != t.parts {
			return fmt.Errorf("the roll-ups of each %s count another number of executions for %d of %d jobs, %d of them with another outcome, and %d in all where they count %d by job",
				[]string{"hour", "day", "week"}[span], wrong, len(want), t.others, t.whole, t.parts)
		}
	}
	return nil
}

// target is what jobs of type http call: it notes when, and answers 200 after so long.
type target struct {
	url    string
	server *http.Server
	ended  chan struct{}

	mu    sync.Mutex
	calls []called
}

// called is one call of the target: the scheduled time that it named, and how long after it
// the call arrived.
type called struct {
	scheduledAt time.Time
	late        time.Duration
}

// note keeps a call that arrived at a time. One that names no scheduled time counts as
// missing.
func (t *target) note(arrived time.Time, scheduledAt string) {
	at, err := time.Parse(time.RFC3339Nano, scheduledAt)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, called{at, arrived.Sub(at)})
}

// take answers how long after their scheduled times in [from, to) calls arrived, sorted,
// and forgets them.
func (t *target) take(from, to time.Time) (late []time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = slices.DeleteFunc(t.calls, func(c called) bool {
		within := !c.scheduledAt.Before(from) && c.scheduledAt.Before(to)
		if within {
			late = append(late, c.late)
		}
		return within
	})
	slices.Sort(late)
	return late
}

// lags reads the lags of the executions of a load that are due in [from, to): to the start,
// and where the jobs call the target, to the arrival there. A call that the target did not
// see, or saw twice, is an error.
func (s *stack) lags(ctx context.Context, r *row, l load, from, to time.Time) (err error) {
	if r.lag, err = s.store.lags(ctx, from, to); err != nil || !s.HTTP {
		return err
	}
	early, late := s.target.take(l.from, from), s.target.take(from, to)
	if calls := len(early) + len(late) + len(s.target.take(to, l.to)); calls != l.executions() {
		return fmt.Errorf("the target saw %d calls of %d executions", calls, l.executions())
	}
	r.atTarget = lag{p50: quantile(late, 50), p99: quantile(late, 99), max: quantile(late, 100)}
	return nil
}

func newTarget(takes time.Duration) (*target, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &target{url: "http://" + listener.Addr().String() + "/", ended: make(chan struct{})}
	t.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.note(clock.Now(), r.Header.Get("X-Scheduled-At"))
		if takes <= 0 {
			return
		}
		timer := time.NewTimer(takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
	})}
	go func() {
		defer close(t.ended)
		_ = t.server.Serve(listener) // ends by close alone
	}()
	return t, nil
}

func (t *target) close() error {
	err := t.server.Close()
	<-t.ended
	return err
}

// work is the type and config of the jobs of a load.
func (s *stack) work(spec job.Spec) job.Spec {
	spec.Type, spec.Config = "function", []byte(`{"modulePath":"builtin","functionName":"noop"}`)
	if s.HTTP {
		spec.Type = "http"
		spec.Config, _ = json.Marshal(map[string]string{"url": s.target.url}) // a text: it does not fail
	}
	return spec
}

// loadOf says in the tables what the jobs do.
func (c Config) loadOf() string {
	if !c.HTTP {
		return "No-op jobs"
	}
	return "Jobs of type http whose target in the same process as the measurement answers after " + (time.Duration(c.Takes) * time.Millisecond).String() + ","
}
