//go:build linux

package command_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"slices"
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

// A process that becomes a program does so before the packages begin that a program does not need. Where
// it did so in main, each program cost 7 ms more on a worker and 21 ms more beside the API.
func TestProgramsStartBeforeOtherPackagesBegin(t *testing.T) {
	t.Parallel()
	start := exec.Command("/proc/self/exe", "--scheduler-sandbox", "9") // it has no starter, and ends as soon as it knows
	start.Env = []string{"GODEBUG=inittrace=1"}
	out, _ := start.CombinedOutput()
	begun := regexp.MustCompile(`(?m)^init (\S+) @`).FindAllStringSubmatch(string(out), -1)
	var names []string
	for _, one := range begun {
		names = append(names, one[1])
	}
	if !slices.Contains(names, "os") || slices.Contains(names, "net/http") {
		t.Errorf("these packages had begun, want os and not net/http: %v", names)
	}
}
