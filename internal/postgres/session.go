package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// settleWithin bounds how long a new connection takes to be set up.
const settleWithin = 5 * time.Second

// settle sets a new connection up, by one statement: a pooler refuses most
// settings as start-up parameters, and those of a role or a database would not
// be ours, because the person who made the login made it.
func (c Config) settle(ctx context.Context, conn *pgconn.PgConn) error {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	_, err := conn.Exec(ctx, strings.Join(c.session(), ";")).ReadAll()
	return err
}

// session is how each connection acts.
func (c Config) session() []string {
	timeout := c.StatementTimeout
	if timeout == 0 {
		timeout = 5 * time.Second
	}
	settings := []string{
		"SET role = " + string(c.Role),
		fmt.Sprintf("SET statement_timeout = %d", timeout.Milliseconds()),
		// Shorter, so that the error says whether a statement took too long or waited.
		fmt.Sprintf("SET lock_timeout = %d", timeout.Milliseconds()*4/5),
		// A process that locks a row and then counts must see what was committed
		// before it had the lock, whatever the database or the login says.
		"SET default_transaction_isolation = 'read committed'",
		// A process that is stopped inside a transaction must not hold its row
		// locks for longer than this.
		"SET idle_in_transaction_session_timeout = 5000",
		// Compiling takes longer than any of our statements.
		"SET jit = off",
	}
	if c.Role == Engine {
		// Every statement of the engine finds its rows by an index. Its tables are
		// empty between two bursts, and a plan that was made and kept then would
		// read the whole of what the burst brings, again and again: measured,
		// 2 s for a look that takes 3 ms. A table without the index costs 1e10
		// then, which is what a server compiles for that does so by default.
		settings = append(settings, "SET enable_seqscan = off")
	}
	return settings
}
