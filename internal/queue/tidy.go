package queue

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/scheduler-service/scheduler/internal/clock"
)

const (
	tidyEvery = time.Minute
	// tidyAfter is how long a lease must have expired. asynq itself takes back
	// a task whose worker vanished within a minute and a half; what is left
	// after this long it never will.
	tidyAfter = 5 * time.Minute
)

// tidyScript removes up to 100 tasks of a sorted set that are older than an
// time, together with their entry in the active list.
//
// KEYS: the sorted set, the active list. ARGV: unix seconds, prefix of a
// task's own key.
var tidyScript = redis.NewScript(`
local ids = redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", ARGV[1], "LIMIT", 0, 100)
for _, id in ipairs(ids) do
	redis.call("LREM", KEYS[2], 0, id)
	redis.call("ZREM", KEYS[1], id)
	redis.call("DEL", ARGV[2] .. id)
end
return #ids`)

// tidier removes what asynq leaves behind. A task that it cannot read, or
// whose record is gone, stays in its active list for ever, slows down every
// acknowledgement (they search that list) and keeps it from taking back the
// tasks of vanished workers. Nothing of ours is archived, but a forged task can
// be, and asynq's own trimming of archives breaks beyond some 8,000 entries.
type tidier struct {
	rdb     *redis.Client
	removed *atomic.Uint64
	log     *slog.Logger
	quiet   *sparse
}

// run tidies each minute until ctx is cancelled.
func (t tidier) run(ctx context.Context) {
	ticker := time.NewTicker(tidyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		n, err := t.pass(ctx, clock.Now())
		t.removed.Add(uint64(n))
		if err == nil || ctx.Err() != nil {
			continue
		}
		if left, ok := t.quiet.allow("tidy"); ok {
			t.log.WarnContext(ctx, "redis not tidied", "error", err, "repeated", left)
		}
	}
}

// pass removes at most 100 leases and 100 archived tasks of each lane.
func (t tidier) pass(ctx context.Context, now time.Time) (removed int, err error) {
	before := now.Add(-tidyAfter).Unix()
	for _, lane := range lanes() {
		for _, set := range []string{"lease", "archived"} {
			keys := []string{asynqKey(lane, set), asynqKey(lane, "active")}
			n, err := tidyScript.Run(ctx, t.rdb, keys, before, asynqKey(lane, "t:")).Int()
			if err != nil {
				return removed, fmt.Errorf("tidy %s of %s: %w", set, lane, err)
			}
			removed += n
		}
	}
	return removed, nil
}
