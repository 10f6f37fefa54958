package postgres_test

import (
	"cmp"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// A standby that has no session free is not asked again where the primary has one, and the pool
// keeps all connections.
func TestAStandbyMayBeFull(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	database.URL = behindAFullServer(t, database.URL)
	refused := &refusals{}
	d := pool(t, database, 4, 0, refused)
	hold(t, d, 2)
	if n := atMost(d); n != 4 || refused.Load() > 0 {
		t.Errorf("it may have %d connections, want 4, and %d were not opened", n, refused.Load())
	}
}

// behindAFullServer answers an address whose first host refuses every session.
func behindAFullServer(t *testing.T, address string) string {
	t.Helper()
	u, at := standBefore(t, address, func(conn net.Conn, _ string) {
		_, _ = pgproto3.NewBackend(conn, conn).ReceiveStartupMessage()
		refusal, _ := (&pgproto3.ErrorResponse{Severity: "FATAL", Code: "53300", Message: "sorry, too many clients already"}).Encode(nil)
		_, _ = conn.Write(refusal)
		_ = conn.Close()
	})
	host, port, _ := net.SplitHostPort(at.String())
	query := u.Query()
	query.Set("host", host+","+query.Get("host"))
	query.Set("port", port+","+cmp.Or(query.Get("port"), "5432"))
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return u.String()
}
