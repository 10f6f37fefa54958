package devstack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

// ask runs one query that answers with a text.
func ask(t *testing.T, url, query string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var answer string
	if err := conn.QueryRow(t.Context(), query).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func tell(t *testing.T, url, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// needPostgres is the newest installation, which is made if need be.
func needPostgres(t *testing.T) binaries {
	t.Helper()
	list, err := findPostgres(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

func startPostgres(t *testing.T, o Options) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// signal goes to one process: package os refuses the ids that mean several.
func signal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	process, err := os.FindProcess(pid)
	if err == nil {
		err = process.Signal(sig)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestPostgresKeepsDurableData(t *testing.T) {
	t.Parallel()
	o := Options{Dir: t.TempDir(), Durable: true}
	first := startPostgres(t, o)
	tell(t, first.AdminURL, "CREATE TABLE kept AS SELECT 'still here' AS what")
	if found, err := RunningPostgres(o.Dir); err != nil || found != first.AdminURL {
		t.Errorf("found %q beside %q: %v", found, first.AdminURL, err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	<-first.Done()
	if found, err := RunningPostgres(o.Dir); err == nil {
		t.Errorf("found %q that has ended", found)
	}
	second := startPostgres(t, o)
	if got := ask(t, second.AdminURL, "SELECT what FROM kept"); got != "still here" {
		t.Errorf("got %q", got)
	}
	if second.AdminURL != first.AdminURL {
		t.Errorf("the address changed from %s to %s", first.AdminURL, second.AdminURL)
	}
	if got := ask(t, second.AdminURL, "SELECT current_setting('timezone') || ' ' || current_setting('fsync')"); got != "UTC on" {
		t.Errorf("settings: %s", got)
	}
}

func TestThrowaway(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, Options{})
	const want = "off  300 C UTF8"
	if got := ask(t, p.AdminURL, `SELECT concat_ws(' ', current_setting('fsync'), current_setting('listen_addresses'), current_setting('max_connections'), datcollate, current_setting('server_encoding'))
		FROM pg_database WHERE datname = current_database()`); got != want {
		t.Errorf("settings %q, want %q", got, want)
	}
	info, err := os.Stat(p.Socket)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's directory: %v, %v", info.Mode(), err)
	}
	home := p.cluster.dir
	for range 2 {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
	<-p.Done()
	if exists(home) || exists(p.Socket) {
		t.Error("something is left of it")
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	p := &Postgres{Socket: "/tmp/a b"}
	config, err := pgx.ParseConfig(p.URL("da/ta?base", "us:er"))
	if err != nil {
		t.Fatal(err)
	}
	if config.Database != "da/ta?base" || config.User != "us:er" || config.Host != "/tmp/a b" {
		t.Errorf("got %q %q %q", config.Database, config.User, config.Host)
	}
}

func TestTwoOnOneDirectory(t *testing.T) {
	t.Parallel()
	o := Options{Dir: openDir(t), Durable: true}
	startPostgres(t, o)
	_, err := StartPostgres(t.Context(), o)
	want := "it is in use by process " + strconv.Itoa(os.Getpid())
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v does not say %q", err, want)
	}
}

func TestDoneWhenTheServerEnds(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, Options{})
	signal(t, p.process.PID(), syscall.SIGQUIT)
	<-p.Done()
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

func TestStartIsGivenUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := openDir(t)
	if _, err := StartPostgres(ctx, Options{Dir: dir, Durable: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	startPostgres(t, Options{Dir: dir, Durable: true})
}

// A server that does not start must say why, in the error.
func TestStartFails(t *testing.T) {
	t.Parallel()
	o := Options{Dir: openDir(t), Durable: true}
	p := startPostgres(t, o)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(p.cluster.data, "postgresql.conf")
	if err := os.WriteFile(conf, []byte("no_such_setting = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := StartPostgres(t.Context(), o)
	if !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("error %v", err)
	}
}

func TestDurableNeedsADirectory(t *testing.T) {
	t.Parallel()
	if _, err := StartPostgres(t.Context(), Options{Durable: true}); err == nil {
		t.Error("no error")
	}
}

func TestDetach(t *testing.T) {
	t.Parallel()
	base := openDir(t)
	p := startPostgres(t, Options{Dir: base})
	tell(t, p.AdminURL, "CREATE TABLE kept AS SELECT 'still here' AS what")
	pid, err := p.Detach()
	if err != nil {
		t.Fatal(err)
	}
	if !child.HasArgument(pid, p.cluster.data) {
		t.Fatalf("process %d is not the left server", pid)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	// As our end would do.
	if err := p.cluster.lock.Close(); err != nil {
		t.Fatal(err)
	}
	startPostgres(t, Options{Dir: base})
	eventually(t, "the left server", func() bool {
		conn, err := pgx.Connect(t.Context(), p.AdminURL)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err == nil
	})
	if got := ask(t, p.AdminURL, "SELECT what FROM kept"); got != "still here" {
		t.Errorf("got %q", got)
	}
	signal(t, pid, syscall.SIGINT)
	eventually(t, "its end", func() bool { return !child.HasArgument(pid, p.cluster.data) })
	startPostgres(t, Options{Dir: base})
	if exists(p.cluster.dir) {
		t.Error("its data is still there")
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, Options{})
	tell(t, p.AdminURL, "CREATE TABLE kept AS SELECT 'still here' AS what")
	before := p.Done()
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-before
	if got := ask(t, p.AdminURL, "SELECT what FROM kept"); got != "still here" {
		t.Errorf("got %q", got)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if err := p.Restart(t.Context()); err == nil {
		t.Error("a stopped server started again")
	}
}

// A stock server is told nothing but where it listens.
func TestStockServer(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, Options{Stock: true})
	told := ask(t, p.AdminURL, "SELECT string_agg(name, ' ' ORDER BY name) FROM pg_settings WHERE source = 'command line'")
	if told != "listen_addresses unix_socket_directories unix_socket_permissions" {
		t.Errorf("it is told %s", told)
	}
	for name, want := range map[string]string{"fsync": "on", "max_connections": "100", "max_locks_per_transaction": "64", "jit": "on", "wal_level": "replica"} {
		if got := ask(t, p.AdminURL, "SHOW "+name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
