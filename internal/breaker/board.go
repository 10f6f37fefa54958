package breaker

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// syncEvery is the distance between two syncs. While nothing fails every idleSyncs-th asks
// the database.
const (
	syncEvery = time.Second
	idleSyncs = 5
)

// mostLetGo is how many targets' executions one sync lets go, and lastLook how often it looks
// for them in vain: an attempt that was held back just before may be written just after.
const (
	mostLetGo = 50
	lastLook  = 2
)

// LetGo lets executions start that wait for a target, a bounded number of them, and says
// whether there may be more. A zero now means the database's clock.
type LetGo func(ctx context.Context, now time.Time, tenant uuid.UUID, host string) (more bool, err error)

// Board is what a worker knows of breakers, and what it counted since it last told the
// others. While nothing fails a call asks and tells it nothing.
type Board struct {
	store   workerStore
	letGo   LetGo
	metrics *telemetry.Metrics
	log     *slog.Logger
	busy    atomic.Bool // there is something known or counted

	mu      sync.Mutex
	tenants map[uuid.UUID]int // tenants with a breaker or a count, and the number of hosts counted of each
	known   map[Target]*known
	counted map[Target]count
	closed  map[Target]int // breakers that have closed, and how often nobody was found whom they held back
	idle    int            // syncs that had nothing to do
}

// known is a breaker as the database had it.
type known struct {
	open    bool
	retryIn time.Duration // when it was read
	read    clock.Mark
	asking  bool // a call asks for the probe now
}

// count is what became of the calls to a host since the last sync.
type count struct {
	failures  int64 // in a row, the last ones
	succeeded bool  // one before them
	reason    string
}

// NewBoard makes a board that knows nothing yet.
func NewBoard(db *postgres.DB, letGo LetGo, metrics *telemetry.Metrics, log *slog.Logger) *Board {
	return &Board{
		store: workerStore{db}, letGo: letGo, metrics: metrics, log: log,
		tenants: map[uuid.UUID]int{}, known: map[Target]*known{}, counted: map[Target]count{}, closed: map[Target]int{},
	}
}

// Pass is the pass that tells the other workers and hears of them.
func (b *Board) Pass() loop.Pass {
	return loop.Pass{Name: "circuit-breakers", Every: syncEvery, Do: func(ctx context.Context, _ *loop.Turn) error { return b.Sync(ctx, time.Time{}) }}
}

// Quiet reports whether no breaker needs to be asked before a call of a tenant, nor told of
// one that succeeded.
func (b *Board) Quiet(tenant uuid.UUID) bool {
	if !b.busy.Load() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, troubled := b.tenants[tenant]
	return !troubled
}

// Admit decides whether a call may be made; timeout is how long it may take. After the pause of an
// open breaker, one call of the whole fleet is let through as the probe. Each admitted call is followed by Tell. A
// zero now means the database's clock.
func (b *Board) Admit(ctx context.Context, now time.Time, to Target, timeout time.Duration) Admission {
	ask, admission := b.decide(to)
	if !ask {
		return admission
	}
	probe := uuid.New()
	won, err := b.store.claimProbe(ctx, now, to, probe, timeout+probeMargin)
	b.mu.Lock()
	defer b.mu.Unlock()
	if k := b.known[to]; k != nil { // until the next sync nobody here asks again
		k.asking, k.retryIn, k.read = false, longestHold, clock.Start()
	}
	if err != nil || !won {
		return jittered(shortestHold)
	}
	b.log.InfoContext(ctx, "a circuit breaker lets a probe out", "tenant_id", to.Tenant, "host", to.Host)
	return Admission{probe: probe}
}

// decide answers what is known; ask says that the database has to decide.
func (b *Board) decide(to Target) (ask bool, a Admission) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.known[to]
	switch {
	case k == nil || !k.open:
		return false, Admission{}
	case k.asking:
		return false, jittered(shortestHold)
	}
	if left := k.retryIn - k.read.Elapsed(); left > 0 {
		return false, jittered(left)
	}
	k.asking = true
	return true, Admission{}
}

// Tell takes what became of a call. That of a probe is written at once; if the database does
// not take it, another probe follows.
func (b *Board) Tell(ctx context.Context, now time.Time, to Target, a Admission, v Verdict) {
	if a.probe != uuid.Nil {
		b.endProbe(ctx, now, to, a.probe, v)
		return
	}
	if v.Void {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c, counting := b.counted[to]
	switch {
	case v.Failed:
		if !counting && (len(b.counted) >= mostKnown || b.tenants[to.Tenant] >= mostHosts) {
			return
		}
		c.failures, c.reason = c.failures+1, v.reason()
	case counting || b.known[to] != nil:
		c = count{succeeded: true}
	default:
		return
	}
	if b.counted[to] = c; !counting {
		b.tenants[to.Tenant]++
	}
	b.busy.Store(true)
}

func (b *Board) endProbe(ctx context.Context, now time.Time, to Target, probe uuid.UUID, v Verdict) {
	err := b.store.endProbe(ctx, now, to, probe, v)
	switch {
	case err != nil:
		b.log.WarnContext(ctx, "the end of a circuit breaker's probe is not written; another follows", "tenant_id", to.Tenant, "host", to.Host, "error", err)
	case !v.Failed && !v.Void:
		b.metrics.CircuitClosed()
		b.log.InfoContext(ctx, "a circuit breaker closes: its probe succeeded", "tenant_id", to.Tenant, "host", to.Host)
		b.mu.Lock()
		delete(b.known, to)
		b.closed[to] = 0
		b.mu.Unlock()
	}
}

// Sync writes the counts since the last one, reads all breakers and lets go whom those held
// back that have closed. Counts that the database did not take are written with the next
// sync. A zero now means the database's clock.
func (b *Board) Sync(ctx context.Context, now time.Time) error {
	counted, due := b.take()
	if !due {
		return nil
	}
	opened, err := b.store.record(ctx, now, counted)
	if err != nil {
		if !postgres.Refused(err) { // it would be refused again
			b.putBack(counted)
		}
		return err
	}
	for _, o := range opened {
		b.metrics.CircuitOpened()
		b.log.WarnContext(ctx, "a circuit breaker opens", "tenant_id", o.Tenant, "host", o.Host, "failures", o.failures, "error", o.reason)
	}
	all, err := b.store.list(ctx, now)
	if err != nil {
		return err
	}
	b.learn(all)
	return b.letAllGo(ctx, now)
}

// learn takes over what the database has.
func (b *Board) learn(all map[Target]*known) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for to, before := range b.known {
		if before.open && len(b.closed) < mostKnown {
			b.closed[to] = 0
		}
	}
	b.known, b.tenants = all, map[uuid.UUID]int{}
	for to, now := range b.known {
		b.tenants[to.Tenant] = 0
		if now.open {
			delete(b.closed, to)
		}
	}
	for to := range b.counted {
		b.tenants[to.Tenant]++
	}
	b.busy.Store(len(b.tenants) > 0)
}

// letAllGo lets executions go whose breaker has closed. A worker that had not heard of it
// yet may hold some back once more: it lets them go when it hears. Where nobody lets them
// go, they ask at the end of their wait.
func (b *Board) letAllGo(ctx context.Context, now time.Time) error {
	b.mu.Lock()
	closed := slices.Collect(maps.Keys(b.closed))
	b.mu.Unlock()
	for _, to := range closed[:min(len(closed), mostLetGo)] {
		more, err := b.letGo(ctx, now, to.Tenant, to.Host)
		b.mu.Lock()
		if err == nil && !more {
			b.closed[to]++
		}
		if b.closed[to] == lastLook || postgres.Refused(err) { // it would be refused again
			delete(b.closed, to)
		}
		b.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// take removes what was counted, and says whether the database is to be asked.
func (b *Board) take() (counted map[Target]count, due bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	counted = b.counted
	b.counted = map[Target]count{}
	if b.idle++; len(counted)+len(b.known)+len(b.closed) > 0 || b.idle >= idleSyncs {
		b.idle = 0
		return counted, true
	}
	return nil, false
}

// putBack adds what was counted to what was counted since.
func (b *Board) putBack(counted map[Target]count) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for to, before := range counted {
		since, ok := b.counted[to]
		switch {
		case !ok && len(b.counted) < mostKnown:
			b.counted[to] = before
		case ok && !since.succeeded:
			b.counted[to] = count{failures: before.failures + since.failures, succeeded: before.succeeded, reason: since.reason}
		}
	}
}
