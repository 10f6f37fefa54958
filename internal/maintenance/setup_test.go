package maintenance_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/maintenance"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/promoter"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// hints takes down what a promoter sends.
type hints struct {
	mu   sync.Mutex
	sent map[queue.Lane][]uuid.UUID
	err  error
	lost bool
}

func (h *hints) Publish(_ context.Context, lane queue.Lane, ids []uuid.UUID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	if h.sent == nil {
		h.sent = map[queue.Lane][]uuid.UUID{}
	}
	h.sent[lane] = append(h.sent[lane], ids...)
	return nil
}

func (h *hints) PublishTogether(ctx context.Context, lane queue.Lane, ids []uuid.UUID) error {
	return h.Publish(ctx, lane, ids)
}

func (h *hints) LostContents(context.Context) (bool, error) { return h.lost, h.err }

func (h *hints) Depth(context.Context) (map[queue.Lane]int, error) { return nil, h.err }

// take answers what was sent since the last call.
func (h *hints) take() map[queue.Lane][]uuid.UUID {
	h.mu.Lock()
	defer h.mu.Unlock()
	sent := h.sent
	h.sent = nil
	return sent
}

type bundle struct {
	database   *pgtest.Database
	jobs       *job.Store
	executions *execution.Store
	who        tenant.Actor
	engine     *postgres.DB
	hints      *hints
	promoter   *promoter.Promoter
	maintainer *maintenance.Maintainer
	called     int // how often it called workers
}

func open(t *testing.T, url string, role postgres.Role) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: url, Role: role, Name: "test", MaxConns: 4, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// anotherMaintainer is one that uses another pool or other hints too.
func (b *bundle) anotherMaintainer(edit func(*maintenance.Config)) *maintenance.Maintainer {
	c := maintenance.Config{
		DB: b.engine, Hints: b.hints, Metrics: telemetry.NewMetrics(telemetry.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	}
	if edit != nil {
		edit(&c)
	}
	return maintenance.New(c)
}

func (b *bundle) anotherPromoter() *promoter.Promoter {
	return promoter.New(promoter.Config{
		DB: b.engine, Hints: b.hints, Metrics: telemetry.NewMetrics(telemetry.NewRegistry()), Log: slog.New(slog.DiscardHandler), CatchupPerSecond: func() int { return 100 },
	})
}

func setup(t *testing.T) *bundle {
	t.Helper()
	database := pgtest.New(t)
	api := open(t, database.URL, postgres.API)
	b := &bundle{
		database: database, jobs: job.NewStore(api, job.Config{}), executions: execution.NewStore(api, execution.Config{}),
		who: tenant.Actor{TenantID: uuid.New(), Subject: "ada"}, engine: open(t, database.URL, postgres.Engine), hints: &hints{},
	}
	if err := tenant.NewStore(api, true).Admit(t.Context(), b.who.TenantID); err != nil {
		t.Fatal(err)
	}
	b.promoter, b.maintainer = b.anotherPromoter(), b.anotherMaintainer(func(c *maintenance.Config) { c.CallWorkers = func(context.Context) { b.called++ } })
	return b
}

// create makes a no-op job that is due every second, changed by edit.
func (b *bundle) create(t *testing.T, edit func(*job.Spec)) job.Job {
	t.Helper()
	spec := job.Spec{
		Name: "every second", Type: "function", Retry: job.DefaultRetry(),
		Config: []byte(`{"modulePath":"builtin","functionName":"noop"}`),
		Policy: job.Policy{CronExpression: "* * * * * *", Overlap: job.OverlapAllow},
	}
	if edit != nil {
		edit(&spec)
	}
	j, _, err := b.jobs.Create(t.Context(), b.who, spec.WithDefaults(), idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// pass promotes at now.
func (b *bundle) pass(t *testing.T, now time.Time) promoter.Report {
	t.Helper()
	report, err := b.promoter.Pass(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// rows are a job's executions, oldest first.
func (b *bundle) rows(t *testing.T, j job.Job) []execution.Execution {
	t.Helper()
	list, _, err := b.executions.List(t.Context(), b.who, execution.Filter{JobID: &j.ID, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(list)
	return list
}

func exec(t *testing.T, url, sql string) {
	t.Helper()
	pgtest.Exec(t, url, sql)
}

// claimBy makes a waiting execution running on a worker whose lease ends at a
// time, as the worker's claim would.
func (b *bundle) claimBy(t *testing.T, id string, leaseEnds, deadline time.Time) {
	t.Helper()
	exec(t, b.database.AdminURL, fmt.Sprintf(`WITH w AS (
			INSERT INTO workers (id, host, pid, slots, expires_at) VALUES (gen_random_uuid(), 'test', 1, 1, '%s') RETURNING id)
		UPDATE active_executions SET status = 'running', attempt = attempt + 1, worker_id = w.id, lease_token = gen_random_uuid(), deadline_at = '%s',
			pooled = false, sweep_at = least(sweep_at, available_at + interval '5 seconds')
		FROM w WHERE active_executions.id = '%s'`, leaseEnds.Format(time.RFC3339Nano), deadline.Format(time.RFC3339Nano), id))
}

func (b *bundle) sweep(t *testing.T, now time.Time) maintenance.SweepReport {
	t.Helper()
	report, err := b.maintainer.Sweep(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func (b *bundle) tenants(t *testing.T) *tenant.Store {
	t.Helper()
	return tenant.NewStore(open(t, b.database.URL, postgres.API), false)
}

func (b *bundle) number(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	if err := b.engine.Pool().QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// backdate makes the tenant's last change one of a while ago.
func (b *bundle) backdate(t *testing.T, ago time.Duration) {
	t.Helper()
	tx, err := open(t, b.database.URL, postgres.API).Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		fmt.Sprintf("SET LOCAL app.tenant_id = '%s'", b.who.TenantID),
		fmt.Sprintf("UPDATE tenants SET updated_at = now() - interval '%d seconds' WHERE id = '%s'", int(ago.Seconds()), b.who.TenantID),
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) countedEngine(t *testing.T) (engine *postgres.DB, taken func() []string) {
	t.Helper()
	var mu sync.Mutex
	var trips []string
	engine, err := postgres.Open(t.Context(), postgres.Config{
		URL: b.database.URL, Role: postgres.Engine, Name: "test", MaxConns: 2, StatementTimeout: pgtest.Patience,
		RoundTrip: func(statement string) {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Contains([]string{"prepare", "ListDailyBounds", "ListFullBacklogs"}, statement) {
				trips = append(trips, statement)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	return engine, func() []string {
		mu.Lock()
		defer mu.Unlock()
		taken := trips
		trips = nil
		return taken
	}
}
