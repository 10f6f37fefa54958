package ratelimit_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/queue/redistest"
	"github.com/scheduler-service/scheduler/internal/ratelimit"
)

// TestRequestsThatFollowClosely asks Redis once for several of them, and says of each what
// is left.
func TestRequestsThatFollowClosely(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	busy := ratelimit.Rate{Requests: 1_000_000, Window: time.Second} // a bucket is full again at once
	untilTimely(t, func(try int) string {
		b, before := newBuckets(t, server.URL), evaluations(t, server)
		<-time.After(100 * time.Millisecond) // a process forgets most where it has run for a while
		for i := range 50 {
			for tenant := range 20 { // a new bucket makes this process forget idle ones
				v := b.Take(t.Context(), fmt.Sprint("tenant:", try, "-", tenant), busy)
				if !v.OK || v.Remaining < busy.Requests-1-i || v.Remaining > busy.Requests {
					return fmt.Sprintf("request %d: %+v", i+1, v)
				}
			}
		}
		if calls := evaluations(t, server) - before; calls > 500 {
			return fmt.Sprintf("1,000 requests called Redis %d times", calls)
		}
		return ""
	})
}

// TestAheadIsNoMoreThanTheBucketHas has two processes empty one bucket. They take ahead
// while it is half full: together they give no more than it had, and all of it but what
// each may have kept.
func TestAheadIsNoMoreThanTheBucketHas(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	rate := ratelimit.Rate{Requests: 1000, Window: 10 * time.Second}
	untilTimely(t, func(try int) string {
		one, two, name := newBuckets(t, server.URL), newBuckets(t, server.URL), fmt.Sprint("a", try)
		given, began := 0, clock.Start()
		for range 600 {
			for _, b := range []*ratelimit.Buckets{one, two} {
				if b.Take(t.Context(), name, rate).OK {
					given++
				}
			}
		}
		refilled := 1 + int(began.Elapsed()/(10*time.Millisecond))
		for _, b := range []*ratelimit.Buckets{one, two} {
			if _, _, late := b.Connections(); late > 0 {
				return "Redis was late"
			}
		}
		if given < 996 || given > 1000+refilled {
			return fmt.Sprintf("%d of 1000 were given, while %d came back", given, refilled)
		}
		return ""
	})
}

// TestABurstAfterAPause has five processes hold something ahead, and then empties the bucket
// through all of them: no more comes out than the limit, what flows in, and what may be held.
func TestABurstAfterAPause(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	rate := ratelimit.Rate{Requests: 1000, Window: time.Second}
	untilTimely(t, func(try int) string {
		var all []*ratelimit.Buckets
		name := fmt.Sprint("tenant:", try)
		for range 5 {
			b := newBuckets(t, server.URL)
			all = append(all, b)
			for range 3 {
				b.Take(t.Context(), name, rate)
			}
		}
		<-time.After(85 * time.Millisecond) // what is kept so long comes on top of what flowed in
		given, began := 0, clock.Start()
		for range 400 {
			for _, b := range all {
				if b.Take(t.Context(), name, rate).OK {
					given++
				}
			}
		}
		most := 1000 + 40 + 1 + int(began.Elapsed()/time.Millisecond)
		for _, b := range all {
			if _, _, late := b.Connections(); late > 0 {
				return "Redis was late"
			}
		}
		if given > most {
			t.Fatalf("%d were given, want %d at most", given, most)
		}
		return ""
	})
}

// TestABurstThroughOneProcess has nine other processes ask before it, who each take ahead. It
// finds all that they did not use or hold: no more than they used.
func TestABurstThroughOneProcess(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	rate := ratelimit.Rate{Requests: 1000, Window: time.Second} // 20 requests ahead at most
	untilTimely(t, func(try int) string {
		name, last := fmt.Sprint("tenant:", try), newBuckets(t, server.URL)
		all := []*ratelimit.Buckets{last}
		for range 9 {
			b := newBuckets(t, server.URL)
			all = append(all, b)
			for range 3 {
				b.Take(t.Context(), name, rate)
			}
		}
		given := 0
		for range 1000 {
			if last.Take(t.Context(), name, rate).OK {
				given++
			}
		}
		for _, b := range all {
			if _, _, late := b.Connections(); late > 0 {
				return "Redis was late"
			}
		}
		if given < 1000-2*9*3 {
			t.Fatalf("%d of 1000 were given after 27 through others", given)
		}
		return ""
	})
}

// TestADearRequestBesideWhatIsAhead takes a request of several out of what this process has
// ahead and the bucket together, and is told the whole wait where it does not fit.
func TestADearRequestBesideWhatIsAhead(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	rate := ratelimit.Rate{Requests: 9_000, Window: 3 * time.Minute} // one is ahead at most
	untilTimely(t, func(try int) string {
		b, name := newBuckets(t, server.URL), fmt.Sprint("tenant:", try)
		began := clock.Start()
		for range 2 { // the second leaves one ahead
			if !b.Take(t.Context(), name, rate).OK {
				return "a first one was refused"
			}
		}
		dear := rate
		dear.Cost = 9000 // the two, and the one ahead, come back within 60 ms
		if v := b.Take(t.Context(), name, dear); v.OK || v.Retry > 60*time.Millisecond || v.Retry < 59*time.Millisecond-began.Elapsed() {
			return fmt.Sprintf("all beside two: %+v", v)
		}
		dear.Cost = 8998
		if v := b.Take(t.Context(), name, dear); !v.OK {
			return fmt.Sprintf("all but two: %+v", v)
		}
		if _, _, late := b.Connections(); late > 0 {
			return "Redis was late"
		}
		return ""
	})
}

// evaluations is how often a Redis ran a script.
func evaluations(t *testing.T, server *redistest.Server) int {
	t.Helper()
	options, err := redis.ParseURL(server.ClientURL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	said, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(said, "cmdstat_evalsha:calls=")
	count, _, _ := strings.Cut(after, ",")
	calls, _ := strconv.Atoi(count) // none yet: nothing is said of them
	return calls
}
