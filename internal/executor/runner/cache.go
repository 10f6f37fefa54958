package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/executor/runner/guest"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wire"
)

// The bounds of compiling: a module of 99 KB can be made to take minutes and a gigabyte.
const (
	compileCPU    = 5 * time.Second
	compileMemory = 512 << 20
	maxArtefact   = 256 << 20
	maxArtefacts  = 200 // in the folder; the longest unused go
)

// cache is compiled code on disk. A runner may read the code of its own program and no
// other, and only a process that compiles writes, to a folder of its own: what one
// tenant's module does to its compiler reaches nobody else's code. Folders are named by
// the module's content; below them the engine keeps its own version and the processor's
// architecture apart.
type cache struct {
	root string        // empty is none
	time time.Duration // that compiling may take
	log  *slog.Logger
	life context.Context // of what is compiled, until close
	stop context.CancelFunc

	mu        sync.Mutex
	compiling map[string]*compiling
	running   sync.WaitGroup
}

// compiling is one compilation, for which any number of runs may wait.
type compiling struct {
	done    chan struct{}
	failure *wire.Failure
	err     error
}

func newCache(config Config) *cache {
	c := &cache{time: config.StartTime, log: config.Log, compiling: make(map[string]*compiling)}
	c.life, c.stop = context.WithCancel(context.Background())
	if config.CacheDir == "" {
		return c
	}
	root, err := filepath.Abs(config.CacheDir) // runners work in another directory
	if err == nil {
		err = private(root)
	}
	if err != nil {
		c.log.Warn("compiled code is not kept: each runner compiles anew", "folder", config.CacheDir, "error", err)
		return c
	}
	c.root = root
	return c
}

// private makes a folder that nobody else may write to: the code in it is run.
func private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	about, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := about.Sys().(*syscall.Stat_t)
	if !about.IsDir() || !ok || int(owner.Uid) != os.Geteuid() || about.Mode().Perm()&0o022 != 0 {
		return errors.New("it is no folder of our own that only we may write to")
	}
	return nil
}

// dir is the folder of a program's compiled code, which it compiles where that is
// missing; empty where there is no cache.
func (c *cache) dir(ctx context.Context, setup wire.Program, key string, module []byte) (string, *wire.Failure, error) {
	if c.root == "" {
		return "", nil, nil
	}
	if setup.Script {
		key = guest.EngineKey()
	}
	dir := filepath.Join(c.root, key)
	now := clock.Now()
	if os.Chtimes(dir, now, now) == nil {
		return dir, nil, nil
	}
	c.mu.Lock()
	one := c.compiling[key]
	if one == nil {
		one = &compiling{done: make(chan struct{})}
		c.compiling[key] = one
		c.running.Go(func() { c.compile(one, setup, key, module) })
	}
	c.mu.Unlock()
	select {
	case <-one.done:
	case <-ctx.Done():
		return "", nil, ctx.Err()
	}
	if one.err != nil { // a full disk, say: the runner compiles for itself then
		c.log.WarnContext(ctx, "compiled code was not kept", "error", one.err)
		return "", nil, nil
	}
	return dir, one.failure, nil
}

// close ends what is being compiled.
func (c *cache) close() {
	c.stop()
	c.running.Wait()
}

// compile compiles into a folder of its own, and gives that its name when it is whole. It
// goes on when the run that asked for it has ended: the next one needs it too.
func (c *cache) compile(one *compiling, setup wire.Program, key string, module []byte) {
	defer func() {
		c.mu.Lock()
		delete(c.compiling, key)
		c.mu.Unlock()
		close(one.done)
	}()
	dir, err := os.MkdirTemp(c.root, "new-")
	if err != nil {
		one.err = fmt.Errorf("make a folder for compiled code: %w", err)
		return
	}
	setup.Compile, setup.CacheDir = true, dir
	_, one.failure, one.err = start(c.life, c.time, setup, module, false)
	if one.err == nil && one.failure == nil {
		if err := os.Rename(dir, filepath.Join(c.root, key)); err == nil {
			c.trim()
			return
		}
	}
	_ = os.RemoveAll(dir) // the next start of a compilation does not mind it
}

// trim removes what was not used for the longest time. Runners have read theirs already.
func (c *cache) trim() {
	entries, err := os.ReadDir(c.root)
	if err != nil || len(entries) <= maxArtefacts {
		return
	}
	age := func(e os.DirEntry) time.Time {
		if about, err := e.Info(); err == nil {
			return about.ModTime()
		}
		return time.Time{}
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return age(a).Compare(age(b)) })
	for _, old := range entries[:len(entries)-maxArtefacts] {
		_ = os.RemoveAll(filepath.Join(c.root, old.Name()))
	}
}
