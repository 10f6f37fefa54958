//go:build linux && !portable

package child

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// startBound starts cmd so that the kernel sends it SIGINT when the calling
// thread ends.
func startBound(cmd *exec.Cmd) (release func(), err error) {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGINT
	return func() {}, cmd.Start()
}

// namespaceID is what our root becomes inside a namespace: any id but 0 will
// do, and this one is called nobody everywhere.
const namespaceID = 65534

// namespace makes the command see our account under another number, in a user
// namespace of its own. PostgreSQL refuses to run as root; so it does not see
// that it does, while its files stay ours.
func namespace(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: namespaceID, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: namespaceID, HostID: os.Getegid(), Size: 1}}
}

const hasNamespaces = true

// HasArgument reports whether a process with this id lives (a zombie does not)
// and was started with the argument arg.
func HasArgument(pid int, arg string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && slices.Contains(strings.Split(string(line), "\x00"), arg)
}
