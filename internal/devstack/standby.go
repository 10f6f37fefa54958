package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrNoBackup says that this installation of PostgreSQL cannot make standbys:
// it lacks pg_basebackup.
var ErrNoBackup = errors.New("this PostgreSQL comes without pg_basebackup")

// Standby copies the running server into o.Dir, which must hold no data yet,
// and starts the copy as its hot standby: it follows through the replication
// slot named slot, which is made, and answers reads; from is the address
// (host:port) under which it reaches its primary, empty for the primary's
// socket. It is returned when it answers, and may be a moment behind. It stays a server of its own when this one
// ends, and becomes writable by SELECT pg_promote() there. Both must be
// durable.
func (p *Postgres) Standby(ctx context.Context, o Options, slot, from string) (*Postgres, error) {
	if !o.Durable || !p.cluster.durable {
		return nil, errors.New("start a standby: both servers must be durable")
	}
	if p.cluster.bins.backup() == "" {
		return nil, ErrNoBackup
	}
	h, err := openHome(ctx, o, "postgres")
	if err != nil {
		return nil, fmt.Errorf("start a standby: %w", err)
	}
	c := newCluster(h, o)
	c.bins, c.account, c.data = p.cluster.bins, p.cluster.account, filepath.Join(h.dir, "postgres")
	standby := &Postgres{cluster: c}
	source := []string{"-h", p.Socket}
	if host, port, splitErr := net.SplitHostPort(from); splitErr == nil {
		source = []string{"-h", host, "-p", port}
	}
	if err = c.follow(ctx, slot, source); err == nil {
		err = c.openSocket(c.account)
	}
	if err == nil {
		standby.Socket = c.socket
		standby.AdminURL = standby.URL("postgres", superuser)
		err = standby.start(ctx)
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("start a standby: %w", err)
	}
	return standby, nil
}

// follow fills the data directory with a copy of a server, and the settings to
// follow it.
func (c *cluster) follow(ctx context.Context, slot string, source []string) error {
	if major, err := dataMajor(c.data); major != 0 || err != nil {
		return errors.Join(err, fmt.Errorf("%s holds data already", c.data))
	}
	if err := os.MkdirAll(c.data, 0o700); err != nil {
		return err
	}
	if err := c.account.Give(c.data); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	args := append(source, "-D", c.data, "-U", superuser, "-X", "stream", "-c", "fast", "-C", "-S", slot, "-R")
	cmd := c.account.Command(ctx, serverEnv(), c.bins.backup(), args...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("pg_basebackup: %w: %s", err, lastLines(said)), os.RemoveAll(c.data))
	}
	return nil
}

// Crash ends the server as by a power cut: SIGQUIT leaves everything to its
// log, SIGKILL does not even let it say so. It returns when all of its
// processes are gone. Restart starts it again.
func (p *Postgres) Crash(ctx context.Context, sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return errStopped
	}
	if err := syscall.Kill(p.process.PID(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("crash PostgreSQL: %w", err)
	}
	<-p.process.Done()
	return until(ctx, time.Minute, func() (bool, error) { return !inhabited(p.cluster.data), nil })
}

// inhabited reports whether a process works in the data directory: the
// sessions of a killed server see its end only when they next wait.
func inhabited(data string) bool {
	ways, _ := filepath.Glob("/proc/[0-9]*/cwd") // fails only for a malformed pattern
	for _, way := range ways {
		if at, err := os.Readlink(way); err == nil && strings.TrimSuffix(at, " (deleted)") == data {
			return true
		}
	}
	return false
}
