// Package send brings messages to those who are to be told.
//
// It owns the pass that sends what is due: whose turn it is, when a failed attempt is
// repeated, when a receiver is given up, and what is recorded of each attempt. A
// notification sends one message at a time and a tenant a few, so that a slow receiver
// delays its own messages. It refuses to follow redirects and to reach what package egress
// refuses. A message may arrive twice, and then under the same id.
package send

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

const (
	// slots is how many messages a process sends at once, perTenant how many of one tenant
	// all processes do, and failingSlots how many of slots are for receivers whose last
	// attempt failed.
	slots, perTenant, failingSlots = 32, 4, 16
	// timeout bounds one attempt.
	timeout = 10 * time.Second
	// held is for how long a message counts as being sent. It is longer than an attempt and
	// the writing of its outcome take: a process that died holds up nobody for longer.
	held = time.Minute
	// budget is how long a pass begins new attempts.
	budget = time.Minute
	// breath is the least distance of two messages of a notification.
	breath = 50 * time.Millisecond
	// look is how often a pass asks for more while attempts are under way.
	look = 250 * time.Millisecond
)

// Config is what a sender is made of.
type Config struct {
	DB      *postgres.DB // acting as postgres.Engine
	Client  *egress.Client
	Fresh   func(ctx context.Context) error // has Client know whom it may call now; nil: it does
	Keys    *keyring.Ring                   // that open the secrets of notifications
	Mail    *Mailer                         // nil: e-mail cannot be sent
	Metrics *telemetry.Metrics
	Log     *slog.Logger
	Timeout time.Duration // of one attempt; 0: 10 s
}

// Sender sends. Any number of processes may, at once.
type Sender struct {
	c     Config
	store store
}

// New makes a sender.
func New(c Config) *Sender {
	if c.Timeout == 0 {
		c.Timeout = timeout
	}
	if c.Fresh == nil {
		c.Fresh = func(context.Context) error { return nil }
	}
	return &Sender{c: c, store: store{db: c.DB}}
}

// Report counts the attempts of a pass by what came of them.
type Report struct{ Delivered, Retried, Failed int }

// attempts is how many there were.
func (r Report) attempts() int { return r.Delivered + r.Retried + r.Failed }

// ended is what came of one attempt, for the pass.
type ended struct {
	status string // delivered, pending (it is tried again), failed, or nothing was sent
	err    error  // of the database
}

// Pass sends what is due at now, until nothing is left or its budget is met; a zero now
// means the database's clock. A free slot is used at once, so that a slow receiver delays
// nobody else.
func (s *Sender) Pass(ctx context.Context, now time.Time) (r Report, err error) {
	begin, done, busy := clock.Start(), make(chan ended, slots), 0
	for {
		more := 0
		if err == nil && ctx.Err() == nil && busy < slots && begin.Elapsed() < budget {
			var claimed []letter
			if err = s.c.Fresh(ctx); err == nil {
				claimed, err = s.store.claim(ctx, now, slots-busy)
			}
			for _, one := range claimed {
				go func() { done <- s.deliver(ctx, one, now) }()
			}
			more = len(claimed)
			busy += more
		}
		if busy == 0 {
			return r, err
		}
		if more > 0 && busy < slots {
			continue // perhaps there is more
		}
		if one, ok := next(done); ok {
			busy--
			r.count(one.status)
			err = errors.Join(err, one.err)
		}
	}
}

// next waits for an attempt to end, or for a moment: somebody else's message may have
// become due.
func next(done <-chan ended) (one ended, ok bool) {
	timer := time.NewTimer(look)
	defer timer.Stop()
	select {
	case one = <-done:
		return one, true
	case <-timer.C:
		return one, false
	}
}

func (r *Report) count(status string) {
	switch status {
	case "delivered":
		r.Delivered++
	case "pending":
		r.Retried++
	case "failed":
		r.Failed++
	}
}

// Passes is what a process that sends does once maintenance has found that something is due.
func (s *Sender) Passes() []loop.Pass {
	return []loop.Pass{{Name: "send-notifications", Every: loop.Uncalled, Do: func(ctx context.Context, turn *loop.Turn) error {
		oldest, err := s.store.oldest(ctx)
		if err != nil {
			return err
		}
		s.c.Metrics.SetOldestNotification(max(0, oldest))
		if oldest < 0 {
			return nil
		}
		report, err := s.Pass(ctx, time.Time{})
		if err == nil && report.attempts() > 0 {
			turn.Again(breath)
		}
		return err
	}}}
}
