package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Process is a restricted process that was started.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu    sync.Mutex
	ended bool // its process id may belong to another from now on
}

// Start starts a process and returns when its restrictions are in force. It
// fails if they cannot be, or if the program cannot be run; ctx bounds only
// this. The caller waits for the process with Wait.
func Start(ctx context.Context, s Spec) (*Process, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	defer theirs.Close() // the process has its own
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("open this program: %w", err)
	}
	defer self.Close()
	p := &Process{cmd: command(s, theirs, self), done: make(chan struct{})}
	// Files that this process inherited itself are not for the new one.
	if err := unix.CloseRange(firstFile, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("close inherited files: %w", err)
	}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start a restricted process: %w", err)
	}
	_ = theirs.Close()
	stop := context.AfterFunc(ctx, p.Kill)
	err = tell(ours, s)
	if !stop() {
		err = context.Cause(ctx) // and not what the kill caused
	}
	if err != nil {
		p.Kill()
		<-p.done
		return nil, err
	}
	return p, nil
}

// command is this binary with the line to its starter behind the caller's files, and
// behind it the binary itself for who starts it in our place.
func command(s Spec, line, self *os.File) *exec.Cmd {
	files := slices.Concat(s.Files, s.WrapFiles)
	cmd := &exec.Cmd{
		Path: "/proc/self/exe",
		Args: []string{"scheduler-sandbox", mark, strconv.Itoa(firstFile + len(files))},
		Env:  []string{}, // nil is ours
		Dir:  s.Dir, ExtraFiles: append(files, line),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if len(s.Wrap) > 0 {
		cmd.Args[0] = "/proc/self/fd/" + strconv.Itoa(firstFile+len(cmd.ExtraFiles))
		cmd.ExtraFiles = append(cmd.ExtraFiles, self)
		cmd.Path, cmd.Args = s.Wrap[0], append(append([]string{}, s.Wrap...), cmd.Args...)
	}
	if s.Outlives {
		cmd.SysProcAttr.Pdeathsig = 0
	}
	if s.Account != 0 {
		id := uint32(s.Account)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: id, Gid: id}
	}
	if s.Entry != "" {
		cmd.Env = append(cmd.Env, s.Env...)
	}
	if s.Dir == "" {
		cmd.Dir = "/"
	}
	// A nil *os.File in an interface would not be nil.
	if s.Stdin != nil {
		cmd.Stdin = s.Stdin
	}
	if s.Stdout != nil {
		cmd.Stdout = s.Stdout
	}
	if s.Stderr != nil {
		cmd.Stderr = s.Stderr
	}
	return cmd
}

// pair makes the line between starter and process.
func pair() (ours, theirs *os.File, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a line to a restricted process: %w", err)
	}
	return os.NewFile(uintptr(ends[0]), "process"), os.NewFile(uintptr(ends[1]), "starter"), nil
}

// tell sends the policy and waits until the process answers, or is gone into another
// program. The others that hold its end of the line are none of ours to wait for.
func tell(line *os.File, s Spec) error {
	text, err := json.Marshal(policy{
		Entry: s.Entry, Path: s.Path, Args: s.Args, Env: s.Env, Read: s.Read, Write: s.Write,
		Network: s.Network, Unfenced: s.Unfenced, Limits: s.Limits, Files: len(s.Files), WithStarter: !s.Outlives && len(s.Wrap) == 0,
	})
	if err != nil {
		return fmt.Errorf("write the policy of a restricted process: %w", err)
	}
	if _, err := line.Write(text); err != nil {
		return fmt.Errorf("tell a restricted process its policy: %w", err)
	}
	var heard answer
	switch err := json.NewDecoder(line).Decode(&heard); {
	case errors.Is(err, io.EOF) && s.Entry == "":
		return nil
	case err != nil:
		return fmt.Errorf("hear from a restricted process: %w", err)
	case heard.Problem != "":
		return errors.New(heard.Problem)
	}
	return nil
}

// run starts the process and waits for it on one operating system thread: the
// kernel sends the parent-death signal when the thread that started the process
// ends, not when its process does (golang/go#27505).
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.await()
	p.mu.Lock()
	// The process is a zombie, so its group is still its own: end the others of it.
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	p.ended = true
	p.mu.Unlock()
	_ = p.cmd.Wait() // the state says it all
	close(p.done)
}

// await returns when the process has ended, and leaves it a zombie.
func (p *Process) await() {
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the process and its group at once. It does not wait.
func (p *Process) Kill() { p.Signal(syscall.SIGKILL) }

// Signal sends a signal to the process and its group, unless it has ended.
func (p *Process) Signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		_ = syscall.Kill(-p.cmd.Process.Pid, sig)
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the process and says how it ended and how much it used.
func (p *Process) Wait() *os.ProcessState {
	<-p.done
	return p.cmd.ProcessState
}
