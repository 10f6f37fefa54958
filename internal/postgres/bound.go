package postgres

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
)

// floor is how many connections a pool keeps, however often the server refuses it a session; all,
// if MaxConns is less. One that is shared out by tenant keeps the reserved ones and those that one
// tenant may hold, because people wait for its transactions.
const floor = 2

// A pool that was refused a session asks for the next one after refusedRest, and goes on after
// growRest each time, while it is not refused. One below its floor asks after growRest in any case.
// Both are longer by up to a half, so that processes do not come back together.
const (
	refusedRest = 10 * time.Second
	growRest    = 2 * time.Second
)

// bound is how many connections a pool may have at the moment. Where the server refuses a session,
// the pool closes a quarter of its connections, as they are released, and opens no other for a
// while. If all processes do so, the server has a few sessions free, and a process that starts
// finds one. Otherwise those that run would keep all of them busy.
//
// The pool itself has one size for ever. So what it may not have is acquired here and kept: a hold
// is a connection whose session is closed, or one that is not opened until the hold ends. All
// others wait for a connection in the pool's own order, whichever method they call, and nothing is
// done when a connection is acquired or released. An error of BeforeConnect instead would fail
// those that could wait, and AfterRelease would begin a goroutine for each release.
type bound struct {
	pool        *pgxpool.Pool
	least, most int         // floor and MaxConns
	resized     func(n int) // nil: nobody is told

	refusal chan struct{} // told of each

	life context.Context // ends with the pool
	stop context.CancelFunc
	runs sync.WaitGroup

	mu       sync.Mutex
	now      int     // from 1 to most
	holds    []*hold // most-now of them
	ended    int     // connections of holds whose session is closed
	refusals int
}

// hold is a connection that a pool may not have.
type hold struct {
	freed  chan struct{}   // closed when it ends
	spared []*pgxpool.Conn // acquired on the way to it
}

// release releases the connections that it needs no more.
func (h *hold) release() {
	for _, conn := range h.spared {
		conn.Release()
	}
	h.spared = nil
}

// holdKey is the key of a hold in the context by which it acquires.
type holdKey struct{}

// errHeld is what an attempt to connect meets that was a hold.
var errHeld = errors.New("the connection was held")

// newBound makes the bound of a pool to come, which opens its connections through connect.
func newBound(most, perTenant int) *bound {
	least := floor
	if perTenant > 0 {
		least = reserved + perTenant
	}
	b := &bound{least: min(least, most), most: most, now: most, refusal: make(chan struct{}, 1)}
	b.life, b.stop = context.WithCancel(context.Background())
	return b
}

// begin says whose bound it is.
func (b *bound) begin(pool *pgxpool.Pool, resized func(n int)) {
	b.mu.Lock()
	b.pool, b.resized = pool, resized
	b.mu.Unlock()
	if b.most > 1 {
		b.runs.Go(b.run)
	}
}

// close ends all connections.
func (b *bound) close() {
	b.stop()
	b.mu.Lock()
	for _, h := range b.holds {
		close(h.freed)
	}
	b.holds = nil
	b.mu.Unlock()
	b.pool.Close()
	b.runs.Wait()
}

// connect is called before a connection is opened. It keeps a hold from it, and learns whether
// the server refuses a session to others.
func (b *bound) connect(ctx context.Context, c *pgx.ConnConfig) error {
	if h, held := ctx.Value(holdKey{}).(*hold); held {
		h.release()
		select {
		case <-h.freed:
		case <-ctx.Done():
		}
		return errHeld
	}
	began, onError := b.refused(), c.OnPgError
	c.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == tooManyConnections {
			b.shrink(began)
		}
		return onError(conn, err)
	}
	return withoutCancel(ctx, c)
}

// refused is how often the server refused a session so far.
func (b *bound) refused() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refusals
}

// shrink lowers the bound after the server refused a session. began is what refused
// answered before that was asked for: of several that are asked for at once, the first one counts.
func (b *bound) shrink(began int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pool == nil || b.life.Err() != nil || began != b.refusals {
		return
	}
	b.refusals++
	select {
	case b.refusal <- struct{}{}:
	default: // it is being told
	}
	switch has := b.has(); {
	case has >= b.least:
		b.set(min(b.now, max(b.least, has-(has+3)/4)))
	case has > 0: // it keeps these, and waits for them
		b.set(min(b.now, has))
	}
}

// has is how many sessions the pool has. The caller has locked b.
func (b *bound) has() int {
	s := b.pool.Stat()
	return int(s.AcquiredConns()+s.IdleConns()) - b.ended
}

// set sets the bound. The caller has locked b.
func (b *bound) set(n int) {
	for len(b.holds) < b.most-n {
		h := &hold{freed: make(chan struct{})}
		b.holds = append(b.holds, h)
		b.runs.Go(func() { b.keep(h) })
	}
	for last := len(b.holds) - 1; last >= b.most-n; last-- {
		close(b.holds[last].freed)
		b.holds = b.holds[:last]
	}
	b.now = n
	if b.resized != nil {
		b.resized(n)
	}
}

// keep takes one connection from the pool until the hold is freed. Those that wait for a connection
// already have theirs before it. A connection with a session is spared while the pool has no
// more of them than it may: another one is being opened, and is acquired if it is refused.
func (b *bound) keep(h *hold) {
	defer h.release()
	ctx := context.WithValue(context.Background(), holdKey{}, h)
	for {
		conn, err := b.pool.Acquire(ctx)
		if err != nil { // it was not opened, or the pool is closed
			return
		}
		select {
		case <-h.freed:
			conn.Release()
			return
		default:
		}
		if !b.exceeded() {
			h.spared = append(h.spared, conn)
			continue
		}
		h.release()
		_ = conn.Conn().Close(ctx) // the session ends in any case
		<-h.freed
		b.mu.Lock()
		b.ended--
		b.mu.Unlock()
		conn.Release()
		return
	}
}

// exceeded says whether the pool has more sessions than it may, and counts one as ended then.
func (b *bound) exceeded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.has() <= b.now {
		return false
	}
	b.ended++
	return true
}

// run adjusts the bound until the pool is closed.
func (b *bound) run() {
	for refused := false; b.life.Err() == nil; {
		if refused = b.refusedWithin(b.rest(refused)); !refused {
			b.adjust(b.life)
		}
	}
}

// rest is how long to wait before the server is asked again.
func (b *bound) rest(refused bool) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := growRest
	if b.now == b.most || refused && b.now >= b.least {
		rest = refusedRest
	}
	return rest + rand.N(rest/2)
}

// refusedWithin waits until the server refuses a session, for so long at most.
func (b *bound) refusedWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-b.refusal:
		return true
	case <-timer.C:
	case <-b.life.Done():
	}
	return false
}

// adjust asks the server for a session, and has the bound grow by one or shrink. So no request
// meets the refusal. A pool that has all its connections asks, too: it opens no other, and would
// not know that the server is full. One that may have all, and has fewer, has nothing to ask, nor
// has one that would close none.
func (b *bound) adjust(ctx context.Context) {
	b.mu.Lock()
	began, content := b.refusals, b.now == b.most && (b.has() < b.most || b.most == b.least)
	b.mu.Unlock()
	if content {
		return
	}
	if err := b.ask(ctx); err != nil {
		if isRefusal(err) {
			b.shrink(began)
		}
		return // after an outage it goes on
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if began == b.refusals && b.now < b.most && b.life.Err() == nil {
		b.set(b.now + 1)
	}
}

// ask opens a session, closes it, and waits until the server has it free again: otherwise the next
// connection would be refused because of this one.
func (b *bound) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	c := b.pool.Config().ConnConfig
	c.AfterConnect = nil // it does nothing that it would have to be set up for
	conn, err := pgconn.ConnectConfig(ctx, &c.Config)
	if err != nil {
		return err
	}
	session, err := conn.Hijack()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = session.Conn.Close() })()
	defer func() { _ = session.Conn.Close() }()
	session.Frontend.Send(&pgproto3.Terminate{})
	if err := session.Frontend.Flush(); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, session.Conn) // until the server closes it
	return nil
}

// isRefusal reports whether the server, or the login, has no session free.
func isRefusal(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == tooManyConnections
}

// Connections counts those of the pool: how many are in use, how many are idle, how many it may have
// at the moment (fewer than MaxConns after the server refused it a session), and how often somebody
// gave up waiting for one.
func (d *DB) Connections() (inUse, idle, most, timeouts int) {
	d.bound.mu.Lock()
	defer d.bound.mu.Unlock()
	s := d.pool.Stat()
	return int(s.AcquiredConns()) - d.bound.ended, int(s.IdleConns()), d.bound.now, int(s.CanceledAcquireCount())
}
