package runner

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wire"
)

// idleTime is how long a runner waits for another run of its program, longest how
// long a run may take whose context has no end, and chargedFor how long a tenant whose
// run cost a runner leaves the runners of others alone, and comes last if it burnt it.
const (
	idleTime   = time.Minute
	longest    = 24 * time.Hour
	chargedFor = time.Minute
	leastBurnt = 50 * time.Millisecond // less disturbs nobody, and is within a few ticks
)

// Config is what a Pool is made of.
type Config struct {
	// Memory is how many bytes all runners together may take. Each is counted with the
	// most that it may take.
	Memory int64
	// CacheDir keeps compiled code between starts. Empty: each runner compiles anew.
	CacheDir string
	// StartTime is how long a runner may take to start, and code to compile; 0 is a minute.
	StartTime time.Duration
	Log       *slog.Logger
}

// Program is what a runner runs: JavaScript, or a module.
type Program struct {
	// Key names a module by its content; empty is JavaScript.
	Key string
	// Module loads the module's bytes; it is called where no runner has it.
	Module func(ctx context.Context) ([]byte, error)
	// Memory bounds the linear memory of a run, in bytes.
	Memory int64
}

// Pool is the runner processes of this process. It starts them as they are needed.
type Pool struct {
	c     Config
	cache *cache

	mu      sync.Mutex
	taken   int64 // memory of all processes
	idle    []*process
	busy    map[uuid.UUID]int        // runs of a tenant
	cost    map[uuid.UUID]clock.Mark // when a tenant's run last cost a runner
	burnt   map[uuid.UUID]clock.Mark // and did so by working for a good part of its time
	waiting []*turn
	closed  bool
	ending  sync.WaitGroup
}

// turn is a run that waits for a runner.
type turn struct {
	tenant uuid.UUID
	key    string
	need   int64
	ready  chan *process // gets one with the program, or nil: start one
}

// New makes a pool. Close ends its runners.
func New(c Config) *Pool {
	if c.StartTime == 0 {
		c.StartTime = startTime
	}
	return &Pool{c: c, cache: newCache(c), busy: make(map[uuid.UUID]int), cost: make(map[uuid.UUID]clock.Mark), burnt: make(map[uuid.UUID]clock.Mark)}
}

// Run runs a task of a tenant and waits for its end, which comes soon after ctx's. The
// error is nil wherever the code itself decided how it ended: it is ctx's, or says that
// no runner could run it.
func (p *Pool) Run(ctx context.Context, tenant uuid.UUID, program Program, task wire.Task, host Host) (wire.End, error) {
	one, err := p.take(ctx, tenant, program)
	if err != nil {
		return wire.End{}, err
	}
	if one == nil {
		var failure *wire.Failure
		if one, failure, err = p.begin(ctx, tenant, program); err != nil || failure != nil {
			p.give(tenant, nil, need(program))
			return wire.End{Failure: failure}, err
		}
	}
	task.Timeout = longest.Milliseconds()
	if deadline, ok := ctx.Deadline(); ok {
		task.Timeout = max(deadline.Sub(clock.Now()).Milliseconds(), 1)
	}
	took, before := clock.Start(), one.processorTime()
	end, good, err := one.run(ctx, task, host)
	if !good {
		wall := took.Elapsed()
		one.end()
		if one.runs < maxRuns {
			p.charge(tenant, burnt(one.spent()-before, wall))
		}
		p.give(tenant, nil, one.need)
		return end, err
	}
	one.tenant = tenant
	p.give(tenant, one, 0)
	return end, err
}

// burnt says whether a run that cost a runner worked for a good part of its time. One that
// waited for a target, or did not get the processor, does no harm to others.
func burnt(cpu, wall time.Duration) bool { return cpu > leastBurnt && cpu > wall/4 }

// Waiting is how many runs wait for a runner.
func (p *Pool) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

func need(program Program) int64 { return program.Memory + overhead }

// begin starts a runner of a program for a tenant.
func (p *Pool) begin(ctx context.Context, tenant uuid.UUID, program Program) (*process, *wire.Failure, error) {
	setup := wire.Program{Script: program.Key == "", Memory: uint64(program.Memory)}
	var module []byte
	if !setup.Script {
		var err error
		if module, err = program.Module(ctx); err != nil {
			return nil, nil, err
		}
	}
	var failure *wire.Failure
	var err error
	if setup.CacheDir, failure, err = p.cache.dir(ctx, setup, program.Key, module); err != nil || failure != nil {
		return nil, failure, err
	}
	p.mu.Lock()
	last := p.comesLast(tenant)
	p.mu.Unlock()
	one, failure, err := start(ctx, p.c.StartTime, setup, module, last)
	if one != nil {
		one.key, one.need = program.Key, need(program)
	}
	return one, failure, err
}

// Check compiles a module, and keeps what comes of it for runs on this machine. The
// failure says why it cannot be run.
func (p *Pool) Check(ctx context.Context, tenant uuid.UUID, program Program) (*wire.Failure, error) {
	one, err := p.take(ctx, tenant, program)
	if err != nil {
		return nil, err
	}
	if one != nil { // it runs already
		p.give(tenant, one, 0)
		return nil, nil
	}
	defer p.give(tenant, nil, need(program))
	module, err := program.Module(ctx)
	if err != nil {
		return nil, err
	}
	setup := wire.Program{Memory: uint64(program.Memory)}
	dir, failure, err := p.cache.dir(ctx, setup, program.Key, module)
	if err != nil || failure != nil || dir != "" {
		return failure, err
	}
	setup.Compile = true
	_, failure, err = start(ctx, p.c.StartTime, setup, module, false)
	return failure, err
}

// take waits for a runner; nil says that the caller may start one.
func (p *Pool) take(ctx context.Context, tenant uuid.UUID, program Program) (*process, error) {
	t := &turn{tenant: tenant, key: program.Key, need: need(program), ready: make(chan *process, 1)}
	p.mu.Lock()
	p.waiting = append(p.waiting, t)
	p.next()
	p.mu.Unlock()
	select {
	case one := <-t.ready:
		return one, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	at := slices.Index(p.waiting, t)
	if at >= 0 {
		p.waiting = slices.Delete(p.waiting, at, at+1)
	}
	p.mu.Unlock()
	if at < 0 { // its turn came at the same moment
		if one := <-t.ready; one != nil {
			p.give(tenant, one, 0)
		} else {
			p.give(tenant, nil, t.need)
		}
	}
	return nil, ctx.Err()
}

// give ends a run: its runner waits for the next one, or is gone and its memory is free.
func (p *Pool) give(tenant uuid.UUID, one *process, freed int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[tenant]--; p.busy[tenant] == 0 {
		delete(p.busy, tenant)
	}
	p.taken -= freed
	switch {
	case one == nil:
	case p.closed:
		p.drop(one)
	default:
		p.idle = append(p.idle, one)
		one.expiry = time.AfterFunc(idleTime, func() { p.expire(one) })
	}
	p.next()
}

// next gives runners to those who wait: first to the tenant that has the fewest.
func (p *Pool) next() {
	for len(p.waiting) > 0 {
		at := 0
		for i, t := range p.waiting {
			if p.busy[t.tenant] < p.busy[p.waiting[at].tenant] {
				at = i
			}
		}
		t := p.waiting[at]
		one, ok := p.find(t)
		if !ok {
			return
		}
		p.waiting = slices.Delete(p.waiting, at, at+1)
		p.busy[t.tenant]++
		t.ready <- one
	}
}

// within says whether something was noted of a tenant of late.
func within(noted map[uuid.UUID]clock.Mark, tenant uuid.UUID) bool {
	at, ok := noted[tenant]
	return ok && at.Elapsed() < chargedFor
}

// comesLast says whether a run of a tenant burnt a runner of late. The caller holds the lock.
func (p *Pool) comesLast(tenant uuid.UUID) bool { return within(p.burnt, tenant) }

// charge notes that a run of a tenant cost a runner, and whether it burnt it.
func (p *Pool) charge(tenant uuid.UUID, burnt bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := func(_ uuid.UUID, at clock.Mark) bool { return at.Elapsed() > chargedFor }
	maps.DeleteFunc(p.cost, old)
	maps.DeleteFunc(p.burnt, old)
	if p.cost[tenant] = clock.Start(); burnt {
		p.burnt[tenant] = clock.Start()
	}
}

// find finds an idle runner with the program, or the room for a new one, for which it
// ends others that are idle. Nothing runs where not even one fits: then one may.
//
// A tenant that has just cost a runner starts the next one, while there is room. It would
// otherwise take the one that another tenant keeps warm, whose next run would wait for a
// start. One that burnt it has runners that come last, and only tenants like it have these.
func (p *Pool) find(t *turn) (one *process, ok bool) {
	last := p.comesLast(t.tenant)
	apart := within(p.cost, t.tenant) && p.taken+t.need <= p.c.Memory
	for i, one := range slices.Backward(p.idle) {
		if one.key == t.key && one.last == last && (!apart || one.tenant == t.tenant) && one.expiry.Stop() {
			p.idle = slices.Delete(p.idle, i, i+1)
			return one, true
		}
	}
	for i := 0; p.taken+t.need > p.c.Memory && i < len(p.idle); {
		if one := p.idle[i]; one.expiry.Stop() {
			p.idle = slices.Delete(p.idle, i, i+1)
			p.drop(one)
			continue
		}
		i++
	}
	if p.taken > 0 && p.taken+t.need > p.c.Memory {
		return nil, false
	}
	p.taken += t.need
	return nil, true
}

// drop ends a runner in the background.
func (p *Pool) drop(one *process) {
	p.taken -= one.need
	p.ending.Go(one.end)
}

// expire ends a runner that nobody needed for a while.
func (p *Pool) expire(one *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := slices.Index(p.idle, one); at >= 0 {
		p.idle = slices.Delete(p.idle, at, at+1)
		p.drop(one)
		p.next()
	}
}

// Close ends the runners that are idle, and those of runs under way when these end.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	for _, one := range p.idle {
		if one.expiry.Stop() {
			p.drop(one)
		}
	}
	p.idle = nil
	p.mu.Unlock()
	p.cache.close()
	p.ending.Wait()
	return nil
}
