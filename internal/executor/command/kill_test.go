//go:build linux

package command_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
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
		t.Run(string(level), func(t *testing.T) { leavesNothing(t, level, publicDir(t), 150) })
	}
}

// BenchmarkKilledPrograms kills programs that leave daemons, and checks that nothing stays:
// with -benchtime 10000x as many as the bar of the project names.
func BenchmarkKilledPrograms(b *testing.B) {
	for _, level := range []command.Level{command.Sandbox, command.Unsafe} {
		b.Run(string(level), func(b *testing.B) {
			goroutines := runtime.NumGoroutine()
			leavesNothing(b, level, publicDir(b), b.N)
			if after := runtime.NumGoroutine(); after > goroutines {
				b.Errorf("%d goroutines, %d before", after, goroutines)
			}
		})
	}
}

// leavesNothing kills so many programs of a level, and checks that nothing of them stays.
func leavesNothing(t testing.TB, level command.Level, dir string, count int) {
	t.Helper()
	e, err := command.New(t.Context(), command.Config{Level: level, Memory: 512, Dir: dir})
	if err != nil {
		t.Skip(err) // levels says it, too
	}
	defer e.Close()
	before := openFiles(t)
	mark := marked()
	killMany(t, e, mark, count)
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
}

// killMany runs programs, sixteen at once. One half it cancels as soon as they have begun, the
// others run out of time.
func killMany(t testing.TB, e *command.Executor, mark string, count int) {
	t.Helper()
	next := make(chan int)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for n := range next {
				timeout := time.Minute
				if n%2 == 0 {
					timeout = 150 * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				run := executor.Run{
					Config: []byte(config("(setsid sleep 1000 </dev/null >/dev/null 2>&1 &) & echo ready; exec sleep 1000; : " + mark)), Timeout: timeout, Report: onOutput(cancel),
				}
				kind, message := executor.SystemError, "the command was cancelled"
				if n%2 == 0 {
					run.Report = onOutput(func() {})
					kind, message = executor.Timeout, "timed out after 150ms"
				}
				if out := e.Execute(ctx, run); out.Err == nil || out.Err.Type != kind || !strings.HasPrefix(out.Err.Message, message) {
					t.Errorf("ended with %v, want %s", out.Err, message)
				}
				cancel()
			}
		})
	}
	for n := range count {
		next <- n
	}
	close(next)
	all.Wait()
}

// A keeper that is killed cannot end its tree. The run ends all the same, though what is left
// holds its output, and where there are control groups nothing is left.
func TestKilledKeeperEndsTheRun(t *testing.T) {
	t.Parallel()
	levels(t, func(t *testing.T, _ command.Level, e *command.Executor) {
		mark := marked()
		defer killLeft(mark)
		out, _ := execute(t.Context(), t, e, config(stubborn(mark)), ample, onOutput(func() { killKeeper(t, mark) }))
		if out.Err == nil || out.Err.Type != executor.SystemError || !strings.Contains(out.Err.Message, "lost with its keeper") {
			t.Errorf("ended with %v", out.Err)
		}
		if pids := left(mark); len(pids) > 0 && strings.Contains(e.Isolation(), "cgroups") {
			t.Errorf("still there: %q", pids)
		}
	})
}

// killKeeper kills the parent of the program that holds a mark.
func killKeeper(t *testing.T, mark string) {
	theirs := map[int]int{} // their parents
	for _, line := range left(mark) {
		var pid, parent int
		if _, err := fmt.Sscanf(line, "/proc/%d/cmdline", &pid); err != nil {
			continue
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(status), ") ") // after the name
		if _, err := fmt.Sscanf(rest, "%1s %d", new(string), &parent); err == nil {
			theirs[pid] = parent
		}
	}
	for _, parent := range theirs {
		if _, marked := theirs[parent]; !marked && parent > 1 && parent != os.Getpid() {
			if err := syscall.Kill(parent, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
				t.Error(err)
			}
		}
	}
}

// endTree runs a stubborn program until its time is up or it is cancelled, and checks that nothing
// of it is left.
func endTree(t *testing.T, e *command.Executor, limit float64, cancelled bool) (executor.Outcome, result) {
	t.Helper()
	mark, h := marked(), &heard{wrote: make(chan struct{}, 10)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if cancelled {
		go func() {
			select {
			case <-h.wrote:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	out, r := execute(ctx, t, e, config(stubborn(mark), seconds(limit)), ample, h)
	if lost(r) {
		killLeft(mark)
		return out, r
	}
	if pids := left(mark); len(pids) > 0 {
		t.Errorf("limited to %g s: still there: %q", limit, pids)
	}
	return out, r
}

// lost says whether a run that was ended lost its keeper. On a busy machine a keeper may get no
// processor for the half second in which it has to end the tree. Then it is killed and says nothing of
// the end. Without namespaces and control groups the tree goes on.
func lost(r result) bool { return r.Signal == "" && (r.ExitCode == nil || *r.ExitCode == 0) }

// killLeft ends the groups of the processes that hold a mark.
func killLeft(mark string) {
	for _, line := range left(mark) {
		var pid int
		if _, err := fmt.Sscanf(line, "/proc/%d/cmdline", &pid); err != nil {
			continue
		}
		if group, err := syscall.Getpgid(pid); err == nil && group != syscall.Getpgrp() {
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
	}
}

// onOutput is a reporter that does something at the first output.
type onOutput func()

func (f onOutput) Output(executor.Stream, []byte) { f() }
func (onOutput) Progress(int, string)             {}

func openFiles(t testing.TB) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
