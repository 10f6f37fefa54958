package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// thisMachine names the machine by what matters of it.
func thisMachine() string {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return fmt.Sprintf("%d cores", runtime.NumCPU())
	}
	return fmt.Sprintf("%d cores, %.0f GB of memory", runtime.NumCPU(), float64(field(text, "MemTotal:"))/(1<<20))
}

// field is a number of kilobytes in a file of /proc, 0 when it is not there.
func field(text []byte, name string) int {
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}

// usage is what a group of processes takes.
type usage struct {
	cpu    float64 // µs of processor since their start
	memory float64 // MB resident
}

// groups are the programs that a run consists of, beside bench itself, in the
// order of the table.
func groups() []string { return []string{"postgres", "redis-server", promoterName, workerName} }

// tick is the unit of processor times in /proc: 1/100 s on every Linux that Go
// runs on.
const tick = 10_000 // µs

// usages reads what the children of this process take, each with all its own
// children, by the name of the program. Where there is no /proc it is empty.
func usages() map[string]usage {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	all := map[int]stat{}
	for _, path := range stats {
		if text, err := os.ReadFile(path); err == nil { // otherwise it ended meanwhile
			one := readStat(string(text))
			all[one.pid] = one
		}
	}
	found := map[string]usage{}
	self := os.Getpid()
	for _, one := range all {
		if one.parent == self {
			program := one.program
			if strings.HasPrefix(program, "redis-") { // one file has all of Redis's programs, and the process the name of any
				program = "redis-server"
			}
			total := found[program]
			found[program] = usage{cpu: total.cpu + one.cpu(all), memory: total.memory + one.memory(all)}
		}
	}
	return found
}

// busy is how much processor time, in µs, this machine has spent on anything
// and on us: this process and all below it. Time that the host took away counts
// as spent. Where there is no /proc both are zero.
func busy() (all, ours float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, cell := range strings.Fields(line) {
		n, _ := strconv.ParseFloat(cell, 64)
		const idle, iowait, guest = 4, 5, 9 // guests are within user
		if i != idle && i != iowait && i < guest {
			all += n * tick
		}
	}
	for _, u := range usages() {
		ours += u.cpu
	}
	if own, err := os.ReadFile("/proc/self/stat"); err == nil {
		ours += readStat(string(own)).own
	}
	return all, ours
}

// stat is a line of /proc/<pid>/stat.
type stat struct {
	pid, parent int
	program     string
	own, dead   float64 // µs of its own, and of its children that have ended
}

// readStat reads the line; the name of the program stands in brackets and may
// hold anything.
func readStat(line string) stat {
	head, rest, _ := strings.Cut(line, " (")
	at := strings.LastIndexByte(rest, ')')
	cells := strings.Fields(rest[at+1:])
	number := func(i int) float64 {
		n, _ := strconv.ParseFloat(cells[i], 64)
		return n
	}
	pid, _ := strconv.Atoi(head)
	return stat{
		pid: pid, parent: int(number(1)), program: rest[:at],
		own: (number(11) + number(12)) * tick, dead: (number(13) + number(14)) * tick,
	}
}

// tree is the process and all below it.
func (s stat) tree(all map[int]stat) []stat {
	found := []stat{s}
	for _, one := range all {
		if one.parent == s.pid {
			found = append(found, one.tree(all)...)
		}
	}
	return found
}

func (s stat) cpu(all map[int]stat) (total float64) {
	for _, one := range s.tree(all) {
		total += one.own + one.dead
	}
	return total
}

// memory counts what processes share once: of PostgreSQL's, each maps the same
// buffers and the same program.
func (s stat) memory(all map[int]stat) float64 {
	private, files, shared := 0, 0, 0
	for _, one := range s.tree(all) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", one.pid))
		if err != nil {
			continue
		}
		private += field(text, "RssAnon:")
		files = max(files, field(text, "RssFile:"))
		shared = max(shared, field(text, "RssShmem:"))
	}
	return float64(private+files+shared) / 1024
}

// peak is how many MB a process of ours has had at most, 0 where there is no
// /proc.
func (s *stack) peak(name string) (most int) {
	for _, p := range s.running {
		if p.name == name {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
			most = max(most, field(text, "VmHWM:")/1024)
		}
	}
	return most
}
