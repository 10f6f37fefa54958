package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

// cluster is a PostgreSQL data directory and what is needed to run it.
type cluster struct {
	*home
	bins    binaries
	account child.Account
	data    string // the data directory
	logPath string // what the server says, for the error when it does not start

	stock         bool // see Options, as the next two
	settings, env []string
}

// superuser is the first role of each cluster. It makes the other roles; the
// program never runs as it, because no row-level security holds for it.
const superuser = "postgres"

// serverEnv is the whole environment of a server: no locale, time zone or
// password of ours may change how it behaves.
func serverEnv() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "TZ=UTC", "LC_ALL=C"}
}

// openCluster finds or makes a data directory, with the programs and the
// account that fit it, and sees to it that no server runs on it.
func openCluster(ctx context.Context, o Options) (*cluster, error) {
	h, err := openHome(ctx, o, "postgres")
	if err != nil {
		return nil, err
	}
	c := newCluster(h, o)
	if err = c.findOrMake(ctx, o); err == nil {
		err = c.openSocket(c.account)
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return c, nil
}

func newCluster(h *home, o Options) *cluster {
	return &cluster{home: h, logPath: filepath.Join(h.dir, "postgres.log"), stock: o.Stock, settings: o.Settings, env: o.Env}
}

func (c *cluster) findOrMake(ctx context.Context, o Options) error {
	list, err := findPostgres(ctx, o)
	if err != nil {
		return err
	}
	dirs := c.places(o.machine())
	for _, dir := range dirs {
		c.data = filepath.Join(dir, "postgres")
		major, err := dataMajor(c.data)
		if err != nil {
			return err
		}
		if major != 0 {
			return c.reuse(ctx, o, major, list)
		}
	}
	c.bins = list[0]
	return c.create(ctx, o, dirs)
}

// dataDirs are the directories in which the data may lie: the one asked for, and
// as root also others, for when that one is closed to the accounts that
// PostgreSQL may run as.
func (c *cluster) places(on *machine) []string {
	dirs := []string{c.dir}
	if !c.durable || os.Geteuid() != 0 {
		return dirs
	}
	for _, base := range on.elsewhere {
		dirs = append(dirs, filepath.Join(base, "scheduler-"+hash(c.dir)))
	}
	return dirs
}

// reuse takes a data directory as it is: with the programs of the version that
// made it, as the account that owns it.
func (c *cluster) reuse(ctx context.Context, o Options, major int, list []binaries) (err error) {
	for _, b := range list {
		if b.major == major {
			c.bins = b
		}
	}
	if c.bins.major == 0 {
		return fmt.Errorf("the data in %s was made by PostgreSQL %d and this machine has %d: install PostgreSQL %d, or move that directory away to begin with an empty one",
			c.data, major, list[0].major, major)
	}
	if c.account, err = child.Owner(c.data); err != nil {
		return err
	}
	if err := c.probe(ctx, c.account, filepath.Dir(c.data)); err != nil {
		return err
	}
	return c.stopLeftover(ctx, o)
}

// create makes the data directory in the first of dirs and as the first account
// with which it can be done.
func (c *cluster) create(ctx context.Context, o Options, dirs []string) error {
	var failures []error
	for i, dir := range dirs {
		for _, acc := range o.machine().accounts {
			err := c.createAs(ctx, acc, dir)
			if err == nil && i > 0 {
				o.log().WarnContext(ctx, "the PostgreSQL data lies elsewhere, because no account that it may run as reaches its directory",
					"wanted", dirs[0], "data", c.data)
			}
			if err == nil || ctx.Err() != nil {
				return err
			}
			failures = append(failures, err)
		}
	}
	return fmt.Errorf("make a PostgreSQL data directory: %w", errors.Join(failures...))
}

func (c *cluster) createAs(ctx context.Context, acc child.Account, dir string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	if err := c.probe(ctx, acc, dir); err != nil {
		return err
	}
	c.account, c.data = acc, filepath.Join(dir, "postgres")
	if c.durable {
		return c.initdb(ctx)
	}
	return c.copied(ctx)
}

// probe checks that the account reaches the directory and can run the programs.
func (c *cluster) probe(ctx context.Context, acc child.Account, dir string) error {
	if !acc.Reaches(dir) {
		return fmt.Errorf("%s may not enter %s", acc, dir)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := acc.Command(ctx, serverEnv(), c.bins.initdb(), "--version").Run(); err != nil {
		return fmt.Errorf("%s cannot run %s: %w", acc, c.bins.initdb(), err)
	}
	return nil
}

// unfinished is in the name of a data directory that is being made.
const unfinished = ".unfinished-"

// initArgs are initdb's arguments but for the directory.
func (c *cluster) initArgs() []string {
	args := []string{"-U", superuser, "-A", "trust", "-E", "UTF8", "--locale=C"}
	if !c.durable {
		args = append(args, "--no-sync")
	}
	if !c.durable && !c.stock {
		// A small log: most of a fresh directory would be its first segment.
		args = append(args, "--wal-segsize=1")
	}
	return args
}

// initdb makes the data directory. It is filled under another name and renamed
// when it is complete, so that a data directory that is there is always whole.
func (c *cluster) initdb(ctx context.Context) error {
	// The remains of an initdb that was killed never held anybody's data.
	old, _ := filepath.Glob(c.data + unfinished + "*") // fails only for a malformed pattern
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	fresh, err := os.MkdirTemp(filepath.Dir(c.data), filepath.Base(c.data)+unfinished)
	if err != nil {
		return err
	}
	if err := c.account.Give(fresh); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	args := append([]string{"-D", fresh}, c.initArgs()...)
	out, err := c.account.Command(ctx, serverEnv(), c.bins.initdb(), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb as %s in %s: %w: %s", c.account, c.dir, err, lastLines(out))
	}
	return os.Rename(fresh, c.data)
}

// copied makes a throwaway data directory from a copy of an earlier fresh one,
// which takes a tenth of the time, and keeps such a copy where there is none.
func (c *cluster) copied(ctx context.Context) error {
	self := child.Self()
	program, err := filepath.EvalSymlinks(c.bins.postgres())
	if err != nil {
		return err
	}
	key := hash(program + c.bins.version + strings.Join(c.initArgs(), " "))
	kept := filepath.Join(tempBase(self), "scheduler-initdb-"+uid()+"-"+key)
	if private(kept, self) && copyTree(kept, c.data, c.account) == nil {
		return nil
	}
	if err := os.RemoveAll(c.data); err != nil {
		return err
	}
	if err := c.initdb(ctx); err != nil {
		return err
	}
	// Without the copy the next start takes longer, and that is all.
	_ = keepTree(c.data, kept, self)
	return nil
}

// stopLeftover ends the server of an earlier process of ours that was killed,
// if it still runs or is still on its way down, and removes the lock file of
// one that is gone. We hold the directory's lock, so it is nobody else's.
//
// PostgreSQL by itself refuses to start whenever any process of its user has
// the recorded id, which after the restart of a machine or a container is often
// some other program.
func (c *cluster) stopLeftover(ctx context.Context, o Options) error {
	pidFile := filepath.Join(c.data, "postmaster.pid")
	pid, err := c.leftover(pidFile)
	if err != nil {
		return err
	}
	if pid == 0 {
		return removeFile(pidFile)
	}
	o.log().WarnContext(ctx, "stopping the PostgreSQL that an earlier process left behind", "pid", pid)
	for _, step := range stopSteps(c.durable) {
		err := c.endLeftover(ctx, pid, step)
		if err == nil {
			return removeFile(pidFile)
		}
		if !errors.Is(err, errTooLong) {
			return err
		}
	}
	return fmt.Errorf("the PostgreSQL with process id %d still runs in %s and does not stop: end it first", pid, c.data)
}

// left reports whether the server was left running on purpose and still does.
func (c *cluster) left() bool {
	if _, err := os.Stat(filepath.Join(c.dir, leftName)); err != nil {
		return false
	}
	pid, _ := c.leftover(filepath.Join(c.data, "postmaster.pid"))
	return pid != 0
}

// leftover is the process id of a server that runs on the data, 0 if none does.
func (c *cluster) leftover(pidFile string) (pid int, err error) {
	text, err := os.ReadFile(pidFile)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	pid, err = strconv.Atoi(string(first))
	if err != nil || pid <= 1 || !c.servedBy(pid) {
		return 0, nil // a lock file that nobody holds
	}
	return pid, nil
}

func (c *cluster) endLeftover(ctx context.Context, pid int, step child.Step) error {
	process, err := os.FindProcess(pid)
	if err == nil {
		err = process.Signal(step.Signal)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the PostgreSQL with process id %d that runs in %s: %w", pid, c.data, err)
	}
	return until(ctx, step.Within, func() (bool, error) { return !c.servedBy(pid), nil })
}

// servedBy reports whether the process is a server on this data directory: it
// is named on its command line.
func (c *cluster) servedBy(pid int) bool { return child.HasArgument(pid, c.data) }

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RunningPostgres is the address, as the superuser, of the durable PostgreSQL that another
// process of ours runs with its data below dir.
func RunningPostgres(dir string) (string, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	c := newCluster(&home{dir: absolute, name: "postgres", durable: true}, Options{})
	for _, place := range c.places(Options{}.machine()) {
		c.data = filepath.Join(place, "postgres")
		pid, err := c.leftover(filepath.Join(c.data, "postmaster.pid"))
		if err != nil {
			return "", err
		}
		if pid == 0 || !c.ready(pid) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(c.data, "postmaster.pid"))
		if err != nil {
			return "", err
		}
		socket, _, _ := strings.Cut(strings.SplitN(string(text), "\n", 5)[4], "\n") // its fifth line
		return (&Postgres{Socket: socket}).URL("postgres", superuser), nil
	}
	return "", fmt.Errorf("no PostgreSQL of ours runs with its data in %s", absolute)
}
