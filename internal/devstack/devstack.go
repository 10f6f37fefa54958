// Package devstack starts a private PostgreSQL and a private Redis as child
// processes, so that the program and its tests run on a machine where nobody
// set up either.
//
// It owns finding their programs (and installing them where that is allowed),
// the account they run as when we are root, their settings, where their data
// and sockets lie, and their end: they stop when we stop, also when we are
// killed. It refuses what makes a server anyone else's: they listen on a unix
// socket in a directory that only we may enter, never on the network, which is
// also why they trust whoever connects. It never removes data that it was asked
// to keep, and it is not how a production installation is run.
//
// The standalone program calls it, and the test packages pgtest and redistest.
package devstack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

// Options say where and how a server runs.
type Options struct {
	// Dir is the directory below which the server keeps its files. It is made
	// when it is not there. A throwaway server may leave it empty, which means
	// the system's temporary directory.
	Dir string
	// Log is told what is started, installed and noticed. Nil means silence.
	Log *slog.Logger
	// Durable keeps the data for the next start, and on disk as a database
	// should. Otherwise the server is a throwaway: it writes without waiting for
	// the disk and its data is removed by Stop.
	Durable bool
	// Install allows a missing program to be installed by the system's package
	// manager.
	Install bool

	find *finder // where to look; nil means this machine
}

func (o Options) log() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}

func (o Options) finder() *finder {
	if o.find == nil {
		return newFinder()
	}
	return o.find
}

const (
	// pollEvery is how often a condition is looked at that nothing announces: a
	// server that gets ready, a lock that gets free.
	pollEvery = 5 * time.Millisecond
	// longestSocketPath is the limit of macOS, the smallest around (104 bytes
	// with the final zero; Linux has 108).
	longestSocketPath = 103
	// socketName is the longest name in a socket directory.
	socketName = ".s.PGSQL.5432.lock"
	// throwaway begins the name of each throwaway server's directory.
	throwaway = "scheduler-test-"
)

// home is the directory of one server, ours alone while we hold its lock.
type home struct {
	dir     string // absolute
	key     string // names the socket's directory, one per server
	durable bool
	lock    *os.File
	socket  string // the socket's directory; set by openSocket
}

// openHome makes the server's directory and locks it. A durable one is o.Dir
// itself, a throwaway one a fresh directory.
func openHome(ctx context.Context, o Options, name string) (*home, error) {
	if !o.Durable {
		return freshHome(ctx, o)
	}
	if o.Dir == "" {
		return nil, errors.New("a durable server needs a directory")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := lockFile(ctx, filepath.Join(dir, name+".lock"), 3*time.Second)
	if err != nil {
		return nil, fmt.Errorf("another process runs its %s in %s: stop it, or choose another directory: %w", name, dir, err)
	}
	return &home{dir: dir, key: hash(dir + " " + name), durable: true, lock: lock}, nil
}

// close gives the directory back, and removes it when it is a throwaway.
func (h *home) close() {
	if h.socket != "" {
		_ = os.RemoveAll(h.socket)
	}
	if !h.durable {
		_ = os.RemoveAll(h.dir)
	}
	_ = h.lock.Close()
}

// openSocket makes the directory of the socket: private, at a path that is
// short enough and that stays the same for the same home, so that a client in
// another terminal finds it again.
func (h *home) openSocket(acc child.Account) error {
	base := tempBase(acc)
	dir := filepath.Join(base, "scheduler-"+h.key)
	err := os.Mkdir(dir, 0o700)
	switch {
	case errors.Is(err, os.ErrExist) && ours(dir, acc):
		// Left by a process that was killed. What is in it are sockets and
		// their locks, and the server they belonged to is gone.
		err = removeChildren(dir)
	case errors.Is(err, os.ErrExist):
		dir, err = os.MkdirTemp(base, "scheduler-")
	}
	if err != nil {
		return fmt.Errorf("make a directory for the socket: %w", err)
	}
	h.socket = dir
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	return acc.Give(dir)
}

// ours reports whether dir is a real directory of the account or of ourselves:
// in a directory where everybody may write, somebody else may have been first.
func ours(dir string, acc child.Account) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && (acc.Owns(dir) || child.Self().Owns(dir))
}

// tempBase is a temporary directory with a path short enough for a socket below
// it, which the account may enter.
func tempBase(acc child.Account) string {
	for _, base := range []string{filepath.Clean(os.TempDir()), "/tmp", "/var/tmp"} {
		longest := filepath.Join(base, throwaway+"0000000000", socketName)
		if len(longest) <= longestSocketPath && acc.Reaches(base) {
			return base
		}
	}
	return "/tmp"
}

func removeChildren(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// hash is a short name for a text.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
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
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// errTooLong is what until returns when its limit has passed.
var errTooLong = errors.New("it took too long")

// until looks at a condition until it holds or fails, up to limit.
func until(ctx context.Context, limit time.Duration, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooLong)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// uid is our user id, as it stands in names of files that must be ours.
func uid() string { return strconv.Itoa(os.Geteuid()) }
