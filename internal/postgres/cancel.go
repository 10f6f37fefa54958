package postgres

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errNoCancel is what an attempt to cancel a statement meets.
var errNoCancel = errors.New("statements are not cancelled")

// withoutCancel keeps the driver from asking the server to cancel a statement
// whose context has ended. A commit that waits for its synchronous standby
// takes that as the order to wait no longer: others see it at once, the same
// request repeated is answered that all is done, and a fail-over loses it. (The
// server's own statement_timeout spares that wait, and bounds what goes on
// without us.)
//
// The driver dials once for the session, and after that only to cancel.
func withoutCancel(_ context.Context, c *pgx.ConnConfig) error {
	var connected atomic.Bool
	dial, ready := c.DialFunc, c.AfterConnect
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if connected.Load() {
			return nil, errNoCancel
		}
		return dial(ctx, network, addr)
	}
	c.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		connected.Store(true)
		if ready == nil {
			return nil
		}
		return ready(ctx, conn)
	}
	return nil
}
