package postgres_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// The defaults of server, database and login do not matter.
func TestSessionsAreSetUp(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	admin := connect(t, database.AdminURL)
	for name, value := range map[string]string{
		"jit": "on", "enable_seqscan": "on", "enable_bitmapscan": "on", "statement_timeout": "0", "lock_timeout": "0",
		"default_transaction_isolation": "'serializable'", "idle_in_transaction_session_timeout": "0",
		"plan_cache_mode": "auto",
	} {
		exec(t, admin, "ALTER DATABASE "+database.Name+" SET "+name+" = "+value)
	}
	both := map[string]string{
		"jit": "off", "statement_timeout": "5s", "lock_timeout": "4s",
		"default_transaction_isolation": "read committed", "idle_in_transaction_session_timeout": "5s", "application_name": "test",
	}
	for role, its := range map[postgres.Role][3]string{postgres.API: {"on", "on", "auto"}, postgres.Engine: {"off", "off", "force_generic_plan"}} {
		d, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: role, Name: "test", MaxConns: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		both["role"], both["enable_seqscan"], both["enable_bitmapscan"], both["plan_cache_mode"] = string(role), its[0], its[1], its[2]
		for name, want := range both {
			var got string
			if err := d.Pool().QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got); err != nil || got != want {
				t.Errorf("%s: %s is %q, want %q (%v)", role, name, got, want, err)
			}
		}
	}
}

// pooled are the start-up parameters that PgBouncer takes; it ends a session
// that asks for another.
var pooled = []string{"user", "database", "replication", "application_name", "client_encoding", "datestyle", "timezone", "standard_conforming_strings"}

// asPooler stands before a server and takes only those parameters. It answers
// the address to connect to instead.
func asPooler(t *testing.T, address string) string {
	t.Helper()
	u, at := standBefore(t, address, func(conn net.Conn, socket string) {
		passOn(t.Context(), conn, filepath.Join(socket, ".s.PGSQL.5432"))
	})
	u.Host, u.RawQuery = at.String(), "sslmode=disable"
	return u.String()
}

// standBefore listens beside a server on a socket of this machine and has serve answer each
// connection, which is told that socket. It returns the server's address, and where it listens.
func standBefore(t *testing.T, address string, serve func(conn net.Conn, socket string)) (*url.URL, net.Addr) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	socket := u.Query().Get("host")
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
			go serve(conn, socket)
		}
	}()
	return u, l.Addr()
}

func passOn(ctx context.Context, conn net.Conn, socket string) {
	defer func() { _ = conn.Close() }()
	size := make([]byte, 4)
	if _, err := io.ReadFull(conn, size); err != nil {
		return
	}
	body := make([]byte, binary.BigEndian.Uint32(size)-4)
	var start pgproto3.StartupMessage
	if _, err := io.ReadFull(conn, body); err != nil || start.Decode(body) != nil {
		return
	}
	for name := range start.Parameters {
		if !slices.Contains(pooled, strings.ToLower(name)) {
			refusal, _ := (&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: " + name}).Encode(nil)
			_, _ = conn.Write(refusal)
			return
		}
	}
	server, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return
	}
	go func() {
		defer server.Close()
		_, _ = server.Write(append(size, body...))
		_, _ = io.Copy(server, conn)
	}()
	_, _ = io.Copy(conn, server)
}

func TestSessionsPassAPooler(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	for _, role := range []postgres.Role{postgres.API, postgres.Engine} {
		d, err := postgres.Open(t.Context(), postgres.Config{URL: asPooler(t, database.URL), Role: role, Name: "test", MaxConns: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		d.Close()
	}
}

// Transactions that the server refuses a session again and again wait for the one that their pool has,
// however long that is in use. On the commit before they failed after a second.
func TestRefusedTransactionsWaitForThePool(t *testing.T) {
	t.Parallel()
	const most, late = 6, 2 * time.Second
	database := pgtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		connects, waited := newGate(1), make(chan error, most-1)
		d := pool(t, database, most, 0, connects)
		end := hold(t, d, 1)
		admit(t, database, 1)
		for range most - 1 {
			go func() { waited <- transact(t.Context(), d) }()
		}
		until(t, "they ask for sessions", func() bool { return connects.begun.Load() == most })
		connects.let(most - 3) // half of the connections are held after that
		<-time.After(late / 10)
		connects.let(1) // the next one is for the first of those that were refused
		until(t, "it asks again", func() bool { return connects.begun.Load() > most })
		<-time.After(late)
		close(connects.pass)
		<-time.After(late)
		end()
		for range most - 1 {
			if err := <-waited; err != nil {
				t.Errorf("it gave up: %v", err)
			}
		}
	})
}
