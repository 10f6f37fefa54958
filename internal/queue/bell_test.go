package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/queue/redistest"
)

// A consumer that has nothing to do asks seldom, and hears at once of what is sent.
func TestIdleConsumerWaitsForTheBell(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	p := newPublisher(t, s.ClientURL, discard())
	box := newInbox()
	c, _ := consume(t, Config{URL: s.ClientURL}, discard(), box.handle)
	rdb := client(t, s.ClientURL)
	defer rdb.Close()
	eventually(t, "somebody listens", func() bool { return rdb.PubSubNumSub(t.Context(), bellChannel).Val()[bellChannel] == 1 })
	before, mark := commands(t, rdb), clock.Start()
	eventually(t, "two seconds", func() bool { return mark.Elapsed() > 2*time.Second })
	// Four looks of three lanes a second, and once a second what is delayed.
	if n := float64(commands(t, rdb)-before) / mark.Elapsed().Seconds(); n > 30 {
		t.Errorf("%.0f scripts a second while nothing is sent", n)
	}
	for i := range 20 {
		if err := p.Publish(t.Context(), Normal, someIDs(1)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is handled", func() bool { return c.Tally().Handled == uint64(i+1) })
	}
}

// Hints for which nobody rings are found all the same, and once one was, others soon.
func TestHintsWithoutTheBellAreFound(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	defer close(stop)
	b := newBell(stop)
	b.heard = true
	if got := b.patience(); got != lookEvery {
		t.Errorf("it waits %v where it hears, want %v", got, lookEvery)
	}
	full := map[Lane]bool{Low: true}
	asked := map[Lane]int{}
	hook := b.ProcessHook(func(_ context.Context, cmd redis.Cmder) error {
		lane, _ := popped(cmd)
		asked[lane]++
		if !full[lane] {
			return redis.Nil
		}
		return nil
	})
	ask := func(lane Lane) error {
		return hook(t.Context(), redis.NewCmd(t.Context(), "evalsha", "sha", 4, asynqKey(lane, "pending"), asynqKey(lane, "paused")))
	}
	for asked[Low] == 0 {
		for _, lane := range lanes() {
			_ = ask(lane)
		}
	}
	if got := b.patience(); got > 2*searchEvery {
		t.Errorf("it waits %v after a hint for which nobody rang, want some %v", got, searchEvery)
	}
	if err := ask(Low); err != nil { // it had one, so it may have another
		t.Error(err)
	}
	full[Low] = false
	if err := ask(Low); !errors.Is(err, redis.Nil) {
		t.Error(err)
	}
	b.ring(High)
	asked = map[Lane]int{}
	for _, lane := range []Lane{Normal, Low, High} {
		_ = ask(lane)
	}
	if asked[High] != 1 || len(asked) != 1 {
		t.Errorf("asked %v, want the lane that was rung for alone", asked)
	}
}

// Commands that take no hint pass.
func TestOtherCommandsPassTheBell(t *testing.T) {
	t.Parallel()
	for _, args := range [][]any{
		{"ping"},
		{"evalsha", "sha", 2, "asynq:{low}:scheduled", "asynq:{low}:pending"},
		{"evalsha", "sha", 4, "asynq:{low}:active", "asynq:{low}:lease"},
		{"evalsha", "sha", 4, "x", "y"},
		{"get", "a", "b", "asynq:{low}:pending", "asynq:{low}:paused"},
	} {
		if lane, ok := popped(redis.NewCmd(t.Context(), args...)); ok {
			t.Errorf("%v takes a hint from %s", args, lane)
		}
	}
}

// commands is how many scripts the server ran.
func commands(t *testing.T, rdb *redis.Client) (n int) {
	t.Helper()
	stats, err := rdb.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	calls, ran := stats["Commandstats"]["cmdstat_evalsha"] // like calls=40,usec=123,...
	if !ran {
		return 0
	}
	if _, err := fmt.Sscanf(calls, "calls=%d,", &n); err != nil {
		t.Fatal(err, stats)
	}
	return n
}

// A lane that there is not costs nothing, and lanes for which nobody rings are looked into
// although another one is rung for all the time.
func TestTheBellKeepsLookingIntoAllLanes(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	box := newInbox()
	c, _ := consume(t, Config{URL: s.ClientURL}, discard(), box.handle)
	rdb := client(t, s.ClientURL)
	defer rdb.Close()
	eventually(t, "somebody listens", func() bool { return rdb.PubSubNumSub(t.Context(), bellChannel).Val()[bellChannel] == 1 })
	ring := func(lane string) {
		if err := rdb.Publish(t.Context(), bellChannel, lane).Err(); err != nil {
			t.Fatal(err)
		}
	}
	ring("no such lane")
	before, mark := commands(t, rdb), clock.Start()
	eventually(t, "half a second", func() bool { return mark.Elapsed() > 500*time.Millisecond })
	if n := float64(commands(t, rdb)-before) / mark.Elapsed().Seconds(); n > 40 {
		t.Errorf("%.0f scripts a second after a lane that there is not", n)
	}
	silent := asynq.NewClientFromRedisClient(rdb)
	wire, err := Hint{Lane: Low, IDs: someIDs(1)}.encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Enqueue(asynq.NewTask(taskType, wire), asynq.Queue(string(Low))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hint is found", func() bool { ring(string(High)); return c.Tally().Handled == 1 })
}
