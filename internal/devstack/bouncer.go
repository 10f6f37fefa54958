package devstack

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

// Bouncer is a running PgBouncer of our own, which lends its connections to a PostgreSQL
// for one transaction each.
type Bouncer struct {
	// Socket is the directory of its unix socket, for the host of an address.
	Socket string

	home    *home
	process *child.Process
}

// NoBouncer is why there is no PgBouncer, as a sentence.
type NoBouncer struct{ err error }

// Error is the sentence.
func (e NoBouncer) Error() string { return e.err.Error() }

// bouncerSteps end it without waiting for its clients: it has no data to save.
func bouncerSteps() []child.Step {
	return []child.Step{{Signal: syscall.SIGTERM, Within: 10 * time.Second}}
}

// Stop ends it. It is called once.
func (b *Bouncer) Stop() error {
	defer b.home.close()
	return b.process.Stop(bouncerSteps()...)
}

// StartBouncer starts a PgBouncer in transaction mode before the PostgreSQL whose unix
// socket is in a directory. It believes the logins that are named, and has so many
// connections for each. The error is a NoBouncer where there is none and none can be installed.
func StartBouncer(ctx context.Context, o Options, server string, conns int, logins ...string) (*Bouncer, error) {
	path, err := findBouncer(ctx, o)
	if err != nil {
		return nil, NoBouncer{err}
	}
	account, err := child.Owner(server) // it refuses to be root
	if err != nil {
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	h, err := openHome(ctx, Options{Dir: o.Dir}, "pgbouncer")
	if err != nil {
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	b := &Bouncer{home: h}
	if err = h.openSocket(account); err == nil {
		b.Socket = h.socket
		err = b.run(ctx, path, account, bouncerFiles(h, server, conns, logins))
	}
	if err != nil {
		h.close()
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	return b, nil
}

// bouncerFiles are its settings and the logins that it knows, by the name of the file.
func bouncerFiles(h *home, server string, conns int, logins []string) map[string]string {
	known := ""
	for _, login := range logins {
		known += fmt.Sprintf("%q \"\"\n", login)
	}
	return map[string]string{
		"users.txt": known,
		"pgbouncer.ini": fmt.Sprintf(`[databases]
* = host=%s port=5432
[pgbouncer]
pool_mode = transaction
listen_addr =
listen_port = 5432
unix_socket_dir = %s
auth_type = trust
auth_file = %s
default_pool_size = %d
max_client_conn = 500
`, server, h.socket, filepath.Join(h.dir, "users.txt"), conns),
	}
}

// run starts it and waits until it takes connections.
func (b *Bouncer) run(ctx context.Context, path string, account child.Account, files map[string]string) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(b.home.dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // its account reads it, and it holds no secret
			return err
		}
	}
	logPath := filepath.Join(b.home.dir, "pgbouncer.log")
	out, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := account.Command(context.Background(), serverEnv(), path, filepath.Join(b.home.dir, "pgbouncer.ini"))
	cmd.Stdout, cmd.Stderr = out, out
	if b.process, err = child.Start(cmd); err != nil {
		return err
	}
	err = until(ctx, startWithin, func() (bool, error) {
		select {
		case <-b.process.Done():
			return false, errEnded
		default:
			conn, err := net.Dial("unix", filepath.Join(b.Socket, ".s.PGSQL.5432"))
			if err != nil {
				return false, nil
			}
			return true, conn.Close()
		}
	})
	if err != nil {
		_ = b.process.Stop(bouncerSteps()...)
		said, _ := os.ReadFile(logPath)
		return fmt.Errorf("%w: %s", err, lastLines([]byte(strings.TrimSpace(string(said)))))
	}
	return nil
}
