package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/loop"
)

const (
	// waitingEach is how many claims of one tenant may wait in this process, and waitingAll
	// how many of all. Each is a goroutine and a connection of its client's, and no more.
	waitingEach = 64
	waitingAll  = 2048
	// lookEvery is how often the pass looks for executions while claims wait and nobody calls.
	// Where Redis is used, a trigger calls nobody: it starts half of that later.
	lookEvery = 250 * time.Millisecond
	// lookStep is how many functions one statement asks for.
	lookStep = 1000
)

// queue is the claims that wait in this process.
type queue struct {
	call chan struct{} // holds one call at most

	mu      sync.Mutex
	waiting map[*waiter]bool
	each    map[uuid.UUID]int
}

// waiter is a claim that waits.
type waiter struct {
	tenant    uuid.UUID
	functions []string
	called    chan struct{} // holds one call at most
}

func newQueue() *queue {
	return &queue{call: make(chan struct{}, 1), waiting: map[*waiter]bool{}, each: map[uuid.UUID]int{}}
}

func (q *queue) enter(tenant uuid.UUID, functions []string) (*waiter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.each[tenant] >= waitingEach {
		return nil, tooMany("claimsWaitingAtOnce", waitingEach, "of one tenant %d claims may wait at once in each API process")
	}
	if len(q.waiting) >= waitingAll {
		return nil, tooMany("claimsWaiting", waitingAll, "%d claims may wait at once in each API process, of all tenants together")
	}
	w := &waiter{tenant: tenant, functions: functions, called: make(chan struct{}, 1)}
	q.waiting[w] = true
	q.each[tenant]++
	return w, nil
}

// leave ends a claim's wait and has the others called at once: there may be more than this one took, or it
// was called and leaves without a poll.
func (q *queue) leave(w *waiter) {
	defer q.wake()
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiting, w)
	if q.each[w.tenant]--; q.each[w.tenant] == 0 {
		delete(q.each, w.tenant)
	}
}

// wanted are the functions for which claims wait, and those claims.
func (q *queue) wanted() (functions []dispatch.RemoteFunction, waiters map[dispatch.RemoteFunction][]*waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiters = map[dispatch.RemoteFunction][]*waiter{}
	for w := range q.waiting { // in any order, so that none is always the last
		for _, name := range w.functions {
			f := dispatch.RemoteFunction{Tenant: w.tenant, Name: name}
			if waiters[f] == nil {
				functions = append(functions, f)
			}
			waiters[f] = append(waiters[f], w)
		}
	}
	return functions, waiters
}

// Waiting is how many claims wait in this process.
func (d *Desk) Waiting() int {
	d.queue.mu.Lock()
	defer d.queue.mu.Unlock()
	return len(d.queue.waiting)
}

// Wake has the waiting claims looked after at once: executions wait in the pool.
func (d *Desk) Wake() { d.queue.wake() }

func (q *queue) wake() {
	select {
	case q.call <- struct{}{}:
	default:
	}
}

// Pass is the pass that calls claims for which there is something. While none waits it does
// nothing, and asks nothing.
func (d *Desk) Pass() loop.Pass {
	return loop.Pass{Name: "call-remote-workers", Every: lookEvery, Called: d.queue.call, Do: func(ctx context.Context, _ *loop.Turn) error {
		_, err := d.CallClaims(ctx)
		return err
	}}
}

// CallClaims calls, of each function for which an execution waits, one claim, and returns how
// many it called. If there is more, the next pass calls the next: it comes at once when that claim
// waits no more.
func (d *Desk) CallClaims(ctx context.Context) (called int, err error) {
	functions, waiters := d.queue.wanted()
	for len(functions) > 0 {
		some := functions[:min(lookStep, len(functions))]
		functions = functions[len(some):]
		claimable, err := d.dispatch.Claimable(ctx, some)
		if err != nil {
			return called, err
		}
		for i, f := range some {
			if claimable[i] && callOne(waiters[f]) {
				called++
			}
		}
	}
	return called, nil
}

// callOne calls a waiter that was not called yet.
func callOne(waiters []*waiter) bool {
	for _, w := range waiters {
		select {
		case w.called <- struct{}{}:
			return true
		default:
		}
	}
	return false
}

func tooMany(limit string, most int, message string) error {
	e := fault.New(fault.TooMany, fault.CodeRateLimited, fmt.Sprintf(message, most)+": ask again later, or claim with waitSeconds 0")
	e.RetryAfter, e.Limit = time.Second, &fault.Limit{Name: limit, Value: int64(most)}
	return e
}
