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
