//go:build !linux || portable

// The tag "portable" compiles this file on Linux too, so that it can be tested
// there.

package child

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// guardScript waits for the end of its input, which comes when the last process
// that holds the other end of the pipe is gone: we alone do.
const guardScript = `read -r _; kill -INT "$0"`

// startBound starts cmd, and a shell beside it that interrupts it when this
// process ends. Where there is no death signal, an open pipe is the one thing
// that the kernel is sure to close for us.
func startBound(cmd *exec.Cmd) (release func(), err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	guard := exec.Command("/bin/sh", "-c", guardScript, strconv.Itoa(cmd.Process.Pid))
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	hold, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("start its guard: %w", err)
	}
	return func() {
		// Killed first: once the pipe is closed it would signal a process id
		// that may belong to somebody else by now.
		_ = guard.Process.Kill()
		_ = hold.Close()
		_ = guard.Wait()
	}, nil
}

const hasNamespaces = false

func namespace(*syscall.SysProcAttr) {}

// HasArgument reports whether a process with this id lives (a zombie does not)
// and was started with the argument arg.
func HasArgument(pid int, arg string) bool {
	out, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	// The arguments come as one line, in which arg may have spaces of its own.
	return err == nil && strings.Contains(" "+strings.TrimSpace(string(out))+" ", " "+arg+" ")
}
