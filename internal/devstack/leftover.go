package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

// stopLeftover ends the server of an earlier process of ours that was killed,
// if it still runs or is still on its way down, and removes the lock file of
// one that is gone. We hold the directory's lock, so it is nobody else's.
//
// PostgreSQL itself would refuse to start whenever a process with the recorded
// id lives, which after the restart of a machine or a container is often some
// other program.
func (c *cluster) stopLeftover(ctx context.Context, o Options) error {
	pidFile := filepath.Join(c.data, "postmaster.pid")
	text, err := os.ReadFile(pidFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	pid, err := strconv.Atoi(string(first))
	if err != nil || pid <= 1 || !c.servedBy(pid) {
		return removeFile(pidFile)
	}
	o.log().WarnContext(ctx, "stopping the PostgreSQL that a killed process left behind", "pid", pid)
	for _, step := range stopSteps(c.durable) {
		if err := c.endLeftover(ctx, pid, step); err != errTooLong {
			return errors.Join(err, removeFile(pidFile))
		}
	}
	return fmt.Errorf("the PostgreSQL with process id %d still runs in %s and does not stop: end it first", pid, c.data)
}

func (c *cluster) endLeftover(ctx context.Context, pid int, step child.Step) error {
	if err := syscall.Kill(pid, step.Signal.(syscall.Signal)); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop the PostgreSQL with process id %d that runs in %s: %w", pid, c.data, err)
	}
	return until(ctx, step.Within, func() (bool, error) { return !c.servedBy(pid), nil })
}

// servedBy reports whether the process is a server on this data directory: it
// is named on its command line.
func (c *cluster) servedBy(pid int) bool { return slices.Contains(child.Args(pid), c.data) }

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sweep removes the throwaway servers in base whose process was killed before
// it could. The caller holds base's lock.
func sweep(ctx context.Context, base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, throwaway+uid()+"-*"))
	for _, dir := range dirs {
		lock, err := lockFile(ctx, filepath.Join(dir, "lock"), time.Nanosecond)
		if err != nil {
			continue // it lives
		}
		h := &home{dir: dir, lock: lock}
		c := &cluster{home: h, data: filepath.Join(dir, "postgres")}
		if c.stopLeftover(ctx, Options{}) == nil {
			h.socket = filepath.Join(base, "scheduler-"+hash(dir))
			h.close()
		}
	}
}

// freshHome makes and locks a directory for a throwaway server.
func freshHome(ctx context.Context, o Options) (*home, error) {
	base := o.Dir
	if base == "" {
		base = filepath.Clean(os.TempDir())
	}
	base, err := filepath.Abs(base)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return nil, err
	}
	// Held while a directory exists without its own lock, so that no other
	// process sweeps it away.
	all, err := lockFile(ctx, filepath.Join(base, throwaway+uid()+".lock"), time.Minute)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	sweep(ctx, base)
	dir, err := os.MkdirTemp(base, throwaway+uid()+"-")
	if err != nil {
		return nil, err
	}
	// Others may pass through, as the server's account must, but not look.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	lock, err := lockFile(ctx, filepath.Join(dir, "lock"), time.Second)
	if err != nil {
		return nil, err
	}
	return &home{dir: dir, key: hash(dir), lock: lock}, nil
}
