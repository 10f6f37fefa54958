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
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

const (
	// leastApart is the distance of two notifications of a process. It doubles up to mostApart
	// while calls keep coming: each notification wakes up everybody who listens, and under load
	// workers look by themselves. None costs a request or a pass a round trip of its own.
	leastApart = 10 * time.Millisecond
	mostApart  = 40 * time.Millisecond
	// sendWithin bounds how long a notification takes. One that is late is worth little.
	sendWithin = time.Second
	// askAfter is how long nothing may be heard before the session is asked whether it lives, and
	// answerWithin how long it has to answer. A network that was cut tells nothing.
	askAfter     = 30 * time.Second
	answerWithin = 5 * time.Second
	// A session that ended is opened anew after firstRest, then after twice as long each time
	// up to longestRest: a server that has no session free needs them for others.
	firstRest   = time.Second
	longestRest = 30 * time.Second
)

// Config says where calls go.
type Config struct {
	DB *postgres.DB // through which calls are sent
	// URL is where to listen: PostgreSQL itself, or a pooler that keeps sessions.
	URL  string
	Name string // application_name of the session that listens
	Log  *slog.Logger
}

// Line carries calls. Any number of goroutines may use it.
type Line struct {
	c     Config
	store store
	life  context.Context
	end   context.CancelFunc

	senders sync.WaitGroup
	mu      sync.Mutex
	wanted  map[string]bool // channels on which nobody was called yet
	sending bool            // a goroutine sends
}

// New makes a line. It connects to nothing.
func New(c Config) *Line {
	life, end := context.WithCancel(context.Background())
	return &Line{c: c, store: store{c.DB}, life: life, end: end, wanted: map[string]bool{}}
}

// Close sends nothing more, and waits for the notification that is being sent.
func (l *Line) Close() {
	l.end()
	l.mu.Lock()
	l.sending = true // for ever
	l.mu.Unlock()
	l.senders.Wait()
}

// Call notifies those who listen on a channel, and waits for nothing: at once, or 10 to 40 ms after the
// notification before. Those who wait for one that fails are not called.
func (l *Line) Call(channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted[channel] = true
	if !l.sending {
		l.sending = true
		l.senders.Go(l.send)
	}
}

// send notifies until nobody is to be called.
func (l *Line) send() {
	apart := leastApart
	for channels := l.take(); len(channels) > 0; channels = l.take() {
		ctx, cancel := context.WithTimeout(l.life, sendWithin)
		err := l.store.notify(ctx, channels)
		cancel()
		if err != nil && l.life.Err() == nil {
			l.c.Log.DebugContext(l.life, "nobody is called, they poll", "error", err, "channels", channels)
		}
		clock.Sleep(l.life, apart)
		apart = min(2*apart, mostApart)
	}
}

// take returns the channels that are wanted. Where there are none, the next call starts a sender.
func (l *Line) take() (channels []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		return nil
	}
	for channel := range l.wanted {
		channels = append(channels, channel)
	}
	clear(l.wanted)
	l.sending = len(channels) > 0
	return channels
}

// Listen calls heard for each notification of a channel until ctx is cancelled, and once whenever
// it begins to hear, as nobody heard those before. It tells stands whether it hears. It returns
// nil.
func (l *Line) Listen(ctx context.Context, channel string, stands func(bool), heard func()) error {
	rest := firstRest
	for ctx.Err() == nil {
		stood, err := l.session(ctx, channel, stands, heard)
		stands(false)
		if ctx.Err() != nil {
			break
		}
		if stood {
			rest = firstRest
		}
		l.c.Log.InfoContext(ctx, "not called any more, polling; listening again after a rest", "channel", channel, "error", err, "rest", rest.String())
		clock.Sleep(ctx, rest)
		rest = min(2*rest, longestRest)
	}
	return nil
}

// session listens in one session until that ends, and says whether it ever stood.
func (l *Line) session(ctx context.Context, channel string, stands func(bool), heard func()) (stood bool, err error) {
	conn, err := l.connect(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // it may be dead already
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return false, postgres.Fault(err)
	}
	stands(true)
	heard()
	for {
		if err := wait(ctx, conn); err != nil {
			return true, err
		}
		heard()
	}
}

func (l *Line) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(l.c.URL)
	if err != nil {
		return nil, errors.New("the address does not parse") // the driver's text repeats the password
	}
	config.ConnectTimeout = answerWithin
	config.RuntimeParams["application_name"] = l.c.Name
	conn, err := pgx.ConnectConfig(ctx, config)
	return conn, postgres.Fault(err)
}

// wait returns with the next notification, or the error that ended the session.
func wait(ctx context.Context, conn *pgx.Conn) error {
	for {
		quiet, cancel := context.WithTimeout(ctx, askAfter)
		_, err := conn.WaitForNotification(quiet)
		passed := quiet.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !passed {
			return err
		}
		asking, cancel := context.WithTimeout(ctx, answerWithin)
		err = conn.Ping(asking)
		cancel()
		if err != nil {
			return err
		}
	}
}
