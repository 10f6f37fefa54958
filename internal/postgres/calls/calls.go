// Package calls carries calls through PostgreSQL, where there is no Redis to carry them.
//
// It owns the session in which a process listens, and when notifications are sent. It refuses
// to say what a call is for (package queue) and to promise that it arrives: a process that
// hears nothing polls, a little later.
package calls

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

const (
	// leastApart is the distance of two notifications of a process. It doubles up to mostApart
	// while calls keep coming: each notification wakes up everybody who listens, and under load
	// workers look by themselves. None costs a request or a pass a round trip of its own.
	leastApart = 10 * time.Millisecond
	mostApart  = 40 * time.Millisecond
	// sendWithin bounds how long a notification takes, and tries how often it is sent until the
	// database takes it. One that is late is worth little.
	sendWithin = time.Second
	tries      = 3
	// askAfter is how long nothing may be heard before the session has to prove that it hears, and
	// answerWithin how long each step of that may take. A network that was cut tells nothing.
	askAfter     = time.Minute
	answerWithin = 5 * time.Second
	// A session that ended is opened anew after firstRest, then after twice as long each time
	// up to longestRest, or half of that by chance: a server that has no session free needs them for others.
	firstRest   = time.Second
	longestRest = 30 * time.Second
)

// Config says where calls go.
type Config struct {
	DB *postgres.DB // through which calls are sent
	// URL is where to listen: PostgreSQL itself, or a pooler that keeps sessions. Empty: this
	// process calls others and hears nothing itself.
	URL  string
	Name string // application_name of the session that listens
	Log  *slog.Logger
}

// Carrier carries calls. Any number of goroutines may use it.
type Carrier struct {
	c      Config
	notify func(ctx context.Context, channels []string) error
	closed chan struct{}
	// askAfter, answerWithin and sendWithin are as the constants, and hearWithin as answerWithin. Tests have
	// others.
	askAfter, answerWithin, hearWithin, sendWithin time.Duration

	senders sync.WaitGroup
	mu      sync.Mutex
	wanted  map[string]bool // channels on which nobody was called yet
	sending bool            // a goroutine sends
	ends    bool            // nobody is called any more
}

// New makes a carrier. It connects to nothing.
func New(c Config) *Carrier {
	return &Carrier{
		c: c, notify: store{c.DB}.notify, closed: make(chan struct{}), wanted: map[string]bool{},
		askAfter: askAfter, answerWithin: answerWithin, hearWithin: answerWithin, sendWithin: sendWithin,
	}
}

// Close sends what is to be sent, and nothing that comes later. It is called once.
func (c *Carrier) Close() {
	c.mu.Lock()
	c.ends = true
	c.mu.Unlock()
	close(c.closed)
	c.senders.Wait()
}

// Call notifies those who listen on a channel, and waits for nothing: at once, or 10 to 40 ms after the
// notification before. It is tried three times; if the database takes none, nobody is called.
func (c *Carrier) Call(channel string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ends {
		return
	}
	c.wanted[channel] = true
	if !c.sending {
		c.sending = true
		c.senders.Go(c.send)
	}
}

// send notifies until nobody is to be called.
func (c *Carrier) send() {
	apart, failed := leastApart, 0
	for channels := c.take(); len(channels) > 0; channels = c.take() {
		ctx, cancel := context.WithTimeout(context.Background(), c.sendWithin)
		err := c.notify(ctx, channels)
		cancel()
		if err == nil {
			failed = 0
		} else if failed++; failed < tries {
			c.want(channels)
		} else {
			failed = 0
			c.c.Log.DebugContext(ctx, "nobody is called, they poll", "error", err, "channels", channels)
		}
		c.pause(apart)
		apart = min(2*apart, mostApart)
	}
}

// pause waits, unless the carrier is closed.
func (c *Carrier) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
	}
}

// want has channels notified again.
func (c *Carrier) want(channels []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, channel := range channels {
		c.wanted[channel] = true
	}
}

// take returns the channels that are wanted. Where there are none, the next call starts a sender.
func (c *Carrier) take() (channels []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for channel := range c.wanted {
		channels = append(channels, channel)
	}
	clear(c.wanted)
	c.sending = len(channels) > 0
	return channels
}

// Listen calls heard for each notification of a channel until ctx is cancelled, and once whenever
// it begins to hear, as nobody heard those before. It tells stands whether it hears, which each session
// has to prove. Where one does not, it warns, and not again until one hears. Without a URL it hears
// nothing. It returns nil.
func (c *Carrier) Listen(ctx context.Context, channel string, stands func(bool), heard func()) error {
	if c.c.URL == "" {
		<-ctx.Done()
		return nil
	}
	rest, warned := firstRest, false
	for ctx.Err() == nil {
		stood, err := c.session(ctx, channel, stands, heard)
		stands(false)
		if ctx.Err() != nil {
			break
		}
		if stood {
			rest, warned = firstRest, false
		}
		if errors.Is(err, errDeaf) && !warned {
			warned = true
			c.c.Log.WarnContext(ctx, "not called, so polling: notifications that are sent at DATABASE_URL do not arrive at the session that listens; if that lasts, give DATABASE_DIRECT_URL the address of the same server and database without a pooler", "channel", channel)
		}
		c.c.Log.InfoContext(ctx, "not called at the moment, so polling; listening again after a rest", "channel", channel, "error", err, "rest", rest.String())
		clock.Sleep(ctx, rest/2+rand.N(rest/2)) // not all processes at once
		rest = min(2*rest, longestRest)
	}
	return nil
}

// session listens in one session until that ends, and says whether it ever stood.
func (c *Carrier) session(ctx context.Context, channel string, stands func(bool), heard func()) (stood bool, err error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return false, err
	}
	defer hangUp(ctx, conn)
	l := newListener(c, conn, channel, heard)
	if err := l.listen(ctx); err != nil {
		return false, err
	}
	if err := l.prove(ctx); err != nil {
		return false, err
	}
	stands(true)
	heard()
	return true, l.hearAll(ctx)
}

func (c *Carrier) connect(ctx context.Context) (*pgx.Conn, error) {
	pool, err := pgxpool.ParseConfig(c.c.URL) // the server knows no pool_max_conns, which a pool may have
	if err != nil {
		return nil, errors.New("the address does not parse") // the driver's text repeats the password
	}
	config := pool.ConnConfig
	config.ConnectTimeout = c.answerWithin
	config.RuntimeParams["application_name"] = c.c.Name
	conn, err := pgx.ConnectConfig(ctx, config)
	return conn, postgres.Fault(err)
}

// hangUp ends a session, which may be dead already: the driver waits for an answer.
func hangUp(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendWithin)
	defer cancel()
	_ = conn.Close(ctx)
}
