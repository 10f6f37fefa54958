package runner_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/executor/runner"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wasmtest"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wire"
)

const moduleMemory = 128 << 20

func program(code []byte) runner.Program {
	sum := sha256.Sum256(code)
	return runner.Program{
		Key: hex.EncodeToString(sum[:]), Memory: moduleMemory,
		Module: func(context.Context) ([]byte, error) { return code, nil },
	}
}

func TestModules(t *testing.T) {
	t.Parallel()
	pool := newPool(t, 4*(moduleMemory+32<<20))
	for _, test := range []struct {
		name                  string
		code                  []byte
		result, failure, said string
	}{
		{name: "echo", code: wasmtest.Echo(), result: `{"a":1}`, said: "hello\n"},
		{name: "silent", code: wasmtest.Says(""), result: ""},
		{name: "no JSON", code: wasmtest.Says("done"), failure: "thrown standard output is not JSON: write the result there and all other text to standard error"},
		{name: "exit 0", code: wasmtest.Exits(0)},
		{name: "exit 3", code: wasmtest.Exits(3), failure: "exit "},
		{name: "trap", code: wasmtest.Traps(), failure: "trap wasm error: unreachable"},
		{name: "too much memory", code: wasmtest.Large(), failure: "syntax section memory: min 8000 pages (500 Mi) over limit of 2048 pages (128 Mi)"},
		{name: "no start", code: wasmtest.Without(), failure: "syntax it exports no function _start; build a WASI command (wasip1), not a library"},
		{name: "broken", code: wasmtest.Echo()[:100], failure: "syntax "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for range 2 { // the second time from the cache, or in the same process
				h := &host{}
				end, err := pool.Run(within(t, ample), uuid.UUID{1}, program(test.code), wire.Task{Input: json.RawMessage(`{"a":1}`)}, h)
				if err != nil {
					t.Fatal(err)
				}
				failure := ""
				if end.Failure != nil {
					failure = string(end.Failure.Reason) + " " + end.Failure.Message
				}
				if !strings.HasPrefix(failure, test.failure) || (failure == "") != (test.failure == "") || string(end.Result) != test.result || h.said.String() != test.said {
					t.Errorf("failure %q, result %s, said %q; want %q, %s, %q", failure, end.Result, h.said.String(), test.failure, test.result, test.said)
				}
			}
		})
	}
}

// The processes of runners work elsewhere than the one that starts them. A folder that was given
// without its whole path keeps compiled code all the same, as that of standalone does.
func TestCacheBelowTheWorkingDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	pool := runner.New(runner.Config{Memory: moduleMemory + 32<<20, CacheDir: filepath.Join("data", "runners"), StartTime: ample, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	defer pool.Close()
	echo := program(wasmtest.Echo())
	if end, err := pool.Run(within(t, ample), uuid.UUID{1}, echo, wire.Task{Input: json.RawMessage(`{}`)}, &host{}); err != nil || end.Failure != nil {
		t.Fatal(end.Failure, err)
	}
	if _, err := os.Stat(filepath.Join("data", "runners", echo.Key)); err != nil {
		t.Errorf("nothing was kept: %v", err)
	}
}

// Hostile modules end, when they are checked or when they run.
func TestHostileModulesEnd(t *testing.T) {
	t.Parallel()
	pool := newPool(t, 3*(moduleMemory+32<<20))
	for name, code := range map[string][]byte{
		"loop": wasmtest.Loops(), "calls": wasmtest.Doubles(), "fill": wasmtest.Fills(), "table": wasmtest.Wide(),
		"pages": wasmtest.Large(), "compile": wasmtest.Tangled(), "grow": wasmtest.Grows(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := clock.Start()
			broken, err := pool.Check(within(t, ample), uuid.UUID{2}, program(code))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d bytes, checked in %v: %+v", len(code), mark.Elapsed().Round(time.Millisecond), broken)
			if broken != nil {
				return
			}
			mark = clock.Start()
			end, err := pool.Run(within(t, time.Second), uuid.UUID{2}, program(code), wire.Task{Input: json.RawMessage(`{}`)}, &host{})
			if late := errors.Is(err, context.DeadlineExceeded); !late && (err != nil || end.Failure == nil) {
				t.Errorf("it ended with %+v, %v", end, err)
			}
			t.Logf("ended after %v of 1 s: %+v", mark.Elapsed().Round(time.Millisecond), end.Failure)
		})
	}
}
