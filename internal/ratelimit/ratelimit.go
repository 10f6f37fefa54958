// Package ratelimit says how often somebody may ask.
//
// It owns the buckets of requests: shared by all processes through Redis, and
// kept in this process while Redis is away or where there is none, so that
// there is never no limit. It refuses to know what is asked for or how much a
// tenant may have (package tenant), and to answer requests (package rest,
// which calls it for each).
//
// A bucket is the generic cell rate algorithm: one time, the one at which
// it would be empty again, decides everything.
package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/trace"
)

const (
	// patience is how long Redis may take for one request's answer before the
	// bucket of this process is asked.
	patience = 50 * time.Millisecond
	// awayFor is how long Redis is not asked after it did not answer: longer than
	// it may take, so that few requests wait for it in vain, and short, because
	// each process admits the whole rate meanwhile.
	awayFor = 200 * time.Millisecond
	// maxBuckets bounds the buckets of one kind in this process, and spareBuckets
	// how many those share for whom there is no room.
	maxBuckets   = 50_000
	spareBuckets = 1024
	// evictionSample is how many buckets a new one looks at to find some to forget.
	evictionSample = 16
)

// Rate is so many requests in a window, all of which may come at once.
type Rate struct {
	Requests int // 1 and more
	Window   time.Duration
	// Cost is how many requests this one counts for, below 2: one. It never
	// counts for more than Requests.
	Cost int
}

// Verdict is what a bucket says.
type Verdict struct {
	OK        bool
	Remaining int           // requests that may still come at once
	Reset     time.Duration // until the bucket is full again
	Retry     time.Duration // until the next request is allowed; zero where one is
}

// Config says where the buckets are.
type Config struct {
	// URL is redis://, rediss:// or unix:// (also redis-socket://); empty: there
	// is no Redis.
	URL string
	Log *slog.Logger
	// Spans makes a span of each call to Redis that belongs to a trace.
	Spans bool
}

// Buckets are all of them. The methods may be called concurrently.
type Buckets struct {
	log    *slog.Logger
	spans  bool
	client *redis.Client // nil: there is no Redis
	away   atomic.Bool   // Redis did not answer last time
	// unanswered counts how often it did not; the context of a request ends before
	// the wait for a connection, so the client's own count stays at zero.
	unanswered atomic.Int64

	mu    sync.Mutex
	since clock.Mark // what the times below count from, and when Redis was asked last while it is away
	asked time.Duration
	kinds map[string]*kind // by the part of a bucket's name before the colon
}

// New makes buckets. It dials nothing yet.
func New(c Config) (*Buckets, error) {
	b := &Buckets{log: c.Log, spans: c.Spans, since: clock.Start(), kinds: map[string]*kind{}}
	if c.URL == "" {
		return b, nil
	}
	address := c.URL
	if path, ok := strings.CutPrefix(address, "redis-socket://"); ok {
		address = "unix://" + path
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, errors.New("quota: the Redis URL is not valid") // its own error quotes the password
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patience, patience, patience, patience
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, -1, 1
	o.Protocol, o.DisableIdentity = 2, true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	logging.Disable() // every failure comes back as an error too
	b.client = redis.NewClient(o)
	return b, nil
}

// Close ends the connections.
func (b *Buckets) Close() {
	if b.client != nil {
		_ = b.client.Close() // nothing is lost with it
	}
}

// Connections is how many connections to Redis are in use, how many may be, and how
// often Redis did not answer in time; zero without a Redis.
func (b *Buckets) Connections() (inUse, most, timeouts int) {
	if b.client == nil {
		return 0, 0, 0
	}
	pool := b.client.PoolStats()
	return int(pool.TotalConns) - int(pool.IdleConns), b.client.Options().PoolSize, int(b.unanswered.Load())
}

// Refused is for how long still Take would refuse, as far as this process
// knows from the last time that it did; zero where it might not.
func (b *Buckets) Refused(bucket string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, ok := b.kind(bucket).own[bucket]
	if !ok {
		return 0
	}
	return max(0, found.refused-b.since.Elapsed())
}

// Take takes one request out of a bucket, and says whether it was there. A
// bucket is named by its kind, a colon and whom it is for.
func (b *Buckets) Take(ctx context.Context, bucket string, rate Rate) Verdict {
	v := b.take(ctx, bucket, rate)
	if !v.OK {
		b.mu.Lock()
		defer b.mu.Unlock()
		now := b.since.Elapsed()
		b.kind(bucket).find(bucket, now).refused = now + v.Retry
	}
	return v
}

func (b *Buckets) take(ctx context.Context, bucket string, rate Rate) Verdict {
	if b.askRedis() {
		v, o := b.spend(bucket, rate)
		if v.OK {
			return v
		}
		unpaid := b.takeUnpaid(bucket)
		asking, span := b.asking(ctx)
		came, err := b.shared(asking, bucket, rate.Window, o, unpaid)
		span.End()
		b.keep(bucket, o, came)
		if err == nil {
			if b.away.Swap(false) {
				b.log.InfoContext(ctx, "request limits are shared again")
			}
			return verdict(rate, b.mirror(bucket, came), came.ok)
		}
		b.keepUnpaid(bucket, unpaid)
		if !b.away.Swap(true) {
			b.log.WarnContext(ctx, "redis does not answer, request limits are kept by each process", "error", err)
		}
	}
	full, ok := b.own(bucket, rate)
	return verdict(rate, full, ok)
}

// asking begins the span of a call to Redis.
func (b *Buckets) asking(ctx context.Context) (context.Context, *trace.Span) {
	if !b.spans {
		return ctx, nil
	}
	return trace.Call(ctx, "redis take", slog.String("db.system.name", "redis"), slog.String("db.operation.name", "take"))
}

// askRedis says whether to ask Redis: of those who come while it is away, one each
// awayFor.
func (b *Buckets) askRedis() bool {
	if b.client == nil {
		return false
	}
	if !b.away.Load() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.since.Elapsed()
	if now-b.asked < awayFor {
		return false
	}
	b.asked = now
	return true
}

// script is the bucket in Redis, by its clock, in microseconds: KEYS[1] holds
// when the bucket is full again; ARGV are how much fuller the request makes it,
// the window, and what this process gave while Redis did not answer. That fills
// the bucket to twice the window at most, so that nobody waits longer than a
// window for what others were given. The script answers whether a request was
// there, how long until the bucket is full again, and how much the process got ahead.
// It gets that (ARGV[4]) only while the bucket is at most half used: near the limit
// each request is counted by itself.
var script = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local step, window, unpaid, ahead = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
full = math.max(full, math.min(full + unpaid, now + 2 * window))
local ok, given = 0, 0
if full + step - now <= window then full, ok = full + step, 1 end
if ok == 1 and full + ahead - now <= window / 2 then full, given = full + ahead, ahead end
if ok == 1 or unpaid > 0 then
  redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000) + 1)
end
return {ok, full - now, given}`)

// answer is what the shared bucket says.
type answer struct {
	ok    bool
	full  time.Duration // until the bucket is full again
	ahead time.Duration // what this process got beyond the request
}

func (b *Buckets) shared(ctx context.Context, bucket string, window time.Duration, o order, unpaid time.Duration) (answer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	said, err := script.Run(ctx, b.client, []string{"sched:rate:" + bucket},
		o.step.Microseconds(), window.Microseconds(), unpaid.Microseconds(), o.more.Microseconds()).Int64Slice()
	if err != nil {
		b.unanswered.Add(1)
		return answer{}, fmt.Errorf("ask for a request limit: %w", err)
	}
	if len(said) != 3 {
		return answer{}, errors.New("the answer about a request limit is not one")
	}
	return answer{ok: said[0] == 1, full: time.Duration(said[1]) * time.Microsecond, ahead: time.Duration(said[2]) * time.Microsecond}, nil
}

// takeUnpaid takes, for one request to Redis, what this process gave of a bucket
// that Redis does not know of.
func (b *Buckets) takeUnpaid(bucket string) (unpaid time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found, ok := b.kind(bucket).own[bucket]; ok {
		unpaid, found.unpaid = found.unpaid, 0
	}
	return unpaid
}

// keepUnpaid keeps what Redis was not told after all.
func (b *Buckets) keepUnpaid(bucket string, unpaid time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found, ok := b.kind(bucket).own[bucket]; ok {
		found.unpaid += unpaid
	}
}

// mirror makes the bucket of this process at least as full as the shared one, so
// that a Redis that is late hands out no fresh burst. Answers come in any order. It
// returns for how long the bucket is not full yet. Where the request was allowed, what is
// left ahead counts as if it were still in the bucket.
func (b *Buckets) mirror(bucket string, came answer) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, k := b.since.Elapsed(), b.kind(bucket)
	k.find(bucket, now)
	found, ok := k.own[bucket]
	if !ok { // spare buckets are of several names
		return came.full
	}
	found.full = max(found.full, now+came.full)
	if !came.ok {
		return came.full
	}
	return max(0, came.full-found.ahead.left(now))
}

// own asks the bucket of this process.
func (b *Buckets) own(bucket string, rate Rate) (full time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.since.Elapsed()
	found := b.kind(bucket).find(bucket, now)
	at := max(found.full, now)
	if at+rate.step()-now > rate.Window {
		return at - now, false
	}
	found.full = at + rate.step()
	if b.client != nil {
		found.unpaid = min(found.unpaid+rate.step(), rate.Window)
	}
	return found.full - now, true
}

// kind is the table that a bucket is in.
func (b *Buckets) kind(bucket string) *kind {
	name, _, _ := strings.Cut(bucket, ":")
	if b.kinds[name] == nil {
		b.kinds[name] = &kind{own: map[string]*local{}}
	}
	return b.kinds[name]
}

// distance is that of two requests that come evenly; microseconds are what
// Redis counts in.
func (r Rate) distance() time.Duration {
	return max((r.Window / time.Duration(r.Requests)).Truncate(time.Microsecond), time.Microsecond)
}

// step is how much fuller the request makes the bucket.
func (r Rate) step() time.Duration {
	return min(time.Duration(max(1, min(r.Cost, r.Requests)))*r.distance(), r.Window)
}

func verdict(rate Rate, full time.Duration, ok bool) Verdict {
	v := Verdict{OK: ok, Reset: full, Remaining: max(0, int((rate.Window-full)/rate.distance()))}
	if !ok {
		v.Remaining, v.Retry = 0, max(full+rate.step()-rate.Window, time.Microsecond)
	}
	return v
}
