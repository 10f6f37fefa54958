package forecast

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// at is a time of the days around which Berlin's clock is changed.
func at(day, hour, minute int) time.Time {
	return time.Date(2026, 3, day, hour, minute, 0, 0, time.UTC)
}

func never() bool { return false }

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	found, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The counts are those of the times of each schedule, one after the other, in every
// unit, also where the clock is changed, with jitter, with few and with many runs.
func TestTheCountsAreTheTimesOfTheSchedules(t *testing.T) {
	t.Parallel()
	holiday := uuid.New()
	calendars := map[uuid.UUID]schedule.Calendar{holiday: {Zone: "Europe/Berlin", Days: []schedule.DateRange{{Start: time.Date(2026, 3, 30, 0, 0, 0, 0, time.UTC)}}}}
	berlin := zone(t, "Europe/Berlin")
	for _, q := range []Query{
		{From: at(28, 10, 17), To: at(28, 11, 17), Unit: Minute, Zone: time.UTC, Named: 20},
		{From: at(28, 10, 17), To: at(31, 3, 0), Unit: Hour, Zone: berlin, Named: 20},
		{From: at(28, 10, 17), To: at(31, 3, 0), Unit: Day, Zone: berlin, Named: 20},
		{From: at(28, 10, 17), To: at(29, 10, 17), Unit: Hour, Zone: zone(t, "Australia/Lord_Howe"), Named: 20},
	} {
		b := &book{counter: newCounter(q), calendars: calendars, known: map[string]timetable{}, spent: never}
		want := map[time.Time]int64{}
		var total int64
		for _, p := range []job.Policy{
			{CronExpression: "* * * * * *"},
			{CronExpression: "0 */7 * * * *", Timezone: "Europe/Berlin"},
			{CronExpression: "0 30 2 * * *", Timezone: "Europe/Berlin"}, // does not exist on the 29th
			{CronExpression: "0 */7 * * * *", Timezone: "Europe/Berlin", Calendars: []job.Calendar{{ID: holiday, Mode: "exclude"}}},
			{CronExpression: "0 H * * * *", JitterSeconds: 90},
			{Interval: job.Duration(95 * time.Second)},
			{Interval: job.Duration(10 * time.Hour)},
			{RunAt: new(at(30, 12, 0))},
			{CronExpression: "0 0 * * * *", MaxExecutions: 3},
			{},
		} {
			one := planned{id: uuid.New(), name: "x", policy: p, anchor: at(1, 0, 0), next: at(28, 10, 0)}
			sets := make([]schedule.Calendar, len(p.Calendars))
			for i := range sets {
				sets[i] = calendars[holiday]
				sets[i].Mode = "exclude"
			}
			compiled, err := schedule.Compile(p.Definition(one.id.String(), one.anchor, sets))
			if err != nil {
				t.Fatal(err)
			}
			made := int64(0)
			for next, ok := compiled.Next(one.next.Add(-time.Microsecond)); ok && next.Before(q.To); next, ok = compiled.Next(next) {
				if made++; next.Before(q.From) || p.MaxExecutions > 0 && made > p.MaxExecutions {
					continue
				}
				begin, _ := q.Unit.around(next, q.Zone)
				want[begin.UTC()]++
				total++
			}
			if done, err := b.count(one); err != nil || !done {
				t.Fatal(done, err)
			}
		}
		f := b.forecast()
		got := map[time.Time]int64{}
		for i, bucket := range f.Buckets {
			got[bucket.At.UTC()] = bucket.Runs
			if i > 0 && !bucket.At.After(f.Buckets[i-1].At) {
				t.Errorf("%s: bucket %v comes after %v", q.Unit, bucket.At, f.Buckets[i-1].At)
			}
			var named int64
			for _, share := range bucket.Named {
				named += share.Runs
				if begin, _ := q.Unit.around(share.First, q.Zone); !begin.Equal(bucket.At) {
					t.Errorf("%s: the first run %v is not in the bucket of %v", q.Unit, share.First, bucket.At)
				}
			}
			if named != bucket.Runs {
				t.Errorf("%s: the jobs of %v have %d runs of %d", q.Unit, bucket.At, named, bucket.Runs)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || f.Total != total || f.Truncated || !f.CompleteUntil.Equal(q.To) {
			t.Errorf("%s in %v: %d of %d (-want +got):\n%s", q.Unit, q.Zone, f.Total, total, diff)
		}
	}
}

// A time that was promoted already is not to come, and jobs with the same times
// are named one by one.
func TestAJobBeginsAtItsNextTime(t *testing.T) {
	t.Parallel()
	q := Query{From: at(28, 10, 0), To: at(28, 14, 0), Unit: Hour, Zone: time.UTC, Named: 2}
	b := &book{counter: newCounter(q), known: map[string]timetable{}, spent: never}
	for _, one := range []planned{{name: "c", next: at(28, 10, 0)}, {name: "B", next: at(28, 12, 0)}, {name: "a", next: at(28, 10, 0)}} {
		one.id, one.policy = uuid.New(), job.Policy{CronExpression: "0 0 * * * *"}
		if done, err := b.count(one); err != nil || !done {
			t.Fatal(done, err)
		}
	}
	var got []string
	for _, bucket := range b.forecast().Buckets {
		text := bucket.At.Format("15h ")
		for _, share := range bucket.Named {
			text += share.Name
		}
		got = append(got, text)
	}
	if diff := cmp.Diff([]string{"10h ac", "11h ac", "12h aB", "13h aB"}, got); diff != "" {
		t.Error(diff)
	}
}

// upcoming is a tenant with jobs, the n-th of them due n minutes after ten, once an hour.
func upcoming(t *testing.T, jobs int) (*Store, *pgx.Conn, tenant.Actor) {
	t.Helper()
	database := pgtest.New(t)
	admin, err := pgx.Connect(t.Context(), database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(context.WithoutCancel(t.Context())) })
	who := tenant.Actor{TenantID: uuid.New(), Subject: "ada"}
	for _, owner := range []uuid.UUID{who.TenantID, uuid.New()} {
		if _, err := admin.Exec(t.Context(), "INSERT INTO tenants (id, name) VALUES ($1, 'x')", owner); err != nil {
			t.Fatal(err)
		}
		_, err := admin.Exec(t.Context(), `INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds, interval_ms, anchor_at, next_execution_at, status)
			SELECT gen_random_uuid(), $1, 'job ' || n, 'ada', 'http', '{}', 1, 1, 3600000, $3::timestamptz + n * interval '1 minute', $3::timestamptz + interval '10 hours' + n * interval '1 minute',
				CASE WHEN n = 0 THEN 'paused' ELSE 'active' END
			FROM generate_series(0, $2::int) n`, owner, jobs, at(28, 0, 0))
		if err != nil {
			t.Fatal(err)
		}
	}
	opened, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: postgres.API, Name: "test", MaxConns: 1, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	s := NewStore(opened)
	s.budget = func() func() bool { return func() bool { return false } } // a busy machine may need any time
	return s, admin, who
}

// A forecast of more jobs than it looks at, or than it has time for, says up to when no run is
// missing; it counts active jobs of its own tenant.
func TestAForecastSaysUpToWhenItIsComplete(t *testing.T) {
	t.Parallel()
	s, _, who := upcoming(t, 40)
	q := Query{From: at(28, 10, 0), To: at(28, 12, 0), Unit: Minute, Zone: time.UTC, Named: 3, Jobs: true}
	for _, test := range []struct {
		name     string
		maxJobs  int32
		steps    int // for which there is time
		jobs     int
		complete time.Time
	}{
		{"all", 40, 1000, 40, q.To},
		{"too many", 10, 1000, 10, at(28, 10, 11)},
		{"too long", 40, 12, 6, at(28, 10, 7)},
		{"no time at all", 40, 0, 0, at(28, 10, 1)},
	} {
		left := test.steps
		s.maxJobs, s.budget = test.maxJobs, func() func() bool {
			return func() bool { left--; return left < 0 }
		}
		f, err := s.Count(t.Context(), who, q)
		if err != nil {
			t.Fatal(err)
		}
		if f.Jobs != test.jobs || f.Total != int64(2*test.jobs) || f.Truncated != (test.jobs < 40) || !f.CompleteUntil.Equal(test.complete) {
			t.Errorf("%s: %d jobs, %d runs, truncated: %v, complete until %v", test.name, f.Jobs, f.Total, f.Truncated, f.CompleteUntil)
		}
	}
}

// Monitors of its own tenant that expect runs stand beside the jobs, each kind can be left out, and
// both together are as many as a forecast looks at.
func TestMonitorsStandBesideJobs(t *testing.T) {
	t.Parallel()
	s, admin, who := upcoming(t, 3) // due at 10:01, 10:02 and 10:03, and an hour later
	for _, m := range []struct {
		name, tenant, schedule, expected string
		paused                           bool
	}{
		{"hourly", who.TenantID.String(), "15 * * * *", "2026-03-28 10:15Z", false},
		{"late", who.TenantID.String(), "30 * * * *", "2026-03-28 09:30Z", false},
		{"interval", who.TenantID.String(), "", "2026-03-28 10:02Z", false},
		{"new", who.TenantID.String(), "15 * * * *", "", false},
		{"paused", who.TenantID.String(), "15 * * * *", "2026-03-28 10:15Z", true},
		{"later", who.TenantID.String(), "0 12 * * *", "2026-03-28 12:00Z", false},
	} {
		_, err := admin.Exec(t.Context(), `INSERT INTO monitors (id, tenant_id, name, cron_expression, interval_seconds, start_grace_seconds, completion_grace_seconds, ping_key, created_by, paused, expected_at)
			VALUES (gen_random_uuid(), $1, $2, nullif($3, ''), CASE WHEN $3 = '' THEN 2400 END, 60, 60, $2, 'ada', $4, nullif($5, '')::timestamptz)`, m.tenant, m.name, m.schedule, m.paused, m.expected)
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.Exec(t.Context(), `INSERT INTO monitors (id, tenant_id, name, cron_expression, start_grace_seconds, completion_grace_seconds, ping_key, created_by, expected_at)
		SELECT gen_random_uuid(), id, 'theirs', '* * * * *', 60, 60, 'theirs', 'x', $2 FROM tenants WHERE id <> $1`, who.TenantID, at(28, 10, 0)); err != nil {
		t.Fatal(err)
	}
	count := func(change func(*Query)) Forecast {
		q := Query{From: at(28, 10, 0), To: at(28, 12, 0), Unit: Hour, Zone: time.UTC, Named: 9, Jobs: true, Monitors: true}
		change(&q)
		f, err := s.Count(t.Context(), who, q)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	text := func(f Forecast) (text string) {
		for _, b := range f.Buckets {
			text += fmt.Sprintf("%s %d jobs", b.At.Format("15h"), b.Jobs)
			for _, m := range b.Watched {
				text += fmt.Sprintf(" %s %d×%s", m.Name, m.Runs, m.First.Format("15:04"))
			}
			text += fmt.Sprintf(" = %d; ", b.Runs)
		}
		return text
	}
	both := count(func(*Query) {})
	if got, want := text(both), "10h 3 jobs hourly 1×10:15 interval 2×10:02 late 1×10:30 = 7; 11h 3 jobs hourly 1×11:15 interval 1×11:22 late 1×11:30 = 6; "; got != want {
		t.Errorf("both: %s\nwant  %s", got, want)
	}
	if both.Jobs != 3 || both.Monitors != 3 || both.Total != 13 || both.Truncated {
		t.Errorf("both: %+v", both)
	}
	if f := count(func(q *Query) { q.Monitors = false }); f.Total != 6 || f.Monitors != 0 || f.Jobs != 3 {
		t.Errorf("jobs alone: %+v", f)
	}
	if f := count(func(q *Query) { q.Jobs = false }); f.Total != 7 || f.Monitors != 3 || f.Jobs != 0 {
		t.Errorf("monitors alone: %+v", f)
	}
	s.maxJobs = 3 // late, then the first job, then one that is due at 10:02
	if f := count(func(q *Query) { q.Unit = Minute }); f.Jobs+f.Monitors != 3 || !f.Truncated || !f.CompleteUntil.Equal(at(28, 10, 2)) {
		t.Errorf("too many: %d jobs, %d monitors, complete until %v", f.Jobs, f.Monitors, f.CompleteUntil)
	}
}

// The statement reads as many rows as the forecast looks at, by an index.
func TestAForecastReadsItsJobs(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	var tenantID uuid.UUID
	for range 20 {
		tenantID = uuid.New()
		if _, err := conn.Exec(t.Context(), "INSERT INTO tenants (id, name) VALUES ($1, 'x')", tenantID); err != nil {
			t.Fatal(err)
		}
		_, err := conn.Exec(t.Context(), `INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds, next_execution_at)
			SELECT gen_random_uuid(), $1, 'job ' || n, 'ada', 'http', '{}', 1, 1, now() + n * interval '1 minute' FROM generate_series(1, 500) n`, tenantID)
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.PgConn().Exec(t.Context(), "ANALYZE job_definitions, job_schedule; SET ROLE scheduler_api").ReadAll(); err != nil {
		t.Fatal(err)
	}
	plan := pgtest.Explain(t, conn, "force_custom_plan", tenantID, func(ctx context.Context, s *pgtest.Statement) error {
		_, err := db.New(s).ListUpcomingJobs(ctx, db.ListUpcomingJobsParams{TenantID: tenantID, ToAt: clock.Now().Add(time.Hour), Most: 50})
		return err
	})
	plan.Walk(func(n pgtest.PlanNode) {
		if n.Relation != "" && n.Loops > 0 && (n.Touched() > 60 || n.Type == "Seq Scan") {
			t.Errorf("%s on %s %s touches %v rows", n.Type, n.Relation, n.Index, n.Touched())
		}
	})
}
