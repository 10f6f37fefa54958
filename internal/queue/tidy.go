package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/scheduler-service/scheduler/internal/fault"
)

// tidyAfter is how long a lease must have expired. asynq itself takes back a task
// whose worker vanished within a minute and a half; what is left after this long
// it never will.
const tidyAfter = 5 * time.Minute

// tidyScript removes up to 100 tasks of a sorted set that are older than a
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

// Tidy removes what asynq leaves behind, 100 leases and 100 archived tasks of
// each lane at most. A task that it cannot read, or whose record is gone, stays
// in its active list for ever, slows down every acknowledgement (they search that
// list) and keeps it from taking back the tasks of vanished workers. Nothing of
// ours is archived, but a forged task can be, and asynq's own trimming of archives
// breaks beyond some 8,000 entries. Without Redis it does nothing.
func (p *Publisher) Tidy(ctx context.Context, now time.Time) (removed int, err error) {
	if p.Silent() {
		return 0, nil
	}
	return tidy(ctx, p.rdb, now)
}

func tidy(ctx context.Context, rdb redis.Scripter, now time.Time) (removed int, err error) {
	before := now.Add(-tidyAfter).Unix()
	for _, lane := range lanes() {
		for _, set := range []string{"lease", "archived"} {
			keys := []string{asynqKey(lane, set), asynqKey(lane, "active")}
			n, err := tidyScript.Run(ctx, rdb, keys, before, asynqKey(lane, "t:")).Int()
			if err != nil {
				return removed, fault.Wrap(fault.Unavailable, "", fmt.Sprintf("tidy %s of %s", set, lane), err)
			}
			removed += n
		}
	}
	return removed, nil
}
