package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func TestLimitsHoldForP99AndEveryResponse(t *testing.T) {
	t.Parallel()
	of := func(n int, d time.Duration) []time.Duration { return slices.Repeat([]time.Duration{d}, n) }
	for _, test := range []struct {
		name string
		got  outcome
		held bool
	}{
		{"all in time", outcome{starts: of(50, maxStartLag), reads: of(250, maxReadLatency)}, true},
		{"one read of a hundred too late", outcome{starts: of(50, 0), reads: append(of(99, 0), time.Second)}, true},
		{"two reads of a hundred too late", outcome{starts: of(50, 0), reads: append(of(98, 0), time.Second, time.Second)}, false},
		{"one start of fifty too late", outcome{starts: append(of(49, 0), 2*time.Second), reads: of(250, 0)}, false},
		{"one not answered", outcome{starts: of(50, 0), reads: of(250, 0), failed: []string{"GET /jobs: 503"}}, false},
	} {
		if test.got.withinLimits() != test.held {
			t.Errorf("%s: held is %t", test.name, test.got.withinLimits())
		}
	}
	line := outcome{starts: of(2, time.Second), reads: of(3, time.Millisecond), failed: []string{"a|b"}, notes: []string{"c"}}.line("x")
	if want := "| x | 2 | 1000 / 1000 / 1000 | 3 | 1 / 1 / 1 | 1 | **no** | a/b; c |  |"; line != want {
		t.Errorf("got  %s\nwant %s", line, want)
	}
}

// SQL of our own makes an adversary's rows. It has to fit the schema as
// it is now, and what is read back has to be what was made.
func TestSetUpIsStoredAsTheProductStoresIt(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	api, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: postgres.API, Name: "test", MaxConns: 2, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	s, err := newSetup(t.Context(), database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close(t.Context()) })
	who := tenant.Actor{TenantID: uuid.New(), Subject: "test"}
	if err := tenant.NewStore(api, true).Admit(t.Context(), who.TenantID); err != nil {
		t.Fatal(err)
	}
	made, _, err := job.NewStore(api, job.Config{}).Create(t.Context(), who, job.Spec{
		Name: "one", Type: "function", Retry: job.DefaultRetry(), Config: []byte(`{"modulePath":"builtin","functionName":"noop"}`),
		Policy: job.Policy{CronExpression: "* * * * * *"},
	}.WithDefaults(), idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := openStore(t.Context(), database.URL, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(waiting.db.Close)
	now := clock.Now()
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"copies", func() error { return s.copies(t.Context(), made.ID, 9) }},
		{"overdue", func() error { return s.overdue(t.Context(), who.TenantID, "one", time.Minute, "paused") }},
		{"dueAt", func() error { return s.dueAt(t.Context(), who.TenantID, "one", now) }},
		{"lostRuns", func() error { return s.lostRuns(t.Context(), made.ID, 3) }},
		{"waiting", func() error { return s.waiting(t.Context(), made.ID, 5, "key") }},
		{"history", func() error { return s.history(t.Context(), made.ID, 20) }},
		{"versions", func() error { return s.versions(t.Context(), made.ID, 4, 1000) }},
		{"expiredKeys", func() error { return s.expiredKeys(t.Context(), who.TenantID, 6) }},
		{"refuse", func() error { return s.refuse(t.Context(), "job_executions", "INSERT", made.ID, "23514") }},
		{"insertBacklog", func() error { return waiting.insertBacklog(t.Context(), backlog{jobs: []uuid.UUID{made.ID}, size: 7}) }},
		{"insertBacklog with keys", func() error {
			return waiting.insertBacklog(t.Context(), backlog{jobs: []uuid.UUID{made.ID}, size: 2, keyed: true})
		}},
		{"settle", func() error { return s.settle(t.Context()) }},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
	}
	for sql, want := range map[string]int{
		"SELECT count(*) FROM scheduled_jobs WHERE status = 'paused'":                                     10,
		"SELECT sum(jobs) FROM job_counts":                                                                10,
		"SELECT count(*) FROM scheduled_jobs j JOIN job_versions v ON v.job_id = j.id":                    13,
		"SELECT count(DISTINCT octet_length(spec::text) > 1000) FROM job_versions":                        2,
		"SELECT count(*) FROM active_executions WHERE status = 'running' AND lost_count = 3":              3,
		"SELECT running FROM running_totals WHERE running > 0":                                            3,
		"SELECT count(*) FROM active_executions WHERE concurrency_key = 'key' AND NOT pooled":             5,
		"SELECT count(*) FROM job_executions h JOIN scheduled_jobs j ON j.id = h.job_id":                  20,
		"SELECT count(*) FROM active_executions WHERE pooled":                                             7,
		"SELECT count(DISTINCT concurrency_key) FROM active_executions WHERE concurrency_key <> 'key'":    2,
		"SELECT count(*) FROM idempotency_keys WHERE expires_at < now()":                                  6,
		"SELECT count(*) FROM pg_trigger WHERE tgrelid = 'job_executions'::regclass AND tgname LIKE 'r%'": 1,
	} {
		if got, err := s.count(t.Context(), sql); err != nil || got != want {
			t.Errorf("%s: %d, want %d; %v", sql, got, want, err)
		}
	}
	rows, err := s.conn.Query(t.Context(), "SELECT id, scheduled_at FROM executions WHERE trigger_type <> 'scheduled' OR status = 'completed'")
	if err != nil {
		t.Fatal(err)
	}
	var id uuid.UUID
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		if got, want := execution.ScheduledTimeOf(id), at.UTC().Truncate(time.Millisecond); !got.Equal(want) {
			t.Errorf("the API looks for the execution %s at %v, and it is of %v", id, got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	late, err := s.startsOf(t.Context(), made.ID, now.Add(-3*time.Second).Truncate(time.Second), now.Truncate(time.Second))
	if err != nil || len(late) != 3 || slices.Min(late) <= 0 {
		t.Errorf("starts of a job that did not: %v, %v", late, err)
	}
}

func TestAdversariesAreKnownByTheirNames(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	if _, err := Parse([]string{"-bounded", "-against", "storm,nobody"}, &said); err != nil {
		t.Error(err)
	}
	if _, err := Parse([]string{"-bounded", "-against", "angel"}, &said); err == nil || !strings.Contains(said.String(), `no adversary "angel"`) {
		t.Errorf("an adversary that is none: %v, %s", err, said.String())
	}
}
