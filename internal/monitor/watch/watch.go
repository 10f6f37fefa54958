// Package watch finds out which monitors are late.
//
// It owns the pass that looks at deadlines which passed, and the certainty that pings could
// be stored at the time: while none could, it tells nobody late, and afterwards nobody is late
// because of that time. It refuses to decide what a deadline means, which is package
// monitor's, and to send anything, which is package notification's.
package watch

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/monitor"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/divide"
)

const (
	// every is the least distance of two passes.
	every = time.Second
	// margin is how long after a deadline it has passed: a ping that came just before may
	// still be on its way into the database.
	margin = 500 * time.Millisecond
	// stale is how old the last sign that pings can be stored may be.
	stale = 6 * time.Second
	// batch bounds one transaction, and maxBatches how many a pass does.
	batch      = 500
	maxBatches = 20
	// countEvery is how often the monitors of each status are counted.
	countEvery = 30 * time.Second
	// unusual is how old a sign is that usually comes sooner: alerts are held back because of it.
	unusual = 8 * time.Second
)

// Config is what a Watcher is made of.
type Config struct {
	DB  *postgres.DB // acting as postgres.Engine
	Log *slog.Logger
	// Tell tells notifications what monitors found, a bounded piece of it, and says whether
	// something is left.
	Tell func(ctx context.Context) (more bool, err error)
}

// Watcher finds out who is late. One goroutine at a time calls Pass.
type Watcher struct {
	c     Config
	store store
	holds bool // alerts were held back when it was looked last
}

// New makes one.
func New(c Config) *Watcher { return &Watcher{c: c, store: store{c.DB}} }

// Report is what a pass did.
type Report struct {
	Blind bool // pings cannot be stored, so nobody is told late
	Holds bool // pings may be lost on their way, so nobody who became late meanwhile is told
	Seen  int  // monitors whose deadline had passed
	Held  int  // of these, those that failed alone and were put off
	More  bool // something is left
}

// Pass looks at the deadlines that have passed, and tells what was found. It is fenced by
// the lease.
func (w *Watcher) Pass(ctx context.Context, held lease.Lease) (r Report, err error) {
	v, err := w.store.sight(ctx)
	if err != nil {
		return r, err
	}
	w.say(ctx, v)
	r.Holds = v.held() > 0
	for r.Blind = v.blind; !v.blind && r.Seen < batch*maxBatches; {
		n, put, err := w.step(ctx, held, v.until)
		r.Seen, r.Held = r.Seen+n, r.Held+put
		if err != nil {
			return r, err
		}
		if r.More = n == batch; !r.More {
			break
		}
	}
	left, err := w.c.Tell(ctx)
	r.More = r.More || left
	return r, err
}

// held is how long alerts are held back already, where a sign is older than usual.
func (v sight) held() time.Duration {
	if oldest := max(v.late, v.front); oldest > unusual {
		return oldest
	}
	return 0
}

// say tells the log that alerts are held back, and that they no longer are.
func (w *Watcher) say(ctx context.Context, v sight) {
	switch holds := v.held() > 0; {
	case holds && !w.holds && v.front > v.late:
		w.c.Log.ErrorContext(ctx, "no ping comes in by PUBLIC_URL; alerts of monitors are held back until one does, for 15 minutes at most", "for", v.front.Round(time.Second).String())
	case holds && !w.holds:
		w.c.Log.ErrorContext(ctx, "a process that takes pings gives no sign; alerts of monitors are held back until it does, for a minute at most", "host", v.taker, "for", v.late.Round(time.Second).String())
	case !holds && w.holds:
		w.c.Log.InfoContext(ctx, "alerts of monitors are no longer held back")
	}
	w.holds = v.held() > 0
}

// step looks at one batch. One that the database refuses holds up none of the others.
func (w *Watcher) step(ctx context.Context, held lease.Lease, until time.Time) (seen, put int, err error) {
	due, err := w.store.due(ctx, until, batch)
	if err != nil || len(due) == 0 {
		return 0, 0, err
	}
	err = divide.Items[uuid.UUID]{
		Refused: monitor.Refused,
		Send:    func(some []uuid.UUID) error { return w.store.decide(ctx, held, until, some) },
		Alone: func(one uuid.UUID, refused error) error {
			put++
			w.c.Log.ErrorContext(ctx, "nobody can tell whether a monitor is late; it is tried again in a minute", "monitor_id", one, "error", refused)
			return w.store.putOff(ctx, one)
		},
	}.All(due)
	return len(due), put, err
}

// Passes is what a process that watches does once maintenance has found that there is
// something to do.
func (w *Watcher) Passes() []loop.Pass {
	return []loop.Pass{
		{Name: "watch-monitors", Every: loop.Uncalled, Apart: every, Leased: true, Do: func(ctx context.Context, turn *loop.Turn) error {
			report, err := w.Pass(ctx, turn.Lease)
			if report.More {
				turn.Again(loop.Soon)
			}
			return err
		}},
		{Name: "count-monitors", Every: loop.Uncalled, Apart: countEvery, Leased: true, Do: func(ctx context.Context, _ *loop.Turn) error {
			return w.store.measure(ctx)
		}},
	}
}
