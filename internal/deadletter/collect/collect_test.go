package collect_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/deadletter/collect"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// bundle is a collector on a database with two tenants, which has read everything up to ten
// minutes ago and lets a tenant have three dead letters.
type bundle struct {
	t         *testing.T
	admin     *pgx.Conn
	leases    *lease.Store
	collector *collect.Collector
	a, b, job uuid.UUID
}

func setup(t *testing.T) *bundle {
	t.Helper()
	database := pgtest.New(t)
	engine, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: postgres.Engine, Name: "test", MaxConns: 4, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	metrics := telemetry.NewMetrics(telemetry.NewRegistry())
	b := &bundle{
		t: t, collector: collect.New(engine, metrics, 3), a: uuid.New(), b: uuid.New(), job: uuid.New(),
		leases: lease.NewStore(lease.Config{DB: engine, Holder: "test", TTL: time.Minute, Metrics: metrics}),
	}
	if b.admin, err = pgx.Connect(t.Context(), database.AdminURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.admin.Close(context.WithoutCancel(t.Context())) })
	b.exec("INSERT INTO tenants (id, name) VALUES ($1, 'a'), ($2, 'b')", b.a, b.b)
	b.exec("SELECT create_job_executions_partition(now() - interval '6 hours'), create_job_executions_partition(now())")
	b.exec("UPDATE dead_letter_cursor SET read_to = now() - interval '10 minutes'")
	b.exec(`INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds)
		VALUES ($1, $2, 'x', 'x', 'http', '{}', 1, 1)`, b.job, b.a)
	return b
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.admin.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// ended records an execution that ended so long ago.
func (b *bundle) ended(tenant uuid.UUID, status, message string, ago time.Duration) uuid.UUID {
	b.t.Helper()
	id := uuid.New()
	b.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, error_type, error_message, attempt, completed_at, created_at)
		VALUES ($1, now() - $6::interval, $2, $3, 1, 'scheduled', 'http', $4, 'TIMEOUT', $5, 1, now() - $6::interval, now())`, id, tenant, b.job, status, message, ago)
	return id
}

func (b *bundle) pass() (made int) {
	b.t.Helper()
	pgtest.Quiet(b.t, b.admin)
	ran, err := b.leases.Run(b.t.Context(), "collect-dead-letters", func(ctx context.Context, held lease.Lease) (err error) {
		made, _, err = b.collector.Pass(ctx, held)
		return err
	})
	if !ran || err != nil {
		b.t.Fatalf("ran %v: %v", ran, err)
	}
	return made
}

// letters are the dead letters of a tenant, oldest first.
func (b *bundle) letters(tenant uuid.UUID) []uuid.UUID {
	b.t.Helper()
	rows, err := b.admin.Query(b.t.Context(), "SELECT execution_id FROM dead_letters WHERE tenant_id = $1 ORDER BY failed_at, execution_id", tenant)
	if err != nil {
		b.t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		b.t.Fatal(err)
	}
	return ids
}

func (b *bundle) value(sql string) (v string) {
	b.t.Helper()
	if err := b.admin.QueryRow(b.t.Context(), sql).Scan(&v); err != nil {
		b.t.Fatal(err)
	}
	return v
}

// Executions that failed for good, and no others, are dead letters once, however often the pass runs.
func TestFailuresBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, other := b.ended(b.a, "failed", "no order 1", 9*time.Minute), b.ended(b.b, "failed", "no order 2", 8*time.Minute)
	for _, status := range []string{"completed", "cancelled", "skipped", "missed"} {
		b.ended(b.a, status, "", 7*time.Minute)
	}
	retried := b.ended(b.a, "failed", "x", 6*time.Minute)
	b.exec("INSERT INTO execution_retries (execution_id, tenant_id, job_id, retry_of, created_at) VALUES (gen_random_uuid(), $1, $2, $3, now() - interval '5 minutes')", b.a, b.job, retried)
	b.ended(b.a, "failed", "x", time.Hour)            // before the cursor
	late := b.ended(b.a, "failed", "x", -time.Minute) // so new that others may still commit before it
	if made := b.pass(); made != 2 {
		t.Errorf("made %d, want 2", made)
	}
	b.exec("UPDATE dead_letter_cursor SET read_to = now() - interval '10 minutes'")
	if made := b.pass(); made != 0 {
		t.Errorf("the same failures made %d", made)
	}
	if diff := cmp.Diff([][]uuid.UUID{{one}, {other}}, [][]uuid.UUID{b.letters(b.a), b.letters(b.b)}); diff != "" {
		t.Errorf("the dead letters (-want +got):\n%s", diff)
	}
	if n := b.value("SELECT count(DISTINCT fingerprint)::text FROM dead_letters"); n != "1" {
		t.Errorf("two messages that differ in a number have %s fingerprints", n)
	}
	// Others may still commit what failed just before the last one: it waits for the next pass.
	b.exec("UPDATE job_executions SET completed_at = now() - interval '1 minute' WHERE id = $1", late)
	b.exec("UPDATE dead_letter_cursor SET read_to = now() - interval '2 minutes'")
	if made := b.pass(); made != 1 {
		t.Errorf("later made %d, want 1", made)
	}
}

// A retry that was committed while the pass read its execution leaves no dead letter.
func TestARetryThatCrossedThePassWins(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.ended(b.a, "failed", "x", 9*time.Minute)
	b.pass()
	b.exec("INSERT INTO execution_retries (execution_id, tenant_id, job_id, retry_of, created_at) VALUES (gen_random_uuid(), $1, $2, $3, now())", b.a, b.job, id)
	if _, _, err := b.collector.Count(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := b.letters(b.a); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// A tenant that is being deleted gets no dead letters: its rows may have been purged.
func TestADeletedTenantGetsNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ended(b.a, "failed", "x", 9*time.Minute)
	b.exec("UPDATE tenants SET status = 'deleting' WHERE id = $1", b.a)
	if made := b.pass(); made != 0 {
		t.Errorf("made %d", made)
	}
}

// Many are made in pieces; those that share a time are not torn apart.
func TestManyFailuresAreReadInPieces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, attempt, completed_at, created_at)
		SELECT gen_random_uuid(), now() - interval '9 minutes', $1, $2, 1, 'scheduled', 'http', 'failed', 1, now() - interval '9 minutes' + (i / 100) * interval '1 second', now()
		FROM generate_series(1, 12000) i`, b.b, b.job)
	if made := b.pass(); made != 12_000 {
		t.Errorf("made %d, want 12000", made)
	}
}

// A collector that lost its lease makes none.
func TestALateCollectorMakesNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ended(b.a, "failed", "x", 5*time.Minute)
	late, err := b.leases.Acquire(t.Context(), "collect-dead-letters")
	if err != nil {
		t.Fatal(err)
	}
	b.exec("UPDATE scheduler_locks SET expires_at = now()")
	if _, _, err := b.collector.Pass(t.Context(), late); err == nil {
		t.Error("it was not told")
	}
	if left := b.letters(b.a); len(left) > 0 {
		t.Errorf("it made %v", left)
	}
}

// Of a tenant that has too many the oldest are dropped, and nobody else's.
func TestATenantsDeadLettersAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []uuid.UUID
	for n := range 5 {
		ids = append(ids, b.ended(b.a, "failed", "x", time.Duration(9-n)*time.Minute))
	}
	theirs := b.ended(b.b, "failed", "x", 9*time.Minute)
	b.pass()
	dropped, more, err := b.collector.Count(t.Context())
	if dropped != 2 || more || err != nil {
		t.Errorf("dropped %d, more %v: %v", dropped, more, err)
	}
	if diff := cmp.Diff([][]uuid.UUID{ids[2:], {theirs}}, [][]uuid.UUID{b.letters(b.a), b.letters(b.b)}); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if n := b.value("SELECT value::text FROM service_gauges WHERE name = 'dead_letters'"); n != "6" {
		t.Errorf("%s were counted, want 6", n)
	}
}
