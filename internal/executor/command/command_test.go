//go:build linux

package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/command"
	"github.com/scheduler-service/scheduler/internal/executor/command/commandtest"
	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
	"github.com/scheduler-service/scheduler/internal/trace"
	"github.com/scheduler-service/scheduler/internal/trace/tracetest"
)

func TestMain(m *testing.M) {
	entries := map[string]sandbox.Entry{command.EntryName: keep, "worker": worker}
	if code, done := sandbox.Main(os.Args, entries); done {
		os.Exit(code)
	}
	os.Exit(leaktest.Main(m))
}

// levels are the levels that this machine has. Each test runs in each.
func levels(t *testing.T, test func(t *testing.T, level command.Level, e *command.Executor)) {
	t.Helper()
	for _, level := range []command.Level{command.Sandbox, command.Unsafe} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			if level == command.Sandbox {
				if err := commandtest.Bubblewrap(t.Context()); err != nil {
					t.Skip(err)
				}
			}
			e, err := command.New(t.Context(), command.Config{Level: level, Memory: 512, Dir: publicDir(t), Network: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(e.Close)
			t.Logf("isolation: %s", e.Isolation())
			test(t, level, e)
		})
	}
}

// publicDir is a directory that every account may pass through, as /tmp is.
func publicDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// heard is a reporter that keeps what it hears.
type heard struct {
	mu       sync.Mutex
	streams  map[executor.Stream]*bytes.Buffer
	progress []string
	wrote    chan struct{} // gets a word for each output, if it is there
}

func (h *heard) Output(stream executor.Stream, text []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams == nil {
		h.streams = map[executor.Stream]*bytes.Buffer{}
	}
	if h.streams[stream] == nil {
		h.streams[stream] = &bytes.Buffer{}
	}
	h.streams[stream].Write(text)
	if h.wrote != nil {
		h.wrote <- struct{}{}
	}
}

func (h *heard) Progress(percent int, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.progress = append(h.progress, fmt.Sprint(percent, " ", message))
}

func (h *heard) text(stream executor.Stream) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams[stream] == nil {
		return ""
	}
	return h.streams[stream].String()
}

// result is what a job's result holds.
type result struct {
	ExitCode                 *int
	Signal, Stdout, Stderr   string
	StdoutBytes, StderrBytes int64
}

// config is a job that runs a line of shell.
func config(script string, more ...string) string {
	quoted, _ := json.Marshal(script)
	return `{"command":"sh","args":["-c",` + string(quoted) + `]` + strings.Join(append([]string{""}, more...), ",") + `}`
}

func execute(ctx context.Context, t *testing.T, e *command.Executor, config string, timeout time.Duration, report executor.Reporter) (executor.Outcome, result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	registry := executor.NewRegistry(map[string]executor.Executor{command.Type: e})
	out := registry.Execute(ctx, command.Type, executor.Run{
		ExecutionID: uuid.Max, JobID: uuid.Max, TenantID: uuid.Max, Attempt: 2, ScheduledAt: time.Unix(0, 0), Timeout: timeout,
		Config: json.RawMessage(config), Report: report,
	})
	var r result
	if len(out.Result) > 0 {
		if err := json.Unmarshal(out.Result, &r); err != nil {
			t.Fatalf("the result %.200s: %v", out.Result, err)
		}
	}
	return out, r
}

const ample = time.Minute

func TestProgramRuns(t *testing.T) {
	t.Parallel()
	levels(t, func(t *testing.T, level command.Level, e *command.Executor) {
		h := &heard{}
		out, r := execute(t.Context(), t, e, `{"command":"sh","args":["-c","pwd; echo \"$1\"; env | sort; echo ::progress 40 half way; echo wrong >&2; exit 3","sh","a b;$HOME"],
			"environment":{"A":"1","LANG":"de"},"workingDirectory":"x/y"}`, ample, h)
		if out.Err == nil || out.Err.Type != executor.UserError || out.Err.Message != "ended with exit code 3: wrong" {
			t.Errorf("ended with %+v", out.Err)
		}
		if r.ExitCode == nil || *r.ExitCode != 3 || r.Stderr != "wrong\n" || r.StderrBytes != 6 || r.StdoutBytes != int64(len(r.Stdout)) {
			t.Errorf("result %+v", r)
		}
		lines := strings.Split(r.Stdout, "\n")
		root := strings.TrimSuffix(lines[0], "/x/y")
		want := []string{
			root + "/x/y", "a b;$HOME", "A=1", "HOME=" + root, "LANG=de", "PATH=/usr/local/bin:/usr/bin:/bin", "PWD=" + root + "/x/y",
			"SCHEDULER_ATTEMPT=2", "SCHEDULER_EXECUTION_ID=" + uuid.Max.String(), "SCHEDULER_JOB_ID=" + uuid.Max.String(),
			"SCHEDULER_SCHEDULED_AT=1970-01-01T00:00:00Z", "SCHEDULER_TENANT_ID=" + uuid.Max.String(), "TMPDIR=" + root, "",
		}
		if strings.Join(lines, "\n") != strings.Join(want, "\n") {
			t.Errorf("said\n%s\nwant\n%s", r.Stdout, strings.Join(want, "\n"))
		}
		if got := h.text(executor.Stdout); got != r.Stdout {
			t.Errorf("the reporter heard %q", got)
		}
		if fmt.Sprint(h.progress) != "[40 half way]" {
			t.Errorf("progress %q", h.progress)
		}
		if _, err := os.Stat(root); level == command.Unsafe && !os.IsNotExist(err) {
			t.Errorf("the working directory %s is still there: %v", root, err)
		}
	})
}

func TestProgramsEndAsTheirKind(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, config string
		kind         executor.ErrorType
		message      string
	}{
		{"success", config("true"), "", ""},
		{"missing binary", `{"command":"no-such-program"}`, executor.ValidationError, `there is no program "no-such-program" in /usr/local/bin:/usr/bin:/bin where this job runs`},
		{"missing path", `{"command":"/usr/bin/no-such"}`, executor.ValidationError, "there is no program /usr/bin/no-such where this job runs"},
		{"no program", `{"command":"/usr/bin"}`, executor.ValidationError, "/usr/bin is not a program that can be run"},
		{"signal", config("kill -SEGV $$"), executor.UserError, "was ended by SIGSEGV"},
		{"memory", `{"command":"perl","args":["-e","$x = \"a\" x $ARGV[0]","400000000"],"limits":{"memoryMb":64}}`, executor.UserError, "emory"},
		{"CPU time", config("while :; do :; done", `"limits":{"cpuSeconds":1}`), executor.UserError, "used its 1 s of CPU time"},
		{"file size", config("exec head -c 3000000 /dev/zero > big", `"limits":{"fileSizeMb":1}`), executor.UserError, ""},
		{"open files", config("exec 20>a 21>b 22>c; for i in 23 24 25 26 27; do eval \"exec $i>x\" || exit 9; done", `"limits":{"openFiles":24}`), executor.UserError, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			levels(t, func(t *testing.T, _ command.Level, e *command.Executor) {
				out, _ := execute(t.Context(), t, e, test.config, ample, &heard{})
				switch {
				case test.kind == "" && out.Err != nil:
					t.Errorf("ended with %v", out.Err)
				case test.kind != "" && out.Err == nil:
					t.Errorf("ended well: %s", out.Result)
				case test.kind != "" && (out.Err.Type != test.kind || !strings.Contains(out.Err.Message, test.message)):
					t.Errorf("ended with %v, want %s %q", out.Err, test.kind, test.message)
				}
			})
		})
	}
}

func TestRetryOnExitCodes(t *testing.T) {
	t.Parallel()
	levels(t, func(t *testing.T, _ command.Level, e *command.Executor) {
		for code, want := range map[int]bool{75: true, 74: false} {
			out, _ := execute(t.Context(), t, e, config("exit "+strconv.Itoa(code), `"retryOnExitCodes":[75]`), ample, nil)
			if got := out.Err != nil && out.Err.Retry != nil && *out.Err.Retry; got != want {
				t.Errorf("exit code %d: retried %t", code, got)
			}
		}
	})
}

func TestOutputIsCappedAndStorable(t *testing.T) {
	t.Parallel()
	levels(t, func(t *testing.T, _ command.Level, e *command.Executor) {
		out, r := execute(t.Context(), t, e, config(`head -c 300000 /dev/zero | tr '\0' 'x'; printf 'a\0b\377c\001'`), ample, nil)
		if out.Err != nil {
			t.Fatal(out.Err)
		}
		if r.StdoutBytes != 300006 || len(r.Stdout) > 70<<10 || !strings.HasSuffix(r.Stdout, "xa\uFFFDb\uFFFDc\x01") {
			t.Errorf("%d bytes, %d are kept, at the end %q", r.StdoutBytes, len(r.Stdout), r.Stdout[max(0, len(r.Stdout)-12):])
		}
		if out, r := execute(t.Context(), t, e, config(`head -c 300000 /dev/zero | tr '\0' '\001'`), ample, nil); out.Err != nil || len(r.Stdout) < 10<<10 {
			t.Errorf("control characters: %v, %d bytes are kept of %d of JSON", out.Err, len(r.Stdout), len(out.Result))
		}
	})
}

func TestUseIsMeasured(t *testing.T) {
	t.Parallel()
	levels(t, func(t *testing.T, _ command.Level, e *command.Executor) {
		out, _ := execute(t.Context(), t, e, `{"command":"perl","args":["-e","$x = \"a\" x $ARGV[0]; $i++ while $i < 10_000_000","100000000"]}`, ample, nil)
		if out.Err != nil {
			t.Fatal(out.Err)
		}
		if out.MemoryPeakMB < 90 || out.MemoryPeakMB > 300 {
			t.Errorf("%.1f MiB of memory", out.MemoryPeakMB)
		}
		if out.CPUTime < 50*time.Millisecond {
			t.Errorf("%s of CPU time", out.CPUTime)
		}
	})
}

// A program that makes processes for ever reaches its limit, and all of them end with it.
func TestForkBombEnds(t *testing.T) {
	t.Parallel()
	levels(t, func(t *testing.T, _ command.Level, e *command.Executor) {
		mark := marked()
		var out executor.Outcome
		var r result
		// On a busy machine the time may be up before there are so many: then it gets more.
		for limit := 1.5; limit < ample.Seconds() && !strings.Contains(strings.ToLower(r.Stderr), "fork"); limit *= 4 {
			out, r = execute(t.Context(), t, e, config(fmt.Sprintf(`b() { : %s; b | b & }; b; sleep 1000`, mark), `"limits":{"processes":20}`, seconds(limit)), ample, nil)
		}
		if out.Err == nil || !strings.Contains(strings.ToLower(r.Stderr), "fork") {
			t.Errorf("ended with %v and said %.100q", out.Err, r.Stderr)
		}
		if pids := left(mark); len(pids) > 0 {
			t.Errorf("still there: %q", pids)
		}
		if out, _ := execute(t.Context(), t, e, config("true"), ample, nil); out.Err != nil {
			t.Errorf("the next program ended with %v", out.Err)
		}
	})
}

// A program reaches no file of the worker, none of its variables and processes, and no
// network.
func TestProgramsAreKeptApart(t *testing.T) {
	t.Parallel()
	hidden := filepath.Join(t.TempDir(), "hidden")
	if err := os.WriteFile(hidden, []byte("treasure"), 0o644); err != nil {
		t.Fatal(err)
	}
	levels(t, func(t *testing.T, level command.Level, e *command.Executor) {
		for _, test := range []struct{ name, script string }{
			{"a file", "cat " + hidden},
			{"accounts", "cat /etc/shadow"},
			{"the worker's environment", fmt.Sprintf("cat /proc/%d/environ", os.Getpid())},
			{"a signal", fmt.Sprintf("kill -CONT %d", os.Getpid())},
			{"the network", "exec 3<>/dev/tcp/127.0.0.1/22"},
			{"a file outside", "echo a > /usr/a"},
		} {
			shell := config(test.script)
			if test.name == "the network" {
				shell = strings.Replace(shell, `"sh"`, `"bash"`, 1)
			}
			out, r := execute(t.Context(), t, e, shell, ample, nil)
			if out.Err == nil || out.Err.Type != executor.UserError || strings.Contains(r.Stdout, "treasure") {
				t.Errorf("%s: %v, said %q %q", test.name, out.Err, r.Stdout, r.Stderr)
			}
		}
		if level == command.Sandbox {
			_, r := execute(t.Context(), t, e, config("ls /proc | grep -c '^[0-9]'; cat /proc/net/dev | grep -c :; ls /home /root /var /etc/passwd; id -u"), ample, nil)
			if first, _, _ := strings.Cut(r.Stdout, "\n"); first > "6" || len(first) > 1 || !strings.HasSuffix(r.Stdout, "\n1\n65534\n") {
				t.Errorf("the sandbox shows %q %q", r.Stdout, r.Stderr)
			}
		}
	})
}

// marked is the argument by which a test finds what its program left.
func marked() string { return strings.ReplaceAll(uuid.NewString(), "-", "") }

// seconds is the field of a configuration that limits the time of a run.
func seconds(limit float64) string { return fmt.Sprintf(`"timeout":%g`, limit) }

// left counts the processes that hold a mark among their arguments.
func left(mark string) (pids []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(mark)) {
			pids = append(pids, path+" "+string(bytes.ReplaceAll(text, []byte{0}, []byte{' '})))
		}
	}
	return pids
}

// stubborn is a script that leaves, besides itself, a daemon of its own session and a
// process that ignores SIGTERM, all marked, and says when they run.
func stubborn(mark string) string {
	return fmt.Sprintf(`trap '' TERM
(setsid sh -c 'trap "" TERM HUP; sleep 1000; : %s' >/dev/null 2>&1 &) &
sh -c 'trap "" TERM; sleep 1000; : %s' &
echo ready; sleep 1000; : %s`, mark, mark, mark)
}

func TestWholeTreeEnds(t *testing.T) {
	t.Parallel()
	levels(t, func(t *testing.T, _ command.Level, e *command.Executor) {
		for _, test := range []struct {
			name      string
			limits    []float64 // seconds
			cancelled bool
			want      executor.ErrorType
		}{
			{"time-out", []float64{1, 4, 16, 64}, false, executor.Timeout},
			{"cancelled", []float64{64, 64, 64}, true, executor.SystemError},
		} {
			var out executor.Outcome
			var r result
			// On a busy machine the time may be up before the program is ready: then it gets more.
			for _, limit := range test.limits {
				if out, r = endTree(t, e, limit, test.cancelled); r.Stdout != "" && !lost(r) {
					break
				}
			}
			if out.Err == nil || out.Err.Type != test.want || lost(r) {
				t.Errorf("%s: ended with %v", test.name, out.Err)
			}
			if r.Stdout != "ready\n" {
				t.Errorf("%s: what it said is %q", test.name, r.Stdout)
			}
		}
		// A program that ends well leaves nothing either.
		mark := marked()
		if out, _ := execute(t.Context(), t, e, config(fmt.Sprintf(`(setsid sh -c 'sleep 1000; : %s' >/dev/null 2>&1 &) & sleep 0.1`, mark)), ample, nil); out.Err != nil {
			t.Error(out.Err)
		}
		if pids := left(mark); len(pids) > 0 {
			t.Errorf("a daemon is still there: %q", pids)
		}
	})
}

func TestProgramThatObeysSIGTERMEndsByItself(t *testing.T) {
	t.Parallel()
	levels(t, func(t *testing.T, _ command.Level, e *command.Executor) {
		// On a busy machine the time may be up before the program is ready, or it may need more than
		// the second that it has for its last word: then it gets more.
		for limit := 0.5; ; limit *= 4 {
			out, r := execute(t.Context(), t, e, config(`trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done`, seconds(limit)), ample, nil)
			if out.Err == nil || out.Err.Type != executor.Timeout {
				t.Fatalf("ended with %v", out.Err)
			}
			if r.Stdout == "ready\nbye\n" {
				return
			}
			if limit > 30 {
				t.Fatalf("said %q after %g s", r.Stdout, limit)
			}
		}
	})
}

// worker is a worker of its own process, which a test kills.
func worker([]*os.File) int {
	var c struct {
		Level  command.Level
		Dir    string
		Config string
	}
	if json.NewDecoder(os.Stdin).Decode(&c) != nil {
		return 1
	}
	e, err := command.New(context.Background(), command.Config{Level: c.Level, Memory: 512, Dir: c.Dir})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	e.Execute(context.Background(), executor.Run{Config: json.RawMessage(c.Config), Timeout: ample, Report: passOn{}})
	return 0
}

// passOn writes what a program writes.
type passOn struct{}

func (passOn) Output(_ executor.Stream, text []byte) { _, _ = os.Stdout.Write(text) }
func (passOn) Progress(int, string)                  {}

// A worker that is killed takes its programs along.
func TestTreeEndsWithItsWorker(t *testing.T) {
	t.Parallel()
	levels(t, func(t *testing.T, level command.Level, _ *command.Executor) {
		mark, dir := marked(), publicDir(t)
		order, _ := json.Marshal(map[string]any{"Level": level, "Dir": dir, "Config": config(stubborn(mark))})
		in, err := os.CreateTemp(t.TempDir(), "order")
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if _, err := in.Write(order); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Seek(0, 0); err != nil {
			t.Fatal(err)
		}
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		p, err := sandbox.Start(t.Context(), sandbox.Spec{Entry: "worker", Unfenced: true, Env: []string{"PATH=/usr/bin:/bin"}, Stdin: in, Stdout: write, Stderr: write})
		_ = write.Close()
		if err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 100)
		if n, _ := read.Read(buffer); string(buffer[:n]) != "ready\n" {
			t.Fatalf("the worker said %q", buffer[:n])
		}
		if len(left(mark)) == 0 {
			t.Fatal("the program does not run")
		}
		if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.Wait()
		// pidfds tell when they end; some may have begun meanwhile.
		for len(left(mark)) > 0 && !t.Failed() {
			for _, line := range left(mark) {
				var pid int
				if _, err := fmt.Sscanf(line, "/proc/%d/cmdline", &pid); err == nil {
					if fd, err := pidfd(pid); err == nil {
						awaitEnd(t, fd)
					}
				}
			}
		}
	})
}

// A program that makes spans of its own goes on with the trace of its execution.
func TestProgramKnowsItsTrace(t *testing.T) {
	t.Parallel()
	levels(t, func(t *testing.T, _ command.Level, e *command.Executor) {
		traces, err := trace.New(t.Context(), trace.Config{URL: tracetest.New(t).URL, Share: 1, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer traces.Close()
		ctx, span := traces.Execution(t.Context(), uuid.Max, "attempt", time.Unix(0, 0))
		defer span.End()
		_, r := execute(ctx, t, e, `{"command":"sh","args":["-c","echo $TRACEPARENT"]}`, ample, &heard{})
		if want := trace.Parent(ctx) + "\n"; r.Stdout != want || !strings.Contains(want, trace.IDOf(uuid.Max)) {
			t.Errorf("the program has %q, want %q", r.Stdout, want)
		}
	})
}
