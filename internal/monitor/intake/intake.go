// Package intake takes the pings of monitors.
//
// It owns the desk that stores them, many in one transaction where many come at once, and the
// signs by whose absence watch knows an outage of ours: that pings can be stored, that each
// process takes them, and that they come in by the public address. It answers a ping once it is
// stored. It refuses to decide what a ping means, which is package monitor's,
// and who may ping how often, which is package rest's.
package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/monitor"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/divide"
)

const (
	// waiting is how many pings may wait for their turn; more are answered 503.
	waiting = 4096
	// batch is how many are stored in one transaction.
	batch = 500
	// storing is how long a batch may take.
	storing = 10 * time.Second
	// touchEvery is the distance of two signs while a monitor has a deadline, and idleEvery
	// while none has. Watch tells nobody late before a sign came after the deadline.
	touchEvery, idleEvery = 1500 * time.Millisecond, 4 * time.Second
	// silence is how long no process may have given a sign that is a gap, and firstSilence
	// the same for the first sign of a process: one that was restarted took no pings.
	silence, firstSilence = 6 * time.Second, 2500 * time.Millisecond
	// gone is how old the last sign of a process may be before it is taken for gone. Until then
	// watch tells nobody late whose ping it may have taken; a load balancer notices sooner.
	gone = time.Minute
)

// Answer is what becomes of a ping.
type Answer struct {
	Status string // of its monitor
	err    error
}

// waiter is a ping whose caller waits.
type waiter struct {
	key    string
	ping   monitor.Ping
	came   clock.Mark
	answer chan Answer // holds one
	done   atomic.Bool // it was answered, though nobody may have read that yet
}

// Desk stores pings. Any number of goroutines may call Ping.
type Desk struct {
	id    uuid.UUID // of this process, among those that take pings
	name  string    // of its host
	store store
	log   *slog.Logger
	queue chan *waiter

	mu      sync.Mutex
	stopped chan struct{} // closed when Run returned
	lost    span          // in which pings were refused by our fault
	touched *clock.Mark   // when this process gave its last sign; nil: never
	watched bool          // a monitor has a deadline
}

// span is when something happened first and last; nil: never.
type span struct{ from, to *clock.Mark }

// New makes a desk; db acts as postgres.Engine. The name is the host's, for people.
func New(db *postgres.DB, name string, log *slog.Logger) *Desk {
	return &Desk{id: uuid.New(), name: name, store: store{db}, log: log, queue: make(chan *waiter, waiting), stopped: make(chan struct{})}
}

// Ping stores a ping of the monitor with this key, and answers with the status of the
// monitor. An unknown key is NotFound. Unavailable says that it is not stored, or not yet:
// sent again, it may be stored twice.
func (d *Desk) Ping(ctx context.Context, key string, p monitor.Ping) (status string, err error) {
	w := &waiter{key: key, ping: p, came: clock.Start(), answer: make(chan Answer, 1)}
	select {
	case <-d.stopped: // the process ends; requests that it took before are answered
		d.flush(ctx, []*waiter{w})
	default:
		select {
		case d.queue <- w:
		default:
			d.lose()
			return "", fault.New(fault.Unavailable, fault.CodeUnavailable, "too many pings wait to be stored: send this one again")
		}
	}
	select {
	case got := <-w.answer:
		return got.Status, got.err
	case <-d.stopped:
		select {
		case got := <-w.answer:
			return got.Status, got.err
		default:
			d.flush(ctx, []*waiter{w})
			got := <-w.answer
			return got.Status, got.err
		}
	case <-ctx.Done():
		d.lose()
		return "", fault.Wrap(fault.Unavailable, fault.CodeUnavailable, "the ping could not be stored in time: send it again", ctx.Err())
	}
}

// Run stores what comes, and gives signs, until ctx ends.
func (d *Desk) Run(ctx context.Context) error {
	defer close(d.stopped)
	timer := time.NewTimer(d.touch(ctx)) // before any ping: a silence ends here
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			d.leave(ctx)
			return nil
		case first := <-d.queue:
			d.flush(ctx, d.gather(first))
		case <-timer.C:
			timer.Reset(d.touch(ctx))
		}
	}
}

// gather is a batch of what waits.
func (d *Desk) gather(first *waiter) []*waiter {
	all := []*waiter{first}
	for len(all) < batch {
		select {
		case w := <-d.queue:
			all = append(all, w)
		default:
			return all
		}
	}
	return all
}

// flush stores some pings and answers all of them.
func (d *Desk) flush(ctx context.Context, all []*waiter) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storing)
	defer cancel()
	err := divide.Items[*waiter]{
		Refused: monitor.Refused,
		Send:    func(some []*waiter) error { return d.store.take(ctx, some) },
		Alone: func(w *waiter, refused error) error {
			d.log.ErrorContext(ctx, "a ping cannot be stored", "error", refused)
			w.reply(Answer{err: fmt.Errorf("store a ping: %w", refused)})
			return nil
		},
	}.All(all)
	if err == nil {
		err = errors.New("the ping was not stored")
	}
	failed := false
	for _, w := range all {
		failed = w.reply(Answer{err: fault.Wrap(fault.Unavailable, fault.CodeUnavailable, "the ping could not be stored: send it again", err)}) || failed
	}
	if failed {
		d.lose()
	}
}

// reply answers unless there is an answer.
func (w *waiter) reply(a Answer) (first bool) {
	if w.done.Swap(true) {
		return false
	}
	w.answer <- a
	return true
}

// lose notes that a ping was refused now.
func (d *Desk) lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := clock.Start()
	if d.lost.to = &now; d.lost.from == nil {
		d.lost.from = &now
	}
}

// leave says that this process takes no more pings, so nobody waits for its signs.
func (d *Desk) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storing)
	defer cancel()
	if err := d.store.leave(ctx, d.id); err != nil {
		d.log.WarnContext(ctx, "alerts of monitors wait a minute for this process, because it could not say that it ends", "error", err)
	}
}

// takeLost takes what was lost before a sign that begins, and says how long a silence of all
// processes is a gap. A process that gave none for long hung, or could not store: what was sent
// to it since its last one is lost.
func (d *Desk) takeLost(begun clock.Mark) (quiet time.Duration, lost span) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lost, d.lost = d.lost, span{}
	if d.touched == nil {
		return firstSilence, lost
	}
	if d.touched.Elapsed() > silence {
		lost = span{from: d.touched, to: &begun}
	}
	return silence, lost
}

// touch says that pings can be stored, and which could not. It answers when to do so next.
func (d *Desk) touch(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, storing)
	defer cancel()
	begun := clock.Start()
	quiet, lost := d.takeLost(begun)
	seen, err := d.store.touch(ctx, d.id, d.name, quiet, lost)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		if d.lost.from = lost.from; d.lost.to == nil {
			d.lost.to = lost.to
		}
		return touchEvery // without a sign watch tells nobody late
	}
	if seen.gone > 0 {
		d.log.WarnContext(ctx, "processes that take pings gave no sign for a minute and are taken for gone; what was sent to them makes nobody late", "processes", seen.gone)
	}
	if d.touched, d.watched = &begun, seen.watched; seen.watched {
		return touchEvery
	}
	return idleEvery
}
