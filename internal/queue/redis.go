package queue

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
)

// Config says which Redis, and how hard a consumer works on it.
type Config struct {
	// URL is redis://, rediss:// (with TLS) or unix:// (also written
	// redis-socket://, as asynq does), with user, password and database number
	// where needed. Its password appears in no error and no log. Empty, for a
	// publisher only: there is no Redis, and nothing is sent.
	URL string
	// Concurrency is how many hints a consumer handles at once, by default 64.
	// A publisher does not look at it.
	Concurrency int
	// Drain is how long a stopping consumer waits for the handlers that run
	// before it cancels their contexts, by default 10 s.
	Drain time.Duration
	// Carrier carries the calls of a publisher that has no URL; nil: nothing does.
	Carrier carrier
	// Spans makes a span of each call of a publisher that belongs to a trace.
	Spans bool
}

// How long Redis may take before it counts as away. A hint that is not sent
// costs some seconds of delay; a promoter that waits costs everybody's.
const (
	dialLimit    = 500 * time.Millisecond
	commandLimit = time.Second
)

// countEvery is how old the count of the hints that wait may be.
const countEvery = 20 * time.Millisecond

// options turns the URL into options that fail fast. go-redis would by default
// dial five times and run a command up to four times, which repeats the
// consumer's pop (it is not idempotent) and makes an outage cost seconds a call.
func options(cfg Config, pool int) (*redis.Options, error) {
	address := cfg.URL
	if path, ok := strings.CutPrefix(address, "redis-socket://"); ok {
		address = "unix://" + path
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		// The error of net/url quotes the whole URL, password included.
		return nil, errors.New("queue: the Redis URL is not valid (" + schemeOf(cfg.URL) + ")")
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = dialLimit, commandLimit, commandLimit
	o.PoolTimeout = commandLimit
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.PoolSize = pool
	o.PipelinePoolSize = -1 // one pool, so that its numbers say everything
	// RESP2 and no greetings: nothing here uses what RESP3 adds, and each new
	// connection is two round trips cheaper.
	o.Protocol = 2
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o, nil
}

// schemeOf names the scheme alone.
func schemeOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" {
		return "no scheme could be read"
	}
	return "scheme " + u.Scheme
}

// open makes a client. It dials nothing yet.
//
// The logger of go-redis is one for the whole process and writes a line to
// stderr for each failed dial, many a second during an outage. Every failure
// comes back as an error too and is told from there, so that one is off.
func open(o *redis.Options) *redis.Client {
	logging.Disable()
	return redis.NewClient(o)
}

// pause keeps a consumer from spinning. asynq asks again at once when a pop
// fails, and without go-redis's own retries nothing would slow it: an outage,
// or a key of the wrong type, would cost a whole core and flood Redis.
type pause struct {
	length time.Duration
	// stop ends every pause, so that a consumer stops quickly in an outage.
	stop <-chan struct{}
	// away is what the last command said about Redis.
	away *atomic.Bool
}

// DialHook changes nothing: a failed dial fails its command too.
func (p pause) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook waits after a command that failed, and notes whether it did.
func (p pause) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		failed := err != nil && !expected(err)
		if !failed || !errors.Is(ctx.Err(), context.Canceled) {
			p.away.Store(failed) // a cancelled command says nothing about Redis
		}
		if failed {
			p.wait(ctx)
		}
		return err
	}
}

// ProcessPipelineHook changes nothing: asynq's server sends no pipelines.
func (p pause) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (p pause) wait(ctx context.Context) {
	timer := time.NewTimer(p.length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.stop:
	case <-ctx.Done():
	}
}

// expected are the errors of a Redis that is well: an empty lane, a script
// that it has not seen since its restart, and the acknowledgement of a task
// that was wiped meanwhile.
func expected(err error) bool {
	return errors.Is(err, redis.Nil) ||
		redis.HasErrorPrefix(err, "NOSCRIPT") ||
		redis.HasErrorPrefix(err, "NOT FOUND")
}

// Stats is what /health tells about Redis and the pool of one publisher.
type Stats struct {
	// Latency is the round trip of one PING, and zero when it failed.
	Latency time.Duration
	// Size is the most connections that the pool keeps; Total are open, Idle of
	// them wait for use. Stale counts those removed since the start.
	Size, Total, Idle, Stale int
	// Hits, Misses and Timeouts count, since the start, how often a free
	// connection was found, was not found, and did not come in time.
	Hits, Misses, Timeouts int
	// Utilisation is the share of Size in use, 0 to 1.
	Utilisation float64
}

// Connections is how many connections to Redis are in use, how many may be, and how
// often none came free in time.
func (p *Publisher) Connections() (inUse, most, timeouts int) {
	pool := p.rdb.PoolStats()
	return int(pool.TotalConns) - int(pool.IdleConns), publisherPool, int(pool.Timeouts)
}

// Stats pings Redis, for at most a second, and counts the connections. The
// counts are good beside an error too, which is of kind fault.Unavailable and
// says that Redis is away, or that there is none.
func (p *Publisher) Stats(ctx context.Context) (Stats, error) {
	if p.Silent() {
		return Stats{}, fault.New(fault.Unavailable, "", "queue: ping: there is no redis")
	}
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	mark := clock.Start()
	err := p.rdb.Ping(ctx).Err()
	took := mark.Elapsed()

	pool := p.rdb.PoolStats()
	s := Stats{
		Size:  publisherPool,
		Total: int(pool.TotalConns), Idle: int(pool.IdleConns), Stale: int(pool.StaleConns),
		Hits: int(pool.Hits), Misses: int(pool.Misses), Timeouts: int(pool.Timeouts),
	}
	s.Utilisation = float64(max(s.Total-s.Idle, 0)) / float64(s.Size)
	if err != nil {
		return s, fault.Wrap(fault.Unavailable, "", "queue: ping", err)
	}
	s.Latency = took
	return s, nil
}

// Depth counts the hints that wait in each lane, without delayed ones and
// without those that a worker holds, as of 20 ms ago at most. It reads the
// lists that asynq keeps; the inspector of asynq would sample memory and fail on
// a lane never used.
func (p *Publisher) Depth(ctx context.Context) (map[Lane]int, error) {
	p.counting.Lock()
	defer p.counting.Unlock()
	if p.depth == nil || p.counted.Elapsed() >= countEvery {
		fresh, err := p.count(ctx)
		if err != nil {
			p.depth = nil
			return nil, err
		}
		p.depth, p.counted = fresh, clock.Start()
	}
	return maps.Clone(p.depth), nil
}

func (p *Publisher) count(ctx context.Context) (map[Lane]int, error) {
	counts := make(map[Lane]*redis.IntCmd)
	err := p.guarded(ctx, "depth", func(ctx context.Context) error {
		_, err := p.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, lane := range lanes() {
				counts[lane] = pipe.LLen(ctx, asynqKey(lane, "pending"))
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	depth := make(map[Lane]int, len(counts))
	for lane, count := range counts {
		depth[lane] = int(count.Val())
	}
	return depth, nil
}

// asynqKey is the name of a key of asynq 0.26. The prefix is fixed there; the
// braces keep a lane in one slot of a cluster.
func asynqKey(lane Lane, what string) string { return "asynq:{" + string(lane) + "}:" + what }
