package retention_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/retention"
)

// bare takes every partition away.
func (b *bundle) bare() {
	b.t.Helper()
	b.exec(`DO $$ DECLARE part text; BEGIN
		FOR part IN SELECT p.part FROM job_executions_partitions() p LOOP EXECUTE format('DROP TABLE %I', part); END LOOP; END $$`)
}

// keep makes the partitions that are missing at noon of a day of June 2031.
func (b *bundle) keep(span partition.Span, day int) int {
	b.t.Helper()
	made, err := partition.Keep(b.t.Context(), db.New(b.db.Pool()), span, 1, time.Date(2031, 6, day, 12, 0, 0, 0, time.UTC))
	if err != nil {
		b.t.Fatal(err)
	}
	return made
}

// bounds are the partitions with their first days and those after their last.
func (b *bundle) bounds() (all []string) {
	b.t.Helper()
	rows, err := b.admin.Query(b.t.Context(), `SELECT p.part || ' ' || to_char(p.from_at AT TIME ZONE 'UTC', 'MM-DD') || ' ' || to_char(p.to_at AT TIME ZONE 'UTC', 'MM-DD')
		FROM job_executions_partitions() p ORDER BY p.from_at`)
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			b.t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// TestSpansFollowEachOther changes how much time a partition holds: each new one takes
// what the others leave, and no day is without one or has two.
func TestSpansFollowEachOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.bare()
	if n := b.keep(partition.Week, 11); n != 6 { // a Wednesday
		t.Errorf("made %d weeks", n)
	}
	if n := b.keep(partition.Week, 11); n != 0 {
		t.Errorf("made %d weeks again", n)
	}
	weeks := []string{
		"job_executions_w2031_06_09 06-09 06-16", "job_executions_w2031_06_16 06-16 06-23", "job_executions_w2031_06_23 06-23 06-30",
		"job_executions_w2031_06_30 06-30 07-07", "job_executions_w2031_07_07 07-07 07-14", "job_executions_w2031_07_14 07-14 07-21",
	}
	if diff := cmp.Diff(weeks, b.bounds()); diff != "" {
		t.Errorf("weeks (-want +got):\n%s", diff)
	}
	for _, week := range []string{"job_executions_w2031_06_16", "job_executions_w2031_06_30", "job_executions_w2031_07_07", "job_executions_w2031_07_14"} {
		b.exec("DROP TABLE " + week)
	}
	if n := b.keep(partition.Day, 20); n != 3+5 { // around the week that is left, until the fourth of July
		t.Errorf("made %d days", n)
	}
	if n := b.keep(partition.Month, 20); n != 3 {
		t.Errorf("made %d months", n)
	}
	want := []string{
		// The month begins before the weeks do, and goes on after the days.
		"job_executions_2031_06 06-01 06-09", "job_executions_w2031_06_09 06-09 06-16",
		"job_executions_2031_06_2 06-16 06-20",
	}
	if got := b.bounds(); len(got) < 3 || got[1] != want[1] || got[0] != want[0] {
		t.Errorf("got %q", got)
	}
	if n := b.count(`SELECT count(*) FROM job_executions_partitions() a JOIN job_executions_partitions() b ON a.from_at < b.to_at AND b.from_at < a.to_at AND a.part <> b.part`); n != 0 {
		t.Errorf("%d pairs overlap", n)
	}
	if n := b.count(`SELECT count(*) FROM job_executions_without(ARRAY(SELECT generate_series('2031-06-01 00:00Z'::timestamptz, '2031-07-31 00:00Z', '1 day')))`); n != 0 {
		t.Errorf("%d days have no partition: %q", n, b.bounds())
	}
	if n := b.count(`SELECT count(*) FROM pg_class c WHERE relispartition AND relkind = 'r' AND relname LIKE 'job\_executions\_%' AND NOT (relrowsecurity AND relforcerowsecurity)`); n != 0 {
		t.Errorf("%d partitions do not force row-level security", n)
	}
}

// TestWholeDaysGo keeps thirty days. Each day has a partition. The one before the first
// day holds the rest of a month: it goes too, because its last day is too old.
func TestWholeDaysGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.bare()
	var midnight time.Time
	if err := b.admin.QueryRow(t.Context(), "SELECT date_trunc('day', now(), 'UTC')").Scan(&midnight); err != nil {
		t.Fatal(err)
	}
	midnight = midnight.UTC()
	for ago := range 40 {
		at := midnight.AddDate(0, 0, -ago).Add(time.Hour)
		b.exec("SELECT make_job_executions_partition($1, 'day')", at)
		b.exec(insertExecution, at, b.tenant)
	}
	b.exec("SELECT make_job_executions_partition($1, 'month')", midnight.AddDate(0, 0, -40))
	k := retention.New(retention.Config{DB: b.db, Executions: partition.Term{Months: 13, Days: 30}, MetricDays: 14, Budget: time.Hour})
	r, err := k.Pass(t.Context(), midnight.Add(time.Hour))
	if err != nil || len(r.Partitions) != 10 || r.Busy || !r.Kept.Equal(midnight.AddDate(0, 0, -30)) {
		t.Errorf("kept from %v, removed %q: %v", r.Kept, r.Partitions, err)
	}
	if n := b.count("SELECT count(*) FROM job_executions"); n != 31 {
		t.Errorf("%d executions are left, want those of 30 days and of today", n)
	}
	if r, err = k.Pass(t.Context(), midnight.Add(time.Hour)); err != nil || !r.Nothing() {
		t.Errorf("the second pass removed %+v, %v", r, err)
	}
}

// TestTheReleaseBeforeMakesMonths calls the functions that a process of the release
// before calls, beside days that others made.
func TestTheReleaseBeforeMakesMonths(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.bare()
	b.keep(partition.Day, 10)
	if n := b.count("SELECT count(*) FROM job_executions_missing(ARRAY['2031-06-01 00:00Z', '2031-07-01 00:00Z']::timestamptz[])"); n != 2 {
		t.Errorf("%d months are missing", n)
	}
	for _, month := range []string{"2031-06-01 00:00Z", "2031-07-01 00:00Z"} {
		b.exec("SELECT create_job_executions_partition($1::timestamptz)", month)
	}
	if n := b.count("SELECT count(*) FROM job_executions_without(ARRAY(SELECT generate_series('2031-06-01 00:00Z'::timestamptz, '2031-07-31 00:00Z', '1 day')))"); n != 0 {
		t.Errorf("%d days have no partition: %q", n, b.bounds())
	}
	if n := b.count("SELECT count(*) FROM job_executions_missing(ARRAY['2031-06-01 00:00Z', '2031-07-01 00:00Z']::timestamptz[])"); n != 0 {
		t.Errorf("%d months are missing still: %q", n, b.bounds())
	}
}

// TestWeeksOfKeptDaysStay keeps the roll-up of a week whose last days are kept.
func TestWeeksOfKeptDaysStay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`INSERT INTO outcome_rollups (tenant_id, part, span, at, cells) SELECT $1, 0, 2, at, '\x01' FROM unnest(ARRAY['2031-05-22 00:00Z', '2031-06-01 00:00Z', '2031-06-08 00:00Z']::timestamptz[]) at`, b.tenant)
	k := retention.New(retention.Config{DB: b.db, Executions: partition.Term{Days: 30}, MetricDays: 14, Budget: time.Hour})
	// Up to 3 June is too old. The database keeps all this from the processes, which cannot
	// be so far ahead of it: the pass says what it would remove.
	b.exec("ALTER POLICY retention ON outcome_rollups USING (true)")
	if r, err := k.Pass(t.Context(), time.Date(2031, 7, 3, 12, 0, 0, 0, time.UTC)); err == nil || r.Rollups != 1 {
		t.Errorf("%d were removed, want that of May; %v", r.Rollups, err)
	}
	if n := b.count("SELECT count(*) FROM outcome_rollups WHERE at >= '2031-06-01 00:00Z'"); n != 2 {
		t.Errorf("%d roll-ups of kept days are left, want 2", n)
	}
}

// TestPartsOfDaysAreFilled has a partition whose bounds are no days of UTC, and one that
// somebody began to detach: what neither holds gets partitions.
func TestPartsOfDaysAreFilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.bare()
	for _, sql := range []string{
		"SET timezone = 'Europe/Berlin'",
		"CREATE TABLE job_executions_2031_05 PARTITION OF job_executions FOR VALUES FROM ('2031-05-01') TO ('2031-06-01')",
		"RESET timezone",
	} {
		b.exec(sql)
	}
	if n := b.keep(partition.Day, 1); n != 15 {
		t.Errorf("made %d days", n)
	}
	late := time.Date(2031, 5, 31, 22, 30, 0, 0, time.UTC)
	if n, err := partition.Make(t.Context(), db.New(b.db.Pool()), []time.Time{late}); err != nil || n != 1 {
		t.Errorf("made %d for the two hours that Berlin has earlier: %v", n, err)
	}
	b.exec(insertExecution, late, b.tenant)
	b.exec("DROP TABLE job_executions_d2031_06_12")
	reader := b.connect(b.database.AdminURL)
	for _, sql := range []string{"BEGIN", "SELECT * FROM job_executions_d2031_06_13"} {
		if _, err := reader.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	owner := b.connect(b.database.OwnerURL)
	interrupted := make(chan error, 1)
	go func() {
		_, err := owner.Exec(t.Context(), "ALTER TABLE job_executions DETACH PARTITION job_executions_d2031_06_13 CONCURRENTLY")
		interrupted <- err
	}()
	// Not after a while: on a busy machine it may not have come so far.
	for b.count("SELECT count(*) FROM pg_inherits WHERE inhdetachpending") == 0 && len(interrupted) == 0 {
	}
	b.exec("SELECT pg_cancel_backend($1)", int32(owner.PgConn().PID()))
	if err := <-interrupted; err == nil {
		t.Fatal("the detach was not interrupted")
	}
	if n := b.keep(partition.Month, 1); n != 3 {
		t.Errorf("made %d beside the one that is being detached: %q", n, b.bounds())
	}
	if n := b.count("SELECT count(*) FROM job_executions_without(ARRAY(SELECT generate_series('2031-05-01 00:00Z'::timestamptz, '2031-07-31 00:00Z', '1 day'))) w WHERE w.day <> '2031-06-13 00:00Z'"); n != 0 {
		t.Errorf("%d other days have no partition: %q", n, b.bounds())
	}
}

// TestMigrateLeavesThePartitionsOfAnInstallation makes none where the coming days have
// some: what the processes were told while they ran is not known to it.
func TestMigrateLeavesThePartitionsOfAnInstallation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	prepare := func(span partition.Span) int {
		made, err := partition.Prepare(t.Context(), b.database.OwnerURL, span, 3)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	b.bare()
	if n := prepare(partition.Day); n != 15 {
		t.Errorf("a new database gets %d days", n)
	}
	if n := prepare(partition.Month); n != 0 {
		t.Errorf("%d months are made beside days", n)
	}
}
