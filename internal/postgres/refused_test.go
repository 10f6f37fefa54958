package postgres_test

import (
	"cmp"
	"net"
	"net/url"
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
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	socket := query.Get("host")
	if socket == "" {
		t.Skip("the server of TEST_DATABASE_URL is not on a socket")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = pgproto3.NewBackend(conn, conn).ReceiveStartupMessage()
			refusal, _ := (&pgproto3.ErrorResponse{Severity: "FATAL", Code: "53300", Message: "sorry, too many clients already"}).Encode(nil)
			_, _ = conn.Write(refusal)
			_ = conn.Close()
		}
	}()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	query.Set("host", host+","+socket)
	query.Set("port", port+","+cmp.Or(query.Get("port"), "5432"))
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return u.String()
}
