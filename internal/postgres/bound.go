package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scheduler-service/scheduler/internal/turn"
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
	least, most int           // floor and MaxConns
	permits     *turn.Limiter // of the transactions that share the connections out; nil: they do not

	next *time.Timer     // fires when the server is to be asked
	life context.Context // ends with the pool
	stop context.CancelFunc
	runs sync.WaitGroup

	mu     sync.Mutex
	holds  []context.CancelFunc // end them
	parked int                  // holds that wait before they open a connection
	ended  int                  // holds whose connection has its session closed
}

// hold is a connection that a pool may not have.
type hold struct {
	life   context.Context
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

// errHeld is what BeforeConnect returns when a hold ends before it opened anything.
var errHeld = errors.New("the connection was held")

// newBound opens a pool that may have all its connections at first. permits is told how many of
// them are for transactions.
func newBound(ctx context.Context, pc *pgxpool.Config, perTenant int, permits *turn.Limiter) (b *bound, err error) {
	most, least := int(pc.MaxConns), floor
	if perTenant > 0 {
		least = reserved + perTenant
	}
	b = &bound{least: min(least, most), most: most, permits: permits, next: time.NewTimer(refusedRest)}
	b.life, b.stop = context.WithCancel(context.Background())
	pc.BeforeConnect = b.connect
	b.mu.Lock() // with pool_min_conns in the address the pool connects at once
	defer b.mu.Unlock()
	if b.pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		return nil, err
	}
	b.runs.Go(b.run)
	return b, nil
}

// close ends all connections.
func (b *bound) close() {
	b.mu.Lock()
	b.stop()
	b.mu.Unlock()
	b.pool.Close()
	b.runs.Wait()
}

// connect is called before a connection is opened. It keeps a hold from it, and learns whether
// the server refuses a session to others.
func (b *bound) connect(ctx context.Context, c *pgx.ConnConfig) error {
	if h, held := ctx.Value(holdKey{}).(*hold); held {
		b.park(h)
		return errHeld
	}
	c.Tracer = connectTracer{c.Tracer, b.connected}
	return withoutCancel(ctx, c)
}

// park waits until the hold ends.
func (b *bound) park(h *hold) {
	h.release()
	b.mu.Lock()
	b.parked++
	b.mu.Unlock()
	<-h.life.Done()
	b.mu.Lock()
	b.parked--
	b.mu.Unlock()
}

// connected is told how an attempt to connect ended.
func (b *bound) connected(err error) {
	if isRefusal(err) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.refused(1)
	}
}

// refused lowers the bound after the server refused a session. mine is 1 if that was for a connection
// of the pool. The others that the pool is opening count as its own: a refusal is quicker than a
// session. Nothing is lowered until the holds of the refusal before have their connections: those who
// waited earlier open some first, and are refused, too. The caller has locked b.
func (b *bound) refused(mine int) {
	open, opening := b.sessions()
	has, settled := open+opening-mine, b.parked+b.ended >= len(b.holds)
	if has > 0 && settled && b.life.Err() == nil { // one below its floor keeps these, and waits for them
		b.set(min(b.now(), has, max(b.least, has-(has+3)/4)))
	}
	b.rest(true)
}

// now is how many connections the pool may have. The caller has locked b.
func (b *bound) now() int { return b.most - len(b.holds) }

// sessions is how many sessions the pool has, and how many it is opening. The caller has locked b.
func (b *bound) sessions() (open, opening int) {
	s := b.pool.Stat()
	return int(s.AcquiredConns()+s.IdleConns()) - b.ended, int(s.ConstructingConns()) - b.parked
}

// hasSessions says whether the pool has any.
func (b *bound) hasSessions() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	open, _ := b.sessions()
	return open > 0
}

// set sets the bound. The caller has locked b.
func (b *bound) set(n int) {
	for b.now() > n {
		life, end := context.WithCancel(b.life)
		b.holds = append(b.holds, end)
		b.runs.Go(func() { b.keep(&hold{life: life}) })
	}
	for b.now() < n {
		last := len(b.holds) - 1
		b.holds[last]()
		b.holds = b.holds[:last]
	}
	if b.permits != nil {
		b.permits.Resize(n - reserved)
	}
}

// keep takes one connection from the pool until the hold ends. Waiters that came earlier are
// served first. While the pool has no more sessions than it may, keep sets the connection aside
// and acquires again, until it gets one that is not open.
func (b *bound) keep(h *hold) {
	defer h.release()
	ctx := context.WithValue(context.Background(), holdKey{}, h)
	for h.life.Err() == nil {
		conn, err := b.pool.Acquire(ctx)
		switch {
		case err != nil: // the hold has ended, or connections were broken
		case !b.exceeded():
			h.spared = append(h.spared, conn)
		default:
			h.release()
			_ = conn.Conn().Close(ctx) // the session ends in any case
			<-h.life.Done()
			b.remove(conn)
		}
	}
}

// exceeded says whether the pool has more sessions than it may, and counts one as ended then.
func (b *bound) exceeded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if open, _ := b.sessions(); open <= b.now() {
		return false
	}
	b.ended++
	return true
}

// remove removes a connection whose session is closed, and counts it no more. Release would remove it
// later.
func (b *bound) remove(conn *pgxpool.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended--
	conn.Hijack()
}

// run adjusts the bound until the pool is closed.
func (b *bound) run() {
	for {
		select {
		case <-b.next.C:
			b.adjust(b.life)
		case <-b.life.Done():
			return
		}
	}
}

// rest sets when the server is asked next. The caller has locked b.
func (b *bound) rest(refused bool) {
	rest := growRest
	if now := b.now(); now == b.most || refused && now >= b.least {
		rest = refusedRest
	}
	b.next.Reset(rest + rand.N(rest/2))
}

// adjust asks the server for a session, and has the bound grow by one or shrink. So no request
// meets the refusal. It does not ask if the pool may have all its connections and a refusal would
// close none.
func (b *bound) adjust(ctx context.Context) {
	b.mu.Lock()
	now, asks := b.now(), b.now() < b.most || b.hasMoreThanFloor()
	b.mu.Unlock()
	var err error
	if asks {
		err = askForSession(ctx, b.pool.Config().ConnConfig)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.now() != now: // a connection was refused meanwhile
	case isRefusal(err):
		b.refused(0)
	default:
		if err == nil && now < b.most {
			b.set(now + 1)
		}
		b.rest(false) // after an outage it goes on
	}
}

// hasMoreThanFloor says whether the pool would close some of its connections. While it has enough of them it opens
// no other, so it is refused none and does not notice that the server is full. The caller has locked b.
func (b *bound) hasMoreThanFloor() bool {
	open, _ := b.sessions()
	return open > b.least
}

// Connections counts those of the pool: how many are in use, how many are idle, how many it may have
// at the moment (fewer than MaxConns after the server refused it a session), and how often somebody
// gave up waiting for one.
func (d *DB) Connections() (inUse, idle, most, timeouts int) {
	d.bound.mu.Lock()
	defer d.bound.mu.Unlock()
	s := d.pool.Stat()
	return int(s.AcquiredConns()) - d.bound.ended, int(s.IdleConns()), d.bound.now(), int(s.CanceledAcquireCount())
}
