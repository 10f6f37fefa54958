package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
)

// EntryName is the name of Keep among the entries of a worker's binary.
const EntryName = "command"

// Where the private directory is in the sandbox, and the accounts of programs where the
// worker is root: in the sandbox one for all, since each has a namespace of its own;
// without it one for each, so that none reaches another's files and processes.
const (
	inside       = "/work"
	nobody       = 65534
	firstAccount = 1_200_000_000
)

// shares are what programs may read beside the system's directories.
var shares = []string{ // constant
	"/etc/ld.so.cache", "/etc/ssl", "/etc/ca-certificates", "/etc/pki", "/etc/alternatives", "/etc/localtime", "/etc/mime.types",
	"/etc/nsswitch.conf", "/etc/services", "/etc/protocols",
}

// names are what resolves names where there is a network.
var names = []string{"/etc/resolv.conf", "/etc/hosts"} // constant

var systemDirs = []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} // constant

// box is how programs are kept apart on this machine.
type box struct {
	c       Config
	bwrap   string // empty in the level unsafe
	cgroups *cgroups
	root    string // of working directories in the level unsafe
	lock    *os.File
	account atomic.Int64
	about   string
}

// open finds out what this machine can do, by running a program.
func open(ctx context.Context, c Config) (*box, error) {
	b := &box{c: c}
	var err error
	switch c.Level {
	case Sandbox:
		if b.bwrap, err = exec.LookPath("bwrap"); err != nil {
			return nil, fmt.Errorf("COMMAND_JOBS=sandbox needs bubblewrap, and there is no program bwrap: install the package bubblewrap: %w", err)
		}
		b.about = "bubblewrap"
	case Unsafe:
		if err := b.openRoot(); err != nil {
			return nil, err
		}
		b.about = "no namespaces"
	default:
		return nil, fmt.Errorf("there is no level %q", c.Level)
	}
	if b.cgroups, err = openCgroups(); err == nil {
		b.about += ", " + b.cgroups.about
	}
	if version := sandbox.Landlock(); version > 0 {
		b.about += ", Landlock " + strconv.Itoa(version)
	}
	b.about += ", limits of the kernel"
	if err := b.probe(ctx); err != nil {
		b.close()
		if c.Level == Sandbox {
			return nil, fmt.Errorf("COMMAND_JOBS=sandbox does not work here: %w; where user namespaces are not to be had, give the worker a container of its own and name the weaker level COMMAND_JOBS=unsafe", err)
		}
		return nil, fmt.Errorf("COMMAND_JOBS=unsafe does not work here: %w", err)
	}
	return b, nil
}

// nothing is a reporter that drops what it is told.
type nothing struct{}

func (nothing) Output(executor.Stream, []byte) {}
func (nothing) Progress(int, string)           {}

// probe runs a program that does nothing.
func (b *box) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := newOutput(nothing{})
	if err != nil {
		return err
	}
	t, err := b.start(ctx, order{Command: "true", Limits: sandbox.Limits{Memory: 64 << 20, Processes: 16}}, out)
	if err != nil {
		out.drop()
		return err
	}
	end := t.wait(ctx)
	out.finish(t.lost)
	if end.Problem != "" || end.Signal != "" || end.ExitCode != 0 {
		return fmt.Errorf("the program true ended with code %d %s%s: %s", end.ExitCode, end.Signal, end.Problem, out.stderr.text())
	}
	return nil
}

// wrap puts the keeper into namespaces of its own, where it is the first process and
// sees the system's programs, a private directory and little else.
func (b *box) wrap(spec *sandbox.Spec, o *order) {
	if os.Geteuid() == 0 {
		spec.Account = nobody
	}
	size := strconv.FormatUint(max(o.Limits.FileSize, 1<<20), 10)
	id := strconv.Itoa(nobody)
	w := []string{
		b.bwrap, "--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--uid", id, "--gid", id, "--hostname", "command", "--as-pid-1", "--die-with-parent", "--ro-bind", "/usr", "/usr",
	}
	if !o.Network {
		w = append(w, "--unshare-net")
	}
	for _, dir := range systemDirs {
		if target, err := os.Readlink(dir); err == nil {
			w = append(w, "--symlink", target, dir)
		} else {
			w = append(w, "--ro-bind-try", dir, dir)
		}
	}
	for _, path := range b.readable(o.Network) {
		w = append(w, "--ro-bind-try", path, path)
	}
	w = append(w, "--proc", "/proc", "--dev", "/dev")
	for _, dir := range []string{inside, "/tmp", "/dev/shm"} {
		w = append(w, "--size", size, "--tmpfs", dir)
	}
	// The directories that bubblewrap makes lie in memory that no limit counts.
	spec.Wrap = append(w, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", inside)
	o.Root, o.Read, o.Write = inside, []string{"/"}, []string{"/tmp", "/dev/shm"}
}

// readable are the files that programs see beside those of the system's directories.
func (b *box) readable(network bool) []string {
	paths := append(append([]string{}, shares...), b.c.Paths...)
	if network {
		paths = append(paths, names...)
	}
	return paths
}

// prepare makes a private directory. Where the worker is root, the program gets an
// account of its own.
func (b *box) prepare(spec *sandbox.Spec, o *order, t *tree) (err error) {
	if t.root, err = os.MkdirTemp(b.root, "run-"); err != nil {
		return fmt.Errorf("make the working directory: %w", err)
	}
	if os.Geteuid() == 0 {
		spec.Account = firstAccount + int(b.account.Add(1)%100_000)
		if err := os.Chown(t.root, spec.Account, spec.Account); err != nil {
			return fmt.Errorf("give the working directory away: %w", err)
		}
	} else if o.Limits.Processes > 0 {
		o.Limits.Processes += threads()
	}
	// The keeper and what becomes the program are this binary, with threads of its own.
	o.Limits.Processes += keeperThreads
	o.Root, o.Remove, spec.Outlives = t.root, true, true
	o.Read = append(append([]string{"/usr"}, systemDirs...), b.readable(o.Network)...)
	return nil
}

// keeperThreads is room for the threads of the keeper, which count with the program's.
const keeperThreads = 16

// threads counts those of our account, which count with a program's.
func threads() (sum uint64) {
	statuses, _ := filepath.Glob("/proc/[0-9]*/status")
	own := fmt.Sprintf("\nUid:\t%d\t", os.Getuid())
	for _, path := range statuses {
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), own) {
			continue
		}
		_, rest, _ := strings.Cut(string(text), "\nThreads:\t")
		number, _, _ := strings.Cut(rest, "\n")
		count, _ := strconv.ParseUint(number, 10, 64)
		sum += count
	}
	return sum
}

// openRoot makes the place of working directories, and removes those that workers of
// before left behind: of a worker that lives the lock is held.
func (b *box) openRoot() error {
	old, _ := filepath.Glob(filepath.Join(b.c.Dir, "scheduler-commands-*"))
	for _, dir := range old {
		if lock, err := lockDir(dir); err == nil {
			_ = os.RemoveAll(dir)
			_ = lock.Close()
		}
	}
	var err error
	if b.root, err = os.MkdirTemp(b.c.Dir, "scheduler-commands-"); err != nil {
		return fmt.Errorf("COMMAND_DIR: %w", err)
	}
	if err := os.Chmod(b.root, 0o711); err != nil { // programs of other accounts pass through
		return fmt.Errorf("COMMAND_DIR: %w", err)
	}
	if b.lock, err = lockDir(b.root); err != nil {
		return fmt.Errorf("COMMAND_DIR: %w", err)
	}
	return nil
}

// lockDir locks a directory for as long as the file is open.
func lockDir(dir string) (*os.File, error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// close removes what open made.
func (b *box) close() {
	if b.root != "" {
		_ = os.RemoveAll(b.root)
	}
	if b.lock != nil {
		_ = b.lock.Close()
	}
	if b.cgroups != nil {
		b.cgroups.close()
	}
}
