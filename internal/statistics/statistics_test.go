package statistics_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/statistics"
	"github.com/scheduler-service/scheduler/internal/statistics/collect"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

type bundle struct {
	t         *testing.T
	admin     *pgx.Conn
	leases    *lease.Store
	collector *collect.Collector
	engine    *postgres.DB
	store     *statistics.Store
	who       tenant.Actor
	jobs      []uuid.UUID
}

// month is the first time of one of 2026, in which clocks are changed here and
// there.
func month(m time.Month) time.Time { return time.Date(2026, m, 1, 0, 0, 0, 0, time.UTC) }

func setup(t *testing.T) *bundle {
	t.Helper()
	database := pgtest.New(t)
	open := func(role postgres.Role) *postgres.DB {
		db, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: role, Name: "test", MaxConns: 2, StatementTimeout: pgtest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	engine := open(postgres.Engine)
	b := &bundle{
		t: t, collector: collect.NewCollector(engine), engine: engine, store: statistics.NewStore(open(postgres.API)), who: tenant.Actor{TenantID: uuid.New()},
		jobs: []uuid.UUID{uuid.New(), uuid.New(), uuid.New()},
	}
	b.leases = lease.NewStore(lease.Config{DB: engine, Holder: "test", TTL: time.Minute, Metrics: telemetry.NewMetrics(telemetry.NewRegistry())})
	var err error
	if b.admin, err = pgx.Connect(t.Context(), database.AdminURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.admin.Close(context.Background()) })
	b.exec("INSERT INTO tenants (id, name) VALUES ($1, 'x')", b.who.TenantID)
	for _, m := range []time.Month{2, 3, 4, 10, 11} {
		b.exec("SELECT create_job_executions_partition($1)", month(m))
	}
	return b
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.admin.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// over records so many executions of the tenant, and some of another one: due in
// March and April, or October and November, every eighth at a whole quarter of an
// hour, and ended up to so long ago.
func (b *bundle) over(n int, from, to time.Duration) {
	b.t.Helper()
	b.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, attempt, duration_ms, completed_at, created_at)
		SELECT gen_random_uuid(), CASE WHEN n % 8 = 0 THEN date_bin('15 minutes', at, '2000-01-01 00:00:00+00') ELSE at END,
		       CASE WHEN n % 20 = 0 THEN gen_random_uuid() ELSE $2 END, ($3::uuid[])[CASE WHEN n % 10 < 8 THEN 1 ELSE 2 + n % 2 END], 1,
		       (ARRAY['scheduled', 'scheduled', 'manual', 'backfill'])[1 + floor(random() * 4)::int], (ARRAY['http', 'http', 'function', 'else'])[1 + floor(random() * 4)::int],
		       (ARRAY['completed', 'completed', 'completed', 'failed', 'cancelled', 'skipped', 'missed'])[1 + floor(random() * 7)::int],
		       1 + floor(random() * 2)::int, CASE WHEN random() < 0.8 THEN floor(exp(random() * 12) - 1)::bigint END,
		       now() - $4::interval - ($5::interval - $4::interval) * random(), now()
		FROM generate_series(1, $1) n, LATERAL (SELECT make_timestamptz(2026, CASE WHEN n % 2 = 0 THEN 3 ELSE 10 END, 1, 0, 0, 0, 'UTC') + random() * n / n * interval '38 days' AS at) x`,
		n, b.who.TenantID, b.jobs, from, to)
}

// pass counts and rolls up what may be.
func (b *bundle) pass() {
	b.t.Helper()
	pgtest.Quiet(b.t, b.admin)
	ran, err := b.leases.Run(b.t.Context(), lease.Metrics, func(ctx context.Context, held lease.Lease) error {
		_, err := b.collector.Pass(ctx, held)
		return err
	})
	if !ran || err != nil {
		b.t.Fatalf("ran %v: %v", ran, err)
	}
}

// fold folds all that was counted.
func (b *bundle) fold() {
	b.t.Helper()
	for more := true; more; {
		var err error
		if _, more, err = b.collector.Fold(b.t.Context(), clock.Now().AddDate(0, 0, 1)); err != nil {
			b.t.Fatal(err)
		}
	}
	var left int
	if err := b.admin.QueryRow(b.t.Context(), "SELECT count(*) FROM outcome_deltas").Scan(&left); err != nil || left > 0 {
		b.t.Fatalf("%d rows are not folded: %v", left, err)
	}
}

// queries draws what may be asked for.
func (b *bundle) queries() *rapid.Generator[statistics.Query] {
	return rapid.Custom(func(t *rapid.T) statistics.Query {
		q := statistics.Query{
			From:  rapid.SampledFrom([]time.Time{month(3), month(10)}).Draw(t, "month").AddDate(0, 0, rapid.IntRange(-2, 36).Draw(t, "day")),
			Group: rapid.SampledFrom([]statistics.Grouping{"", "status", "job", "jobType", "triggerType", "hour", "hour", "day", "day"}).Draw(t, "group"),
			Zone:  time.UTC,
		}
		unit := rapid.SampledFrom([]time.Duration{24 * time.Hour, time.Hour, 15 * time.Minute, time.Microsecond}).Draw(t, "unit")
		most := 31 * 24 * time.Hour
		q.From = q.From.Add(time.Duration(rapid.Int64Range(0, int64(24*time.Hour/unit)).Draw(t, "from")) * unit)
		if rapid.Bool().Draw(t, "short") {
			most = max(unit, 2*time.Hour)
		}
		q.To = q.From.Add(time.Duration(rapid.Int64Range(1, int64(most/unit)).Draw(t, "length")) * unit)
		var err error
		name := rapid.SampledFrom([]string{
			"UTC", "Europe/Berlin", "Europe/London", "Asia/Kolkata", "Asia/Kathmandu", "America/New_York", "America/St_Johns", "Australia/Lord_Howe",
		}).Draw(t, "zone")
		if q.Zone, err = time.LoadLocation(name); err != nil {
			t.Fatal(err)
		}
		if which := rapid.IntRange(-3, len(b.jobs)-1).Draw(t, "job"); which >= 0 {
			q.JobID = &b.jobs[which]
		}
		q.JobType = rapid.SampledFrom([]string{"", "", "http", "else", "command"}).Draw(t, "type")
		q.Trigger = rapid.SampledFrom([]string{"", "", "scheduled", "dependency"}).Draw(t, "trigger")
		return q
	})
}

// raw answers a query by PostgreSQL's own grouping, of every execution.
func (b *bundle) raw(t *rapid.T, q statistics.Query) (answer statistics.Statistics) {
	const statement = `
		SELECT coalesce(r.key, ''), coalesce(r.at, '-infinity')::timestamptz = '-infinity', coalesce(r.at, now()), count(*),
		       count(*) FILTER (WHERE r.status = 'completed'), count(*) FILTER (WHERE r.status = 'failed'), count(*) FILTER (WHERE r.status = 'cancelled'),
		       count(*) FILTER (WHERE r.status = 'skipped'), count(*) FILTER (WHERE r.status = 'missed'), count(*) FILTER (WHERE r.attempt > 1),
		       count(r.ms), coalesce(avg(r.ms), 0)::float8, percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY r.ms)
		FROM (SELECT h.*, CASE WHEN h.status IN ('completed', 'failed') THEN h.duration_ms END AS ms,
		             CASE $4 WHEN 'status' THEN h.status WHEN 'jobType' THEN h.job_type WHEN 'triggerType' THEN h.trigger_type WHEN 'job' THEN h.job_id::text END AS key,
		             CASE WHEN $4 IN ('hour', 'day') THEN date_trunc($4, h.scheduled_at, $5) END AS at
		      FROM job_executions h
		      WHERE h.tenant_id = $1 AND h.scheduled_at >= $2 AND h.scheduled_at < $3 AND ($6::uuid IS NULL OR h.job_id = $6)
		        AND ($7 = '' OR h.job_type = $7) AND ($8 = '' OR h.trigger_type = $8)) r
		GROUP BY GROUPING SETS ((), (r.key, r.at)) ORDER BY grouping(r.key) DESC, r.at, count(*) DESC, r.key`
	rows, err := b.admin.Query(b.t.Context(), statement, b.who.TenantID, q.From, q.To, string(q.Group), q.Zone.String(), q.JobID, q.JobType, q.Trigger)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	answer.Groups = []statistics.Summary{}
	for first := true; rows.Next(); first = false {
		var s statistics.Summary
		var timeless bool
		var percentiles []*int64
		err := rows.Scan(&s.Key, &timeless, &s.At, &s.Count, &s.Completed, &s.Failed, &s.Cancelled, &s.Skipped, &s.Missed, &s.Retried, &s.Timed, &s.AverageMS, &percentiles)
		if err != nil {
			t.Fatal(err)
		}
		if s.At = s.At.UTC(); timeless {
			s.At = time.Time{}
		}
		for i, to := range []*float64{&s.P50MS, &s.P95MS, &s.P99MS} {
			if len(percentiles) > i && percentiles[i] != nil {
				*to = float64(*percentiles[i])
			}
		}
		switch {
		case first:
			answer.Whole = s
		case q.Group != statistics.NoGroups:
			answer.Groups = append(answer.Groups, s)
		}
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return answer
}

// same compares an answer with that of every execution; percentiles are within 3 %.
func (b *bundle) same(t *testing.T) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		q := b.queries().Draw(t, "query")
		got, err := b.store.Statistics(b.t.Context(), b.who, q)
		if err != nil {
			t.Fatal(err)
		}
		within := func(share float64, names ...string) cmp.Option {
			return cmp.FilterPath(func(p cmp.Path) bool { return slices.Contains(names, p.Last().String()) },
				cmp.Comparer(func(x, y float64) bool { return max(x, y) <= min(x, y)*(1+share)+1e-9 }))
		}
		near := cmp.Options{within(0.0301, ".P50MS", ".P95MS", ".P99MS"), within(1e-9, ".AverageMS")}
		if diff := cmp.Diff(b.raw(t, q), got, near); diff != "" {
			t.Fatalf("%+v (-each +rolled up):\n%s", q, diff)
		}
	})
}

// rolled says what the roll-ups hold.
func (b *bundle) rolled() (rows int, complete bool) {
	b.t.Helper()
	err := b.admin.QueryRow(b.t.Context(), `SELECT (SELECT count(*) FROM outcome_rollups) + (SELECT count(*) FROM outcome_deltas), rolled_from IS NULL FROM rollup_cursor`).Scan(&rows, &complete)
	if err != nil {
		b.t.Fatal(err)
	}
	return rows, complete
}

// Any query is answered as if each execution were counted, however much of it is
// rolled up.
func TestStatisticsAreExact(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reset := func(ago time.Duration) {
		b.exec("UPDATE metric_totals SET counted_to = now() - $1::interval WHERE tenant_id = $2", ago, collect.Service)
		b.exec("UPDATE rollup_cursor SET rolled_from = now() - $1::interval, rolled_to = now() - $1::interval", ago)
	}
	reset(3 * time.Hour)
	b.over(6000, time.Minute, 6*time.Hour) // from before and after counting began
	b.same(t)
	b.pass()
	if rows, complete := b.rolled(); rows < 1000 || !complete {
		t.Fatalf("%d roll-ups, complete %v", rows, complete)
	}
	b.same(t)
	b.fold()
	b.same(t)
	// An upgrade finds some, and others end now.
	b.exec("UPDATE rollup_cursor SET rolled_from = now() - interval '7 hours'")
	b.collector = collect.NewCollector(b.engine) // of the new process; the old one knows that it had reached the beginning
	b.over(2000, 8*time.Hour, 400*time.Hour)
	b.over(1000, -time.Hour, -2*time.Hour)
	b.same(t)
	before, _ := b.rolled()
	b.pass()
	if rows, complete := b.rolled(); rows <= before || !complete {
		t.Fatalf("%d roll-ups of %d before, complete %v", rows, before, complete)
	}
	b.same(t)
	b.pass() // counts nothing twice
	b.fold()
	b.pass()
	b.same(t)
}

// No query reads again what is rolled up: whole quarters of an hour are answered the
// same where no execution is seen any more.
func TestRollupsAreEnough(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.over(9000, time.Minute, 6*time.Hour)
	b.pass()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	month := statistics.Query{From: month(3).Add(15 * time.Minute), To: month(4).Add(-45 * time.Minute), Zone: berlin}
	var queries []statistics.Query
	for _, group := range []statistics.Grouping{statistics.NoGroups, statistics.ByStatus, statistics.ByType, statistics.ByTrigger, statistics.ByJob, statistics.ByHour, statistics.ByDay} {
		q := month
		q.Group = group
		queries = append(queries, q)
	}
	busy := month
	busy.JobID, busy.Group = &b.jobs[0], statistics.ByHour
	queries = append(queries, busy)
	ask := func() (all []statistics.Statistics) {
		t.Helper()
		for _, q := range queries {
			s, err := b.store.Statistics(t.Context(), b.who, q)
			if err != nil || s.Whole.Count < 2001 {
				t.Fatalf("%s: %d are counted: %v", q.Group, s.Whole.Count, err)
			}
			all = append(all, s)
		}
		return all
	}
	before := ask()
	b.exec("CREATE POLICY blind ON job_executions AS RESTRICTIVE FOR SELECT TO scheduler_api USING (false)")
	if diff := cmp.Diff(before, ask()); diff != "" {
		t.Errorf("from executions and from roll-ups (-before +after):\n%s", diff)
	}
}

// An answer by job holds the roll-ups of all jobs at once, so how much that may
// be is bounded; the tenant as a whole is answered whatever they take.
func TestStatisticsByJobAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	q := statistics.Query{From: month(3), To: month(4), Zone: time.UTC, Group: statistics.ByJob}
	for part, bytes := range map[int]int{1: 40 << 20, 2: 25 << 20} {
		b.exec("INSERT INTO outcome_rollups (tenant_id, part, span, at, cells) VALUES ($1, $2, 2, $3, convert_to(repeat('x', $4), 'UTF8'))",
			b.who.TenantID, part, month(3), bytes)
	}
	_, err := b.store.Statistics(t.Context(), b.who, q)
	if f := (*fault.Error)(nil); !errors.As(err, &f) || f.Code != "STATS_RANGE_TOO_LARGE" {
		t.Errorf("by job: %v", err)
	}
	q.Group = statistics.ByDay
	if _, err := b.store.Statistics(t.Context(), b.who, q); err != nil {
		t.Errorf("by day: %v", err)
	}
}
