package watch_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/monitor"
	"github.com/scheduler-service/scheduler/internal/monitor/intake"
	"github.com/scheduler-service/scheduler/internal/monitor/watch"
	"github.com/scheduler-service/scheduler/internal/notification/derive"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

type bundle struct {
	t       *testing.T
	admin   *pgx.Conn
	engine  *postgres.DB
	leases  *lease.Store
	store   *monitor.Store // as the API has it
	watcher *watch.Watcher
	log     strings.Builder
	who     tenant.Actor
}

func setup(t *testing.T) *bundle {
	t.Helper()
	database := pgtest.New(t)
	open := func(role postgres.Role) *postgres.DB {
		db, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: role, Name: "test", MaxConns: 4, StatementTimeout: pgtest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	metrics := telemetry.NewMetrics(telemetry.NewRegistry())
	b := &bundle{t: t, engine: open(postgres.Engine), store: monitor.NewStore(open(postgres.API)), who: tenant.Actor{TenantID: uuid.New(), Subject: "ada"}}
	b.leases = lease.NewStore(lease.Config{DB: b.engine, Holder: "test", TTL: time.Minute, Metrics: metrics})
	log := slog.New(slog.NewTextHandler(&b.log, nil))
	derives := derive.New(b.engine, metrics, log)
	b.watcher = watch.New(watch.Config{DB: b.engine, Log: log, Tell: derives.TellMonitors})
	var err error
	if b.admin, err = pgx.Connect(t.Context(), database.AdminURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.admin.Close(context.WithoutCancel(t.Context())) })
	b.exec("INSERT INTO tenants (id, name) VALUES ($1, 'a')", b.who.TenantID)
	b.exec(`INSERT INTO notifications (id, tenant_id, name, kind, events, created_by, since)
		VALUES (gen_random_uuid(), $1, 'n', 'email', '{monitor.down,monitor.recovered}', 'x', now() - interval '1 day')`, b.who.TenantID)
	return b
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.admin.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bundle) text(sql string, args ...any) (text string) {
	b.t.Helper()
	if err := b.admin.QueryRow(b.t.Context(), sql, args...).Scan(&text); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return text
}

// desk takes pings until the function that it returns was called.
func (b *bundle) desk() (desk *intake.Desk, stop func()) {
	desk = intake.New(b.engine, "test", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- desk.Run(ctx) }()
	return desk, func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	}
}

func (b *bundle) make(name string, interval time.Duration) monitor.Monitor {
	b.t.Helper()
	made, err := b.store.Create(b.t.Context(), b.who, monitor.Spec{
		Name: name, Tags: []string{"billing"}, Interval: interval, StartGrace: time.Minute, CompletionGrace: time.Minute, FailureThreshold: 1, RecoveryThreshold: 1,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return made
}

func (b *bundle) ping(m monitor.Monitor, signal monitor.Signal) {
	b.t.Helper()
	desk, stop := b.desk()
	defer stop()
	if _, err := desk.Ping(b.t.Context(), m.PingKey, monitor.Ping{Signal: signal, Exit: -1}); err != nil {
		b.t.Fatal(err)
	}
	b.exec("DELETE FROM monitor_gaps") // where the test was slow, the desk began after a silence
	b.touch()
}

// age makes all that monitors know so much older, as if the time had passed with pings being
// taken all along.
func (b *bundle) age(by time.Duration) {
	b.t.Helper()
	seconds := by.Seconds()
	b.exec(`UPDATE monitors SET deadline = deadline - make_interval(secs => $1), expected_at = expected_at - make_interval(secs => $1), running_since = running_since - make_interval(secs => $1)`, seconds)
	for _, field := range []string{"{earliestAt}", "{lastPingAt}", "{lastEndAt}", "{run,startedAt}", "{run,aliveAt}"} {
		b.exec(`UPDATE monitors SET state = jsonb_set(state, $2::text[], to_jsonb(to_char(((state #>> $2::text[])::timestamptz - make_interval(secs => $1)) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))
			WHERE state #>> $2::text[] IS NOT NULL`, seconds, field)
	}
	b.touch()
}

// touch has pings be storable for a while from now: a sign is old after six seconds, which a busy
// machine may take for anything.
func (b *bundle) touch() {
	b.exec("UPDATE monitor_intake SET touched_at = now() + interval '30 seconds'")
}

func (b *bundle) pass() watch.Report {
	b.t.Helper()
	var report watch.Report
	ran, err := b.leases.Run(b.t.Context(), "test", func(ctx context.Context, held lease.Lease) (err error) {
		report, err = b.watcher.Pass(ctx, held)
		return err
	})
	if !ran || err != nil {
		b.t.Fatalf("ran %v: %v", ran, err)
	}
	return report
}

// told is what was told, in order.
func (b *bundle) told() string {
	b.t.Helper()
	return b.text(`SELECT coalesce(string_agg(format('%s %s %s', e->>'monitorName', e->>'type', e->>'reason'), ', ' ORDER BY d.created_at, e->>'at'), '') FROM notification_deliveries d, jsonb_array_elements(d.events) e`)
}

func (b *bundle) outcomes(m monitor.Monitor) string {
	b.t.Helper()
	return b.text(`SELECT coalesce(string_agg(outcome || ':' || reason, ' ' ORDER BY n), '') FROM monitor_runs WHERE monitor_id = $1`, m.ID)
}

// A monitor whose run does not come is told once, and that it recovered, in the transaction
// that changes it or right after.
func TestWhoDoesNotStartIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.make("backup", time.Hour)
	b.age(48 * time.Hour)
	b.pass()
	if told := b.told(); told != "" {
		t.Errorf("before its first ping: %s", told)
	}
	b.ping(m, monitor.Success)
	b.age(time.Hour + 30*time.Second)
	if b.pass(); b.told() != "" {
		t.Errorf("within its grace: %s", b.told())
	}
	b.age(time.Minute)
	if r := b.pass(); r.Seen != 1 || b.told() != "backup monitor.down not_started" {
		t.Errorf("after its grace: %+v %s", r, b.told())
	}
	b.age(time.Hour + 2*time.Minute)
	b.pass()
	b.ping(m, monitor.Success)
	b.pass()
	if told := b.told(); told != "backup monitor.down not_started, backup monitor.recovered not_started" {
		t.Errorf("told %s", told)
	}
	if got := b.outcomes(m); got != "completed: missed:not_started missed:not_started completed:" {
		t.Errorf("runs are %s", got)
	}
}

// A run that does not end is told, and its end still belongs to it.
func TestWhoDoesNotEndIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.make("backup", time.Hour)
	b.ping(m, monitor.Start)
	b.age(90 * time.Second)
	b.pass()
	b.ping(m, monitor.Success)
	b.pass()
	if told := b.told(); told != "backup monitor.down too_slow, backup monitor.recovered too_slow" {
		t.Errorf("told %s", told)
	}
	if got := b.outcomes(m); got != "completed:too_slow" {
		t.Errorf("runs are %s", got)
	}
}

// While pings cannot be stored nobody is late, nor because of that time afterwards; who does
// not come then is.
func TestAnOutageOfOursTellsNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	starts, ends, later := b.make("starts", 10*time.Minute), b.make("ends", time.Hour), b.make("later", time.Hour)
	b.ping(starts, monitor.Success)
	b.ping(ends, monitor.Start)
	b.ping(later, monitor.Success)
	b.age(12 * time.Minute)
	b.exec("UPDATE monitor_intake SET touched_at = now() - interval '690 seconds'")
	if r := b.pass(); !r.Blind || b.told() != "" {
		t.Errorf("during the outage: %+v %s", r, b.told())
	}
	desk, stop := b.desk() // it gives a sign before it takes pings
	if _, err := desk.Ping(t.Context(), "unknown", monitor.Ping{Signal: monitor.Success, Exit: -1}); fault.KindOf(err) != fault.NotFound {
		t.Fatal(err)
	}
	stop()
	b.touch()
	if r := b.pass(); r.Seen != 2 || b.told() != "" {
		t.Errorf("after the outage: %+v %s", r, b.told())
	}
	if got := b.outcomes(starts) + ", " + b.outcomes(ends); got != "completed: unknown:outage, unknown:outage" {
		t.Errorf("runs are %s", got)
	}
	b.age(11*time.Minute + time.Second)
	b.exec("UPDATE monitor_gaps SET from_at = from_at - interval '661 seconds', to_at = to_at - interval '661 seconds'")
	if b.pass(); b.told() != "starts monitor.down not_started" {
		t.Errorf("told %s", b.told())
	}
}

// A monitor that cannot be read is put off, and the others are looked at.
func TestABrokenMonitorIsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var all []monitor.Monitor
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, b.make(name, time.Hour))
		b.ping(all[len(all)-1], monitor.Success)
	}
	b.age(2 * time.Hour)
	b.exec(`UPDATE monitors SET state = '{"runs": "many"}' WHERE name = 'b'`)
	if r := b.pass(); r.Seen != 3 || r.Held != 1 || !strings.Contains(b.told(), "a monitor.down") || !strings.Contains(b.told(), "c monitor.down") {
		t.Errorf("%+v %s", r, b.told())
	}
	if r := b.pass(); r.Seen != 0 {
		t.Errorf("the next pass saw %+v", r)
	}
	desk, stop := b.desk()
	defer stop()
	failed := make(chan error, len(all))
	for _, m := range all {
		go func() {
			_, err := desk.Ping(t.Context(), m.PingKey, monitor.Ping{Signal: monitor.Success, Exit: -1})
			failed <- err
		}()
	}
	n := 0
	for range all {
		if err := <-failed; err != nil {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d pings failed, want that of the broken one", n)
	}
}
