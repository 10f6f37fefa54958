package child

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
)

// asParent makes the test binary a process that starts a child, tells its id
// and waits to be killed.
const asParent = "CHILD_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(asParent) != "" {
		p, err := Start(sleeper())
		if err != nil {
			panic(err)
		}
		fmt.Println(p.PID())
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(leaktest.Main(m))
}

func sleeper() *exec.Cmd { return Self().Command(context.Background(), nil, "/bin/sleep", "1000") }

// eventually fails the test unless the condition holds within a minute, which
// is much also for a machine that does other things.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within a minute", what)
		case <-tick.C:
		}
	}
}

func TestChildEndsWithAKilledParent(t *testing.T) {
	t.Parallel()
	for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(how.String(), func(t *testing.T) {
			t.Parallel()
			parent := exec.CommandContext(t.Context(), os.Args[0])
			parent.Env = append(os.Environ(), asParent+"=1")
			in, err := parent.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			out, err := parent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			// It is started before its arguments can be read.
			eventually(t, "the sleeper", func() bool { return HasArgument(pid, "1000") })
			if err := parent.Process.Signal(how); err != nil {
				t.Fatal(err)
			}
			_ = parent.Wait()
			eventually(t, "the end of the child", func() bool { return !HasArgument(pid, "1000") })
		})
	}
}

func TestChildHasAGroupOfItsOwn(t *testing.T) {
	t.Parallel()
	p, err := Start(sleeper())
	if err != nil {
		t.Fatal(err)
	}
	if group, err := syscall.Getpgid(p.PID()); err != nil || group != p.PID() {
		t.Errorf("group %d, error %v: Ctrl-C would end it before us", group, err)
	}
	if err := p.Stop(Step{syscall.SIGINT, time.Minute}); err != nil {
		t.Error(err)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	const deaf = "trap '' INT; trap 'exit 3' QUIT; echo ready; while :; do sleep 0.01; done"
	const polite = "trap 'exit 0' INT; echo ready; while :; do sleep 0.01; done"
	short, long := 20*time.Millisecond, time.Minute
	for _, tc := range []struct {
		name, script string
		steps        []Step
		killed       bool
		exit         int
	}{
		{"at the first signal", polite, []Step{{syscall.SIGINT, long}, {syscall.SIGQUIT, long}}, false, 0},
		{"at the second signal", deaf, []Step{{syscall.SIGINT, short}, {syscall.SIGQUIT, long}}, false, 3},
		{"by force", deaf, []Step{{syscall.SIGINT, short}}, true, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cmd := Self().Command(context.Background(), []string{"PATH=/usr/bin:/bin"}, "/bin/sh", "-c", tc.script)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			p, err := Start(cmd)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if err := p.Stop(tc.steps...); (err != nil) != tc.killed {
				t.Errorf("stop: %v", err)
			}
			<-p.Done()
			if got := cmd.ProcessState.ExitCode(); got != tc.exit {
				t.Errorf("exit code %d, want %d", got, tc.exit)
			}
			if (p.Err() == nil) != (tc.exit == 0) {
				t.Errorf("error %v", p.Err())
			}
			if err := p.Stop(tc.steps...); err != nil {
				t.Errorf("a second stop: %v", err)
			}
		})
	}
}

func TestStartOfNothing(t *testing.T) {
	t.Parallel()
	if _, err := Start(Self().Command(context.Background(), nil, filepath.Join(t.TempDir(), "none"))); err == nil {
		t.Error("no error")
	}
}

func TestHasArgument(t *testing.T) {
	t.Parallel()
	const spaced = "two words"
	cmd := exec.Command("/bin/sh", "-c", "echo; read -r _", spaced)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	// Start returns once the kernel has closed the files that an exec closes,
	// and the arguments appear after that: only a process that speaks has them.
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]bool{spaced: true, "-c": true, "wor": false, spaced + "s": false} {
		if got := HasArgument(pid, arg); got != want {
			t.Errorf("%q: %v", arg, got)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	// Not waited for, it becomes a zombie: its id is taken, but nothing runs.
	eventually(t, "a zombie has none", func() bool { return !HasArgument(pid, spaced) })
	_ = cmd.Wait()
	if HasArgument(pid, spaced) {
		t.Error("a process that is gone has one")
	}
}
