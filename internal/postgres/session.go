package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// sessionPatience is how long a transaction waits for a session where the server has none free and
// the pool has none: as long as a request waits for a connection of its tenant.
const sessionPatience = time.Second

// A refused session is asked for again after firstRest, and then after twice as long each time
// up to longestRest: the server makes a process of its own for each refusal.
const (
	firstRest   = 20 * time.Millisecond
	longestRest = 200 * time.Millisecond
)

// lend takes a connection of the pool. Where the server has no session free it tries again while the
// pool has sessions, because one of them comes back: only ctx bounds that wait. If the pool has none, it tries until patience has
// passed since the first refusal, because another process may close one.
func (b *bound) lend(ctx context.Context, patience time.Duration) (*pgxpool.Conn, error) {
	conn, err := b.pool.Acquire(ctx)
	refused := clock.Start()
	for rest := firstRest; isRefusal(err) && (refused.Elapsed() < patience || b.hasSessions()); rest = min(2*rest, longestRest) {
		clock.Sleep(ctx, rest)
		conn, err = b.pool.Acquire(ctx)
	}
	return conn, err
}

// settleWithin bounds how long a new connection takes to be set up.
const settleWithin = 5 * time.Second

// setting of a session, beside its role.
type sessionSetting struct{ name, value string }

// settle sets a new connection up, by one statement: a pooler refuses most
// settings as start-up parameters, and those of a role or a database would not
// be ours, because the person who made the login made it.
func (c Config) settle(ctx context.Context, conn *pgconn.PgConn) error {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	statements := []string{"SET role = " + string(c.Role)}
	for _, s := range c.session() {
		statements = append(statements, fmt.Sprintf("SET %s = '%s'", s.name, s.value))
	}
	_, err := conn.Exec(ctx, strings.Join(statements, ";")).ReadAll()
	return err
}

// checkLogin refuses a login that does not give its sessions what they need: behind a pooler
// that lends connections for one transaction no process sets its own, and each transaction
// finds what the login has.
func (d *DB) checkLogin(ctx context.Context, c Config) error {
	login, missing := pgx.Identifier{d.pool.Config().ConnConfig.User}.Sanitize(), []string{}
	need := append([]sessionSetting{{"role", string(c.Role)}}, c.session()...)
	for _, s := range need {
		is, err := d.sessionSetting(ctx, s.name)
		if err != nil {
			return err
		}
		if is != s.value {
			missing = append(missing, fmt.Sprintf("ALTER ROLE %s SET %s = '%s'", login, s.name, s.value))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("DATABASE_POOL_MODE is transaction, and the login of DATABASE_URL lacks settings (docs/run/databases.md): as an administrator, %s; then have the pooler connect again (RECONNECT)",
			strings.Join(missing, "; "))
	}
	return nil
}

// plainTypes has a connection read and write values without a detour. The driver would
// parse what is read as JSON text: it is copied, because PostgreSQL checked it when it was
// written.
func plainTypes(_ context.Context, conn *pgx.Conn) error {
	read := func(from []byte, into any) error {
		if raw, ok := into.(*json.RawMessage); ok {
			*raw = slices.Clone(from)
			return nil
		}
		return json.Unmarshal(from, into)
	}
	types := conn.TypeMap()
	types.RegisterType(&pgtype.Type{Name: "json", OID: pgtype.JSONOID, Codec: &pgtype.JSONCodec{Marshal: json.Marshal, Unmarshal: read}})
	types.RegisterType(&pgtype.Type{Name: "jsonb", OID: pgtype.JSONBOID, Codec: &pgtype.JSONBCodec{Marshal: json.Marshal, Unmarshal: read}})
	types.RegisterType(&pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: idCodec{}})
	return nil
}

// statementTimeout is how long a statement of a session may take.
func (c Config) statementTimeout() time.Duration {
	return cmp.Or(c.StatementTimeout, 5*time.Second)
}

// lockTimeout is how many milliseconds a statement of a session may wait for a lock: less,
// so that the error says whether it took too long or waited.
func (c Config) lockTimeout() string { return fmt.Sprint(c.statementTimeout().Milliseconds() * 4 / 5) }

// session is how each connection acts.
func (c Config) session() []sessionSetting {
	settings := []sessionSetting{
		{"statement_timeout", fmt.Sprint(c.statementTimeout().Milliseconds())},
		{"lock_timeout", c.lockTimeout()},
		// A process that locks a row and then counts must see what was committed
		// before it had the lock, whatever the database or the login says.
		{"default_transaction_isolation", "read committed"},
		// A process that is stopped inside a transaction must not hold its row
		// locks for longer than this.
		{"idle_in_transaction_session_timeout", "5000"},
		// Compiling takes longer than any of our statements.
		{"jit", "off"},
	}
	if c.Role == Engine {
		// Every statement of the engine finds its rows by an index. Its tables are
		// empty between two bursts, and a plan that was made and kept then would
		// read the whole of what the burst brings, again and again: measured,
		// 2 s for a look that takes 3 ms. A table without the index costs 1e10
		// then, which is what a server compiles for that does so by default.
		settings = append(settings, sessionSetting{"enable_seqscan", "off"})
		// For five rows a bitmap and a sort seem as cheap as an index that has the order. Until
		// autovacuum analyses a table that has grown, PostgreSQL plans for those five: measured,
		// 150 ms for a poll that takes 2 ms, because it read and sorted all of a backlog.
		settings = append(settings, sessionSetting{"enable_bitmapscan", "off"})
	}
	if c.Role == Engine && !c.Pooled {
		// One plan for all calls of a statement. Otherwise PostgreSQL plans the first five
		// calls of each connection, and goes on planning each call where it judges the
		// kept plan to be dearer (measured with 50 executions a second: plans took 1.6 ms
		// of the 2.9 ms of statements for each). Behind a pooler no plan is kept.
		settings = append(settings, sessionSetting{"plan_cache_mode", "force_generic_plan"})
	}
	return settings
}
