package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/trace"
)

const (
	// taskType is the only type of asynq task that we send or take.
	taskType = "hint"
	// taskLimit is when asynq gives up on a handler; it must be whole seconds,
	// and longer than handlerLimit, so that asynq itself never does.
	taskLimit = time.Minute
	// enqueuers is how many hints one call sends at a time: measured, 8 reach
	// 48,000 a second and 64 only 54,000.
	enqueuers = 8
	// publisherPool lets two bursts and a few single hints run side by side.
	publisherPool = 2*enqueuers + 4
	// skewMargin is added to a delay, because a worker whose clock is a little
	// ahead of ours would otherwise wake an execution that is not yet due.
	skewMargin = 50 * time.Millisecond
)

// Publisher sends hints, and tells about the Redis that it sends them to. It
// is safe for concurrent use.
type Publisher struct {
	rdb     *redis.Client
	client  atomic.Pointer[asynq.Client]
	circuit *circuit
	carrier carrier // nil where there is a Redis, or nobody is called without one
	now     clock.Clock
	spans   bool

	probing    sync.Mutex
	generation string // guarded by watching; empty until the first look

	counting sync.Mutex
	counted  clock.Mark   // guarded by counting, as is depth
	depth    map[Lane]int // as of then; nil before the first count
}

// NewPublisher reads the configuration and dials nothing: a Redis that is away
// is no reason not to start. Without a URL the publisher is silent: workers
// find in PostgreSQL what nobody tells them, and where there is a carrier, it calls them.
func NewPublisher(cfg Config, log *slog.Logger) (*Publisher, error) {
	if cfg.URL == "" {
		return &Publisher{now: clock.Now, carrier: cfg.Carrier}, nil
	}
	o, err := options(cfg, publisherPool)
	if err != nil {
		return nil, err
	}
	p := &Publisher{rdb: open(o), now: clock.Now, spans: cfg.Spans}
	p.client.Store(asynq.NewClientFromRedisClient(p.rdb))
	p.circuit = &circuit{log: log, quiet: newSparse(), probe: func(ctx context.Context) error {
		return p.rdb.Ping(ctx).Err()
	}}
	return p, nil
}

// Silent says that there is no Redis: what is published is dropped without an
// error, and calls workers where there is a carrier; everything that is asked of Redis fails with fault.Unavailable.
func (p *Publisher) Silent() bool { return p.rdb == nil }

// Close waits for what runs in the background and gives the connections back.
func (p *Publisher) Close() error {
	if p.carrier != nil {
		p.carrier.Close()
	}
	if p.Silent() {
		return nil
	}
	p.circuit.shut()
	if err := p.rdb.Close(); err != nil {
		return fmt.Errorf("queue: close: %w", err)
	}
	return nil
}

// Publish sends hints for ids, in chunks of one id (few ids) to MaxIDs (a
// burst), eight at a time. An error, of kind fault.Unavailable where Redis is
// the cause, means that some or none were sent; the executions are still
// pending in PostgreSQL and their hints are repeated from there, so callers
// may go on. While Redis is away it fails at once.
func (p *Publisher) Publish(ctx context.Context, lane Lane, ids []uuid.UUID) error {
	return p.send(ctx, lane, ids, 1, asynq.Queue(string(lane)), asynq.MaxRetry(1), asynq.Timeout(taskLimit))
}

// PublishTogether is Publish for executions that do not compute, but call somebody and
// wait: one worker can run several of them as well as several workers can, so that
// each hint of a small burst names four.
func (p *Publisher) PublishTogether(ctx context.Context, lane Lane, ids []uuid.UUID) error {
	return p.send(ctx, lane, ids, together, asynq.Queue(string(lane)), asynq.MaxRetry(1), asynq.Timeout(taskLimit))
}

// PublishIn is Publish for hints that arrive after delay and, as far as clocks
// agree within 50 ms, never earlier. They arrive up to 2.3 s later: asynq keeps
// whole seconds, so the time is rounded up, and consumers look once a second. A delay that is not positive sends at once.
func (p *Publisher) PublishIn(ctx context.Context, lane Lane, ids []uuid.UUID, delay time.Duration) error {
	if delay <= 0 {
		return p.Publish(ctx, lane, ids)
	}
	return p.send(ctx, lane, ids, 1, asynq.Queue(string(lane)), asynq.MaxRetry(1), asynq.Timeout(taskLimit),
		asynq.ProcessAt(wakeAt(p.now(), delay)))
}

// wakeAt is the first whole second that is not before now plus delay, with the
// margin for clocks that disagree. asynq cuts fractions off, and would by that
// be early by up to a second.
func wakeAt(now time.Time, delay time.Duration) time.Time {
	at := now.Add(delay + skewMargin)
	second := at.Truncate(time.Second)
	if second.Before(at) {
		second = second.Add(time.Second)
	}
	return second
}

// send cuts ids into hints of least ids and more, and enqueues them side by side
// until one fails. The task's id is asynq's default, a fresh random one: a kept id
// would block its own repetition.
func (p *Publisher) send(ctx context.Context, lane Lane, ids []uuid.UUID, least int, how ...asynq.Option) error {
	if lane.weight() == 0 {
		return fmt.Errorf("queue: publish: %w: unknown lane %q", errHint, string(lane))
	}
	if p.Silent() {
		if p.carrier != nil {
			p.carrier.Call(CallPool.notified())
		}
		return nil
	}
	hints := split(lane, ids, least)
	defer p.ring(ctx, lane, len(hints))
	if len(hints) == 1 {
		return p.enqueue(ctx, hints[0], how)
	}
	var (
		next   atomic.Int64
		failed atomic.Pointer[error]
		group  sync.WaitGroup
	)
	for range min(enqueuers, len(hints)) {
		group.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(hints) {
					return
				}
				if err := p.enqueue(ctx, hints[i], how); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// ring tells consumers that a lane has so many hints: as many parties of them, so that a
// burst is shared out. A consumer that does not hear it looks by itself.
func (p *Publisher) ring(ctx context.Context, lane Lane, hints int) {
	most := min(max(hints, leastRung), parties)
	_ = p.guarded(ctx, "ring", func(ctx context.Context) error {
		return ringing.Run(ctx, p.rdb, nil, string(lane), rand.N(parties), most).Err()
	})
}

func (p *Publisher) enqueue(ctx context.Context, h Hint, how []asynq.Option) error {
	wire, err := h.encode()
	if err != nil {
		return fmt.Errorf("queue: publish: %w", err)
	}
	return p.guarded(ctx, "publish", func(ctx context.Context) error {
		_, err := p.client.Load().EnqueueContext(ctx, asynq.NewTask(taskType, wire), how...)
		return err
	})
}

// guarded runs one call to Redis through the circuit, for at most a second
// whatever it consists of.
func (p *Publisher) guarded(ctx context.Context, op string, call func(context.Context) error) error {
	if p.Silent() {
		return fault.New(fault.Unavailable, "", "queue: "+op+": there is no redis")
	}
	if !p.circuit.allow() {
		return fault.New(fault.Unavailable, "", "queue: "+op+": redis is away")
	}
	limited, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	if p.spans {
		var span *trace.Span
		limited, span = trace.Call(limited, "redis "+op, slog.String("db.system.name", "redis"), slog.String("db.operation.name", op))
		defer span.End()
	}
	mark := clock.Start()
	err := call(limited)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("queue: %s: %w", op, ctx.Err()) // says nothing about Redis
	}
	p.circuit.record(ctx, err, mark.Elapsed())
	if err != nil {
		return fault.Wrap(fault.Unavailable, "", "queue: "+op, err)
	}
	return nil
}

// generationKey holds a random value for as long as Redis keeps its contents.
const generationKey = "sched:gen"

// LostContents looks whether Redis still holds what was sent. lost is true when its
// contents vanished since the last look, by a wipe, a restart without them or
// an eviction, and when they were not there at the first look: every pending
// execution then wants its hint again. It does not see the loss of a part,
// such as the last second before a crash; repeating old hints repairs that.
func (p *Publisher) LostContents(ctx context.Context) (lost bool, err error) {
	p.probing.Lock()
	defer p.probing.Unlock()
	fresh := uuid.NewString()
	var found *redis.StringCmd
	err = p.guarded(ctx, "watch", func(ctx context.Context) error {
		_, err := p.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.SetNX(ctx, generationKey, fresh, 0)
			found = pipe.Get(ctx, generationKey)
			return nil
		})
		return err
	})
	if err != nil {
		return false, err
	}
	lost = found.Val() == fresh || p.generation != "" && p.generation != found.Val()
	p.generation = found.Val()
	if lost {
		// asynq names each queue in Redis once for each client, and inspecting
		// tools know no queue without it: a new client names them again.
		p.client.Store(asynq.NewClientFromRedisClient(p.rdb))
	}
	return lost, nil
}
