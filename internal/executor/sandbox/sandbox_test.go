//go:build linux

package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
)

// A restricted process does all on another thread than its first, as any Go program may on a
// busy machine: the main goroutine keeps the first.
func TestMain(m *testing.M) {
	runtime.LockOSThread()
	restricted := make(chan bool)
	go func() {
		runtime.LockOSThread()
		code, done := sandbox.Main(os.Args, entries())
		if done {
			os.Exit(code)
		}
		close(restricted)
	}()
	<-restricted
	os.Exit(leaktest.Main(m))
}

// system is what a program of the system reads to begin.
func system() []string {
	return []string{"/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/proc"}
}

func entries() map[string]sandbox.Entry {
	return map[string]sandbox.Entry{
		"echo": func(extra []*os.File) int {
			text, _ := io.ReadAll(os.Stdin)
			fmt.Fprintf(extra[0], "%s %d %s", text, len(extra), strings.Join(os.Environ(), ","))
			return 7
		},
		"read": func([]*os.File) int {
			return answer(os.ReadFile("/etc/passwd"))
		},
		"connect": func([]*os.File) int {
			var d net.Dialer
			d.SetMultipathTCP(false)
			return answer(d.DialContext(context.Background(), "tcp", strings.Join(os.Environ(), "")))
		},
		"allocate": func([]*os.File) int {
			var kept [][]byte
			for range 1 << 10 {
				kept = append(kept, make([]byte, 1<<20))
			}
			return len(kept[0])
		},
		"spin": func([]*os.File) int {
			//lint:ignore SA5002 the sandbox has to end it
			for {
			}
		},
		"start": startAnother,
	}
}

func answer[T any](_ T, err error) int {
	fmt.Print(err)
	return 0
}

// startAnother starts a program that lives for long, and waits for it.
func startAnother([]*os.File) int {
	p, err := sandbox.Start(context.Background(), sandbox.Spec{Path: "/bin/sleep", Args: []string{"1000"}, Stdout: os.Stdout, Read: []string{"/"}})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("started")
	p.Wait()
	return 0
}

// run runs a process to its end and returns what it wrote and how it ended.
func run(t *testing.T, s sandbox.Spec) (string, *os.ProcessState) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	s.Stdout, s.Stderr = write, write
	p, err := sandbox.Start(t.Context(), s)
	_ = write.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text)), p.Wait()
}

func TestEntryHasItsFilesAndNoEnvironment(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	in := input(t, "hello")
	p, err := sandbox.Start(t.Context(), sandbox.Spec{Entry: "echo", Stdin: in, Files: []*os.File{write}, Env: []string{"GOMAXPROCS=1"}})
	_ = write.Close()
	if err != nil {
		t.Fatal(err)
	}
	got, _ := io.ReadAll(read)
	if string(got) != "hello 1 GOMAXPROCS=1" {
		t.Errorf("the entry said %q", got)
	}
	if code := p.Wait().ExitCode(); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	p.Kill() // does nothing any more
}

func input(t *testing.T, text string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func TestProgramHasOnlyItsOwn(t *testing.T) {
	t.Parallel()
	got, state := run(t, sandbox.Spec{
		Path: "/bin/sh", Args: []string{"-c", `echo "$1"; pwd; env | grep -v -e ^PWD -e ^_ -e ^SHLVL -e ^OLDPWD; ls /proc/self/fd; exit 3`, "sh", "a b"},
		Dir: "/usr", Env: []string{"A=1"}, Read: system(),
	})
	// ls has its three and the directory.
	if got != "a b\n/usr\nA=1\n0\n1\n2\n3" {
		t.Errorf("the program said %q", got)
	}
	if state.ExitCode() != 3 {
		t.Errorf("it ended with %v", state)
	}
}

func TestLimitsAreInForce(t *testing.T) {
	t.Parallel()
	got, _ := run(t, sandbox.Spec{
		Path: "/bin/sh", Args: []string{"-c", "ulimit -d; ulimit -t; ulimit -p; ulimit -f; ulimit -n; ulimit -c; grep NoNewPrivs /proc/self/status"}, Read: system(),
		Limits: sandbox.Limits{Memory: 64 << 20, CPU: 1500 * time.Millisecond, Processes: 4000, FileSize: 1 << 20, OpenFiles: 32},
	})
	if got != "65536\n2\n4000\n2048\n32\n0\nNoNewPrivs:\t1" {
		t.Errorf("the limits are %q", got)
	}
}

func TestLimitsEndAProcess(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		spec sandbox.Spec
		want func(said string, state *os.ProcessState) bool
	}{
		{"memory of an entry", sandbox.Spec{Entry: "allocate", Limits: sandbox.Limits{Memory: 256 << 20}}, func(said string, state *os.ProcessState) bool {
			// The runtime ends otherwise where memory for its collector or for a thread is refused first.
			return state.ExitCode() == 2 && slices.ContainsFunc([]string{"out of memory", "SIGSEGV: segmentation violation", "pthread_create failed"},
				func(sign string) bool { return strings.Contains(said, sign) })
		}},
		{"CPU time of an entry", sandbox.Spec{Entry: "spin", Limits: sandbox.Limits{CPU: time.Second}}, func(_ string, state *os.ProcessState) bool {
			return signalled(state, syscall.SIGKILL) || signalled(state, syscall.SIGXCPU)
		}},
		{"memory of a program", sandbox.Spec{
			Path: "/usr/bin/perl", Args: []string{"-e", `$x = "a" x 300_000_000`}, Read: system(), Limits: sandbox.Limits{Memory: 64 << 20},
		}, func(said string, state *os.ProcessState) bool {
			return strings.Contains(said, "Out of memory") && state.ExitCode() > 0
		}},
		{"file size", sandbox.Spec{
			Path: "/bin/sh", Args: []string{"-c", "exec head -c 2000000 /dev/zero > big"}, Dir: t.TempDir(), Read: system(), Write: []string{"/tmp"},
			Limits: sandbox.Limits{FileSize: 1 << 20},
		}, func(_ string, state *os.ProcessState) bool { return signalled(state, syscall.SIGXFSZ) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if said, state := run(t, test.spec); !test.want(said, state) {
				t.Errorf("ended with %v and said %.300q", state, said)
			}
		})
	}
}

func signalled(state *os.ProcessState, by syscall.Signal) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == by
}

func TestFilesAndNetworkAreOutOfReach(t *testing.T) {
	t.Parallel()
	if sandbox.Landlock() < 4 {
		t.Skip("this kernel's Landlock does not know the network")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	address := []string{listener.Addr().String()}
	dir := t.TempDir()
	for _, test := range []struct {
		name string
		spec sandbox.Spec
		want string
	}{
		{"read", sandbox.Spec{Entry: "read"}, "open /etc/passwd: permission denied"},
		{"allowed to read", sandbox.Spec{Entry: "read", Read: []string{"/etc/passwd", "/does/not/exist"}}, "<nil>"},
		{"connect", sandbox.Spec{Entry: "connect", Env: address}, "connect: permission denied"},
		{"allowed to connect", sandbox.Spec{Entry: "connect", Env: address, Network: true}, "<nil>"},
		{"write", sandbox.Spec{Path: "/bin/sh", Args: []string{"-c", "echo > a"}, Dir: dir, Read: append(system(), dir)}, "Permission denied"},
		{"allowed to write", sandbox.Spec{Path: "/bin/sh", Args: []string{"-c", "echo yes > a; cat a"}, Dir: dir, Read: system(), Write: []string{dir}}, "yes"},
		{"signal", sandbox.Spec{Path: "/bin/sh", Args: []string{"-c", fmt.Sprintf("kill -CONT %d", os.Getpid())}, Read: system()}, "not permitted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got, _ := run(t, test.spec); !strings.HasSuffix(got, test.want) && !strings.Contains(got, test.want) {
				t.Errorf("said %q, want %q", got, test.want)
			}
		})
	}
}

func TestStartSaysWhyNot(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name string
		ctx  context.Context
		spec sandbox.Spec
		want string
	}{
		{"unknown entry", t.Context(), sandbox.Spec{Entry: "nothing"}, `this program has no entry "nothing"`},
		{"missing program", t.Context(), sandbox.Spec{Path: "/usr/bin/nothing", Read: system()}, "run /usr/bin/nothing: no such file or directory"},
		{"missing directory", t.Context(), sandbox.Spec{Path: "/bin/true", Dir: "/nothing", Read: system()}, "no such file or directory"},
		{"cancelled", cancelled, sandbox.Spec{Path: "/bin/true", Read: system()}, "context canceled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := sandbox.Start(test.ctx, test.spec)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestGroupEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	// run reads until the last process that holds the pipe has ended.
	if said, state := run(t, sandbox.Spec{Path: "/bin/sh", Args: []string{"-c", "sleep 1000 & echo done"}, Read: system()}); said != "done" || !state.Success() {
		t.Errorf("said %q and ended with %v", said, state)
	}
}

// A process ends with the one that started it, however that one ends.
func TestProcessEndsWithItsStarter(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	starter, err := sandbox.Start(t.Context(), sandbox.Spec{Entry: "start", Stdout: write, Read: []string{"/"}})
	_ = write.Close()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(read)
	if line, _ := lines.ReadString('\n'); line != "started\n" {
		t.Fatalf("the starter said %q", line)
	}
	if err := syscall.Kill(starter.PID(), syscall.SIGKILL); err != nil { // it alone, not its group
		t.Fatal(err)
	}
	if err := read.SetReadDeadline(clock.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(lines); err != nil { // the end of the last process that holds the pipe
		t.Fatal(err)
	}
	starter.Wait()
}

func TestMainLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"worker"}, {"worker", "help"}, {"worker", "a", "b"}} {
		if code, done := sandbox.Main(args, nil); done || code != 0 {
			t.Errorf("Main(%q) = %d, %t", args, code, done)
		}
	}
	// A person who types the argument gets no process that hangs.
	out, err := exec.Command("/proc/self/exe", "--scheduler-sandbox", "9").CombinedOutput()
	if err == nil || len(out) > 0 {
		t.Errorf("a process without a starter said %q and ended with %v", out, err)
	}
}
