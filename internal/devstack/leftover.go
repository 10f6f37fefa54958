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

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

// stopLeftover ends the server of an earlier process of ours that was killed,
// if it still runs or is still on its way down, and removes the lock file of
// one that is gone. We hold the directory's lock, so it is nobody else's.
//
// PostgreSQL by itself refuses to start whenever any process of its user has
// the recorded id, which after the restart of a machine or a container is often
// some other program.
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
		err := c.endLeftover(ctx, pid, step)
		if err == nil {
			return removeFile(pidFile)
		}
		if !errors.Is(err, errTooLong) {
			return err
		}
	}
	return fmt.Errorf("the PostgreSQL with process id %d still runs in %s and does not stop: end it first", pid, c.data)
}

func (c *cluster) endLeftover(ctx context.Context, pid int, step child.Step) error {
	if err := syscall.Kill(pid, step.Signal); err != nil && !errors.Is(err, syscall.ESRCH) {
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
