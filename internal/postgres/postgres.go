// Package postgres is the door to the database: the pool, transactions,
// what a driver's error means, and the schema.
//
// It owns how a connection acts (role, time-outs), the transaction of one
// tenant, the one function from PostgreSQL's codes to faults, and applying the
// migrations. It refuses to hold any query: those are in db/queries, and each
// package that owns rows calls them from its store.go.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/turn"
)

// Role is what a process acts as in the database. The login role of
// DATABASE_URL must be a member of it.
type Role string

// The two roles that the migrations make.
const (
	API    Role = "scheduler_api"    // one tenant at a time, under row-level security
	Engine Role = "scheduler_engine" // promoter and worker
)

// Config says how to connect.
type Config struct {
	URL      string
	Role     Role
	Name     string // application_name, for the operator
	MaxConns int    // 1 and more
	// Pooled says that a pooler lends connections for one transaction each
	// (DATABASE_POOL_MODE=transaction). A session is then what its login makes of it.
	Pooled bool
	// PerTenant is how many connections the transactions of one tenant may hold
	// at once; zero: any number, and no turns.
	PerTenant int
	// StatementTimeout bounds one statement; zero means 5 s.
	StatementTimeout time.Duration
	Tracer           pgx.QueryTracer
	// RoundTrip is told of each round trip, by the name of its statement, in
	// Tracer's place; nil: nobody is.
	RoundTrip func(statement string)
	// Spans makes a span of each round trip that belongs to a trace; with RoundTrip.
	Spans bool
}

// DB is a pool whose connections act as one role.
type DB struct {
	pool    *pgxpool.Pool
	permits *turn.Limiter // nil: every transaction gets a connection
}

// reserved is how many connections no transaction takes where they are shared
// out by tenant: health checks find one at once.
const reserved = 2

// pingAfter is how long a connection of the engine may be idle before it is asked whether it
// lives.
const pingAfter = 10 * time.Second

// Open makes a pool and checks that it can serve: the database answers, and
// the role is not one that row-level security does not bind.
func Open(ctx context.Context, c Config) (*DB, error) {
	pc, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, errors.New("DATABASE_URL does not parse") // the driver's text repeats the password
	}
	pc.MaxConns = int32(max(1, c.MaxConns))
	pc.MaxConnLifetime = time.Hour
	pc.MaxConnLifetimeJitter = 10 * time.Minute
	pc.ConnConfig.ConnectTimeout = 5 * time.Second
	if c.Role == Engine {
		// The driver asks a connection that was idle for a second whether it lives. That
		// would double the statements of an idle installation, and a pass or heartbeat that
		// meets a dead one is repeated.
		pc.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingAfter }
	}
	if pc.ConnConfig.Tracer = c.Tracer; c.RoundTrip != nil {
		pc.ConnConfig.Tracer = trips{c.RoundTrip, c.Spans}
	}
	pc.ConnConfig.RuntimeParams["application_name"] = c.Name
	if c.Pooled {
		// A prepared statement has a name in one session, and the next transaction has another.
		pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	} else {
		pc.ConnConfig.AfterConnect = c.settle
	}
	pc.BeforeConnect, pc.AfterConnect = withoutCancel, plainJSON
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("open the database pool: %w", err)
	}
	db := &DB{pool: pool}
	if c.PerTenant > 0 {
		db.permits = turn.New(turn.Config{
			All: c.MaxConns - reserved, Each: c.PerTenant, Limit: "connectionsAtOnce",
			Message: "at most %d requests of a tenant are served at once by each API process (the operator sets TENANT_MAX_CONNECTIONS)",
		})
	}
	if c.Pooled {
		err = db.checkLogin(ctx, c)
	}
	if err = errors.Join(err, db.checkRole(ctx, c.Role)); err != nil {
		pool.Close()
		return nil, err
	}
	if err := db.checkServer(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return db, nil
}

// checkRole refuses a session that row-level security would not bind, and one
// that does not act as the role: a pooler that gives each statement another
// connection forgets what a session was set to.
func (d *DB) checkRole(ctx context.Context, role Role) error {
	var session, acts string
	var loose bool
	err := d.pool.QueryRow(ctx, `SELECT session_user::text, current_user::text,
		(SELECT bool_or(rolsuper OR rolbypassrls) FROM pg_roles WHERE rolname IN (session_user, current_user))
		OR pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = to_regclass('public.scheduled_jobs')), 'MEMBER')`).
		Scan(&session, &acts, &nullable{&loose})
	if unfit := noMember(err, d.pool.Config().ConnConfig.User, role); unfit != nil {
		return unfit
	}
	if err != nil {
		return fmt.Errorf("connect to the database: %w", Fault(err))
	}
	if loose {
		return fmt.Errorf("DATABASE_URL logs in as %q, which is a superuser, bypasses row-level security or owns the tables: give the processes a role of their own (see docs/run/databases.md, \"Database roles\")", session)
	}
	if acts != string(role) {
		return fmt.Errorf("the session acts as %q and not as %s, which it was set to: let the pooler keep sessions (PgBouncer: pool_mode = session), set DATABASE_POOL_MODE=transaction, or connect to PostgreSQL itself", acts, role)
	}
	return nil
}

// nullable reads a boolean that may be NULL as false.
type nullable struct{ to *bool }

// Scan implements sql.Scanner.
func (n *nullable) Scan(v any) error {
	b, _ := v.(bool)
	*n.to = b
	return nil
}

// Close ends all connections.
func (d *DB) Close() { d.pool.Close() }

// Pool is the pool itself, for statements that need no transaction.
func (d *DB) Pool() *pgxpool.Pool { return d.pool }

// Tx is one transaction: its queries, and the time that it decides by.
type Tx struct {
	*db.Queries
	// At is the database's clock when the transaction began, in UTC. Everything that is
	// durable is decided by it and not by a process's clock, and one
	// transaction uses one time.
	At time.Time

	conn      *pgxpool.Conn
	through   db.DBTX // that its queries go through
	committed bool
	cut       bool       // see Cut
	opening   *pgx.Batch // what begins it, until that is sent
}

// opened reads the answers to what began the transaction; an error of them is
// what closing the results answers, too.
func (tx *Tx) opened(results pgx.BatchResults, o opening) pgx.BatchResults {
	if o.begin() != "" {
		_, _ = results.Exec()
	}
	var set string
	into := []any{&tx.At}
	for range o.settings() {
		into = append(into, &set)
	}
	_ = results.QueryRow().Scan(into...)
	tx.At, tx.opening = tx.At.UTC(), nil
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

// InTenant runs fn in one transaction that sees and writes the rows of one
// tenant only, whatever its statements say.
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
// neither an hour nor a month, and locks every partition, whatever the parameters
// say. The beginning travels with the first statement, see InTxLed.
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

// InNewest is InList for the first page of a list without filters. Its statement has
// one plan for all tenants, which is kept: planning takes longer than reading such a
// page. Of a partitioned table see PagedSince.
func (d *DB) InNewest(ctx context.Context, tenant uuid.UUID, fn func(tx *Tx) error) error {
	return d.inTx(ctx, opening{tenant: tenant.String(), led: true, report: true, plans: "force_generic_plan", unsorted: true}, fn)
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
	return all
}

// batch is everything that is sent ahead of the first statement.
func (o opening) batch() *pgx.Batch {
	b := &pgx.Batch{}
	if begin := o.begin(); begin != "" {
		b.Queue(begin)
	}
	var text strings.Builder
	text.WriteString("SELECT now()")
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
	conn, err := d.poolOf(o.tenant).Acquire(ctx)
	if err != nil {
		return Fault(err)
	}
	// A connection that comes back inside a transaction is closed by the
	// pool: that is the roll-back when fn panics or the connection is lost.
	defer conn.Release()
	o.call, _ = ctx.Value(callKey{}).(string)
	tx := &Tx{conn: conn, through: conn, opening: o.batch()}
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
		_, _ = conn.Exec(undo, "ROLLBACK") // fn's error is the one that tells
		return Fault(err)
	}
	if tx.committed || tx.opening != nil { // or never begun
		return nil
	}
	tag, err := conn.Exec(ctx, "COMMIT")
	if err != nil {
		return Fault(err)
	}
	if tag.String() != "COMMIT" {
		return fmt.Errorf("the transaction ended with %s", tag)
	}
	return nil
}

// poolOf is the pool in which a tenant's transactions run, whose text is empty for those of no
// one tenant. There is one cell, so it is always the same; with several this is the only place
// that chooses (docs/run/scale.md).
func (d *DB) poolOf(string) *pgxpool.Pool { return d.pool }

// Ping asks the database for an answer.
func (d *DB) Ping(ctx context.Context) error { return Fault(d.pool.Ping(ctx)) }

// Redacted is a database address without its password and parameters, for
// messages.
func Redacted(url string) string {
	c, err := pgx.ParseConfig(url)
	if err != nil {
		return "(unreadable)"
	}
	host := c.Host
	if !strings.HasPrefix(host, "/") {
		host = fmt.Sprintf("%s:%d", host, c.Port)
	}
	return fmt.Sprintf("%s@%s/%s", c.User, host, c.Database)
}

// At is a time for a statement that takes coalesce(@now, now()): the zero
// time means the database's clock.
func At(now time.Time) *time.Time {
	if now.IsZero() {
		return nil
	}
	return &now
}
