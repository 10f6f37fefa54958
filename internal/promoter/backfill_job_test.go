package promoter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/backfill"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
)

// A dry run counts what is made, whatever the schedule.
func TestDryRunIsWhatIsMade(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		edit     func(*job.Spec)
		from, to time.Duration // before midnight
		want     int           // 0: any number but none
	}{
		{"every quarter of an hour", func(s *job.Spec) { s.CronExpression = "0 */15 * * * *" }, 48 * time.Hour, 0, 192},
		{"in a zone with half hours", func(s *job.Spec) { s.CronExpression, s.Timezone = "0 30 2 * * *", "Australia/Lord_Howe" }, 300 * 24 * time.Hour, 0, 300},
		{"clock changes twice", func(s *job.Spec) {
			s.CronExpression, s.Timezone, s.DSTOverlap, s.DSTGap = "0 30 1,2 * * *", "Europe/London", "both", "skip"
		}, 390 * 24 * time.Hour, 0, 0},
		{"an interval, before the job was", func(s *job.Spec) { s.CronExpression, s.Interval = "", job.Duration(7*time.Minute) }, 12 * time.Hour, time.Hour, 0},
		{"jitter", func(s *job.Spec) { s.CronExpression, s.JitterSeconds = "0 */10 * * * *", 300 }, 20 * time.Hour, 3 * time.Hour, 0},
		{"an interval with jitter", func(s *job.Spec) { s.CronExpression, s.Interval, s.JitterSeconds = "", job.Duration(time.Hour), 3000 }, 72 * time.Hour, 0, 0},
		{"a hashed minute", func(s *job.Spec) { s.CronExpression = "H H * * * *" }, 2 * time.Hour, 0, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := setupPast(t)
			j := p.hourly(t, test.edit)
			r := backfill.Request{From: p.midnight.Add(-test.from), To: p.midnight.Add(-test.to), RatePerMinute: 6000}
			plan, err := p.backfills.Preview(t.Context(), p.who, j.ID, r)
			if err != nil || plan.Total == 0 || test.want != 0 && plan.Total != test.want {
				t.Fatalf("planned %+v, want %d (%v)", plan, test.want, err)
			}
			ask, _, err := p.backfills.Create(t.Context(), p.who, j.ID, r, idempotency.Key{})
			if err != nil {
				t.Fatal(err)
			}
			p.toTheEnd(t, ask)
			var got backfill.Plan
			err = p.engine.Pool().QueryRow(t.Context(), "SELECT count(*), min(scheduled_at), max(scheduled_at) FROM executions WHERE backfill_id = $1", ask.ID).
				Scan(&got.Total, &got.First, &got.Last)
			if err != nil {
				t.Fatal(err)
			}
			got.First, got.Last = got.First.UTC(), got.Last.UTC()
			if diff := cmp.Diff(plan, got); diff != "" {
				t.Errorf("made (-planned +made):\n%s", diff)
			}
			if end := p.get(t, ask); end.Status != backfill.Completed || end.Total != plan.Total || end.Created != plan.Total {
				t.Errorf("at the end: %+v", end)
			}
		})
	}
}

// toTheEnd passes and ends runs until a backfill is finished.
func (p *past) toTheEnd(t *testing.T, ask backfill.Backfill) {
	t.Helper()
	at := ask.CreatedAt
	for range 10_000 / 100 {
		at = at.Add(5 * time.Second)
		if p.fill(t, p.promoter, at).Finished > 0 {
			return
		}
		p.finish(t, ask, true)
	}
	t.Fatal("the backfill does not end")
}

// A run of a year ago ends in a partition that did not exist.
func TestBackfillMakesPartitionsOfThePast(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	j := p.hourly(t, func(s *job.Spec) { s.CronExpression = "0 0 0 1 * *" })
	ask, _, err := p.backfills.Create(t.Context(), p.who, j.ID, backfill.Request{
		From: p.midnight.AddDate(-1, 0, 0), To: p.midnight, RatePerMinute: 6000,
	}, idempotency.Key{})
	if err != nil || ask.Total < 11 {
		t.Fatalf("asked for %+v: %v", ask, err)
	}
	p.toTheEnd(t, ask)
	if got := p.get(t, ask); got.Outcomes[execution.Completed] != ask.Total {
		t.Errorf("ended as %v, want %d completed", got.Outcomes, ask.Total)
	}
}

// Maintenance makes them too, all at once, while the backfill runs.
func TestMaintenanceMakesPartitionsForBackfills(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	j := p.hourly(t, nil)
	from := p.midnight.AddDate(0, -12, 0) // eleven months back on the last of a February that is one day longer
	back := 12*(p.midnight.Year()-from.Year()) + int(p.midnight.Month()-from.Month())
	_, _, err := p.backfills.Create(t.Context(), p.who, j.ID, backfill.Request{From: from, To: from.AddDate(0, 0, 1)}, idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.maintainer.MakePartitions(t.Context(), p.midnight); err != nil {
		t.Fatal(err)
	}
	var partitions int
	if err := p.engine.Pool().QueryRow(t.Context(), "SELECT count(*) FROM pg_inherits WHERE inhparent = 'job_executions'::regclass").Scan(&partitions); err != nil {
		t.Fatal(err)
	}
	if partitions != back+1+3 {
		t.Errorf("%d partitions, want %d months back and three ahead", partitions, back)
	}
}

// The version, and the origin of its interval, are those of the creation.
func TestBackfillRunsTheVersionItWasMadeWith(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	j := p.hourly(t, func(s *job.Spec) { s.CronExpression, s.Interval = "", job.Duration(time.Hour) })
	edit := func(change func(*job.Spec)) {
		t.Helper()
		spec := j.Spec
		change(&spec)
		if _, err := p.jobs.Update(t.Context(), p.who, j.ID, spec, 0); err != nil {
			t.Fatal(err)
		}
	}
	edit(func(s *job.Spec) { s.Description = "the same interval" })
	ask := p.ask(t, j, 10, 60)
	edit(func(s *job.Spec) { s.Interval = job.Duration(time.Minute); s.Retry.MaxRetries = 9 })
	p.toTheEnd(t, ask)
	rows := p.rows(t, j)
	if len(rows) != 10 {
		t.Fatalf("%d executions, want 10", len(rows))
	}
	for _, row := range rows {
		if j.AnchorAt.Sub(row.ScheduledAt)%time.Hour != 0 || row.JobVersion != 2 || row.MaxAttempts != j.Retry.MaxRetries+1 {
			t.Errorf("at %v, version %d, %d attempts; the interval counts from %v", row.ScheduledAt, row.JobVersion, row.MaxAttempts, j.AnchorAt)
		}
	}
}

// An interval counts from the same moment in the dry run and in the runs, also
// when retention removed the version that introduced it.
func TestBackfillOutlivesTheVersionOfItsInterval(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	j := p.hourly(t, func(s *job.Spec) { s.CronExpression, s.Interval = "", job.Duration(time.Hour) })
	for _, text := range []string{"second", "third"} {
		spec := j.Spec
		spec.Description = text
		if _, err := p.jobs.Update(t.Context(), p.who, j.ID, spec, 0); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, p.database.AdminURL, fmt.Sprintf("DELETE FROM job_versions WHERE job_id = '%s' AND version < 3", j.ID))
	r := backfill.Request{From: p.midnight.Add(-10 * time.Hour), To: p.midnight, RatePerMinute: 6000}
	plan, err := p.backfills.Preview(t.Context(), p.who, j.ID, r)
	if err != nil || plan.Total != 10 {
		t.Fatalf("planned %+v (%v)", plan, err)
	}
	ask, _, err := p.backfills.Create(t.Context(), p.who, j.ID, r, idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	// The job has another interval from here on.
	spec := j.Spec
	spec.Interval = job.Duration(time.Minute)
	if _, err := p.jobs.Update(t.Context(), p.who, j.ID, spec, 0); err != nil {
		t.Fatal(err)
	}
	p.toTheEnd(t, ask)
	rows := p.rows(t, j)
	if len(rows) != plan.Total {
		t.Fatalf("%d executions, want %d", len(rows), plan.Total)
	}
	for i, row := range rows {
		if want := plan.First.Add(time.Duration(i) * time.Hour); !row.ScheduledAt.Equal(want) {
			t.Errorf("a run at %v, the dry run has %v", row.ScheduledAt, want)
		}
	}
}

// Waiting executions of a backfill take no scheduled time its slot, with any policy.
func TestBackfillLeavesTheScheduleAlone(t *testing.T) {
	t.Parallel()
	for _, policy := range []job.Overlap{job.OverlapSkip, job.OverlapQueue1, job.OverlapQueue, job.OverlapCancel, job.OverlapAllow} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			p := setupPast(t)
			j := p.create(t, func(s *job.Spec) {
				s.CronExpression, s.Overlap, s.OverlapQueueLimit = "0 * * * * *", policy, 1
			})
			ask := p.ask(t, j, 1, 6000)
			p.fill(t, p.promoter, ask.CreatedAt.Add(time.Second))
			if report := p.pass(t, p.promoter, *j.NextExecutionAt); report.Promoted != 1 {
				t.Errorf("beside a waiting backfill: %+v", report)
			}
			e, err := p.executions.Get(t.Context(), p.who, execution.ScheduledID(j.ID, *j.NextExecutionAt))
			if err != nil || e.Status != execution.Pending {
				t.Errorf("the scheduled time's execution: %+v, %v", e, err)
			}
			if got := p.get(t, ask); got.Outcomes[execution.Pending] != ask.Total {
				t.Errorf("the backfill's: %v", got.Outcomes)
			}
		})
	}
}

// cancel_running ends what runs, and not what waits of a backfill.
func TestBackfillOutlivesCancelRunning(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	j := p.create(t, func(s *job.Spec) { s.CronExpression, s.Overlap = "0 * * * * *", job.OverlapCancel })
	ask := p.ask(t, j, 1, 6000)
	p.fill(t, p.promoter, ask.CreatedAt.Add(time.Second))
	p.pass(t, p.promoter, *j.NextExecutionAt)
	p.pass(t, p.promoter, j.NextExecutionAt.Add(time.Minute))
	replaced, err := p.executions.Get(t.Context(), p.who, execution.ScheduledID(j.ID, *j.NextExecutionAt))
	if err != nil || replaced.Status != execution.Cancelled || replaced.CancelledBy != "system" || replaced.Reason == "" {
		t.Errorf("the scheduled time before: %+v, %v", replaced, err)
	}
	if got := p.get(t, ask); got.Outcomes[execution.Pending] != ask.Total {
		t.Errorf("the backfill's: %v", got.Outcomes)
	}
}

// A backfill's run is not late, however long ago its time was, and takes a
// place only when no run of the schedule wants it.
func TestClaimOfABackfilledRun(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	j := p.create(t, func(s *job.Spec) {
		s.CronExpression, s.Overlap, s.MaxConcurrent = "0 * * * * *", job.OverlapQueue, 1
	})
	ask := p.ask(t, j, 1, 6000)
	at := ask.CreatedAt.Add(time.Second)
	p.fill(t, p.promoter, at)
	// Two scheduled times: the first has its place, the second waits behind it.
	first := *j.NextExecutionAt
	p.pass(t, p.promoter, first)
	p.pass(t, p.promoter, first.Add(time.Minute))
	now := first.Add(time.Minute)
	worker := uuid.New()
	_, err := p.engine.Pool().Exec(t.Context(), `INSERT INTO workers (id, host, pid, slots, heartbeat_at, expires_at, started_at)
		VALUES ($1, 'test', 1, 9, $2, $2::timestamptz + interval '1 hour', $2)`, worker, now)
	if err != nil {
		t.Fatal(err)
	}
	q := db.New(p.engine.Pool())
	claim := func() (claimed []db.ClaimLimitedExecutionsRow) {
		t.Helper()
		token := uuid.New()
		params := db.ClaimLimitedExecutionsParams{Now: &now, WorkerID: &worker, LeaseToken: &token, LeftTypes: []string{}, MaxRunning: 1000}
		for _, row := range p.rows(t, j) {
			params.Ids = append(params.Ids, row.ID)
		}
		claimed, err := q.ClaimLimitedExecutions(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		return claimed
	}
	end := func(id uuid.UUID) {
		t.Helper()
		if _, err := p.engine.Pool().Exec(t.Context(), "DELETE FROM active_executions WHERE id = $1", id); err != nil {
			t.Fatal(err)
		}
	}
	if got := claim(); len(got) != 0 {
		t.Errorf("claimed %v although the only place is taken", got)
	}
	end(execution.ScheduledID(j.ID, first))
	second := execution.ScheduledID(j.ID, first.Add(time.Minute))
	if got := claim(); len(got) != 1 || got[0].ID != second || !got[0].DueAt.Equal(first.Add(time.Minute)) {
		t.Errorf("claimed %+v, want the scheduled time", got)
	}
	end(second)
	got := claim()
	if len(got) != 1 || got[0].TriggerType != "backfill" || !got[0].DueAt.Equal(at) {
		t.Errorf("claimed %+v, want one of the backfill, due when it was made", got)
	}
}

// A calendar is read as it is: one that changes meanwhile changes what is still
// to be made, and the end says how many there were.
func TestBackfillFollowsItsCalendars(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	holidays := uuid.New()
	from := p.midnight.AddDate(0, 0, -3)
	days := func(n int) string {
		text := from.Format("2006-01-02T15:04:05")
		return `[{"start":"` + text + `","end":"` + from.AddDate(0, 0, n).Format("2006-01-02T15:04:05") + `"}]`
	}
	exec(t, p.database.OwnerURL, "ALTER TABLE calendars NO FORCE ROW LEVEL SECURITY")
	exec(t, p.database.OwnerURL, "INSERT INTO calendars (id, tenant_id, name, days) VALUES ('"+holidays.String()+"', '"+p.who.TenantID.String()+"', 'holidays', '"+days(1)+"')")
	j := p.hourly(t, func(s *job.Spec) { s.Calendars = []job.Calendar{{ID: holidays, Mode: "exclude"}} })
	ask := p.ask(t, j, 72, 60)
	if ask.Total != 48 {
		t.Fatalf("%d times outside the first of three days", ask.Total)
	}
	p.fill(t, p.promoter, ask.CreatedAt)
	exec(t, p.database.OwnerURL, "UPDATE calendars SET version = 2, days = '"+days(2)+"'")
	p.toTheEnd(t, ask)
	if got := p.get(t, ask); got.Total != 25 || got.Created != 25 || got.Progress() != 100 {
		t.Errorf("at the end: %d %%, %+v", got.Progress(), got)
	}
}

// Old times that fail say nothing of the schedule.
func TestFailuresOfABackfillStopNoJob(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	j := p.hourly(t, func(s *job.Spec) { s.DisableAfterFailures = 2 })
	ask := p.ask(t, j, 10, 6000)
	p.fill(t, p.promoter, ask.CreatedAt.Add(time.Second))
	p.finish(t, ask, false)
	// One failure of the schedule itself, which is one too few.
	_, err := p.engine.Pool().Exec(t.Context(), `INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, completed_at, created_at)
		VALUES ($1, now(), $2, $3, 1, 'scheduled', 'function', 'failed', now(), now())`, uuid.New(), p.who.TenantID, j.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, stopped, err := p.maintainer.ChangeStatus(t.Context(), time.Time{}); err != nil || stopped != 0 {
		t.Errorf("stopped %d jobs (%v)", stopped, err)
	}
}
