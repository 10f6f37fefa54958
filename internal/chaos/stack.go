package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/app"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/devstack"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

const (
	module      = "github.com/scheduler-service/scheduler"
	database    = "product"
	login       = "scheduler"
	schemaOwner = "scheduler_owner"
	// key signs the tokens of the harness.
	key = "chaos-8d1f6c0b7e2a4935-feedc0de-f00d"
)

// stack is the installation under test: real stores, real processes, and what
// stands between them.
type stack struct {
	dir      string // removed at the end
	keep     bool   // but for the logs, because they are evidence
	postgres *devstack.Postgres
	redis    *devstack.Redis
	store    store
	sink     *sink
	members  []*member
	clients  []*api.ClientWithResponses // one an API process
	restarts sync.Mutex                 // one restart of a store at a time
}

// open starts everything. The stack is the caller's to close, also after an
// error.
func open(ctx context.Context, c Config, progress io.Writer) (*stack, error) {
	s := &stack{}
	var err error
	if s.dir, err = os.MkdirTemp("", "scheduler-chaos-"); err != nil {
		return s, err
	}
	// The account that PostgreSQL runs as must reach what is in it.
	if err := os.Chmod(s.dir, 0o711); err != nil {
		return s, err
	}
	fmt.Fprintln(progress, "building the processes, starting a private PostgreSQL and Redis")
	if err := s.build(ctx); err != nil {
		return s, err
	}
	options := devstack.Options{Dir: filepath.Join(s.dir, "postgres"), Durable: true}
	if s.postgres, err = devstack.StartPostgres(ctx, options); err != nil {
		return s, err
	}
	// Redis is a throwaway: whenever it dies, everything in it is lost.
	if s.redis, err = devstack.StartRedis(ctx, devstack.Options{Dir: filepath.Join(s.dir, "redis")}); err != nil {
		return s, err
	}
	if s.redis.Kind == devstack.KindMiniredis {
		return s, errNoRedis
	}
	if err := s.migrate(ctx); err != nil {
		return s, err
	}
	s.store = store{url: s.postgres.URL(database, "postgres")}
	if s.sink, err = newSink(); err != nil {
		return s, err
	}
	return s, s.people(ctx, c)
}

// errNoRedis says that this machine cannot run the harness.
var errNoRedis = errors.New("no redis-server is installed, and a stand-in cannot be broken like one")

func (s *stack) build(ctx context.Context) error {
	args := []string{"build", "-buildvcs=false", "-o", filepath.Join(s.dir, "bin") + string(filepath.Separator)}
	for _, name := range []string{"api", "promoter", "worker"} {
		args = append(args, module+"/cmd/"+name)
	}
	said, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, said)
	}
	return nil
}

func (s *stack) migrate(ctx context.Context) error {
	if err := postgres.EnsureDatabase(ctx, s.postgres.AdminURL, database, schemaOwner); err != nil {
		return err
	}
	variables := map[string]string{
		"DATABASE_OWNER_URL": s.postgres.URL(database, schemaOwner), "DATABASE_URL": s.postgres.URL(database, login),
	}
	c, err := config.Load[config.Migrate](func(name string) (string, bool) { v, ok := variables[name]; return v, ok })
	if err != nil {
		return err
	}
	return app.Migrate(ctx, c, slog.New(slog.DiscardHandler))
}

// people makes the processes, each with its own ways to the stores, and waits
// until all work.
func (s *stack) people(ctx context.Context, c Config) error {
	for role, count := range map[string]int{"api": c.APIs, "promoter": c.Promoters, "worker": c.Workers} {
		for n := range count {
			if err := s.hire(role, n+1, c.Short); err != nil {
				return err
			}
		}
	}
	for _, m := range s.members {
		if err := m.start(ctx); err != nil {
			return err
		}
	}
	return s.everybodyWorks(ctx, 30*time.Second)
}

func (s *stack) hire(role string, n int, short bool) error {
	db, err := newCutter(filepath.Join(s.postgres.Socket, ".s.PGSQL.5432"))
	if err != nil {
		return err
	}
	redis, err := newCutter(s.redisSocket())
	if err != nil {
		return err
	}
	m := &member{role: role, name: role + "-" + strconv.Itoa(n), program: filepath.Join(s.dir, "bin", role), logs: s.dir, db: db, redis: redis}
	m.env = []string{
		"DATABASE_URL=postgres://" + login + "@" + db.addr + "/" + database + "?sslmode=disable", "REDIS_URL=redis://" + redis.addr,
		"METRICS_ENABLED=false", "EGRESS_ALLOW=127.0.0.0/8", "PATH=/usr/bin:/bin", "HOME=" + s.dir,
	}
	switch role {
	case "api":
		addr, err := freeAddr()
		if err != nil {
			return err
		}
		m.env = append(m.env, "HTTP_ADDR="+addr, "JWT_SECRET="+key, "TENANT_AUTO_CREATE=true")
		client, err := newClient("http://" + addr)
		if err != nil {
			return err
		}
		s.clients = append(s.clients, client)
	case "worker":
		m.env = append(m.env, "SCHEDULER_DRAIN_TIMEOUT_MS=4000")
		if short {
			m.env = append(m.env, "SCHEDULER_HEARTBEAT_MS=400", "SCHEDULER_FENCE_MS=1800", "SCHEDULER_LEASE_TTL_MS=2500")
		}
	}
	s.members = append(s.members, m)
	return nil
}

// everybodyWorks waits until each process that should run has begun to.
func (s *stack) everybodyWorks(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not every process works within %v", limit))
	defer cancel()
	for {
		missing := ""
		for _, m := range s.members {
			if !m.began() {
				missing = m.name
			}
		}
		if missing == "" {
			return nil
		}
		if !rest(ctx, 100*time.Millisecond) {
			return fmt.Errorf("%w: %s", context.Cause(ctx), missing)
		}
	}
}

func (s *stack) redisSocket() string { return strings.TrimPrefix(s.redis.URL, "redis-socket://") }

// flush makes Redis forget everything, past all cutters.
func (s *stack) flush() error {
	conn, err := net.DialTimeout("unix", s.redisSocket(), time.Second)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the answer has come
	if err := conn.SetDeadline(clock.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("FLUSHALL\r\n")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 16))
	return err
}

// crash ends PostgreSQL as a power cut would (it leaves everything to its
// log), and starts it again after a while.
func (s *stack) crash(ctx context.Context, down time.Duration) error {
	s.restarts.Lock()
	defer s.restarts.Unlock()
	pid, err := s.store.postmaster(ctx)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
		return err
	}
	<-s.postgres.Done()
	rest(ctx, down)
	return s.postgres.Restart(context.WithoutCancel(ctx))
}

// close ends everything in the reverse order of its start, and says what did
// not end well.
func (s *stack) close() error {
	var all sync.WaitGroup
	failures := make([]error, len(s.members))
	for i, m := range s.members {
		all.Go(func() { failures[i] = m.close() })
	}
	all.Wait()
	err := errors.Join(failures...)
	if s.sink != nil {
		s.sink.close()
	}
	if s.redis != nil {
		err = errors.Join(err, s.redis.Stop())
	}
	if s.postgres != nil {
		err = errors.Join(err, s.postgres.Stop())
	}
	for _, part := range []string{"bin", "postgres", "redis"} {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.dir, part)))
	}
	if s.dir != "" && !s.keep {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

func newClient(url string) (*api.ClientWithResponses, error) {
	claims := identity.Claims{Subject: "chaos", Tenant: tenantID, Roles: []identity.Role{identity.Admin}}
	token, err := identity.Mint([]byte(key), claims, clock.Now(), 2*time.Hour)
	if err != nil {
		return nil, err
	}
	return api.NewClientWithResponses(url,
		api.WithHTTPClient(&http.Client{Timeout: 4 * time.Second}),
		api.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+token)
			return nil
		}))
}

// tenantID owns all jobs of a run.
var tenantID = uuid.MustParse("c4a05c4a-0000-4000-8000-000000000001") //nolint:gochecknoglobals // a constant

// freeAddr is an address that nobody listened on a moment ago.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a loopback listener does not wait
	if err != nil {
		return "", err
	}
	defer l.Close() //nolint:errcheck // it was only asked for its port
	return l.Addr().String(), nil
}
