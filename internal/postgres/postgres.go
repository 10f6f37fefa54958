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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
	// IdleTime is how long a connection may be idle before it is closed; zero means 90 s.
	IdleTime time.Duration
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
	bound   *bound
	permits *turn.Limiter // nil: every transaction gets a connection

	lockTimeout string // of its sessions
}

// reserved is how many connections no transaction takes where they are shared
// out by tenant: health checks find one at once. A pool that may have fewer than three
// gives one to a transaction in any case.
const reserved = 2

// pingAfter is how long a connection of the engine may be idle before it is asked whether it
// lives.
const pingAfter = 10 * time.Second

// pingWithin bounds how long a connection that was idle takes to answer that it lives. Some acquire
// without a deadline, and Close waits for them.
const pingWithin = 5 * time.Second

// idleTime is how long a connection may be idle before it is closed, so that after a burst other
// processes find sessions free. It is more than a minute, because most schedules begin at one:
// processes that connected anew each time would begin late. The driver keeps them for half an
// hour. Where a fleet had taken all sessions, a worker that started could not connect for as long.
const idleTime = 90 * time.Second

// openPatience is how long Open waits for a session where the server has none free.
const openPatience = 30 * time.Second

// Open makes a pool and checks that it can serve: the database answers, and
// the role is not one that row-level security does not bind. Where the server has no session
// free it waits for one, up to 30 s.
func Open(ctx context.Context, c Config) (*DB, error) {
	pc, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, errors.New("DATABASE_URL does not parse") // the driver's text repeats the password
	}
	pc.MaxConns = int32(max(1, c.MaxConns))
	pc.MaxConnLifetime = time.Hour
	pc.MaxConnLifetimeJitter = 10 * time.Minute
	pc.MaxConnIdleTime = cmp.Or(c.IdleTime, idleTime)
	pc.HealthCheckPeriod = pc.MaxConnIdleTime / 3
	pc.ConnConfig.ConnectTimeout = 5 * time.Second
	pc.PingTimeout = pingWithin
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
	pc.AfterConnect = plainTypes
	permits := c.permits()
	bound, err := newBound(ctx, pc, c.PerTenant, permits)
	if err != nil {
		return nil, fmt.Errorf("open the database pool: %w", err)
	}
	db := &DB{pool: bound.pool, bound: bound, permits: permits, lockTimeout: c.lockTimeout()}
	// A process that ended instead would be started again later and later, and find no session
	// for minutes. The checks say why there is no connection.
	if conn, err := db.bound.lend(ctx, openPatience); err == nil {
		conn.Release()
	}
	if c.Pooled {
		err = db.checkLogin(ctx, c)
	}
	if err = errors.Join(err, db.checkRole(ctx, c.Role)); err != nil {
		db.Close()
		return nil, err
	}
	if err := db.checkServer(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// permits has each transaction get a connection in its tenant's turn; nil: PerTenant does not say so.
func (c Config) permits() *turn.Limiter {
	if c.PerTenant == 0 {
		return nil
	}
	return turn.New(turn.Config{
		All: c.MaxConns - reserved, Each: c.PerTenant, Limit: "connectionsAtOnce",
		Message: "at most %d requests of a tenant are served at once by each API process (the operator sets TENANT_MAX_CONNECTIONS)",
	})
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
func (d *DB) Close() { d.bound.close() }

// Pool is the pool itself, for statements that need no transaction.
func (d *DB) Pool() *pgxpool.Pool { return d.pool }

// poolOf is the pool in which a tenant's transactions run, whose text is empty for those of no
// one tenant. There is one cell, so it is always the same; with several this is the only place
// that chooses (docs/run/scale.md).
func (d *DB) poolOf(string) *bound { return d.bound }

// Ping asks the database for an answer.
func (d *DB) Ping(ctx context.Context) error {
	conn, err := d.bound.lend(ctx, sessionPatience)
	if err != nil {
		return Fault(err)
	}
	defer conn.Release()
	return Fault(conn.Ping(ctx))
}

// redacted is a database address without its password and parameters, for
// messages.
func redacted(url string) string {
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
