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
	mark, scripts, looks := clock.Start(), commands(t, rdb, "evalsha"), commands(t, rdb, "exists")
	eventually(t, "two seconds", func() bool { return mark.Elapsed() > 2*time.Second })
	// Two looks a second, and what asynq says of itself every five seconds.
	if n := float64(commands(t, rdb, "exists")-looks) / mark.Elapsed().Seconds(); n > 4 {
		t.Errorf("%.1f looks a second while nothing is sent", n)
	}
	if n := float64(commands(t, rdb, "evalsha")-scripts) / mark.Elapsed().Seconds(); n > 10 {
		t.Errorf("%.1f scripts a second while nothing is sent", n)
	}
	for i := range 20 {
		publish(t, p, Normal, someIDs(1))
		eventually(t, "it is handled", func() bool { return c.Tally().Handled >= uint64(i+1) })
	}
}

// Hints for which nobody rings are found all the same, and once one was, others soon.
func TestHintsWithoutTheBellAreFound(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	b := newBell(stop)
	b.heard = true
	if got := b.patience(); got != lookEvery {
		t.Errorf("it waits %v where it hears, want %v", got, lookEvery)
	}
	full := map[Lane]bool{Low: true}
	asked := map[Lane]int{}
	looks, vain, found := 0, 0, int64(1)
	hook := b.ProcessHook(func(_ context.Context, cmd redis.Cmder) error {
		if exists, ok := cmd.(*redis.IntCmd); ok {
			looks++
			if exists.SetVal(found); found == 0 {
				if vain++; vain == 2 {
					close(stop)
				}
			}
			return nil
		}
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
	mark := clock.Start()
	for asked[Low] == 0 {
		for _, lane := range lanes() {
			_ = ask(lane)
		}
	}
	if looks != 1 {
		t.Errorf("%d looks for three lanes, want one", looks)
	}
	if got := b.patience(); got > 2*searchEvery && mark.Elapsed() < searchFor {
		t.Errorf("it waits %v after a hint for which nobody rang, want some %v", got, searchEvery)
	}
	if err := ask(Low); err != nil { // it had one, so it may have another
		t.Error(err)
	}
	full[Low] = false
	if err := ask(Low); !errors.Is(err, redis.Nil) {
		t.Error(err)
	}
	for range 100 { // on a busy machine it may be time to look into all lanes meanwhile
		b.seen = clock.Start()
		b.ring(High)
		asked = map[Lane]int{}
		for _, lane := range []Lane{Normal, Low, High} {
			_ = ask(lane)
		}
		if len(asked) == 1 {
			break
		}
	}
	if asked[High] != 1 || len(asked) != 1 {
		t.Errorf("asked %v, want the lane that was rung for alone", asked)
	}
	found, asked = 0, map[Lane]int{}
	for vain == 0 {
		for _, lane := range lanes() {
			_ = ask(lane)
		}
	}
	if len(asked) != 0 || vain != 2 {
		t.Errorf("asked %v, and looked %d times in vain; want no lane asked, and looks until it stops in one command", asked, vain)
	}
}

// A publisher rings for as many parties of consumers as it sent hints, for two at least, and for
// everybody where no party has consumers, as those of the version before.
func TestThePublisherRingsForAFewConsumers(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	p := newPublisher(t, s.ClientURL, discard())
	rdb := client(t, s.ClientURL)
	defer rdb.Close()
	everybody := listener(t, rdb, bellChannel)
	rung := func(ears []*redis.PubSub, hints int) (n int) {
		publish(t, p, Normal, someIDs(hints))
		for _, ear := range ears {
			// A message that was published before arrives before the answer to this.
			if err := ear.Subscribe(t.Context(), "settled"); err != nil {
				t.Fatal(err)
			}
			for {
				m, err := ear.Receive(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if m, ok := m.(*redis.Message); ok && m.Payload == string(Normal) {
					n++
				}
				if _, ok := m.(*redis.Subscription); ok {
					break
				}
			}
		}
		return n
	}
	if n := rung([]*redis.PubSub{everybody}, 1); n != 1 {
		t.Errorf("rang %d times for everybody where no party has consumers", n)
	}
	var ears []*redis.PubSub
	for party := range parties / 2 {
		ears = append(ears, listener(t, rdb, partyChannel(2*party)))
	}
	for _, test := range []struct{ hints, want int }{{1, leastRung}, {2, 2}, {5, 5}, {100, parties / 2}} {
		if n := rung(ears, test.hints); n != test.want {
			t.Errorf("%d hints: rang for %d parties, want %d", test.hints, n, test.want)
		}
	}
	if n := rung([]*redis.PubSub{everybody}, 1); n != 0 {
		t.Errorf("rang for everybody, too, %d times", n)
	}
}

// listener hears a channel from now on.
func listener(t *testing.T, rdb *redis.Client, channel string) *redis.PubSub {
	t.Helper()
	ear := rdb.Subscribe(t.Context(), channel)
	t.Cleanup(func() { _ = ear.Close() })
	if _, err := ear.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	return ear
}

// A hint that a look finds was another consumer's to take, where somebody rings: it is no reason
// to look more often.
func TestAHintOfAnotherConsumerIsNoReasonToSearch(t *testing.T) {
	t.Parallel()
	b := newBell(nil)
	b.heard, b.called = true, clock.Start()
	b.found(Normal, looked)
	if b.searches && b.called.Elapsed() < searchFor {
		t.Error("it searches although somebody rang just now")
	}
	b.called = clock.Mark{}
	b.found(Normal, looked)
	if !b.searches {
		t.Error("it does not search where nobody rings")
	}
}

// Delayed hints are moved to their lane unless a look just now found none there.
func TestTheBellKnowsWhetherHintsAreDelayed(t *testing.T) {
	t.Parallel()
	b := newBell(nil)
	ran, found := 0, int64(1)
	next := func(_ context.Context, cmd redis.Cmder) error {
		if exists, ok := cmd.(*redis.IntCmd); ok {
			exists.SetVal(found)
		} else {
			ran++
		}
		return nil
	}
	move := func(set string) {
		cmd := redis.NewCmd(t.Context(), "evalsha", "sha", 2, asynqKey(Low, set), asynqKey(Low, "pending"), 1)
		if err := b.ProcessHook(next)(t.Context(), cmd); err != nil {
			t.Error(err)
		}
		if n, err := cmd.Int(); ran == 0 && (n != 0 || err != nil) {
			t.Errorf("a script that did not run says %d, %v", n, err)
		}
	}
	look := func() {
		if _, err := b.look(t.Context(), next); err != nil {
			t.Error(err)
		}
	}
	for _, test := range []struct {
		name string
		look func()
		want int
	}{
		{"before any look", func() {}, 2},
		{"after a look that found something", look, 2},
		{"after a look that found nothing", func() { found = 0; look() }, 0},
		{"after a while", func() { b.bare = clock.Mark{} }, 2},
	} {
		for try := 0; try == 0 || try < 100 && ran != test.want; try++ { // a busy machine may be slower than a look is good for
			ran = 0
			test.look()
			move("scheduled")
			move("retry")
		}
		if ran != test.want {
			t.Errorf("%s: %d scripts ran, want %d", test.name, ran, test.want)
		}
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

// commands is how many commands of one name the server ran.
func commands(t *testing.T, rdb *redis.Client, name string) (n int) {
	t.Helper()
	stats, err := rdb.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	calls, ran := stats["Commandstats"]["cmdstat_"+name] // like calls=40,usec=123,...
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
	mark, before := clock.Start(), commands(t, rdb, "evalsha")
	eventually(t, "half a second", func() bool { return mark.Elapsed() > 500*time.Millisecond })
	if n := float64(commands(t, rdb, "evalsha")-before) / mark.Elapsed().Seconds(); n > 40 {
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
