package queue

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Call says that there is something in PostgreSQL to poll for now. It is advice, as a
// hint is: a process that does not hear it polls by itself, a little later.
type Call string

// The calls, each for the processes that poll for it.
const (
	CallDue  Call = "due"  // promoters: a job becomes due within a second
	CallPool Call = "pool" // workers: executions wait in the pool without a hint
)

// notified is the channel of PostgreSQL in which it is heard where there is no Redis.
func (c Call) notified() string { return "scheduler_" + string(c) }

// carrier carries calls where there is no Redis.
type carrier interface {
	Call(channel string)
	Listen(ctx context.Context, channel string, stands func(bool), heard func()) error
	Close()
}

// channel is where the call is heard. The least user of Redis may use channels of this
// prefix.
func (c Call) channel() string { return "asynq:call:" + string(c) }

// Call sends a call to all that listen for it. It waits as long as Publish does, and an error
// costs no more than a lost call. Without a Redis the carrier takes it, and nothing waits.
func (p *Publisher) Call(ctx context.Context, call Call) error {
	if p.carrier != nil {
		p.carrier.Call(call.notified())
		return nil
	}
	return p.guarded(ctx, "call", func(ctx context.Context) error { return p.rdb.Publish(ctx, call.channel(), "").Err() })
}

// Ear listens for a call.
type Ear struct {
	publisher *Publisher
	call      Call
	stands    atomic.Bool // the subscription
}

// Ear makes one that hears nothing until Listen is called.
func (p *Publisher) Ear(call Call) *Ear { return &Ear{publisher: p, call: call} }

// Hears says whether a call that is sent now would be heard, as far as is known: the
// subscription stood and no command to Redis failed lately, or the session stood in which a carrier
// listens.
func (e *Ear) Hears() bool {
	return e.stands.Load() && (e.publisher.Silent() || !e.publisher.circuit.isOpen())
}

// Listen calls do for each call until ctx is cancelled, and once when it begins to hear
// calls, as nobody heard those before. It returns nil.
func (e *Ear) Listen(ctx context.Context, do func()) error {
	if e.publisher.carrier != nil {
		return e.publisher.carrier.Listen(ctx, e.call.notified(), e.stands.Store, do)
	}
	if e.publisher.Silent() {
		<-ctx.Done()
		return nil
	}
	defer e.stands.Store(false)
	subscription := e.publisher.rdb.Subscribe(ctx, e.call.channel())
	defer subscription.Close()
	for m := range messages(ctx, subscription) {
		if _, begins := m.(*redis.Subscription); begins {
			e.stands.Store(true)
		}
		do()
	}
	return nil
}
