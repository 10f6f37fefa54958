package chaos

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/app"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/devstack"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/proof/broken"
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
	dir     string          // removed at the end
	lock    *os.File        // in it: we live
	keep    bool            // but for the logs, because they are evidence
	lacks   map[need]string // what cannot be had here, and why
	library string          // that PostgreSQL loads; empty: none
	servers *servers
	redis   *devstack.Redis // nil: none takes part
	store   store
	sink    *sink
	members []*member
	clients [][]*api.ClientWithResponses // by tenant, one an API process
	load    *load                        // set when it begins
	backlog int                          // see Config
	readers int
}

// open starts everything. The stack is the caller's to close, also after an
// error.
func open(ctx context.Context, c Config, progress io.Writer) (*stack, error) {
	s := &stack{backlog: c.Backlog, readers: c.Readers}
	var err error
	if s.dir, s.lock, err = newDir(os.TempDir()); err != nil {
		return s, err
	}
	fmt.Fprintln(progress, "building the processes, starting private servers")
	if err := s.build(ctx, c); err != nil {
		return s, err
	}
	if err := s.stores(ctx, c, devstack.Options{Confirm: devstack.Say(progress), Stock: c.Stock}); err != nil {
		return s, err
	}
	first := func(ctx context.Context) error { return s.migrate(ctx, slog.New(slog.DiscardHandler)) }
	if c.Earlier != "" {
		first = s.migrateEarlier
	}
	if err := first(ctx); err != nil {
		return s, err
	}
	if err := s.store.allowCommands(ctx, c.Tenants); err != nil {
		return s, err
	}
	if err := s.servers.follow(ctx); errors.Is(err, devstack.ErrNoBackup) {
		s.lacks[needStandby], s.servers.standby = err.Error(), nil
	} else if err != nil {
		return s, err
	}
	if s.sink, err = newSink(); err != nil {
		return s, err
	}
	return s, s.startProcesses(ctx, c)
}

// stores starts the servers, as asked but for what each one has to be.
func (s *stack) stores(ctx context.Context, c Config, asked devstack.Options) (err error) {
	has := func(n need) bool { return s.lacks[n] == "" }
	if s.servers, err = newServers(ctx, s.dir, s.library, has(needStandby), has(needDisk)); err != nil {
		return err
	}
	if err := s.servers.start(ctx, asked); err != nil {
		return err
	}
	s.store = store{url: s.servers.url(database, "postgres")}
	if c.Backend == "postgres" {
		return nil
	}
	// Redis is a throwaway: whenever it dies, everything in it is lost.
	asked.Dir = filepath.Join(s.dir, "redis")
	if s.redis, err = devstack.StartRedis(ctx, asked); err != nil {
		return err
	}
	if s.redis.Kind == devstack.KindMiniredis {
		return errors.New("no redis-server is installed, and a stand-in cannot be broken like one")
	}
	return nil
}

// build makes the processes, and what it takes to break them. Parts that this
// machine lacks for that is noted.
func (s *stack) build(ctx context.Context, c Config) error {
	s.lacks = c.lacks()
	args := []string{"build", "-buildvcs=false", "-o", filepath.Join(s.dir, "bin") + string(filepath.Separator)}
	if s.lacks[needSkew] == "" {
		list, err := overlay(ctx, s.dir)
		if err != nil {
			s.lacks[needSkew] = err.Error()
		} else {
			args = append(args, "-overlay", list)
		}
	}
	if s.lacks[needLibrary] == "" {
		var err error
		if s.library, err = broken.Compile(ctx, s.dir); err != nil {
			s.lacks[needLibrary] = err.Error()
		}
	}
	args = append(args, module+"/cmd/promoter", module+"/cmd/chaos")
	if err := run(ctx, "go", args...); err != nil || c.Earlier == "" {
		return err
	}
	return s.buildEarlier(ctx, c.Earlier)
}

// migrate applies today's migrations, and tells the log what waits for what.
func (s *stack) migrate(ctx context.Context, log *slog.Logger) error {
	if err := postgres.EnsureDatabase(ctx, s.servers.url("postgres", "postgres"), database, schemaOwner); err != nil {
		return err
	}
	variables := map[string]string{
		"DATABASE_OWNER_URL": s.servers.url(database, schemaOwner), "DATABASE_URL": s.servers.url(database, login),
	}
	c, err := config.Load[config.Migrate](func(name string) (string, bool) { v, ok := variables[name]; return v, ok })
	if err != nil {
		return err
	}
	return app.Migrate(ctx, c, log)
}

// startProcesses makes the processes, each with its own ways to the stores, and waits
// until all work.
func (s *stack) startProcesses(ctx context.Context, c Config) error {
	s.clients = make([][]*api.ClientWithResponses, c.Tenants)
	for _, role := range []string{"api", "promoter", "worker"} {
		count := map[string]int{"api": c.APIs, "promoter": c.Promoters, "worker": c.Workers}[role]
		for n := range count {
			m, err := s.newMember(role, n+1)
			if c.Earlier != "" {
				m.program = []string{s.earlier(role)}
			}
			if err == nil {
				err = s.configure(m, c)
			}
			if err != nil {
				return err
			}
		}
	}
	for _, m := range s.members {
		if err := m.start(ctx); err != nil {
			return err
		}
	}
	return s.waitForReady(ctx, 2*time.Minute)
}

// program is how a process of this tree is started. The API and the workers are
// the harness's own program, which knows one module of functions more.
func (s *stack) program(role string) []string {
	if role == "promoter" {
		return []string{filepath.Join(s.dir, "bin", role)}
	}
	return []string{filepath.Join(s.dir, "bin", "chaos"), role}
}

// newMember makes a process with its ways to the stores.
func (s *stack) newMember(role string, n int) (*member, error) {
	m := &member{role: role, name: role + "-" + strconv.Itoa(n), program: s.program(role), logs: s.dir}
	s.members = append(s.members, m)
	var err error
	if m.db, err = newCutter(filepath.Join(s.servers.link, socketName)); err == nil && s.redis != nil {
		m.redis, err = newCutter(s.redisSocket())
	}
	if err == nil && s.lacks[needSkew] == "" {
		m.orders, err = broken.NewOrders(filepath.Join(s.dir, m.name+".orders"))
	}
	return m, err
}

// configure gives a process its configuration.
func (s *stack) configure(m *member, c Config) error {
	addr, err := devstack.FreeAddr()
	if err != nil {
		return err
	}
	m.env = []string{
		"DATABASE_URL=postgres://" + login + "@" + m.db.addr + "/" + database + "?sslmode=disable", "QUEUE_BACKEND=" + c.Backend,
		"METRICS_ENABLED=" + strconv.FormatBool(m.role == "promoter"), "EGRESS_ALLOW=127.0.0.0/8",
		"TENANT_MAX_RUNNING=" + strconv.Itoa(tenantRuns), "PUBLIC_URL=" + publicURL, "SECRETS_KEYS=" + secretsKeys(), "COMMAND_JOBS=unsafe", "COMMAND_NETWORK=true", "RUNNER_CACHE_DIR=" + filepath.Join(s.dir, "compiled"), "PATH=/usr/bin:/bin", "HOME=" + s.dir,
	}
	if m.redis != nil {
		m.env = append(m.env, "REDIS_URL=redis://"+m.redis.addr)
	}
	switch m.role {
	case "api":
		m.env = append(m.env, "HTTP_ADDR="+addr, "JWT_SECRET="+key, "TENANT_AUTO_CREATE=true", "SHUTDOWN_NOTICE_MS=0")
		s.sink.apis = append(s.sink.apis, "http://"+addr)
		for tenant := range c.Tenants {
			client, err := newClient("http://"+addr, tenantID(tenant))
			if err != nil {
				return err
			}
			s.clients[tenant] = append(s.clients[tenant], client)
		}
	case "promoter":
		_, port, _ := net.SplitHostPort(addr)
		m.env, m.metrics = append(m.env, "PROMETHEUS_PORT="+port), "http://"+addr+"/metrics"
	case "worker":
		m.env = append(m.env, "SCHEDULER_DRAIN_TIMEOUT_MS=4000", "SCHEDULER_MAX_CONCURRENT_JOBS="+strconv.Itoa(c.Slots))
		if c.Short {
			m.env = append(m.env, "SCHEDULER_HEARTBEAT_MS=400", "SCHEDULER_FENCE_MS=1800", "SCHEDULER_LEASE_TTL_MS=2500")
		}
	}
	return nil
}

// waitForReady waits until each process that should run has begun to.
func (s *stack) waitForReady(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not every process works within %v", limit))
	defer cancel()
	for {
		var missing *member
		for _, m := range s.members {
			if !m.began() {
				missing = m
			}
		}
		if missing == nil {
			return nil
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("%w: %s, which says at last: %s", context.Cause(ctx), missing.name, missing.lastWords())
		}
	}
}

func (s *stack) redisSocket() string { return strings.TrimPrefix(s.redis.URL, "redis-socket://") }

// redisCommand gives Redis an order, past all cutters.
func (s *stack) redisCommand(order ...string) error {
	conn, err := net.DialTimeout("unix", s.redisSocket(), time.Second)
	if err != nil {
		return err
	}
	defer conn.Close() // the answer has come
	if err := conn.SetDeadline(clock.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	text := fmt.Sprintf("*%d\r\n", len(order))
	for _, word := range order {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := conn.Write([]byte(text)); err != nil {
		return err
	}
	answer := make([]byte, 200)
	n, err := conn.Read(answer)
	if err == nil && answer[0] == '-' {
		err = fmt.Errorf("redis: %s", answer[:n])
	}
	return err
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
	if s.servers != nil {
		err = errors.Join(err, s.servers.close())
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	for _, part := range []string{lockName, "bin", "redis", "broken.c", "broken.so", "earlier", "compiled", "time.go", "wrong.go", "overlay.json"} {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.dir, part)))
	}
	if s.dir != "" && !s.keep {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// newClient speaks for a tenant. Its token is valid for APIs with wrong
// clocks, too.
func newClient(url string, tenant uuid.UUID) (*api.ClientWithResponses, error) {
	claims := identity.Claims{Subject: "chaos", Tenant: tenant, Roles: []identity.Role{identity.Admin}}
	token, err := identity.Mint([]byte(key), claims, clock.Now().Add(-15*time.Minute), 3*time.Hour)
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

// tenantID is who owns the jobs of a tenant, counted from 0.
func tenantID(n int) uuid.UUID {
	id := uuid.MustParse("c4a05c4a-0000-4000-8000-000000000000")
	binary.BigEndian.PutUint16(id[14:], uint16(n+1)) // there are a few
	return id
}
