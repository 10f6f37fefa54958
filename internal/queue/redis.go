package queue

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Config says which Redis, and how hard a consumer works on it.
type Config struct {
	// URL is redis://, rediss:// or unix://, with user, password and database
	// number where needed. Its password appears in no error and no log.
	URL string
	// Concurrency is how many hints a consumer handles at once, by default 64.
	// A publisher does not look at it.
	Concurrency int
	// Drain is how long a stopping consumer waits for the handlers that run
	// before it cancels their contexts, by default 10 s.
	Drain time.Duration
}

// How long Redis may take before it counts as away. A hint that is not sent
// costs some seconds of delay; a promoter that waits costs everybody's.
const (
	dialLimit    = 500 * time.Millisecond
	commandLimit = time.Second
)

// options turns the URL into options that fail fast. go-redis would by default
// dial five times and run a command up to four times, which repeats the
// consumer's pop (it is not idempotent) and makes an outage cost seconds a call.
func options(cfg Config, pool int) (*redis.Options, error) {
	o, err := redis.ParseURL(cfg.URL)
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
func open(o *redis.Options) *redis.Client {
	silence()
	return redis.NewClient(o)
}

// silence takes away the logger of go-redis, which is one for the whole
// process and writes a line to stderr for each failed dial, many a second
// during an outage. Every failure comes back as an error too, and is logged
// from there. It runs before the first client is made, and once.
var silence = sync.OnceFunc(func() { redis.SetLogger(mute{}) })

type mute struct{}

// Printf drops the line.
func (mute) Printf(context.Context, string, ...any) {}
