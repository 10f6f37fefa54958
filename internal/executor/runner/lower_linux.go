package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lowered is the niceness of runners, which leaves the processors to the worker where
// both want them, and lowest that of those that come last.
const lowered, lowest = 5, 19

// lower lowers the priority of the threads that the process has by now, as far as the
// system lets us; those that they begin have it too. A session has a share of the
// processors of its own (sched_autogroup_enabled), in which that of a thread means
// nothing to other sessions; a runner is a session, so that share is lowered, too.
func (p *process) lower() {
	niceness := lowered
	if p.last {
		niceness = lowest
	}
	proc := fmt.Sprintf("/proc/%d/", p.sandbox.PID())
	_ = os.WriteFile(proc+"autogroup", []byte(strconv.Itoa(niceness)), 0) // there may be none, or the kernel wants no more changes now
	threads, _ := filepath.Glob(proc + "task/*")
	for _, one := range threads {
		if id, err := strconv.Atoi(filepath.Base(one)); err == nil {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, id, niceness) // it may be gone
		}
	}
}

// tick is the unit of the times in /proc, which every architecture of Linux has alike.
const tick = 10 * time.Millisecond

// processorTime is what the process, which lives, has used of the processors until now, to
// a few ticks.
func (p *process) processorTime() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.sandbox.PID()))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // behind its name
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick
}
