package queue

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/scheduler-service/scheduler/internal/queue/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// patience bounds every wait of these tests. A hint that a consumer took without hearing of it,
// because a busy machine was too slow, comes back after more than a minute.
const patience = 3 * time.Minute

// generous is how many times the limit of a command a machine that does other
// things may need for what takes one or two of them on a quiet one.
const generous = 40

// eventually waits until cond holds, which changes by what another process or
// goroutine does and tells nobody.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	limit := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

// publish sends hints until Redis says in time that it has them. Where a busy machine is too slow
// for that it may have them all the same, so some may come twice.
func publish(t testing.TB, p *Publisher, lane Lane, ids []uuid.UUID) {
	t.Helper()
	eventually(t, "hints are sent", func() bool { return p.Publish(t.Context(), lane, ids) == nil })
}

// client is a plain client of the test's own, closed by the caller. It waits for as long as a busy
// machine may need.
func client(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := options(Config{URL: url}, 4)
	if err != nil {
		t.Fatal(err)
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patience, patience, patience, patience
	return open(o)
}

func newPublisher(t testing.TB, url string, log *slog.Logger) *Publisher {
	t.Helper()
	p, err := NewPublisher(Config{URL: url}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

// consume runs a consumer until the test ends or the returned stop is called,
// which gives what Run returned.
func consume(t testing.TB, cfg Config, log *slog.Logger, handle Handler) (c *Consumer, stop func() error) {
	t.Helper()
	c, err := NewConsumer(cfg, handle, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	var stopped bool
	stop = sync.OnceValue(func() error {
		stopped = true
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if stopped {
			return // the test saw what Run returned
		}
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return c, stop
}

// inbox is a handler that keeps what it gets.
type inbox struct {
	mu  sync.Mutex
	got map[uuid.UUID][]Lane
}

func newInbox() *inbox { return &inbox{got: make(map[uuid.UUID][]Lane)} }

func (b *inbox) handle(_ context.Context, lane Lane, ids []uuid.UUID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		b.got[id] = append(b.got[id], lane)
	}
	return nil
}

// has says whether every id came.
func (b *inbox) has(ids ...uuid.UUID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !slices.ContainsFunc(ids, func(id uuid.UUID) bool { return len(b.got[id]) == 0 })
}

// lines is a logger that counts.
type lines struct{ n atomic.Int64 }

func (l *lines) logger() *slog.Logger { return slog.New(l) }

func (l *lines) Enabled(context.Context, slog.Level) bool      { return true }
func (l *lines) Handle(_ context.Context, _ slog.Record) error { l.n.Add(1); return nil }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler            { return l }
func (l *lines) WithGroup(string) slog.Handler                 { return l }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
