package guest

import "syscall"

// niceness leaves the processors to the worker where both want them.
const niceness = 5

// Lower lowers the priority of this process, as far as the system lets it.
func Lower() {
	_, _, _ = syscall.AllThreadsSyscall(syscall.SYS_SETPRIORITY, syscall.PRIO_PROCESS, 0, niceness)
}
