package chaos

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

// EnterNamespace runs this program again with the same arguments in a mount namespace
// of its own, so that what it mounts is gone with it even when it is killed,
// and returns its exit code. Without the right to do so, or inside already, it
// does nothing and reports false.
func EnterNamespace(ctx context.Context, c Config, args []string) (code int, done bool) {
	if c.InNamespace || os.Geteuid() != 0 {
		return 0, false
	}
	cmd := exec.Command("/proc/self/exe", append([]string{"-secluded"}, args...)...) // it is asked to end, below
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	p, err := child.Start(cmd)
	if err != nil {
		return 0, false
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		_ = p.Stop(child.Step{Signal: syscall.SIGINT, Within: 3 * time.Minute})
	}
	var failed *exec.ExitError
	if errors.As(p.Err(), &failed) {
		return max(failed.ExitCode(), 1), true
	}
	return 0, true
}

// allocate takes space on the file's disk.
func allocate(file *os.File, at, size int64) error {
	return syscall.Fallocate(int(file.Fd()), 0, at, size)
}
