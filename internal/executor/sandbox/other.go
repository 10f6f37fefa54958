//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"os"
	"syscall"
)

var errNoLinux = errors.New("restricted processes need Linux")

func restrict(policy) error { return errNoLinux }

func enter(policy) error { return errNoLinux }

func become(policy, uintptr) error { return errNoLinux }

// Landlock is the version of the kernel's Landlock: there is none here.
func Landlock() int { return 0 }

// Process is a restricted process that was started: none here.
type Process struct{}

// Start fails: there are no restricted processes here.
func Start(context.Context, Spec) (*Process, error) { return nil, errNoLinux }

// PID is the process id.
func (p *Process) PID() int { return 0 }

// Kill ends the process.
func (p *Process) Kill() {}

// Signal sends a signal to the process.
func (p *Process) Signal(syscall.Signal) {}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return nil }

// Wait waits for the end of the process.
func (p *Process) Wait() *os.ProcessState { return nil }
