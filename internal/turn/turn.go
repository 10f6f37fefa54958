// Package turn limits how much one tenant may use of something that all tenants
// share, such as connections to the database, and serves tenants in turns.
//
// It owns who gets the next permit: how many one tenant may hold, who waits and
// for how long. It does not know what a permit is for: package postgres acquires
// one for each transaction, package rest one for each heavy request.
package turn

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scheduler-service/scheduler/internal/fault"
)

const (
	// patience is how long a caller waits for a permit.
	patience = time.Second
	// waitersPerPermit bounds a tenant's queue: this many for each permit that it
	// may hold.
	waitersPerPermit = 16
)

// Config says how many permits there are.
type Config struct {
	All  int // at once, of all tenants together
	Each int // at once, of one tenant
	// Spare is how many of all stay free for tenants that hold none: a tenant that
	// holds one gets another only while more than so many are free. Where one tenant
	// could hold all permits, it is 1 at least.
	Spare int
	// Limit is the name of Each in errors. Message says what it limits, with one
	// %d for Each.
	Limit, Message string
}

// Limiter gives permits to tenants in turns. Its methods may be called concurrently.
type Limiter struct {
	c      Config
	mu     sync.Mutex
	held   int
	spare  int // Spare, or 1 where one tenant could hold all
	queues map[string]*tenantQueue
	ring   []*tenantQueue // those that are not empty, the longest unserved first
}

type tenantQueue struct {
	tenant  string
	held    int
	waiting []*waiter // in order of arrival
}

type waiter struct {
	granted chan struct{} // closed when it has its permit
}

// New makes a Limiter of which no permit is held.
func New(c Config) *Limiter {
	c.Each = max(c.Each, 1)
	p := &Limiter{c: c, queues: map[string]*tenantQueue{}}
	p.Resize(c.All)
	return p
}

type begunKey struct{}

// Begin marks the context as one request. Once a request held a permit, Acquire
// does not refuse it another, so that no request fails halfway. admitted says that
// the request was admitted in another way and counts as begun from the start.
func Begin(ctx context.Context, admitted bool) context.Context {
	begun := &atomic.Bool{}
	begun.Store(admitted)
	return context.WithValue(ctx, begunKey{}, begun)
}

type loginKey struct{}

// Login marks a request whose caller is not authenticated yet. All such requests
// share one queue.
func Login(ctx context.Context) context.Context { return context.WithValue(ctx, loginKey{}, true) }

// Resize sets how many permits there are at once, of all tenants together: 1 at least. Permits
// beyond that stay held until they are released.
func (p *Limiter) Resize(all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.c.All, p.spare = max(all, 1), p.c.Spare
	if p.c.All <= p.c.Each {
		p.spare = max(p.spare, 1)
	}
	p.grantFree()
}

// Acquire waits for a permit and returns the function that releases it. The error
// is TooMany if the tenant holds as many as it may. It is Unavailable if all permits are
// held, or those that are free are spare.
func (p *Limiter) Acquire(ctx context.Context, tenant string) (release func(), err error) {
	if ctx.Value(loginKey{}) != nil {
		tenant = "login"
	}
	begun, _ := ctx.Value(begunKey{}).(*atomic.Bool)
	urgent := begun != nil && begun.Load()
	w, err := p.enqueue(tenant, urgent)
	if err != nil {
		return nil, err
	}
	if err := p.await(ctx, tenant, w, urgent); err != nil {
		return nil, err
	}
	if begun != nil {
		begun.Store(true)
	}
	return func() { p.release(tenant) }, nil
}

// enqueue adds a waiter to the tenant's queue and grants the permits that are free.
func (p *Limiter) enqueue(tenant string, urgent bool) (*waiter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.queue(tenant)
	if !urgent && len(l.waiting) >= p.c.Each*waitersPerPermit {
		return nil, p.refusal(l)
	}
	if len(l.waiting) == 0 {
		p.ring = append(p.ring, l)
	}
	w := &waiter{granted: make(chan struct{})}
	l.waiting = append(l.waiting, w)
	p.grantFree()
	return w, nil
}

// await waits until the waiter has its permit, for patience at most. An urgent one
// waits until the context ends.
func (p *Limiter) await(ctx context.Context, tenant string, w *waiter, urgent bool) error {
	if w.wasGranted() {
		return nil
	}
	var late <-chan time.Time
	if !urgent {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-w.granted:
		return nil
	case <-late:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.wasGranted() { // in the meantime
		return nil
	}
	l := p.queue(tenant)
	p.dequeue(l, w)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("wait for a turn: %w", err)
	}
	return p.refusal(l)
}

// dequeue removes a waiter that gave up.
func (p *Limiter) dequeue(l *tenantQueue, w *waiter) {
	l.waiting = slices.DeleteFunc(l.waiting, func(one *waiter) bool { return one == w })
	if len(l.waiting) == 0 {
		p.ring = slices.DeleteFunc(p.ring, func(one *tenantQueue) bool { return one == l })
	}
	p.forget(l)
}

func (p *Limiter) release(tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.queue(tenant)
	p.held--
	l.held--
	p.grantFree()
	p.forget(l)
}

// grantFree grants the free permits: to the waiting tenant that holds fewest, and
// among equals in turn.
func (p *Limiter) grantFree() {
	for p.held < p.c.All {
		at := -1
		for i, l := range p.ring {
			if p.mayHoldMore(l) && (at < 0 || l.held < p.ring[at].held) {
				at = i
			}
		}
		if at < 0 {
			return
		}
		l := p.ring[at]
		w := l.waiting[0]
		l.waiting = l.waiting[1:]
		p.ring = slices.Delete(p.ring, at, at+1)
		if len(l.waiting) > 0 {
			p.ring = append(p.ring, l)
		}
		p.held++
		l.held++
		close(w.granted)
	}
}

// mayHoldMore says whether the tenant may hold one of the free permits.
func (p *Limiter) mayHoldMore(l *tenantQueue) bool {
	return l.held < p.c.Each && (l.held == 0 || p.c.All-p.held > p.spare)
}

func (p *Limiter) queue(tenant string) *tenantQueue {
	if p.queues[tenant] == nil {
		p.queues[tenant] = &tenantQueue{tenant: tenant}
	}
	return p.queues[tenant]
}

func (p *Limiter) forget(l *tenantQueue) {
	if l.held == 0 && len(l.waiting) == 0 {
		delete(p.queues, l.tenant)
	}
}

func (w *waiter) wasGranted() bool {
	select {
	case <-w.granted:
		return true
	default:
		return false
	}
}

// refusal names the limit that was reached: the tenant's own, or that of all.
func (p *Limiter) refusal(l *tenantQueue) error {
	if l.held < p.c.Each {
		e := fault.New(fault.Unavailable, "", "the service is busy with other requests: retry later")
		e.RetryAfter = patience
		return e
	}
	e := fault.New(fault.TooMany, fault.CodeRateLimited, fmt.Sprintf(p.c.Message, p.c.Each)+", and none ended within a second: wait for one to end")
	e.RetryAfter, e.Limit = patience, &fault.Limit{Name: p.c.Limit, Value: int64(p.c.Each)}
	return e
}
