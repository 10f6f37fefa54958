//go:build linux

package command_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/command"
)

// Many killed programs leave no process, no directory, no control group, no open file
// and, as TestMain finds out, no goroutine.
func TestManyKilledProgramsLeaveNothing(t *testing.T) {
	// Alone, since it counts the open files of the process.
	for _, level := range []command.Level{command.Sandbox, command.Unsafe} {
		t.Run(string(level), func(t *testing.T) {
			dir := publicDir(t)
			e, err := command.New(t.Context(), command.Config{Level: level, Memory: 512, Dir: dir})
			if err != nil {
				t.Skip(err) // levels says it, too
			}
			before := openFiles(t)
			mark := marked()
			killMany(t, e, mark, 150)
			if pids := left(mark); len(pids) > 0 {
				t.Errorf("still there: %q", pids)
			}
			if dirs, _ := filepath.Glob(dir + "/*/*"); len(dirs) > 0 {
				t.Errorf("directories are left: %q", dirs)
			}
			if after := openFiles(t); after > before+1 { // a poller, once
				t.Errorf("%d open files, %d before", after, before)
			}
			e.Close()
			if dirs, _ := filepath.Glob(dir + "/*"); len(dirs) > 0 {
				t.Errorf("directories are left at the end: %q", dirs)
			}
		})
	}
}

// BenchmarkKilledPrograms kills programs that leave daemons: with -benchtime 10000x as
// many as the bar of the project names.
func BenchmarkKilledPrograms(b *testing.B) {
	for _, level := range []command.Level{command.Sandbox, command.Unsafe} {
		b.Run(string(level), func(b *testing.B) {
			e, err := command.New(b.Context(), command.Config{Level: level, Memory: 512, Dir: os.TempDir()})
			if err != nil {
				b.Skip(err)
			}
			defer e.Close()
			mark := marked()
			b.ResetTimer()
			killMany(b, e, mark, b.N)
			b.StopTimer()
			if pids := left(mark); len(pids) > 0 {
				b.Errorf("still there: %q", pids)
			}
		})
	}
}

// killMany runs programs, sixteen at once, and cancels each when it has begun.
func killMany(t testing.TB, e *command.Executor, mark string, count int) {
	t.Helper()
	next := make(chan struct{})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range next {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				out := e.Execute(ctx, executor.Run{
					Config: []byte(config("(setsid sleep 1000 </dev/null >/dev/null 2>&1 &) & echo ready; exec sleep 1000; : " + mark)), Timeout: time.Minute, Report: onOutput(cancel),
				})
				if out.Err == nil || out.Err.Type != executor.SystemError || out.Err.Message != "the command was cancelled" {
					t.Errorf("ended with %v", out.Err)
				}
				cancel()
			}
		})
	}
	for range count {
		next <- struct{}{}
	}
	close(next)
	all.Wait()
}

// onOutput is a reporter that does something at the first output.
type onOutput func()

func (f onOutput) Output(executor.Stream, []byte) { f() }
func (onOutput) Progress(int, string)             {}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
