package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
)

// news is what the keeper says: that the program began, or why not, and later how it
// ended.
type news struct {
	Problem string  `json:",omitempty"` // the keeper cannot start it
	Missing string  `json:",omitempty"` // there is no such program
	Ended   *ending `json:",omitempty"`
}

// stop is what the keeper is told after its order. The end of the line means: at once.
type stop struct{ Signal int }

// Keep is the entry of the process that starts the program, adopts what the program
// leaves behind, ends the whole tree and says what it used. The line to the worker is
// its only extra file: when the worker is gone, the line ends.
func Keep(extra []*os.File) int {
	line := extra[0]
	hear, say := json.NewDecoder(line), json.NewEncoder(line)
	var o order
	if err := hear.Decode(&o); err != nil {
		return 1 // the worker is gone
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // the first process of a namespace is one anyway
	program, err := begin(o)
	var missing *missingError
	switch {
	case errors.As(err, &missing):
		_ = say.Encode(news{Missing: missing.problem})
	case err != nil:
		_ = say.Encode(news{Problem: err.Error()})
	default:
		if say.Encode(news{}) != nil {
			program.Kill()
		}
		end := attend(program, hear)
		_ = say.Encode(news{Ended: &end})
	}
	if o.Remove {
		removeAll(o.Root)
	}
	return 0
}

// begin starts the program.
func begin(o order) (*sandbox.Process, error) {
	dir := filepath.Join(o.Root, o.Dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the working directory: %w", err)
	}
	path, err := lookup(o.Command)
	if err != nil {
		return nil, err
	}
	env := append([]string{"HOME=" + o.Root, "TMPDIR=" + o.Root, "PWD=" + dir}, o.Env...)
	p, err := sandbox.Start(context.Background(), sandbox.Spec{
		Path: path, Args: o.Args, Env: env, Dir: dir, Stdout: os.Stdout, Stderr: os.Stderr,
		Read: o.Read, Write: append(o.Write, o.Root), Network: o.Network, Limits: o.Limits,
	})
	if err != nil {
		if strings.Contains(err.Error(), syscall.ENOEXEC.Error()) || strings.HasSuffix(err.Error(), syscall.ENOENT.Error()) || strings.HasSuffix(err.Error(), syscall.EACCES.Error()) {
			return nil, &missingError{err.Error()} // no program for this machine, or its interpreter is missing
		}
		return nil, err
	}
	// Where memory is short, the kernel ends the program and not its keeper.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.PID()), []byte("1000"), 0)
	return p, nil
}

// attend waits for the end of the program, or for the word to end it, ends everything
// that is left and says how it was.
func attend(p *sandbox.Process, hear *json.Decoder) ending {
	go func() {
		for {
			var s stop
			if hear.Decode(&s) != nil {
				p.Kill()
				return
			}
			p.Signal(syscall.Signal(s.Signal))
		}
	}()
	go reap(p.PID())
	<-p.Done()
	endTree()
	return endingOf(p.Wait())
}

// reap takes the ends of processes that the program left to us, so that they do not
// count against its limit. It leaves the program itself to the one who waits for it.
func reap(program int) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		// siginfo_t of SIGCHLD: three numbers, padding to eight bytes, and the process id.
		pid := int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), 16)))
		if err != nil || pid == program {
			return
		}
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	}
}

// endTree ends all descendants of this process and waits for them. They are stopped
// first, again and again until none is found running: a stopped process makes no new
// one, and a killed one makes room for others to do so.
func endTree() {
	if os.Getpid() == 1 {
		_ = syscall.Kill(-1, syscall.SIGKILL) // all of the namespace but us, in one step
		reapAll()
		return
	}
	for hasChildren() {
		stopped := map[int]bool{}
		for found := true; found; {
			found = false
			for _, pid := range descendants() {
				if !stopped[pid] {
					stopped[pid], found = true, true
					_ = syscall.Kill(pid, syscall.SIGSTOP)
				}
			}
		}
		for pid := range stopped {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		reapAll()
	}
}

// hasChildren says whether anything is left below this process: what loses its parent
// becomes its child. Looking for descendants reads every process of the machine, and most
// programs leave none.
func hasChildren() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return !errors.Is(err, syscall.ECHILD)
}

// reapAll waits until this process has no children.
func reapAll() {
	for {
		_, err := syscall.Wait4(-1, nil, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// descendants lists the processes below this one.
func descendants() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	var all []int
	for next := children[os.Getpid()]; len(next) > 0; {
		pid := next[0]
		next = append(next[1:], children[pid]...)
		all = append(all, pid)
	}
	return all
}

// parentOf reads the parent of a process that lives.
func parentOf(pid int) (int, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The name stands in brackets and may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 || fields[0] == "Z" {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}

// endingOf says how the program ended, and what it and all that it left to us used.
func endingOf(state *os.ProcessState) ending {
	var end ending
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		end.Signal = unix.SignalName(status.Signal())
	} else {
		end.ExitCode = state.ExitCode()
	}
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used) == nil {
		end.CPUMicros = used.Utime.Nano()/1000 + used.Stime.Nano()/1000
		end.MemoryBytes = used.Maxrss << 10
	}
	return end
}
