package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

const (
	// longestSocket is the limit of macOS, the smallest around: 104 bytes with
	// the final zero (Linux has 108).
	longestSocket = 103
	// socketName is the longest name in a socket's directory.
	socketName = ".s.PGSQL.5432.lock"
	// throwaway begins the name of each throwaway server's directory.
	throwaway = "scheduler-test-"
	// leftName is a file in a home whose server was left running on purpose.
	leftName = "left"
)

// home is the directory of one server, ours alone while we hold its lock.
type home struct {
	dir     string // absolute
	name    string // of the server, unique in dir
	durable bool
	lock    *os.File
	socket  string // the directory of its socket; set by openSocket
}

// openHome makes the server's directory and locks it. A durable one is o.Dir
// itself, a throwaway one a fresh directory below it.
func openHome(ctx context.Context, o Options, name string) (*home, error) {
	if !o.Durable {
		return freshHome(ctx, o.Dir, name)
	}
	if o.Dir == "" {
		return nil, errors.New("a server that keeps its data needs a directory")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	// A moment of patience: who was told to stop may be at it.
	lock, err := lockFile(ctx, filepath.Join(dir, name+".lock"), 3*time.Second)
	if err != nil {
		return nil, fmt.Errorf("%w: stop the other one, or choose another directory", err)
	}
	return &home{dir: dir, name: name, durable: true, lock: lock}, nil
}

// freshHome makes and locks a directory for a throwaway server, and removes
// those whose process was killed before it could.
func freshHome(ctx context.Context, base, name string) (*home, error) {
	if base == "" {
		base = throwawayBase(child.Candidates()[0])
	}
	base, err := filepath.Abs(base)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return nil, err
	}
	// Held while there is a directory whose own lock is not held yet, so that
	// no other process takes it for an abandoned one.
	all, err := lockFile(ctx, filepath.Join(base, throwaway+uid()+".lock"), time.Minute)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	sweep(ctx, base)
	dir, err := os.MkdirTemp(base, throwaway+uid()+"-")
	if err != nil {
		return nil, err
	}
	// Others may pass through, as the server's account must, but not look.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	lock, err := lockFile(ctx, filepath.Join(dir, "lock"), time.Second)
	if err != nil {
		return nil, err
	}
	return &home{dir: dir, name: name, lock: lock}, nil
}

// sweep removes the throwaway homes in base that nobody holds.
func sweep(ctx context.Context, base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, throwaway+uid()+"-*")) // fails only for a malformed pattern
	for _, dir := range dirs {
		if !private(dir, child.Self()) {
			continue // not made by us
		}
		lock, err := lockFile(ctx, filepath.Join(dir, "lock"), 0)
		if err != nil {
			continue // it lives
		}
		h := &home{dir: dir, name: "postgres", lock: lock}
		c := &cluster{home: h, data: filepath.Join(dir, "postgres")}
		if c.left() || c.stopLeftover(ctx, Options{}) != nil {
			_ = lock.Close()
			continue
		}
		h.close()
	}
}

// close gives the directory back, and removes it when it is a throwaway.
func (h *home) close() {
	if h.socket != "" {
		_ = os.RemoveAll(h.socket)
	}
	if !h.durable {
		// Another process that sweeps meanwhile may have made the lock again.
		for tries := 0; os.RemoveAll(h.dir) != nil && tries < 100; tries++ {
			runtime.Gosched()
		}
	}
	_ = h.lock.Close()
}

// socketDir is where the socket's directory should be: for a throwaway inside
// its home, otherwise at a short path that stays the same for the same home, so
// that a client in another terminal finds it again.
func (h *home) socketDir(acc child.Account) string {
	if inside := filepath.Join(h.dir, "s"); !h.durable && fits(inside) {
		return inside
	}
	return filepath.Join(tempBase(acc), "scheduler-"+hash(h.dir+" "+h.name))
}

// openSocket makes the directory of the socket, which only the account (and
// root) may enter.
func (h *home) openSocket(acc child.Account) error {
	dir := h.socketDir(acc)
	err := os.Mkdir(dir, 0o700)
	switch {
	case errors.Is(err, os.ErrExist) && (private(dir, acc) || private(dir, child.Self())):
		// Left by a process that was killed: sockets and their locks, and the
		// server they belonged to is gone.
		if err = os.RemoveAll(dir); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	case errors.Is(err, os.ErrExist):
		// Where everybody may write, somebody else may have been first.
		dir, err = os.MkdirTemp(filepath.Dir(dir), "scheduler-")
	}
	if err != nil {
		return fmt.Errorf("make a directory for the socket: %w", err)
	}
	h.socket = dir
	return acc.Give(dir)
}

// private reports whether dir is a real directory that belongs to the account
// and into which nobody else may write.
func private(dir string, acc child.Account) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && info.Mode()&0o022 == 0 && acc.Owns(dir)
}

// fits reports whether the path of a socket in dir is short enough.
func fits(dir string) bool { return len(filepath.Join(dir, socketName)) <= longestSocket }

// tempBase is a temporary directory with a path short enough for a socket below
// it, which the account may enter.
func tempBase(acc child.Account) string {
	for _, base := range []string{filepath.Clean(os.TempDir()), "/tmp", "/var/tmp"} {
		if fits(filepath.Join(base, throwaway+uid()+"-0000000000", "s")) && acc.Reaches(base) {
			return base
		}
	}
	return "/tmp"
}

const (
	// memory is where Linux keeps shared memory: a file system without a disk.
	memory = "/dev/shm"
	// memoryNeeded is what has to be free there (in bytes) for a throwaway
	// server: containers often have but 64 MB. A server with the databases of
	// some parallel tests takes a few hundred.
	memoryNeeded = 2 << 30
)

// throwawayBase is where a throwaway server lies unless told otherwise: in
// memory if there is enough of it, where making and copying databases, which is
// what tests do, was measured to be ten times as fast. TMPDIR has precedence.
func throwawayBase(acc child.Account) string {
	temp := tempBase(acc)
	var st syscall.Statfs_t
	if temp != "/tmp" || syscall.Statfs(memory, &st) != nil {
		return temp
	}
	if uint64(st.Bavail)*uint64(st.Bsize) < memoryNeeded || !acc.Reaches(memory) {
		return temp
	}
	return memory
}

// lockFile locks path for this process, waiting up to limit for another to let
// go. The lock ends with the process, however it ends.
func lockFile(ctx context.Context, path string, limit time.Duration) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = until(ctx, limit, func() (bool, error) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
			return false, nil
		}
		return err == nil, err
	})
	if errors.Is(err, errTooLong) {
		err = errors.New("it is in use" + holder(path))
	}
	if err == nil {
		err = errors.Join(f.Truncate(0), writePID(f))
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

func writePID(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return err
}

// holder tells who wrote its process id into a lock file.
func holder(path string) string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return ""
	}
	return " by process " + strings.TrimSpace(string(text))
}

// uid is our user id, as it stands in names of files that must be ours.
func uid() string { return strconv.Itoa(os.Geteuid()) }
