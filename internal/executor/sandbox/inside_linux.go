package sandbox

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// addresses is how many bytes of addresses a process may reserve beyond its
// memory. Memory that is shared between processes is counted here only.
const addresses = 4 << 30

// restrict takes from this process what the policy does not leave it; memory comes
// last, with limitMemory.
func restrict(p policy) error {
	if err := ll.AllThreadsPrctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	if !p.Unfenced {
		if err := fence(p); err != nil {
			return err
		}
	}
	return limit(p.Limits)
}

// Landlock is the version of the kernel's Landlock, and 0 where there is none: then
// nothing restricts which files a process reads.
func Landlock() int {
	version, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return version
}

// fence takes files, network and signals away as far as the kernel's Landlock
// goes.
func fence(p policy) error {
	config := landlock.V11
	if p.Network {
		config.HandledAccessNet = 0
	}
	rules := []landlock.Rule{
		landlock.RWFiles("/dev/null").IgnoreIfMissing(),
		landlock.ROFiles("/dev/zero", "/dev/random", "/dev/urandom").IgnoreIfMissing(),
	}
	for _, path := range p.Read {
		rules = append(rules, rule(path, landlock.RODirs, landlock.ROFiles)...)
	}
	for _, path := range p.Write {
		rules = append(rules, rule(path, landlock.RWDirs, landlock.RWFiles)...)
	}
	if err := config.BestEffort().Restrict(rules...); err != nil {
		return fmt.Errorf("restrict with Landlock: %w", err)
	}
	return nil
}

// rule is the rule of a path: Landlock takes no right of directories for a file.
func rule(path string, forDirs, forFiles func(...string) landlock.FSRule) []landlock.Rule {
	about, err := os.Stat(path)
	switch {
	case err != nil:
		return nil
	case about.Mode().Type() == fs.ModeDir:
		return []landlock.Rule{forDirs(path)}
	default:
		return []landlock.Rule{forFiles(path)}
	}
}

// limit sets the kernel's limits but those of memory. There is never a core file: it
// would hold what the process knows.
func limit(l Limits) error {
	cpu := uint64((l.CPU + time.Second - 1) / time.Second)
	for _, r := range []struct {
		name       string
		resource   int
		soft, hard uint64
		set        bool
	}{
		{"core files", unix.RLIMIT_CORE, 0, 0, true},
		// At the soft limit the kernel sends SIGXCPU, at the hard one it kills.
		{"CPU time", unix.RLIMIT_CPU, cpu, cpu + 1, cpu > 0},
		{"processes", unix.RLIMIT_NPROC, l.Processes, l.Processes, l.Processes > 0},
		{"file size", unix.RLIMIT_FSIZE, l.FileSize, l.FileSize, l.FileSize > 0},
		{"open files", unix.RLIMIT_NOFILE, l.OpenFiles, l.OpenFiles, l.OpenFiles > 0},
	} {
		if !r.set {
			continue
		}
		if err := syscall.Setrlimit(r.resource, &syscall.Rlimit{Cur: r.soft, Max: r.hard}); err != nil {
			return fmt.Errorf("limit %s: %w", r.name, err)
		}
	}
	return nil
}

// limitMemory limits memory and addresses. It allocates nothing.
func limitMemory(l Limits) syscall.Errno {
	if l.Memory == 0 {
		return 0
	}
	data := syscall.Rlimit{Cur: l.Memory, Max: l.Memory}
	space := syscall.Rlimit{Cur: l.Memory + addresses, Max: l.Memory + addresses}
	if errno := setLimit(unix.RLIMIT_DATA, &data); errno != 0 {
		return errno
	}
	return setLimit(unix.RLIMIT_AS, &space)
}

func setLimit(resource uintptr, limit *syscall.Rlimit) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, resource, uintptr(unsafe.Pointer(limit)), 0, 0, 0)
	return errno
}

// enter limits the memory of an entry, which goes on as a Go program.
func enter(p policy) error {
	if errno := limitMemory(p.Limits); errno != 0 {
		return fmt.Errorf("limit memory: %w", errno)
	}
	return nil
}

// become turns this process into the program. It returns only an error.
func become(p policy, line uintptr) error {
	// What Go opened for itself, and the line to the starter, end with the exec.
	first := uint(firstFile + p.Files)
	if err := unix.CloseRange(first, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close inherited files: %w", err)
	}
	path, err := syscall.BytePtrFromString(p.Path)
	if err != nil {
		return fmt.Errorf("run %q: %w", p.Path, err)
	}
	args, err := syscall.SlicePtrFromStrings(append([]string{p.Path}, p.Args...))
	if err != nil {
		return fmt.Errorf("an argument holds NUL: %w", err)
	}
	env, err := syscall.SlicePtrFromStrings(p.Env)
	if err != nil {
		return fmt.Errorf("a variable holds NUL: %w", err)
	}
	// With its limits this program may find no memory for anything more, so that all is
	// ready by now, also what it says where the exec fails.
	problems := map[syscall.Errno][]byte{}
	for _, errno := range []syscall.Errno{syscall.ENOENT, syscall.EACCES, syscall.ENOEXEC, syscall.E2BIG, syscall.ENOMEM, syscall.ETXTBSY, 0} {
		text, err := json.Marshal(answer{Problem: fmt.Sprintf("run %s: %s", p.Path, reason(errno))})
		if err != nil {
			return err
		}
		problems[errno] = text
	}
	// The kernel keeps the signal for a starter's death for each thread, and new threads have none.
	// The program goes on as the thread that runs it, which may be any: without this a program
	// outlived its starter now and then, on a busy machine. Until here the first thread has it.
	runtime.LockOSThread()
	if p.WithStarter {
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
			return fmt.Errorf("end with the starter: %w", err)
		}
	}
	debug.SetGCPercent(-1) // no thread starts on the last steps
	errno := limitMemory(p.Limits)
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&args[0])), uintptr(unsafe.Pointer(&env[0])))
	}
	text, known := problems[errno]
	if !known {
		text = problems[0]
	}
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, line, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)))
	_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, failedInside, 0, 0)
	return nil
}

// reason is the text of an error of the exec.
func reason(errno syscall.Errno) string {
	if errno == 0 {
		return "the kernel refuses it"
	}
	return errno.Error()
}
