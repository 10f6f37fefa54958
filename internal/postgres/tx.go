package postgres

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scheduler-service/scheduler/db"
)

// Tx is one transaction: its queries, and the time that it decides by.
type Tx struct {
	*db.Queries
	// At is the database's clock when the transaction began, in UTC. Everything that is
	// durable is decided by it and not by a process's clock, and one
	// transaction uses one time.
	At time.Time
	// Waited is how long it waited for its turn, see InTurn.
	Waited time.Duration

	conn      *pgxpool.Conn
	through   db.DBTX // that its queries go through
	committed bool
	cut       bool       // see Cut
	opening   *pgx.Batch // what begins it, until that is sent
	how       opening
}

// opened reads the answers to what began the transaction; an error of them is
// what closing the results answers, too.
func (tx *Tx) opened(results pgx.BatchResults, o opening) pgx.BatchResults {
	if o.begin() != "" {
		_, _ = results.Exec()
	}
	var set string
	var waited int64
	into := []any{&tx.At}
	if o.turn {
		for range 1 + len(takeTurn) {
			_, _ = results.Exec()
		}
		into = append(into, &waited)
	}
	for range o.settings() {
		into = append(into, &set)
	}
	_ = results.QueryRow().Scan(into...)
	tx.At, tx.Waited, tx.opening = tx.At.UTC(), time.Duration(waited)*time.Microsecond, nil
	return results
}

// callKey is the key of WithCall.
type callKey struct{}

// WithCall makes transactions begun with the context say who makes their
// changes, in app.call, for the triggers that record changes. See package audit,
// which writes the text.
func WithCall(ctx context.Context, call string) context.Context {
	return context.WithValue(ctx, callKey{}, call)
}

// InTx runs fn in one transaction: committed when fn returns nil, rolled back
// otherwise.
func (d *DB) InTx(ctx context.Context, fn func(tx *Tx) error) error {
	return d.inTx(ctx, opening{}, fn)
}

// InTxLed is InTx without a round trip for the beginning, which travels with the
// first statement of fn: that must be one that reads rows, and Tx.At is known
// once it was answered.
func (d *DB) InTxLed(ctx context.Context, fn func(tx *Tx) error) error {
	return d.inTx(ctx, opening{led: true}, fn)
}

// InTurn is InTxLed, and waits first until no other transaction has the turn, in any
// process. Two at once would not be wrong: one after the other they are quicker.
// Tx.At is from before the wait, so statements use statement_timestamp(). An error that
// TimedOut knows says that the turn has not come within patience in line, or within
// headPatience at its head, because the process that has it may stand still, or that a
// statement before the last waited for a lock for longer than turnLockTimeout: nobody keeps
// the turn that long for one row.
//
// The turn ends where CommitWith begins: its statements may wait, and its commit takes seconds
// where the disk or a standby is slow. The next transaction finds locked what this one has
// locked, and not yet what it writes.
//
// A turn that is shown is seen by TurnIsFree, until the transaction has ended.
//
// first is run before the wait, once on each connection: the plans that fn needs in its turn are made then. On a
// connection that had none they took 20 ms, and 100 ms where the server was busy, while all others waited.
func (d *DB) InTurn(ctx context.Context, patience time.Duration, shown bool, first func(q *db.Queries) error, fn func(tx *Tx) error) error {
	return d.inTx(ctx, opening{led: true, turn: true, shown: shown, first: first, patience: patience, lockTimeout: d.lockTimeout}, fn)
}

// TurnIsFree says whether no transaction has or awaits a turn that is shown, nor its commit. It
// is one round trip, and the locks that it tries are given back as its statement ends.
func (d *DB) TurnIsFree(ctx context.Context) (free bool, err error) {
	err = d.pool.QueryRow(ctx, "SELECT "+firstMark+" AND "+secondMark).Scan(&free)
	return free, Fault(err)
}

// turnLockTimeout is lock_timeout in a turn, in milliseconds. SKIP LOCKED is no promise not to
// wait. Where the update of a row is committed while the row is looked at, PostgreSQL 15
// follows it to its last version and waits for the transaction that has locked that one
// (heap_lock_updated_tuple).
const turnLockTimeout = "100"

// InTenant runs fn in one transaction that sees and writes the rows of one
// tenant only, even if its statements name another.
func (d *DB) InTenant(ctx context.Context, tenant uuid.UUID, fn func(tx *Tx) error) error {
	return d.inTx(ctx, opening{tenant: tenant.String()}, fn)
}

// InTenantLed is InTenant without a round trip for the beginning, see InTxLed. Tx.At
// is known once the first statement was answered.
func (d *DB) InTenantLed(ctx context.Context, tenant uuid.UUID, fn func(tx *Tx) error) error {
	return d.inTx(ctx, opening{tenant: tenant.String(), led: true}, fn)
}

// InTenantEach runs fn with statements that read the tenant's rows, each in a
// transaction of its own, which is one round trip: for what needs no common time.
func (d *DB) InTenantEach(ctx context.Context, tenant uuid.UUID, fn func(tx *Tx) error) error {
	return d.inTx(ctx, opening{tenant: tenant.String(), each: true}, fn)
}

// InSnapshot is InTenant for reports and lists: all statements see the tenant's
// rows as of one time and may write nothing. Each is planned for its own
// parameters: a plan that is kept for all of them suits neither a job nor a tenant,
// neither an hour nor a month, and locks every partition, also those
// outside the range that is asked for. The beginning travels with the first statement, see InTxLed.
func (d *DB) InSnapshot(ctx context.Context, tenant uuid.UUID, fn func(tx *Tx) error) error {
	return d.inTx(ctx, opening{tenant: tenant.String(), led: true, report: true, plans: "force_custom_plan"}, fn)
}

// InList is InSnapshot for lists: what has to come in an order comes by an index
// that has it, if there is one, and is read only as far as the page goes. The
// planner expects fewer rows of a tenant than there are, because the policies ask
// for the tenant once more, and would rather read and sort them all.
func (d *DB) InList(ctx context.Context, tenant uuid.UUID, fn func(tx *Tx) error) error {
	return d.inTx(ctx, opening{tenant: tenant.String(), led: true, report: true, plans: "force_custom_plan", unsorted: true}, fn)
}

// InNewest is InList for a page without filters, newest first, which is asked for most.
// Each statement is one round trip and a transaction of its own, so a second one sees
// what was committed since the first. Each has one plan for all tenants, which is kept:
// planning takes longer than reading such a page. Of a partitioned table see PagedSince.
func (d *DB) InNewest(ctx context.Context, tenant uuid.UUID, fn func(tx *Tx) error) error {
	return d.inTx(ctx, opening{tenant: tenant.String(), each: true, plans: "force_generic_plan", unsorted: true}, fn)
}

// AcrossTenants runs fn in one transaction that may read the list of tenants,
// and no row that is a tenant's own. It is for platform administrators.
func (d *DB) AcrossTenants(ctx context.Context, fn func(tx *Tx) error) error {
	return d.inTx(ctx, opening{platform: "on"}, fn)
}

// opening is how a transaction begins.
type opening struct {
	tenant, platform string // the settings of the policies
	call             string // see WithCall
	report           bool   // see InSnapshot
	plans            string // plan_cache_mode; empty: that of the server
	unsorted         bool   // see InList
	led              bool   // see InTxLed
	each             bool   // see InTenantEach
	turn, shown      bool   // see InTurn
	first            func(q *db.Queries) error
	patience         time.Duration
	lockTimeout      string // of the session, which holds again for CommitWith
}

// begin is the statement that begins the transaction; empty where the round trip is
// the transaction.
func (o opening) begin() string {
	switch {
	case o.each:
		return ""
	case o.report:
		return "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	}
	return "BEGIN"
}

// setting is one for the rest of a transaction.
type setting struct{ name, value string }

// settings are those of the transaction. One that reads changes nothing that anybody
// would have to be recorded for.
func (o opening) settings() []setting {
	all := []setting{{"app.tenant_id", o.tenant}}
	if !o.each && !o.report {
		all = append(all, setting{"app.platform", o.platform}, setting{"app.call", o.call})
	}
	if o.plans != "" {
		all = append(all, setting{"plan_cache_mode", o.plans})
	}
	if o.unsorted {
		all = append(all, setting{"enable_sort", "off"})
	}
	if o.turn {
		all = append(all, setting{"lock_timeout", turnLockTimeout})
	}
	return all
}

const (
	setLockTimeout = "SELECT set_config('lock_timeout', $1, true)"
	endTurn        = "SELECT pg_advisory_unlock_all()"
	// headPatience is lock_timeout at the head of the line, in milliseconds: longer than any
	// worker keeps the turn.
	headPatience = "1000"
	// A transaction whose turn is shown has one of these two locks until it is committed, if
	// one was free.
	firstMark  = "pg_try_advisory_xact_lock(hashtext('turn mark'), 1)"
	secondMark = "pg_try_advisory_xact_lock(hashtext('turn mark'), 2)"
)

// takeTurn waits for the turn. Its lock is one of the session, because those of a transaction
// last until its commit is answered. So the transaction unlocks it, however it ends. The server
// does so where the connection is lost.
//
// Only the head of the line waits for that lock, and the others for one of a table. A
// statement that waits for an advisory lock has a snapshot. With 40 of them PostgreSQL had to
// keep what was removed in the last 0.7 s, and each poll stepped over it. LOCK TABLE waits
// without a snapshot. The savepoint gives the lock of the table back.
var takeTurn = []string{
	"SAVEPOINT line",
	"LOCK TABLE turn_line IN SHARE UPDATE EXCLUSIVE MODE",
	"SELECT set_config('lock_timeout', '" + headPatience + "', true), pg_advisory_lock(hashtext('turn'), hashtext('poll'))",
	"ROLLBACK TO SAVEPOINT line",
	"RELEASE SAVEPOINT line",
}

// beforeLine is what a transaction does before it stands in line for its turn.
func (o opening) beforeLine() string {
	if o.shown {
		return setLockTimeout + ", " + firstMark + " OR " + secondMark
	}
	return setLockTimeout
}

// planned is the key of what a connection remembers of plan.
const planned = "plans of a turn"

// plan runs first, unless the connection has run it.
func (o opening) plan(conn *pgxpool.Conn) error {
	if o.first == nil {
		return nil
	}
	known := conn.Conn().PgConn().CustomData()
	if known[planned] != nil {
		return nil
	}
	if err := o.first(db.New(conn)); err != nil {
		return err
	}
	known[planned] = true
	return nil
}

// commit and rollback are the statements that end the transaction.
func (o opening) commit() string {
	if o.turn {
		return endTurn + "; COMMIT"
	}
	return "COMMIT"
}

func (o opening) rollback() string {
	if o.turn {
		return "ROLLBACK; " + endTurn
	}
	return "ROLLBACK"
}

// batch is everything that is sent ahead of the first statement.
func (o opening) batch() *pgx.Batch {
	b := &pgx.Batch{}
	if begin := o.begin(); begin != "" {
		b.Queue(begin)
	}
	var text strings.Builder
	text.WriteString("SELECT now()")
	if o.turn {
		b.Queue(o.beforeLine(), fmt.Sprint(o.patience.Milliseconds()))
		for _, step := range takeTurn {
			b.Queue(step)
		}
		text.WriteString(", (extract(epoch FROM clock_timestamp() - now()) * 1000000)::bigint")
	}
	var values []any
	for i, s := range o.settings() {
		fmt.Fprintf(&text, ", set_config('%s', $%d, true)", s.name, i+1)
		values = append(values, s.value)
	}
	b.Queue(text.String(), values...)
	return b
}

// inTx opens the transaction and names the tenant in one round trip. An error
// of the commit itself leaves the outcome unknown: it comes back as
// Unavailable, and a caller that repeats the work must be able to.
func (d *DB) inTx(ctx context.Context, o opening, fn func(tx *Tx) error) error {
	if d.permits != nil {
		give, err := d.permits.Acquire(ctx, cmp.Or(o.tenant, "platform"))
		if err != nil {
			return Fault(err)
		}
		defer give()
	}
	conn, err := d.poolOf(o.tenant).lend(ctx, sessionPatience)
	if err != nil {
		return Fault(err)
	}
	// A connection that comes back inside a transaction is closed by the
	// pool: that is the roll-back when fn panics or the connection is lost.
	defer conn.Release()
	if err := o.plan(conn); err != nil {
		return Fault(err)
	}
	o.call, _ = ctx.Value(callKey{}).(string)
	tx := &Tx{conn: conn, through: conn, opening: o.batch(), how: o}
	if o.led || o.each {
		tx.through = leader{tx, o}
	} else if err := tx.opened(conn.SendBatch(ctx, tx.opening), o).Close(); err != nil {
		return Fault(err)
	}
	tx.Queries = db.New(tx.through)
	if o.each {
		return Fault(fn(tx))
	}
	if err := fn(tx); err != nil {
		if tx.opening != nil { // nothing began
			return Fault(err)
		}
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if _, failed := conn.Exec(undo, o.rollback()); failed != nil { // fn's error is the one that tells
			_ = conn.Conn().Close(undo) // so the server unlocks what its session holds
		}
		return Fault(err)
	}
	if tx.committed || tx.opening != nil { // or never begun
		return nil
	}
	tag, err := conn.Exec(ctx, o.commit())
	if err != nil {
		return Fault(err)
	}
	if tag.String() != "COMMIT" {
		return fmt.Errorf("the transaction ended with %s", tag)
	}
	return nil
}
