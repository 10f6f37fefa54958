// Package turn shares out places, such as connections to the database, in turns
// by tenant.
//
// It owns who gets the next place: how many one tenant may hold, who waits and
// for how long. It refuses to know what a place is: package postgres takes one
// for each transaction, package rest one for each heavy request.
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
	// patience is how long somebody waits for a place.
	patience = time.Second
	// queue is how many of a tenant wait for each place that it may hold. Who
	// waits holds nothing.
	queue = 16
)

// Config says how many places there are.
type Config struct {
	All  int // at once, of all tenants together
	Each int // at once, of one tenant
	// Limit is the name of Each in answers, and What says what it counts, with
	// one %d for Each.
	Limit, What string
}

// Places are shared out by it. The methods may be called concurrently.
type Places struct {
	Config

	mu    sync.Mutex
	held  int
	lines map[string]*line
	ring  []*line // those in which somebody waits, the longest unserved first
}

// line is one tenant's.
type line struct {
	who     string
	held    int
	waiting []*waiter // in order of arrival
}

type waiter struct {
	granted chan struct{} // closed when it has its place
}

// New makes places that nobody holds.
func New(c Config) *Places {
	c.All, c.Each = max(c.All, 1), max(c.Each, 1)
	return &Places{Config: c, lines: map[string]*line{}}
}

type begunKey struct{}

// Begin makes what happens under the context one request. Once it had a place it
// is not refused another: nothing ends halfway for want of one. A request that
// was admitted in another way counts as begun from the start.
func Begin(ctx context.Context, admitted bool) context.Context {
	begun := &atomic.Bool{}
	begun.Store(admitted)
	return context.WithValue(ctx, begunKey{}, begun)
}

type loginKey struct{}

// Login makes places be taken in a line of its own for requests of which it is
// not proven yet whom they come from.
func Login(ctx context.Context) context.Context { return context.WithValue(ctx, loginKey{}, true) }

// Take waits for a place for somebody and returns how to give it back. The error
// is TooMany where the tenant holds as many as it may, and Unavailable where all
// tenants together do.
func (p *Places) Take(ctx context.Context, who string) (give func(), err error) {
	if ctx.Value(loginKey{}) != nil {
		who = "login"
	}
	begun, _ := ctx.Value(begunKey{}).(*atomic.Bool)
	urgent := begun != nil && begun.Load()
	w, err := p.enqueue(who, urgent)
	if err != nil {
		return nil, err
	}
	if err := p.await(ctx, who, w, urgent); err != nil {
		return nil, err
	}
	if begun != nil {
		begun.Store(true)
	}
	return func() { p.give(who) }, nil
}

// enqueue puts somebody into the line and serves it.
func (p *Places) enqueue(who string, urgent bool) (*waiter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.line(who)
	if !urgent && len(l.waiting) >= p.Each*queue {
		return nil, p.refusal(l)
	}
	if len(l.waiting) == 0 {
		p.ring = append(p.ring, l)
	}
	w := &waiter{granted: make(chan struct{})}
	l.waiting = append(l.waiting, w)
	p.serve()
	return w, nil
}

// await waits until somebody has the place: who is urgent, as long as the
// context lets it.
func (p *Places) await(ctx context.Context, who string, w *waiter, urgent bool) error {
	if w.served() {
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
	if w.served() { // in the meantime
		return nil
	}
	l := p.line(who)
	p.leave(l, w)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("wait for a turn: %w", err)
	}
	return p.refusal(l)
}

// leave takes somebody out of the line who waits no more.
func (p *Places) leave(l *line, w *waiter) {
	l.waiting = slices.DeleteFunc(l.waiting, func(one *waiter) bool { return one == w })
	if len(l.waiting) == 0 {
		p.ring = slices.DeleteFunc(p.ring, func(one *line) bool { return one == l })
	}
	p.forget(l)
}

func (p *Places) give(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.line(who)
	p.held--
	l.held--
	p.serve()
	p.forget(l)
}

// serve gives the free places to those who wait: to the tenant that holds fewest,
// and among equals to each in turn.
func (p *Places) serve() {
	for p.held < p.All {
		at := -1
		for i, l := range p.ring {
			if l.held < p.Each && (at < 0 || l.held < p.ring[at].held) {
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

func (p *Places) line(who string) *line {
	if p.lines[who] == nil {
		p.lines[who] = &line{who: who}
	}
	return p.lines[who]
}

func (p *Places) forget(l *line) {
	if l.held == 0 && len(l.waiting) == 0 {
		delete(p.lines, l.who)
	}
}

func (w *waiter) served() bool {
	select {
	case <-w.granted:
		return true
	default:
		return false
	}
}

// refusal names the bound that is met: the tenant's own, or that of all.
func (p *Places) refusal(l *line) error {
	if l.held < p.Each {
		e := fault.New(fault.Unavailable, "", "requests of other tenants hold all places: ask again")
		e.RetryAfter = patience
		return e
	}
	e := fault.New(fault.TooMany, "RATE_LIMITED", fmt.Sprintf(p.What, p.Each)+", and none ended within a second: wait for one to end")
	e.RetryAfter, e.Limit = patience, &fault.Limit{Name: p.Limit, Value: int64(p.Each)}
	return e
}
