package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/internal/devstack/child"
)

// Postgres is a running PostgreSQL of our own.
type Postgres struct {
	// AdminURL connects as the superuser to the database "postgres".
	AdminURL string
	// Socket is the directory of its unix socket, for psql -h.
	Socket string

	cluster *cluster

	mu      sync.Mutex
	process *child.Process
	stopped bool
}

// listening is the least that a server of ours is told.
func listening() []string {
	return []string{
		"listen_addresses=",            // the socket alone
		"unix_socket_permissions=0700", // as its directory
	}
}

// settings hold for every server but a stock one. They are meant for a laptop:
// small enough for it, large enough that a load test measures us and not
// PostgreSQL's defaults.
func settings() []string {
	return []string{
		"max_connections=300",           // all processes of a small fleet, and a person with psql
		"shared_buffers=256MB",          // taken only as it is used
		"max_locks_per_transaction=256", // a query over all monthly partitions locks each and its indexes
		"autovacuum_naptime=5s",         // the small hot tables turn over within seconds
		"timezone=UTC",
		"log_timezone=UTC",
		"log_min_messages=warning",
		"log_checkpoints=off",
	}
}

// durableSettings keep what was committed.
func durableSettings() []string {
	return []string{
		"max_wal_size=2GB", // fewer checkpoints under load
		"checkpoint_timeout=15min",
		"wal_compression=on",
		// A standby asks for its primary again after this long, 5 s by default, and
		// commits that wait for the standby wait for that too.
		"wal_retrieve_retry_interval=500ms",
	}
}

// throwawaySettings give durability up for speed: nothing outlives the server.
func throwawaySettings() []string {
	return []string{
		"fsync=off",
		"synchronous_commit=off",
		"full_page_writes=off",
		"wal_level=minimal",
		"max_wal_senders=0",
		"max_wal_size=256MB",              // it may lie in memory
		"dynamic_shared_memory_type=mmap", // files in the data directory, gone with it even after a kill
	}
}

// startWithin bounds how long a server may take until it accepts connections.
// After a crash it first repeats what its log holds since the last checkpoint.
const startWithin = 2 * time.Minute

// StartPostgres starts a PostgreSQL that serves only us. It returns when the
// server accepts connections. Its errors are sentences for the person at the
// terminal: what is missing and what to do about it.
//
// As root it runs as another account, because PostgreSQL insists. A durable
// server whose directory is in use by another process is an error; one whose
// process was killed is taken over.
func StartPostgres(ctx context.Context, o Options) (*Postgres, error) {
	c, err := openCluster(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	p := &Postgres{Socket: c.socket, cluster: c}
	p.AdminURL = p.URL("postgres", superuser)
	if err := p.start(ctx); err != nil {
		c.close()
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	o.log().InfoContext(ctx, "PostgreSQL started", "version", c.bins.major, "data", c.data, "url", p.AdminURL)
	return p, nil
}

func (p *Postgres) start(ctx context.Context) error {
	c := p.cluster
	cmd, release, err := c.command()
	if err != nil {
		return err
	}
	defer release()
	if p.process, err = child.Start(cmd); err != nil {
		return err
	}
	if err := until(ctx, startWithin, p.ready); err != nil {
		_ = p.process.Stop(stopSteps(c.durable)...)
		said, _ := os.ReadFile(c.logPath)
		return fmt.Errorf("%w: %s", err, lastLines(said))
	}
	return nil
}

// command is the server's, to be released when it was started. It writes to a
// file and not to a pipe, because it may outlive us by its shutdown.
func (c *cluster) command() (cmd *exec.Cmd, release func(), err error) {
	out, err := os.OpenFile(c.logPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, nil, err
	}
	args := []string{"-D", c.data, "-k", c.socket}
	for _, s := range slices.Concat(listening(), c.own(), c.settings) {
		args = append(args, "-c", s)
	}
	cmd = c.account.Command(context.Background(), slices.Concat(serverEnv(), c.env), c.bins.postgres(), args...)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, func() { _ = out.Close() }, nil
}

// own are our settings for the server.
func (c *cluster) own() []string {
	switch {
	case c.stock:
		return nil
	case c.durable:
		return slices.Concat(settings(), durableSettings())
	default:
		return slices.Concat(settings(), throwawaySettings())
	}
}

// ready reads the server's own word for it, the eighth line of its lock file.
func (p *Postgres) ready() (bool, error) {
	select {
	case <-p.process.Done():
		return false, errEnded
	default:
		return p.cluster.ready(p.process.PID()), nil
	}
}

func (c *cluster) ready(pid int) bool {
	text, err := os.ReadFile(filepath.Join(c.data, "postmaster.pid"))
	if err != nil {
		return false // not written yet
	}
	lines := bytes.Split(text, []byte("\n"))
	return len(lines) >= 8 && string(bytes.TrimSpace(lines[7])) == "ready" && string(lines[0]) == strconv.Itoa(pid)
}

// URL connects to a database as a user. The server trusts everybody who reaches its
// socket, so there is no password.
func (p *Postgres) URL(database, user string) string {
	u := url.URL{
		Scheme: "postgres",
		User:   url.User(user),
		Path:   "/" + database,
		// Clients of PostgreSQL do not read a plus sign as a space.
		RawQuery: "host=" + strings.ReplaceAll(url.QueryEscape(p.Socket), "+", "%20"),
	}
	return u.String()
}

// Done is closed when the server has ended, by Stop or by itself. A restart
// ends it too, and the new one has another Done.
func (p *Postgres) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process.Done()
}

// Stop shuts the server down, cutting its connections, and waits until it is
// gone: a second or less as a rule, a minute at most. A throwaway server's data
// goes with it. Further calls do nothing.
func (p *Postgres) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	p.stopped = true
	defer p.cluster.close()
	return p.process.Stop(stopSteps(p.cluster.durable)...)
}

// Restart shuts the server down and starts it again on the same data and
// address, for tests of what its clients make of that.
func (p *Postgres) Restart(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return errStopped
	}
	if err := p.process.Stop(stopSteps(p.cluster.durable)...); err != nil {
		return err
	}
	return p.start(ctx)
}

// errStopped is what a stopped server answers.
var errStopped = errors.New("the server was stopped")

// Detach restarts the server so that it outlives this process, for a person who
// wants to see the database of a failed test, and returns its process id. Stop
// does nothing afterwards; SIGINT ends the server, and a throwaway's data is
// removed by the next start of another throwaway.
func (p *Postgres) Detach() (pid int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return 0, errStopped
	}
	p.stopped = true
	c := p.cluster
	if err := p.process.Stop(stopSteps(c.durable)...); err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(c.dir, leftName), nil, 0o600); err != nil {
		return 0, err
	}
	cmd, release, err := c.command()
	if err != nil {
		return 0, err
	}
	defer release()
	cmd.SysProcAttr.Setsid = true
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid = cmd.Process.Pid
	return pid, until(context.Background(), startWithin, func() (bool, error) { return c.ready(pid), nil })
}

// stopSteps are PostgreSQL's ways to stop, from the polite one. SIGINT ends
// sessions and writes everything out; SIGQUIT leaves that to the next start.
// SIGTERM is none of them: it waits until the last client leaves.
func stopSteps(durable bool) []child.Step {
	patience := 30 * time.Second
	if durable {
		patience = 45 * time.Second
	}
	return []child.Step{
		{Signal: syscall.SIGINT, Within: patience},
		{Signal: syscall.SIGQUIT, Within: 15 * time.Second},
	}
}
