package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
}

// superuser is the first role of each cluster. We alone use it, to make the
// other roles; the program itself never runs as it, because a superuser is not
// subject to row-level security.
const superuser = "postgres"

// serverEnv is the whole environment of the server: no locale and no time zone
// of the machine may change how it behaves.
func serverEnv() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "TZ=UTC", "LC_ALL=C"}
}

// openCluster finds programs, account and data directory that fit one another.
func openCluster(ctx context.Context, o Options) (*cluster, error) {
	h, err := openHome(ctx, o, "postgres")
	if err != nil {
		return nil, err
	}
	c := &cluster{home: h, data: filepath.Join(h.dir, "postgres"), logPath: filepath.Join(h.dir, "postgres.log")}
	if err := c.prepare(ctx, o); err != nil {
		h.close()
		return nil, err
	}
	return c, nil
}

func (c *cluster) prepare(ctx context.Context, o Options) error {
	major, err := dataMajor(c.data)
	if err != nil {
		return err
	}
	if c.bins, err = choose(ctx, o, c.data, major); err != nil {
		return err
	}
	if err := c.chooseAccount(ctx, major != 0); err != nil {
		return err
	}
	if err := c.stopLeftover(ctx, o); err != nil {
		return err
	}
	if major == 0 {
		if err := c.initdb(ctx); err != nil {
			return err
		}
	}
	return c.openSocket(c.account)
}

// choose picks the installation that made the data, or the newest for new data.
func choose(ctx context.Context, o Options, data string, major int) (binaries, error) {
	list, err := findPostgres(ctx, o)
	if err != nil {
		return binaries{}, err
	}
	if major == 0 {
		return list[0], nil
	}
	for _, b := range list {
		if b.major == major {
			return b, nil
		}
	}
	return binaries{}, fmt.Errorf("the data in %s was made by PostgreSQL %d and this machine has %d: install PostgreSQL %d, or move that directory away to begin with an empty one",
		data, major, list[0].major, major)
}

// chooseAccount picks the account to run as: for data that exists its owner,
// otherwise the first that reaches the directory and can run the programs.
func (c *cluster) chooseAccount(ctx context.Context, exists bool) error {
	if exists {
		acc, err := child.Owner(c.data)
		if err != nil {
			return err
		}
		c.account = acc
		return c.probe(ctx, acc)
	}
	var failures []string
	for _, acc := range child.Candidates() {
		err := c.probe(ctx, acc)
		if err == nil {
			c.account = acc
			return nil
		}
		failures = append(failures, err.Error())
	}
	return fmt.Errorf("PostgreSQL refuses to run as root, and no other account will do: %s", strings.Join(failures, "; "))
}

// probe checks that the account can reach the data and run the programs.
func (c *cluster) probe(ctx context.Context, acc child.Account) error {
	if !acc.Reaches(c.dir) {
		return fmt.Errorf("%s may not enter %s", acc, c.dir)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := acc.CommandContext(ctx, serverEnv(), c.bins.initdb(), "--version").Run(); err != nil {
		return fmt.Errorf("%s cannot run %s: %w", acc, c.bins.initdb(), err)
	}
	return nil
}

// initdb makes the data directory. It is filled under another name and renamed
// when it is complete, so that a data directory that is there is always whole.
func (c *cluster) initdb(ctx context.Context) error {
	fresh := c.data + ".unfinished"
	// What an initdb that was killed has left never held anybody's data.
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	if err := c.account.Give(fresh); err != nil {
		return err
	}
	argv := []string{c.bins.initdb(), "-D", fresh, "-U", superuser, "-A", "trust", "-E", "UTF8", "--locale=C"}
	if !c.durable {
		argv = append(argv, "--no-sync")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if out, err := c.account.CommandContext(ctx, serverEnv(), argv...).CombinedOutput(); err != nil {
		return fmt.Errorf("make a PostgreSQL data directory in %s: %w: %s", c.dir, err, lastLines(out))
	}
	return os.Rename(fresh, c.data)
}

// lastLines is the end of what a program said, on one line.
func lastLines(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) > 5 {
		lines = lines[len(lines)-5:]
	}
	return strings.Join(lines, " | ")
}

var errEnded = errors.New("the server ended")
