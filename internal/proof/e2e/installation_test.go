package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/devstack"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/queue/redistest"
)

// limit is how long a test waits for something that must happen. Anything that must
// happen sooner is asserted on the times that the database recorded.
const limit = 2 * time.Minute

// key signs the tokens of the tests.
const key = "e2e-0f3b1c9a7d5e2468-f00dfeed-bead"

// programs are the processes' binaries, built once.
var programs struct { // built once for the package
	once sync.Once
	dir  string
	err  error
}

func program(t *testing.T, name string) string {
	t.Helper()
	programs.once.Do(func() {
		if programs.dir, programs.err = os.MkdirTemp("", "e2e"); programs.err != nil {
			return
		}
		build := exec.Command("go", "build", "-buildvcs=false", "-o", programs.dir+string(filepath.Separator),
			"./cmd/api", "./cmd/migrate", "./cmd/promoter", "./cmd/schedctl", "./cmd/standalone", "./cmd/worker",
			"./cmd/exampleremote", "./cmd/exampleworker")
		build.Dir = filepath.Join("..", "..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			programs.err = fmt.Errorf("build the programs: %w\n%s", err, out)
		}
	})
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	return filepath.Join(programs.dir, name)
}

// installation is a running installation: its stores, and its processes by name.
type installation struct {
	t        *testing.T
	database *pgtest.Database
	redis    *redistest.Server // nil where the backend is postgres
	backend  string            // QUEUE_BACKEND of every process
	url      string            // of the API
	tenant   uuid.UUID
	client   *api.ClientWithResponses
	env      []string          // of every process
	logins   map[string]string // DATABASE_URL of those processes that have another
	started  []*process        // in order
}

// The values of QUEUE_BACKEND.
const (
	hinted = "redis"
	polled = "postgres"
	auto   = "auto"
)

// start brings up migrate, then an API, a promoter and the workers.
func start(t *testing.T, backend string, workers int) *installation {
	t.Helper()
	s := stores(t, backend)
	s.up(workers)
	return s
}

// stores starts what an installation keeps things in.
func stores(t *testing.T, backend string) *installation {
	t.Helper()
	s := &installation{t: t, database: pgtest.Empty(t), backend: backend, tenant: uuid.New()}
	if backend != polled {
		s.redis = redistest.New(t)
	}
	return s
}

// up starts the processes on the stores.
func (s *installation) up(workers int) {
	s.t.Helper()
	s.migrate()
	s.serve(workers)
}

func (s *installation) migrate() {
	s.t.Helper()
	s.process("migrate", "DATABASE_OWNER_URL="+s.database.OwnerURL).wait()
}

// serve starts the processes on a schema that is there.
func (s *installation) serve(workers int) {
	s.t.Helper()
	addr := freeAddr(s.t)
	s.url = "http://" + addr
	s.process("api", "HTTP_ADDR="+addr, "JWT_SECRET="+key, "TENANT_AUTO_CREATE=true", "EGRESS_ALLOW=127.0.0.0/8", "PUBLIC_URL="+s.url)
	s.process("promoter")
	for range workers {
		s.worker()
	}
	s.client = s.clientOf(s.tenant, identity.Admin)
	s.eventually("the API is ready", func() bool {
		answer, err := http.Get(s.url + "/health/ready")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}

func (s *installation) worker(env ...string) *process {
	return s.process("worker", lasting(append([]string{"EGRESS_ALLOW=127.0.0.0/8", "SCHEDULER_DRAIN_TIMEOUT_MS=2000", "PUBLIC_URL=" + s.url}, env...)...)...)
}

// lasting has a worker keep its lease while a busy machine stands still for a while. Without it all
// that runs at that time would run again.
func lasting(env ...string) []string {
	return append([]string{"SCHEDULER_FENCE_MS=50000", "SCHEDULER_LEASE_TTL_MS=60000"}, env...)
}

// patient asks again where the API could not answer. On a busy machine its database may stand still
// for longer than the 5 s that a statement has.
type patient struct{}

// Do sends a request. Only one that changes nothing is sent again.
func (patient) Do(r *http.Request) (*http.Response, error) {
	for began := clock.Start(); ; {
		answer, err := http.DefaultClient.Do(r)
		if err != nil || answer.StatusCode != http.StatusServiceUnavailable || r.Method != http.MethodGet || began.Elapsed() > limit {
			return answer, err
		}
		_ = answer.Body.Close()
		select {
		case <-time.After(25 * time.Millisecond):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// clientOf is the generated client with a token.
func (s *installation) clientOf(tenant uuid.UUID, role identity.Role) *api.ClientWithResponses {
	s.t.Helper()
	token, err := identity.Mint([]byte(key), identity.Claims{Subject: "ada", Tenant: tenant, Roles: []identity.Role{role}}, clock.Now(), time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	client, err := api.NewClientWithResponses(s.url, api.WithHTTPClient(patient{}), api.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

// eventually waits for what processes bring about.
func (s *installation) eventually(what string, holds func() bool) {
	s.t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// process is one started program. It ends with its test.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	log  *lockedBuffer
	done chan struct{}
	err  error
}

// process starts a program; words after its name are its arguments.
func (s *installation) process(name string, env ...string) *process {
	s.t.Helper()
	words := strings.Fields(name)
	p := &process{t: s.t, name: name, cmd: exec.Command(program(s.t, words[0]), words[1:]...), log: &lockedBuffer{}, done: make(chan struct{})}
	s.started = append(s.started, p)
	p.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.t.TempDir(), "METRICS_ENABLED=false", "SHUTDOWN_NOTICE_MS=0",
		"DATABASE_URL=" + s.database.URL, "QUEUE_BACKEND=" + s.backend,
	}, env...)
	if s.redis != nil {
		p.cmd.Env = append(p.cmd.Env, "REDIS_URL="+s.redis.URL)
	}
	p.cmd.Env = append(p.cmd.Env, s.env...)
	if login, ok := s.logins[words[0]]; ok {
		p.cmd.Env = append(p.cmd.Env, "DATABASE_URL="+login)
	}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		s.t.Fatalf("start %s: %v", name, err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	s.t.Cleanup(p.stop)
	return p
}

// wait waits for a program that ends by itself.
func (p *process) wait() {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Fatalf("%s does not end", p.name)
	}
	if p.err != nil {
		p.t.Fatalf("%s: %v\n%s", p.name, p.err, p.log)
	}
}

// kill ends the process as a power cut would.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("kill %s: %v", p.name, err)
	}
	<-p.done
}

// stop ends the process as an operator would, and shows its log if the test
// failed.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Errorf("%s ignores SIGTERM", p.name)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	if p.t.Failed() {
		p.t.Logf("log of %s (%d):\n%s", p.name, p.cmd.Process.Pid, p.log)
	}
}

// lockedBuffer takes a process's output while a test may read it.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// freeAddr is an address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := devstack.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func command(ctx context.Context, path string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = env
	return cmd
}

// now is the database's clock, by which the rows are stamped.
func (s *installation) now() time.Time { return s.timeOf("SELECT now()") }

// timeOf asks the database itself, past the API and row-level security.
func (s *installation) timeOf(sql string, args ...any) (at time.Time) {
	s.t.Helper()
	s.query(&at, sql, args...)
	return at
}

func (s *installation) query(into any, sql string, args ...any) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.database.AdminURL)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(s.t.Context())
	if err := conn.QueryRow(s.t.Context(), sql, args...).Scan(into); err != nil {
		s.t.Fatal(err)
	}
}
