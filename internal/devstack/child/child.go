// Package child runs a server as a process that ends with us.
//
// It owns how such a process is started (in a group of its own, so that Ctrl-C
// at the terminal reaches only us and we stop it in order), how it is told that
// we are gone even when we were killed, how it is stopped, and which account it
// runs as when we are root. It refuses to know what the process is: package
// devstack, its only caller, does.
package child

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a started child.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

// Start starts cmd and sees to it that it receives SIGINT when this process
// ends, however it ends. The command needs no context: the process lives until
// Stop, its own end or ours.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// run starts the process and waits for it on one operating system thread: on
// Linux the death signal is sent when the thread that started the child ends,
// not when the process does (golang/go#27505).
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	release, err := startBound(p.cmd)
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	release()
	close(p.done)
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is why the process ended; nil while it runs and after exit code 0.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Step is one step of stopping: a signal, and how long the process has to act
// on it.
type Step struct {
	Signal syscall.Signal
	Within time.Duration
}

// Stop goes through the steps until the process has ended, and kills it when
// none of them did it. It returns once the process is gone, with an error if it
// had to be killed. On an ended process it does nothing.
func (p *Process) Stop(steps ...Step) error {
	for _, s := range steps {
		if p.step(s) {
			return nil
		}
	}
	p.signal(syscall.SIGKILL)
	<-p.done
	return fmt.Errorf("%s (pid %d) did not stop when asked and was killed", p.cmd.Path, p.PID())
}

// step reports whether the process has ended within the step.
func (p *Process) step(s Step) bool {
	select {
	case <-p.done:
		return true
	default:
	}
	p.signal(s.Signal)
	timer := time.NewTimer(s.Within)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

// signal sends sig, unless the process has ended; then there is nothing to do.
func (p *Process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }
