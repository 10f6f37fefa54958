// Package app wires the processes: one file and one function each.
//
// It owns the order in which the parts of a process start and stop, and nothing
// else; production, the standalone program and the end-to-end tests call the
// same functions with another configuration. It refuses to decide anything that
// a package below could.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/executor/function"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/live"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/calls"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/trace"
)

// The connections of each process. An API request holds one for a few
// milliseconds; promoter and worker write in batches and need few.
const (
	apiConns      = 20
	promoterConns = 6
	workerConns   = 6
	// pingConns store pings: one does, and another when the process ends.
	pingConns = 2
	// callbackConns write what targets report to the API.
	callbackConns = 4
)

// process is what every process has.
type process struct {
	log      *slog.Logger
	live     *live.Settings
	registry *telemetry.Registry
	metrics  *telemetry.Metrics
	ready    *readiness
	advice   *advice
	// front is the API, where the process serves it.
	front parts.Front
	// functions are the modules that jobs of type function may name beside builtin.
	functions map[string]function.Module
	// callbacks says that jobs may complete by callback.
	callbacks bool
	// traces begins traces; nil where there are none.
	traces *trace.Tracer
}

// ballast is memory that nobody touches, so the system gives none for it. Go collects
// garbage when the heap has doubled, and little of what a process makes is kept: under load a
// small heap would be collected many times a second. With this it grows by 32 MiB more in
// between, however large it is. A larger GOGC would also multiply what a worker keeps whose
// outputs are large. The helpers of a sandbox, which have 32 MiB in all, do without.
var ballast []byte

var takeBallast = sync.OnceFunc(func() { ballast = make([]byte, 32<<20) })

// newProcess makes one that goes by these settings until somebody changes them.
func newProcess(log *slog.Logger, known []config.Setting) process {
	takeBallast()
	registry := telemetry.NewRegistry()
	return process{log: log, live: live.New(known, log), registry: registry, metrics: telemetry.NewMetrics(registry), ready: &readiness{}, advice: &advice{}}
}

// named is the process with a name on its log lines.
func (p process) named(name string) process {
	p.log = p.log.With("process", name)
	return p
}

// stores opens what a process talks to: the database, whose schema must be the
// one that the process needs, with the rest of how to connect, and the queue.
func (p process) stores(ctx context.Context, s config.Stores, c postgres.Config) (*postgres.DB, *queue.Publisher, error) {
	c.URL, c.Pooled, c.Name, c.RoundTrip = s.DatabaseURL.Reveal(), s.Pooled(), "scheduler-"+c.Name, p.metrics.RoundTrip
	c.Spans = p.traces != nil
	db, err := postgres.Open(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	if err := db.CheckSchema(ctx); err != nil {
		db.Close()
		return nil, nil, err
	}
	p.advice.seek(ctx, db, p.log)
	if err := p.live.Refresh(ctx, db); err != nil { // the pass tries again
		p.log.WarnContext(ctx, "the settings are not read, those of the environment hold", "error", err)
	}
	hinting := queue.Config{URL: s.Redis(), Spans: p.traces != nil}
	if s.Redis() == "" {
		hinting.Carrier = calls.New(calls.Config{DB: db, URL: s.ListensAt(), Name: c.Name + "-calls", Log: p.log})
	}
	hints, err := queue.NewPublisher(hinting, p.log)
	if err != nil {
		db.Close()
		return nil, nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	p.metrics.WatchPool("postgres", c.Name, connections(db))
	if !hints.Silent() {
		p.metrics.WatchPool("redis", c.Name, func() (pool telemetry.Pool) {
			pool.InUse, pool.Max, pool.Timeouts = hints.Connections()
			return pool
		})
	} else {
		p.log.InfoContext(ctx, "there is no redis, processes call each other through the database")
	}
	return db, hints, nil
}

// connections reads the pool of a database.
func connections(db *postgres.DB) func() telemetry.Pool {
	return func() (pool telemetry.Pool) {
		pool.InUse, _, pool.Max, pool.Timeouts = db.Connections()
		return pool
	}
}

// leases are the leases that this process takes.
func (p process) leases(db *postgres.DB, ttl time.Duration) *lease.Store {
	return lease.NewStore(lease.Config{DB: db, Holder: fmt.Sprintf("%.100s/%d", hostname(), os.Getpid()), TTL: ttl, Metrics: p.metrics})
}

func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// together runs parts until the first fails or ctx is cancelled, and waits for
// all of them.
func together(ctx context.Context, parts ...func(ctx context.Context) error) error {
	group, life := errgroup.WithContext(ctx)
	for _, part := range parts {
		group.Go(func() error { return unlessStopped(ctx, part(life)) })
	}
	return group.Wait()
}

// unlessStopped forgets that a part could not finish its start because the
// process was told to stop: that is a stop like any other.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// hintOne announces one execution to the workers. It is in the pool, where workers look for it; the
// hint only has it start sooner. Where more hints wait than it should stand behind, or none can be
// sent, workers are called: those that are idle would look two seconds later.
func hintOne(hints *queue.Publisher, log *slog.Logger) func(ctx context.Context, priority int, id uuid.UUID) {
	return func(ctx context.Context, priority int, id uuid.UUID) {
		if !hinted(ctx, hints, log, queue.LaneFor(priority), id) {
			_ = hints.Call(ctx, queue.CallPool)
		}
	}
}

// hinted says whether a hint for an execution was sent: there is a Redis, and its lane has room.
func hinted(ctx context.Context, hints *queue.Publisher, log *slog.Logger, lane queue.Lane, id uuid.UUID) bool {
	if hints.Silent() {
		return false
	}
	depths, err := hints.Depth(ctx)
	if err == nil && depths[lane] >= queue.Window {
		return false
	}
	if err == nil {
		err = hints.Publish(ctx, lane, []uuid.UUID{id})
	}
	if err != nil {
		log.DebugContext(ctx, "hint not sent, workers look for the execution", "error", err, "execution_id", id)
	}
	return err == nil
}

// caller calls the processes that poll for something. Without the call they find it a
// little later.
func caller(hints *queue.Publisher, call queue.Call) func(ctx context.Context) {
	return func(ctx context.Context) { _ = hints.Call(ctx, call) }
}

// observed runs the whole of a process, and answers what an operator's tools ask, on
// a port of its own, for as long as that takes: once ctx is over the process is not
// ready any more, and can be asked until it has finished what it was doing.
func (p process) observed(ctx context.Context, addr string, run func(ctx context.Context) error) error {
	p.ready.until(ctx)
	asked, finished := context.WithCancel(context.WithoutCancel(ctx))
	defer finished()
	return together(ctx,
		func(ctx context.Context) error {
			defer finished()
			return run(ctx)
		},
		func(context.Context) error { return telemetry.Serve(asked, addr, p.registry, p.ready.check) })
}

// readiness asks the parts of a process whether they can do their work, once
// they are there.
type readiness struct {
	mu       sync.Mutex
	checks   []func() error
	stopping <-chan struct{}
}

// until ends the process's readiness with ctx, whatever its parts say.
func (r *readiness) until(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = ctx.Done()
}

// add makes the process's readiness depend on a part.
func (r *readiness) add(check func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks = append(r.checks, check)
}

func (r *readiness) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.stopping:
		return errors.New("the process is stopping")
	default:
	}
	if len(r.checks) == 0 {
		return errors.New("the process is starting")
	}
	for _, check := range r.checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}
