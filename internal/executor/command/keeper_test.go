//go:build linux

package command_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/scheduler-service/scheduler/internal/executor/command"
)

// keep is the keeper, and one that is lost before its first word where its order says so.
// It has to get its line alone: the descriptor to which bubblewrap writes was once among
// its files, bubblewrap had closed it, the runtime's poller had its number, and the
// garbage collector closed that.
func keep(extra []*os.File) int {
	if len(extra) != 1 {
		return 1
	}
	order := make([]byte, 64<<10)
	if n, _, err := unix.Recvfrom(int(extra[0].Fd()), order, unix.MSG_PEEK); err != nil || bytes.Contains(order[:n], []byte("lose the keeper")) {
		return 1
	}
	return command.Keep(extra)
}

// A keeper that is lost before its first word is the end of an attempt, and no worker
// waits for it: one that started so did not even hear that it should stop.
func TestLostKeeperIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	levels(t, func(t *testing.T, _ command.Level, e *command.Executor) {
		out, _ := execute(t.Context(), t, e, config("exit 0; : lose the keeper"), ample, nil)
		if out.Err == nil || !strings.Contains(out.Err.Error(), "hear from the keeper") {
			t.Errorf("the attempt ended with %v", out.Err)
		}
	})
}
