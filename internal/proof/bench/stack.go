package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/app"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/devstack"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/proof/broken"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

const (
	module      = "github.com/scheduler-service/scheduler"
	login       = "scheduler"
	schemaOwner = "scheduler_owner"
	tenants     = 10
	// maxDelay is how many ms PostgreSQL's commit_delay can be at most, and maxCommits how
	// many a commit may wait.
	maxDelay   = 100
	maxCommits = 1000
)

// stack is what is measured: the stores, the programs, and the tenants whose
// jobs are the load. Its processes are started by the measurements.
type stack struct {
	Config

	progress io.Writer
	dir      string // removed at the end
	postgres *devstack.Postgres
	orders   *broken.Orders // to PostgreSQL about its fsyncs; nil: it obeys none
	redis    *devstack.Redis
	database string // the product's, as the processes log in
	store    *store
	api      *postgres.DB
	jobs     *job.Store
	tenants  []tenant.Actor
	pace     float64 // jobs created a second, as last measured
	running  []*process
	loads    []load  // whose records are verified, and whose roll-ups are not
	target   *target // of jobs of type http
	filled   bool    // see fillOnce
}

// open starts the stores and builds the processes. The stack is the caller's
// to close, also after an error.
func open(ctx context.Context, c Config, progress io.Writer) (*stack, error) {
	s := &stack{Config: c, progress: progress, pace: c.firstPace()}
	var err error
	if s.dir, err = os.MkdirTemp("", "scheduler-bench-"); err != nil {
		return s, err
	}
	// The account that PostgreSQL runs as must reach what is in it.
	if err := os.Chmod(s.dir, 0o711); err != nil {
		return s, err
	}
	s.say("starting a private PostgreSQL and Redis, and building the processes")
	options := devstack.Options{Dir: filepath.Join(s.dir, "stores"), Durable: true, Confirm: devstack.Say(progress), Stock: c.Stock}
	if err := s.startPostgres(ctx, options); err != nil {
		return s, err
	}
	if s.redis, err = devstack.StartRedis(ctx, options); err != nil {
		return s, err
	}
	if s.redis.Kind == devstack.KindMiniredis {
		return s, errors.New("no redis-server is installed, and a stand-in says nothing about the queue")
	}
	if s.database, err = s.prepare(ctx, "product"); err != nil {
		return s, err
	}
	if err := s.openProduct(ctx); err != nil {
		return s, err
	}
	if s.target, err = newTarget(time.Duration(c.Takes) * time.Millisecond); err != nil {
		return s, err
	}
	if err := s.build(ctx); err != nil {
		return s, err
	}
	// From here on, because the schema takes a thousand fsyncs.
	return s, s.orders.Set(time.Duration(c.Commits)*time.Millisecond, false, 0)
}

// startPostgres starts PostgreSQL with what it alone has beside the options.
func (s *stack) startPostgres(ctx context.Context, o devstack.Options) error {
	if s.Statements {
		o.Settings = append(o.Settings, withStatements, withPlanning)
	}
	switch {
	case s.slowDisk():
		library, err := broken.Compile(ctx, s.dir)
		if err != nil {
			return fmt.Errorf("-commits above %d: %w", maxDelay, err)
		}
		if s.orders, err = broken.NewOrders(filepath.Join(s.dir, "orders")); err != nil {
			return err
		}
		o.Env = s.orders.Env(library)
	case s.Commits > 0: // one of those that commit together waits
		o.Settings = append(o.Settings, fmt.Sprintf("commit_delay=%d", 1000*s.Commits), "commit_siblings=0")
	}
	var err error
	s.postgres, err = devstack.StartPostgres(ctx, o)
	return err
}

// slowDisk says whether commits wait because each fsync does: commit_delay ends before.
func (c Config) slowDisk() bool { return c.Commits > maxDelay }

// commitsOf says in the table how long commits wait, and of what.
func (c Config) commitsOf() string {
	switch {
	case c.slowDisk():
		return fmt.Sprintf("Each fsync of PostgreSQL waits %d ms more, and a commit for one or two of them. ", c.Commits)
	case c.Commits > 0:
		return fmt.Sprintf("Each commit waits %d ms more (commit_delay). ", c.Commits)
	default:
		return ""
	}
}

// firstPace is how many jobs a second are created, before any were. Each is a commit, which may
// wait for the one before it.
func (c Config) firstPace() float64 {
	const usual = 1000
	if c.Commits == 0 {
		return usual
	}
	return min(usual, creators*1000/float64(2*c.Commits))
}

// prepare makes a database with the product's schema and answers its address.
func (s *stack) prepare(ctx context.Context, name string) (url string, err error) {
	if err := postgres.EnsureDatabase(ctx, s.postgres.AdminURL, name, schemaOwner); err != nil {
		return "", err
	}
	url = s.postgres.URL(name, login)
	c, err := config.Load[config.Migrate](lookup(map[string]string{
		"DATABASE_OWNER_URL": s.postgres.URL(name, schemaOwner), "DATABASE_URL": url,
	}))
	if err != nil {
		return "", err
	}
	return url, app.Migrate(ctx, c, slog.New(slog.DiscardHandler))
}

func (s *stack) openProduct(ctx context.Context) (err error) {
	if s.store, err = openStore(ctx, s.database, 4); err != nil {
		return err
	}
	s.api, err = postgres.Open(ctx, postgres.Config{URL: s.database, Role: postgres.API, Name: "scheduler-bench", MaxConns: creators})
	if err != nil {
		return err
	}
	s.jobs = job.NewStore(s.api, job.Config{})
	admission := tenant.NewStore(s.api, true)
	for range tenants {
		who := tenant.Actor{TenantID: uuid.New(), Subject: "bench"}
		if err := admission.Admit(ctx, who.TenantID); err != nil {
			return err
		}
		s.tenants = append(s.tenants, who)
	}
	return nil
}

// build makes the programs as they are in the tree now, as `make build` and the images do:
// compiled for what the profile says.
func (s *stack) build(ctx context.Context) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	args := []string{"build", "-buildvcs=false", "-pgo=" + filepath.Join(root, "deploy", "profile.pgo"), "-o", s.programs()}
	if s.Profiles != "" {
		args = append(args, "-tags=profile", "-trimpath") // the profile names sources as the module does
	}
	args = append(args, module+"/cmd/api", module+"/cmd/promoter", module+"/cmd/worker")
	if err := os.MkdirAll(s.programs(), 0o755); err != nil {
		return err
	}
	said, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, said)
	}
	return nil
}

func (s *stack) programs() string { return filepath.Join(s.dir, "bin") }

// say tells the person who waits what is going on.
func (s *stack) say(format string, args ...any) {
	fmt.Fprintf(s.progress, format+"\n", args...)
}

// close ends everything in the reverse order of its start.
func (s *stack) close() error {
	err := s.stop(s.running...)
	if s.target != nil {
		err = errors.Join(err, s.target.close())
	}
	if s.api != nil {
		s.api.Close()
	}
	if s.store != nil {
		s.store.db.Close()
	}
	if s.redis != nil {
		err = errors.Join(err, s.redis.Stop())
	}
	if s.postgres != nil {
		// Its last checkpoint syncs every file.
		err = errors.Join(err, s.orders.Set(0, false, 0), s.postgres.Stop())
	}
	s.orders.Close()
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// lookup is an environment.
func lookup(variables map[string]string) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	}
}
