package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	defaultConcurrency = 64
	defaultDrain       = 10 * time.Second
	// consumerPool is enough for the one poller of asynq, its housekeeping and
	// acknowledgements, which take a fraction of a millisecond each.
	consumerPool = 16
	// pollEvery is how often asynq asks when no lane has a hint. The bell has it wait
	// there, so this is only what passes between two answers.
	pollEvery = time.Millisecond
	// wakeEvery is how often delayed hints that are due are moved to their
	// lanes: six script calls each time and in every worker, unless the bell knows that
	// nothing is delayed. A worker that may not claim yet sends some, and nothing else does.
	wakeEvery = time.Second
	// handlerLimit ends a handler's context before asynq gives up on it.
	handlerLimit = 45 * time.Second
	// abandonAfter is how long a handler whose context was cancelled may take
	// to return before a stopping consumer leaves without it.
	abandonAfter = 2 * time.Second
	// redeliverAfter is asynq's delay before it repeats a task whose worker
	// vanished. The execution was reassigned from PostgreSQL long before.
	redeliverAfter = 10 * time.Second
	// pauseAfterError slows down asynq's poller while Redis is away.
	pauseAfterError = 100 * time.Millisecond
)

// Handler gets the executions that a hint names. The hint is acknowledged when
// it returns, whatever it returns: an error is counted and logged, and an
// execution that is still pending later is put into the pool. The
// context ends after 45 s, and when a stopping consumer ran out of patience;
// neither cancelling Run nor an outage of Redis ends it.
type Handler func(ctx context.Context, lane Lane, ids []uuid.UUID) error

// Consumer takes hints off the lanes and hands them to a handler.
type Consumer struct {
	cfg     Config
	options *redis.Options
	handle  Handler
	log     *slog.Logger
	quiet   *sparse

	started atomic.Bool
	away    atomic.Bool // as of the last command
	// handlers bounds the handlers by our own count: asynq counts one that
	// ignores its context as gone after a minute, and would start another.
	handlers chan struct{}
	tally    counters
}

type counters struct {
	handled, ids, failed, panicked, refused, dropped atomic.Uint64
}

// Tally counts what became of the hints that a consumer took, since its start.
type Tally struct {
	// Handled counts hints whose handler returned nil, IDs what they named.
	Handled, IDs uint64
	// Failed and Panicked count hints whose handler did that.
	Failed, Panicked uint64
	// Refused counts what was no hint (forged, or of another version).
	Refused uint64
	// Dropped counts hints dropped because handlers that ignore their context
	// hold every slot.
	Dropped uint64
}

// NewConsumer reads the configuration and dials nothing.
func NewConsumer(cfg Config, handle Handler, log *slog.Logger) (*Consumer, error) {
	o, err := options(cfg, consumerPool)
	if err != nil {
		return nil, err
	}
	if cfg.Concurrency <= 0 {
		cfg.Concurrency = defaultConcurrency
	}
	if cfg.Drain <= 0 {
		cfg.Drain = defaultDrain
	}
	return &Consumer{
		cfg: cfg, options: o, handle: handle, log: log, quiet: newSparse(),
		handlers: make(chan struct{}, cfg.Concurrency),
	}, nil
}

// Away says that the last command to Redis failed, so that no hints come. An
// idle consumer looks into the lanes twice a second and each command ends within
// a second, so this is little older, also when Redis answers nothing at all.
// It costs an atomic read. Before Run it is false.
func (c *Consumer) Away() bool { return c.away.Load() }

// Tally is the count up to now.
func (c *Consumer) Tally() Tally {
	n := &c.tally
	return Tally{
		Handled: n.handled.Load(), IDs: n.ids.Load(),
		Failed: n.failed.Load(), Panicked: n.panicked.Load(),
		Refused: n.refused.Load(), Dropped: n.dropped.Load(),
	}
}

// Run consumes until ctx is cancelled; it then takes in no more, waits for the
// handlers that run (Config.Drain, and two seconds more once their contexts
// are cancelled) and returns nil, or an error if handlers still run that
// ignore their context. Their hints go back to the lane. It survives every
// outage of Redis. It can be called once.
func (c *Consumer) Run(ctx context.Context) error {
	if c.started.Swap(true) {
		return errors.New("queue: a consumer runs once")
	}
	rdb := open(c.options)
	defer rdb.Close() // its error would be that of a connection already gone
	// The bell is the outer one: what it answers itself says nothing about Redis.
	b := newBell(ctx.Done())
	rdb.AddHook(b)
	rdb.AddHook(pause{length: pauseAfterError, stop: ctx.Done(), away: &c.away})
	var listening sync.WaitGroup
	listening.Go(func() { b.listen(ctx, rdb) })
	defer listening.Wait()

	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	srv := asynq.NewServerFromRedisClient(rdb, c.serverConfig())
	err := srv.Start(asynq.HandlerFunc(func(taskCtx context.Context, task *asynq.Task) error {
		lane, _ := asynq.GetQueueName(taskCtx)
		c.receive(work, Lane(lane), task)
		return nil
	}))
	if err != nil {
		return fmt.Errorf("queue: consume: %w", err)
	}
	<-ctx.Done()
	srv.Stop()
	patience := time.AfterFunc(c.cfg.Drain, abandon)
	defer patience.Stop()
	srv.Shutdown()
	return c.drained()
}

// serverConfig leaves nothing to asynq but the delivery. No error of a handler
// reaches it, and what it decides by itself (the worker vanished) is no
// failure, so nothing is counted against a task and nothing is ever archived.
func (c *Consumer) serverConfig() asynq.Config {
	queues := make(map[string]int)
	for _, lane := range lanes() {
		queues[string(lane)] = lane.weight()
	}
	return asynq.Config{
		Concurrency:              c.cfg.Concurrency,
		Queues:                   queues,
		TaskCheckInterval:        pollEvery,
		DelayedTaskCheckInterval: wakeEvery,
		JanitorInterval:          time.Hour, // it deletes what was retained: nothing is
		ShutdownTimeout:          c.cfg.Drain + abandonAfter,
		IsFailure:                func(error) bool { return false },
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return redeliverAfter },
		Logger:                   asynqLog{log: c.log, quiet: c.quiet},
		LogLevel:                 asynq.WarnLevel,
	}
}

// receive decodes one task and has it handled. Nothing that it meets goes back
// to asynq.
func (c *Consumer) receive(work context.Context, lane Lane, task *asynq.Task) {
	hint, err := Hint{}, error(errHint)
	if task.Type() == taskType {
		hint, err = decode(lane, task.Payload())
	}
	if err != nil {
		c.tally.refused.Add(1)
		c.warn(work, "what came out of redis is no hint", err)
		return
	}
	select {
	case c.handlers <- struct{}{}:
	default:
		c.tally.dropped.Add(1)
		c.warn(work, "hint dropped, handlers outlive their time", nil)
		return
	}
	defer func() { <-c.handlers }()
	ctx, cancel := context.WithTimeout(work, handlerLimit)
	defer cancel()
	c.serve(ctx, hint)
}

// serve calls the handler and counts how it ended.
func (c *Consumer) serve(ctx context.Context, hint Hint) {
	defer func() {
		if cause := recover(); cause != nil {
			c.tally.panicked.Add(1)
			if n, ok := c.quiet.allow("panic"); ok {
				c.log.ErrorContext(ctx, "handler of a hint panicked",
					"panic", fmt.Sprint(cause), "stack", string(debug.Stack()), "repeated", n)
			}
		}
	}()
	if err := c.handle(ctx, hint.Lane, hint.IDs); err != nil {
		c.tally.failed.Add(1)
		c.warn(ctx, "handler of a hint failed", err)
		return
	}
	c.tally.handled.Add(1)
	c.tally.ids.Add(uint64(len(hint.IDs)))
}

// warn writes a line unless it was written just now.
func (c *Consumer) warn(ctx context.Context, message string, err error) {
	if n, ok := c.quiet.allow(message); ok {
		c.log.WarnContext(ctx, message, "error", err, "repeated", n)
	}
}

// drained says whether every handler returned. asynq has by now left alone
// those that ignored their cancelled context.
func (c *Consumer) drained() error {
	if len(c.handlers) > 0 {
		return fmt.Errorf("queue: %d handlers still run after the drain", len(c.handlers))
	}
	return nil
}
