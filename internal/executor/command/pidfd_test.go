//go:build linux

package command_test

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// pidfd opens a process.
func pidfd(pid int) (int, error) { return unix.PidfdOpen(pid, 0) }

// awaitEnd waits until the process has ended.
func awaitEnd(t *testing.T, fd int) {
	t.Helper()
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20_000)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			t.Errorf("a process goes on after its worker: %v", err)
		}
		return
	}
}
