package program

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/scheduler-service/scheduler/internal/config"
)

// signalled is set in the process that TestSignals starts.
const signalled = "PROGRAM_UNDER_TEST"

func TestMain(m *testing.M) {
	if mode := os.Getenv(signalled); mode != "" {
		os.Exit(worker(func(ctx context.Context) error {
			slog.Warn("running")
			<-ctx.Done()
			if mode == "stubborn" {
				select {} // a stop that never comes to its end
			}
			return nil
		}).Main(nil, os.Stdout, os.Stdout, lookup))
	}
	os.Exit(m.Run())
}

func lookup(name string) (string, bool) {
	if name == "DATABASE_URL" {
		return "postgres://login@localhost/db", true
	}
	return "", false
}

func worker(run func(context.Context) error) Program[config.Worker] {
	return Program[config.Worker]{
		Name: "worker", About: "runs executions", Load: config.Load[config.Worker], Dump: config.Dump[config.Worker],
		Run: func(ctx context.Context, _ config.Worker, _ *slog.Logger, _ []string) error { return run(ctx) },
	}
}

func TestArgumentsAreAnsweredWithoutAStart(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args          []string
		code          int
		out, problems string
	}{
		{[]string{"--help"}, 0, "SCHEDULER_MAX_CONCURRENT_JOBS", ""},
		{[]string{"-h"}, 0, "worker runs executions.", ""},
		{[]string{"version"}, 0, "worker ", ""},
		{[]string{"--version"}, 0, "worker ", ""},
		{[]string{"serve"}, 2, "", `unknown argument "serve"; worker --help`},
		{[]string{"--port=1"}, 2, "", `unknown argument "--port=1"`},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			var out, problems bytes.Buffer
			started := false
			code := worker(func(context.Context) error { started = true; return nil }).Main(test.args, &out, &problems, lookup)
			if code != test.code || started {
				t.Errorf("code %d, want %d; started: %v", code, test.code, started)
			}
			if !strings.Contains(out.String(), test.out) || !strings.Contains(problems.String(), test.problems) {
				t.Errorf("out %q, problems %q; want %q in the one and %q in the other", out.String(), problems.String(), test.out, test.problems)
			}
			if strings.Contains(out.String(), "JWT_SECRET") {
				t.Error("the help lists what the process does not read")
			}
		})
	}
}

func TestAWrongConfigurationNamesTheHelp(t *testing.T) {
	t.Parallel()
	var problems bytes.Buffer
	nothing := func(string) (string, bool) { return "", false }
	if code := worker(nil).Main(nil, &bytes.Buffer{}, &problems, nothing); code != misuse {
		t.Errorf("code %d, want %d", code, misuse)
	}
	for _, want := range []string{"DATABASE_URL: is not set", "worker --help"} {
		if !strings.Contains(problems.String(), want) {
			t.Errorf("%q is not in %q", want, problems.String())
		}
	}
}

func TestARunThatFails(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	code := worker(func(context.Context) error { return errors.New("no database") }).Main(nil, &bytes.Buffer{}, &log, lookup)
	if code != failed || !strings.Contains(log.String(), "no database") {
		t.Errorf("code %d, log %q", code, log.String())
	}
}

// The first signal stops a program, which says so; the second ends it at once.
func TestSignals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		mode, last string
		signals    int
	}{{"obedient", "stopped", 1}, {"stubborn", "stopping", 2}} {
		t.Run(test.mode, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), signalled+"="+test.mode)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var last string
			sent := 0
			for lines := bufio.NewScanner(out); lines.Scan(); {
				last = lines.Text()
				if sent < test.signals && (strings.Contains(last, "starting") || strings.Contains(last, "stopping")) {
					sent++
					if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
						t.Error(err)
					}
				}
			}
			err = cmd.Wait()
			var exit *exec.ExitError
			if ended := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled(); ended != (test.mode == "stubborn") || (err != nil) != ended {
				t.Errorf("it ended with %v", err)
			}
			if !strings.Contains(last, test.last) {
				t.Errorf("the last line is %q, want %q in it", last, test.last)
			}
		})
	}
}
