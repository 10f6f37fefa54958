package command

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
)

// mounted is where the kernel's control groups are.
const mounted = "/sys/fs/cgroup"

// keeperMemory is room in a group for the keeper beside the program.
const keeperMemory = 24 << 20

// layout is one version of control groups: which files of a group say and take what.
// The directories of version 1 are those of single controllers.
type layout struct {
	about                           string
	memory, pids, cpu               string // directories of the worker's own groups
	limit, swap, peak, tasks, usage string
	events, ooms                    string // a file, and the word in it before a count
	swapLimit                       func(memory uint64) uint64
	cpuMicros                       func(text string) int64
}

// cgroups makes a group for each program.
type cgroups struct {
	layout
	name  string // of our groups, below which each program has one
	count atomic.Int64
}

// openCgroups finds control groups that this process may make.
func openCgroups() (*cgroups, error) {
	for _, l := range []layout{version2(), version1()} {
		if l.memory == "" {
			continue
		}
		sweep(l)
		g := &cgroups{layout: l, name: fmt.Sprintf("%s%d-%08x", groupPrefix, os.Getpid(), rand.Uint32())}
		if err := g.make(g.name); err != nil {
			g.close()
			continue
		}
		// Limits have to be there: a group without its controllers has no such files.
		_, noMemory := os.Stat(filepath.Join(l.memory, g.name, l.limit))
		_, noTasks := os.Stat(filepath.Join(l.pids, g.name, l.tasks))
		if noMemory == nil && noTasks == nil && g.delegate() == nil {
			return g, nil
		}
		g.close()
	}
	return nil, errors.New("no control groups can be made here")
}

// groupPrefix begins the names of our groups; the worker's process id follows.
const groupPrefix = "scheduler-commands-"

// sweep removes groups of workers that are gone. A group that is in use stays.
func sweep(l layout) {
	for _, dir := range []string{l.memory, l.pids, l.cpu} {
		old, _ := filepath.Glob(filepath.Join(dir, groupPrefix+"*"))
		for _, group := range old {
			pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(group), groupPrefix), "-")
			if _, err := os.Stat("/proc/" + pid); err == nil {
				continue
			}
			inner, _ := filepath.Glob(filepath.Join(group, "[0-9]*"))
			for _, path := range append(inner, group) {
				_ = os.Remove(path)
			}
		}
	}
}

func version1() layout {
	l := layout{
		about: "cgroups 1", memory: own("memory"), pids: own("pids"), cpu: own("cpuacct"),
		limit: "memory.limit_in_bytes", swap: "memory.memsw.limit_in_bytes", peak: "memory.max_usage_in_bytes",
		tasks: "pids.max", usage: "cpuacct.usage", events: "memory.oom_control", ooms: "oom_kill ",
		swapLimit: func(memory uint64) uint64 { return memory }, // of memory and swap together
		cpuMicros: func(text string) int64 { return number(text) / 1000 },
	}
	if l.pids == "" || l.cpu == "" {
		l.memory = ""
	}
	return l
}

func version2() layout {
	dir := own("")
	return layout{
		about: "cgroups 2", memory: dir, pids: dir, cpu: dir,
		limit: "memory.max", swap: "memory.swap.max", peak: "memory.peak", tasks: "pids.max", usage: "cpu.stat", events: "memory.events", ooms: "oom_kill ",
		swapLimit: func(uint64) uint64 { return 0 }, // of swap alone
		cpuMicros: func(text string) int64 { return counted(text, "usage_usec ") },
	}
}

// own is the directory of this process's group under a controller, of version 2 where
// that is empty; empty where there is none.
func own(controller string) string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 || parts[1] != controller {
			continue
		}
		dir := filepath.Join(mounted, controller, parts[2])
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
	}
	return ""
}

// dirs are the directories of a group, each once.
func (g *cgroups) dirs(name string) []string {
	if g.memory == g.pids {
		return []string{filepath.Join(g.memory, name)}
	}
	return []string{filepath.Join(g.memory, name), filepath.Join(g.pids, name), filepath.Join(g.cpu, name)}
}

func (g *cgroups) make(name string) error {
	for _, dir := range g.dirs(name) {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make a control group: %w", err)
		}
	}
	return nil
}

// delegate lets the groups of programs have the controllers of ours. In version 1 they
// have them anyway.
func (g *cgroups) delegate() error {
	if g.memory != g.pids {
		return nil
	}
	return os.WriteFile(filepath.Join(g.memory, g.name, "cgroup.subtree_control"), []byte("+memory +pids +cpu"), 0)
}

func (g *cgroups) remove(name string) {
	for _, dir := range g.dirs(name) {
		_ = os.Remove(dir) // what is still in use goes with the next worker's machine
	}
}

func (g *cgroups) close() { g.remove(g.name) }

// cgroup is the group of one program.
type cgroup struct {
	of   *cgroups
	name string
}

// add puts a keeper, and with it all that it starts, into a new group.
func (g *cgroups) add(pid int, l sandbox.Limits) (*cgroup, error) {
	group := &cgroup{of: g, name: filepath.Join(g.name, strconv.FormatInt(g.count.Add(1), 10))}
	if err := g.make(group.name); err != nil {
		return nil, err
	}
	if err := group.fill(pid, l); err != nil {
		group.remove()
		return nil, err
	}
	return group, nil
}

func (c *cgroup) fill(pid int, l sandbox.Limits) error {
	memory := l.Memory + keeperMemory
	for _, w := range []struct {
		dir, file string
		value     uint64
		optional  bool
	}{
		{c.of.memory, c.of.limit, memory, false},
		{c.of.memory, c.of.swap, c.of.swapLimit(memory), true}, // where the kernel counts swap
		{c.of.pids, c.of.tasks, l.Processes + keeperThreads, false},
	} {
		if err := c.write(w.dir, w.file, w.value); err != nil && !w.optional {
			return err
		}
	}
	for _, dir := range c.of.dirs(c.name) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("put a program into its control group: %w", err)
		}
	}
	return nil
}

func (c *cgroup) write(dir, file string, value uint64) error {
	if err := os.WriteFile(filepath.Join(dir, c.name, file), []byte(strconv.FormatUint(value, 10)), 0); err != nil {
		return fmt.Errorf("limit a control group: %w", err)
	}
	return nil
}

// measure adds to an ending what the group counted.
func (c *cgroup) measure(end *ending) {
	read := func(dir, file string) string {
		text, _ := os.ReadFile(filepath.Join(dir, c.name, file))
		return string(text)
	}
	if peak := number(read(c.of.memory, c.of.peak)); peak > 0 {
		end.MemoryBytes = peak
	}
	if cpu := c.of.cpuMicros(read(c.of.cpu, c.of.usage)); cpu > 0 {
		end.CPUMicros = cpu
	}
	end.OutOfMemory = counted(read(c.of.memory, c.of.events), c.of.ooms) > 0
}

func (c *cgroup) remove() { c.of.remove(c.name) }

// kill ends what is left of a tree whose keeper was killed before it could end it. Such
// processes may make others, so it looks until there are none, for as long as haste.
func (c *cgroup) kill() {
	procs := filepath.Join(c.of.pids, c.name, "cgroup.procs")
	for began := clock.Start(); began.Elapsed() < haste; {
		text, err := os.ReadFile(procs)
		if err != nil || len(text) == 0 {
			return
		}
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 { // zero is one that we cannot see
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// counted is the number after a word at the beginning of a line.
func counted(text, word string) int64 {
	for line := range strings.SplitSeq(text, "\n") {
		if rest, ok := strings.CutPrefix(line, word); ok {
			return number(rest)
		}
	}
	return 0
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return n
}
