package ratelimit_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/queue/redistest"
	"github.com/scheduler-service/scheduler/internal/ratelimit"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func newBuckets(t *testing.T, url string) *ratelimit.Buckets {
	t.Helper()
	b, err := ratelimit.New(ratelimit.Config{URL: url, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// take counts how many of so many requests at once are allowed.
func take(b *ratelimit.Buckets, name string, rate ratelimit.Rate, n int) int {
	var allowed atomic.Int64
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			if b.Take(context.Background(), name, rate).OK {
				allowed.Add(1)
			}
		})
	}
	group.Wait()
	return int(allowed.Load())
}

// An hour's window, so that nothing flows in while a test runs.
var hourly = ratelimit.Rate{Requests: 10, Window: time.Hour}

func TestABucketInThisProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, "")
		rate := ratelimit.Rate{Requests: 10, Window: time.Second}
		for i := range 10 {
			if v := b.Take(t.Context(), "a", rate); !v.OK || v.Remaining != 9-i || v.Retry != 0 {
				t.Errorf("request %d: %+v", i+1, v)
			}
		}
		v := b.Take(t.Context(), "a", rate)
		if v.OK || v.Remaining != 0 || v.Retry != 100*time.Millisecond || v.Reset != time.Second {
			t.Errorf("one more: %+v", v)
		}
		if !b.Take(t.Context(), "b", rate).OK {
			t.Error("another bucket is empty too")
		}
		<-time.After(100 * time.Millisecond)
		if b.Refused("a") != 0 || !b.Take(t.Context(), "a", rate).OK || b.Take(t.Context(), "a", rate).OK {
			t.Error("after a tenth of a second, one request is there")
		}
		if b.Refused("a") != 100*time.Millisecond || b.Refused("b") != 0 {
			t.Errorf("refused for %v", b.Refused("a"))
		}
		<-time.After(time.Hour)
		if got := take(b, "a", rate, 50); got != 10 {
			t.Errorf("after an hour, %d requests are there at once", got)
		}
	})
}

// Many names, as an attacker with a network of addresses makes them, reset no
// bucket that somebody emptied, nor a limit of another kind; once they are idle
// they make room.
func TestManyNamesResetNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const names = 60_000
		b := newBuckets(t, "")
		if got := take(b, "auth:first", hourly, 11); got != 10 {
			t.Fatalf("%d requests were allowed, want 10", got)
		}
		refused := 0
		for i := range names {
			if !b.Take(t.Context(), fmt.Sprint("auth:", i), hourly).OK {
				refused++
			}
		}
		if b.Refused("auth:first") == 0 || b.Take(t.Context(), "auth:first", hourly).OK {
			t.Errorf("%d other names reset an empty bucket", names)
		}
		if refused > 0 && b.Refused("auth:nobody") > 0 {
			t.Error("a name is refused that asked for nothing")
		}
		if got := take(b, "tenant:a", hourly, 11); got != 10 {
			t.Errorf("%d requests were allowed in a bucket of another kind, want 10", got)
		}
		<-time.After(time.Hour)
		if got := take(b, "auth:last", hourly, 11); got != 10 {
			t.Errorf("afterwards %d requests were allowed in a new bucket, want 10", got)
		}
	})
}

// However many names there are, memory is bounded, and so is what they are
// allowed together once there is no room.
func TestNamesBeyondTheRoomShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, allowed := newBuckets(t, ""), 0
		single := ratelimit.Rate{Requests: 1, Window: time.Hour}
		for i := range 100_000 {
			if b.Take(t.Context(), fmt.Sprint("auth:", i), single).OK {
				allowed++
			}
		}
		if allowed > 55_000 {
			t.Errorf("%d names had a bucket of their own", allowed)
		}
	})
}

// Two processes share what is in Redis.
func TestABucketOfAllProcesses(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	one, two := newBuckets(t, server.URL), newBuckets(t, server.URL)
	untilTimely(t, func(try int) string { return shared(t, one, two, fmt.Sprint("a", try)) })
}

// shared says what is wrong with a bucket that two processes share.
func shared(t *testing.T, one, two *ratelimit.Buckets, name string) string {
	t.Helper()
	for range 5 {
		if v := one.Take(t.Context(), name, hourly); !v.OK {
			return fmt.Sprintf("one of the first five: %+v", v)
		}
	}
	if got := take(two, name, hourly, 20); got != 5 {
		return fmt.Sprintf("%d of the 5 that are left were given", got)
	}
	if v := one.Take(t.Context(), name, hourly); v.OK || v.Retry <= 0 || v.Retry > 6*time.Minute {
		return fmt.Sprintf("one more: %+v", v)
	}
	return ""
}

// TestALargeRequestCountsForSeveral takes requests that cost more than one, of a
// bucket in this process and of one in Redis.
func TestALargeRequestCountsForSeveral(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]*ratelimit.Buckets{"in this process": newBuckets(t, ""), "in Redis": newBuckets(t, redistest.New(t).URL)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			untilTimely(t, func(try int) string { return large(t, b, fmt.Sprint("a", try)) })
		})
	}
}

// untilTimely repeats what says what is wrong: on a machine that does other things, Redis
// may take longer than a request waits for it, and then each process counts by itself.
func untilTimely(t *testing.T, check func(try int) string) {
	t.Helper()
	for try, began := 0, clock.Start(); ; try++ {
		said := check(try)
		if said == "" {
			return
		}
		if began.Elapsed() > time.Minute {
			t.Fatal(said)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// large says what is wrong with a bucket that some requests take several of.
func large(t *testing.T, b *ratelimit.Buckets, name string) string {
	t.Helper()
	four, all := hourly, hourly
	four.Cost, all.Cost = 4, 1000
	if v := b.Take(t.Context(), name, four); !v.OK || v.Remaining != 6 {
		return fmt.Sprintf("4 of 10: %+v", v)
	}
	if v := b.Take(t.Context(), name, four); !v.OK || v.Remaining != 2 {
		return fmt.Sprintf("8 of 10: %+v", v)
	}
	if v := b.Take(t.Context(), name, four); v.OK || v.Retry <= 6*time.Minute || v.Retry > 12*time.Minute {
		return fmt.Sprintf("12 of 10: %+v", v)
	}
	if got := take(b, name, hourly, 5); got != 2 {
		return fmt.Sprintf("%d small ones fit beside them, want 2", got)
	}
	if !b.Take(t.Context(), name+" whole", all).OK {
		return "what costs more than the whole quota never fits"
	}
	if b.Take(t.Context(), name+" whole", hourly).OK {
		return "it did not take the whole quota"
	}
	return ""
}

// With Redis killed, each process counts by itself: there is a limit at any
// moment, and nobody waits long.
func TestARedisThatIsKilled(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	b := newBuckets(t, server.URL)
	if !b.Take(t.Context(), "a", hourly).OK {
		t.Fatal("the first request was refused")
	}
	server.Stop()
	began := clock.Start()
	if got := take(b, "a", hourly, 100); got != 9 {
		t.Errorf("%d requests were allowed without Redis, want the 9 that are left to this process", got)
	}
	if took := began.Elapsed(); took > time.Minute {
		t.Errorf("100 requests took %v", took)
	}
	for range 100 {
		if b.Take(t.Context(), "a", hourly).OK {
			t.Fatal("there is no limit any more")
		}
	}
}

// TestALateRedisGivesNothingAway stops Redis for a moment: meanwhile a process
// goes on from what the shared bucket has left, and afterwards it is charged for
// what it gave.
func TestALateRedisGivesNothingAway(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	var one, two *ratelimit.Buckets
	given := 0
	for given == 0 { // on a busy machine Redis may be late before it is stopped
		server.FlushAll(t)
		one, two = newBuckets(t, server.URL), newBuckets(t, server.URL)
		given = take(two, "a", hourly, 1) + take(one, "a", hourly, 6)
		for _, b := range []*ratelimit.Buckets{one, two} {
			if _, _, late := b.Connections(); late > 0 {
				given = 0
			}
		}
	}
	server.Freeze(t)
	given += take(one, "a", hourly, 20)
	if given > 10 {
		t.Errorf("%d were given, want the 10 of all processes: Redis had 3 left when it stopped", given)
	}
	server.Thaw(t)
	if one.Take(t.Context(), "a", hourly).OK {
		t.Error("a process that gave all is given more")
	}
	began, reached := clock.Start(), false
	for !reached && began.Elapsed() < time.Minute {
		v := one.Take(t.Context(), "b", hourly) // one asks Redis again, and tells it what it gave
		_ = one.Take(t.Context(), "a", hourly)
		reached = v.OK && !two.Take(t.Context(), "a", hourly).OK
	}
	if !reached {
		t.Error("another process is given what the first one gave while Redis was late")
	}
}

func TestARedisThatComesBack(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	b := newBuckets(t, server.URL)
	// More where Redis was too slow for some, of whom the process then has fewer.
	first := take(b, "a", hourly, 20)
	if first < 10 {
		t.Fatalf("%d were allowed", first)
	}
	server.Halt(t)
	if got := take(b, "a", hourly, 20); got > 10 || first+got > 20 || first+got < 10 {
		t.Errorf("%d were allowed with Redis and %d without", first, got)
	}
	server.Restart(t)
	server.FlushAll(t)
	// The process has to pay for the requests that it allowed without Redis, so
	// other buckets say whether two processes share them again.
	other, single := newBuckets(t, server.URL), ratelimit.Rate{Requests: 1, Window: time.Hour}
	began := clock.Start()
	for n := 0; ; n++ {
		name := fmt.Sprint("b", n)
		if b.Take(t.Context(), name, single).OK && !other.Take(t.Context(), name, single).OK {
			return
		}
		if began.Elapsed() > time.Minute {
			t.Fatal("Redis is not asked again")
		}
		<-time.After(20 * time.Millisecond)
	}
}

func TestAWrongURL(t *testing.T) {
	t.Parallel()
	if _, err := ratelimit.New(ratelimit.Config{URL: "http://user:hunter2@x"}); err == nil {
		t.Error("it was accepted")
	}
}
