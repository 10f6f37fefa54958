package promoter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/promoter"
)

// manyDue makes so many jobs that are due every second and run all that is due,
// all due at the same time.
func (b *bundle) manyDue(t *testing.T, n int) (jobs []job.Job, due time.Time) {
	t.Helper()
	for i := range n {
		jobs = append(jobs, b.create(t, func(s *job.Spec) { s.Name, s.Misfire.Policy = fmt.Sprint("job ", i), job.FireAll }))
	}
	due = clockIn(-time.Minute).Truncate(time.Second)
	exec(t, b.database.AdminURL, fmt.Sprintf("UPDATE scheduled_jobs SET next_execution_at = '%s'", due.Format(time.RFC3339)))
	return jobs, due
}

// refuse makes a table refuse what is written of a job.
func (b *bundle) refuse(t *testing.T, table, events, condition, action string) (accept func()) {
	t.Helper()
	name := fmt.Sprint("refuse_", strings.ReplaceAll(uuid.NewString(), "-", ""))
	exec(t, b.database.AdminURL, fmt.Sprintf(`CREATE FUNCTION %[1]s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN %[5]s; RETURN NEW; END $$;
		CREATE TRIGGER %[1]s BEFORE %[3]s ON %[2]s FOR EACH ROW WHEN (%[4]s) EXECUTE FUNCTION %[1]s()`, name, table, events, condition, action))
	return func() { exec(t, b.database.AdminURL, fmt.Sprintf("DROP TRIGGER %s ON %s", name, table)) }
}

const no = "RAISE EXCEPTION 'this row is not wanted' USING ERRCODE = 'check_violation'"

// drain makes passes at a time, and waits for what is locked, until nothing is left.
func (b *bundle) drain(t *testing.T, p *promoter.Promoter, now time.Time) (parked int) {
	t.Helper()
	for range 200 {
		report, err := p.Pass(t.Context(), now)
		if postgres.TimedOut(err) {
			continue // a statement of an impatient promoter took too long on a busy machine
		}
		if err != nil {
			t.Fatal(err)
		}
		locked, err := p.PromoteLocked(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		parked += report.Parked + locked.Parked
		if report.Claimed+locked.Claimed == 0 && report.Parked+locked.Parked == 0 && !report.Next.IsZero() {
			return parked
		}
	}
	t.Fatal("200 passes did not come to an end")
	return 0
}

// isParked holds what the owner of a parked job sees.
func (b *bundle) isParked(t *testing.T, j job.Job, due time.Time, because string) {
	t.Helper()
	got, err := b.jobs.Get(t.Context(), b.who, j.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Parked() || got.StatusBy != "system" || !got.NextExecutionAt.Equal(due) {
		t.Errorf("the job is %s by %q, due at %v, want it parked at %v", got.Status, got.StatusBy, got.NextExecutionAt, due)
	}
	for _, want := range []string{because, due.Format(time.RFC3339), "POST /api/v1/scheduler/jobs/{id}/resume"} {
		if !strings.Contains(got.StatusReason, want) {
			t.Errorf("the reason does not name %q: %s", want, got.StatusReason)
		}
	}
	n := b.number(t, fmt.Sprintf(`SELECT count(*) FROM audit_log WHERE object_id = '%s' AND action = 'parkJob' AND actor = 'system'
		AND before::jsonb ->> 'status' = 'active' AND after::jsonb ->> 'status' = 'inactive' AND after::jsonb ->> 'status_reason' <> ''`, j.ID))
	if n != 1 {
		t.Errorf("the audit log has %d entries of the parking", n)
	}
}

// promotedAll holds that each scheduled time of jobs has one row up to now.
func (b *bundle) promotedAll(t *testing.T, jobs []job.Job, due, now time.Time) {
	t.Helper()
	want := map[time.Time]int{}
	for at := due; !at.After(now); at = at.Add(time.Second) {
		want[at] = 1
	}
	for _, j := range jobs {
		got := map[time.Time]int{}
		for _, row := range b.rows(t, j) {
			got[row.ScheduledAt]++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("scheduled times of %s (-want +got):\n%s", j.Name, diff)
		}
	}
}

// A job whose rows the database refuses is found among the others, which are
// promoted, and parked alone; one request resumes it, and nothing is lost.
func TestARefusedJobIsParkedAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	jobs, due := b.manyDue(t, 40)
	bad, healthy := jobs[17], append(jobs[:17:17], jobs[18:]...)
	accept := b.refuse(t, "active_executions", "INSERT", fmt.Sprintf("NEW.job_id = '%s'", bad.ID), no)
	now := due.Add(4 * time.Second)
	if parked := b.drain(t, b.promoter, now); parked != 1 {
		t.Fatalf("%d jobs were parked", parked)
	}
	b.promotedAll(t, healthy, due, now)
	b.isParked(t, bad, due, "this row is not wanted (SQLSTATE 23514)")

	accept()
	if _, err := b.jobs.Resume(t.Context(), b.who, bad.ID, ""); err != nil {
		t.Fatal(err)
	}
	now = now.Add(3 * time.Second)
	b.drain(t, b.another(), now) // one without a lower bound
	b.promotedAll(t, jobs, due, now)
}

// An edit resumes a parked job too, from where it was.
func TestAnEditOfAParkedJobLosesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	jobs, due := b.manyDue(t, 1)
	accept := b.refuse(t, "active_executions", "INSERT", "true", no)
	b.drain(t, b.promoter, due)
	b.isParked(t, jobs[0], due, "this row is not wanted")
	accept()
	spec := jobs[0].Spec
	spec.Name = "mended"
	got, err := b.jobs.Update(t.Context(), b.who, jobs[0].ID, spec, 0)
	if err != nil || got.Status != job.Active {
		t.Fatalf("the job is %s, %v", got.Status, err)
	}
	now := due.Add(5 * time.Second)
	b.drain(t, b.another(), now)
	b.promotedAll(t, jobs, due, now)
}

// A job that cannot be read, and a defect that one meets, stop no other.
func TestAJobThatCannotBeDecidedIsParkedAlone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, broken, because, mended string }{
		{"calendars of the job", `UPDATE scheduled_jobs SET calendars = '{"calendarId": 7}' WHERE id = '%s'`, "its schedule cannot be read", "UPDATE scheduled_jobs SET calendars = '[]' WHERE id = '%s'"},
		{"a zone", `UPDATE scheduled_jobs SET timezone = 'Mars/Olympus' WHERE id = '%s'`, "its schedule cannot be read", "UPDATE scheduled_jobs SET timezone = 'UTC' WHERE id = '%s'"},
		{"a defect", "", "of a defect of the scheduler", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			jobs, due := b.manyDue(t, 3)
			bad := jobs[1]
			p := b.another()
			if test.broken == "" {
				p.PanicAt(bad.ID)
			} else {
				exec(t, b.database.AdminURL, fmt.Sprintf(test.broken, bad.ID))
			}
			if parked := b.drain(t, p, due); parked != 1 {
				t.Fatalf("%d jobs were parked", parked)
			}
			b.promotedAll(t, []job.Job{jobs[0], jobs[2]}, due, due)
			if test.mended != "" {
				exec(t, b.database.AdminURL, fmt.Sprintf(test.mended, bad.ID))
			}
			b.isParked(t, bad, due, test.because)
			if _, err := b.jobs.Resume(t.Context(), b.who, bad.ID, ""); err != nil {
				t.Fatal(err)
			}
			now := due.Add(2 * time.Second)
			b.drain(t, b.another(), now)
			b.promotedAll(t, jobs, due, now)
		})
	}
}

// A month whose partition cannot be made, since tables have all its names, stops those
// only that need it.
func TestAMonthThatCannotBeMadeParksItsJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	jobs, due := b.manyDue(t, 5)
	exec(t, b.database.OwnerURL, `DO $$ BEGIN
		CREATE TABLE job_executions_2021_03 ();
		FOR n IN 2..99 LOOP EXECUTE format('CREATE TABLE job_executions_2021_03_%s ()', n); END LOOP; END $$`)
	long := time.Date(2021, 3, 5, 0, 0, 0, 0, time.UTC)
	b.dueAt(t, jobs[2], long)
	if parked := b.drain(t, b.promoter, due); parked != 1 {
		t.Fatalf("%d jobs were parked", parked)
	}
	b.promotedAll(t, append(jobs[:2:2], jobs[3:]...), due, due)
	b.isParked(t, jobs[2], long, "the database refuses its executions")
}

// A job that takes too long again and again, alone and while others are promoted,
// is parked.
func TestASlowJobIsParkedAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	jobs, due := b.manyDue(t, 4)
	b.refuse(t, "active_executions", "INSERT", fmt.Sprintf("NEW.job_id = '%s'", jobs[3].ID), "PERFORM pg_sleep(30)")
	engine, err := postgres.Open(t.Context(), postgres.Config{URL: b.database.URL, Role: postgres.Engine, Name: "test", MaxConns: 2, StatementTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	b.engine = engine
	if parked := b.drain(t, b.another(), due); parked != 1 {
		t.Fatalf("%d jobs were parked", parked)
	}
	b.promotedAll(t, jobs[:3], due, due)
	b.isParked(t, jobs[3], due, "takes longer than it may")
}

// An error that passes by itself parks nobody: here, a lock on the table that all runs go to.
func TestALockParksNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	jobs, due := b.manyDue(t, 2)
	release := b.holds(t, "LOCK TABLE active_executions IN SHARE ROW EXCLUSIVE MODE")
	b.impatient(t)
	p := b.another()
	for range 3 {
		if report, err := p.Pass(t.Context(), due); err == nil && report.Promoted+report.Parked > 0 {
			t.Errorf("the pass made %+v of what it may not write", report)
		}
	}
	release()
	if parked := b.drain(t, p, due); parked != 0 {
		t.Fatalf("%d jobs were parked", parked)
	}
	b.promotedAll(t, jobs, due, due)
}

// A job that can neither be promoted nor parked stops nobody else.
func TestAJobThatCannotBeParkedIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	jobs, due := b.manyDue(t, 6)
	b.refuse(t, "job_definitions", "UPDATE", fmt.Sprintf("NEW.id = '%s'", jobs[0].ID), no)
	if parked := b.drain(t, b.promoter, due); parked != 0 {
		t.Fatalf("%d jobs were parked", parked)
	}
	b.promotedAll(t, jobs[1:], due, due)
}

// A tenant whose jobs are refused keeps no job of another tenant back until they are
// found: of a batch that failed the tenants are tried apart first, and then in turns.
func TestRefusedJobsHoldUpNoOtherTenants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.promoter.DecideAt(1500 * time.Microsecond) // so a pass may try 133 jobs of such batches
	b.refuse(t, "active_executions", "INSERT", fmt.Sprintf("NEW.tenant_id = '%s'", b.who.TenantID), no)
	at := clockIn(2 * time.Second).Truncate(time.Second)
	now := at.Add(time.Second)
	for _, round := range []struct{ parts, refused, others int }{
		{0, 95, 5}, {40, 2, 5}, {40, 2, 1}, // two passes try 32 parts, and 100 suspects would keep back all jobs of the tenant
	} {
		for passes := 0; b.promoter.Parts() < round.parts; passes++ {
			if b.pass(t, b.promoter, now); passes == 100 {
				t.Fatalf("%d parts of failed batches wait, want %d", b.promoter.Parts(), round.parts)
			}
		}
		b.due(t, round.refused, at)
		var others []*bundle
		var singles []job.Job
		for range round.others {
			other := b.neighbour(t)
			others, singles = append(others, other), append(singles, other.due(t, 1, at.Add(50*time.Millisecond))...)
		}
		for range 2 { // the first batch that they are in fails
			b.pass(t, b.promoter, now)
		}
		for i, single := range singles {
			if n := len(others[i].rows(t, single)); n != 1 {
				t.Errorf("beside %d parts of failed batches another tenant's job has %d executions after two passes, want 1", round.parts, n)
			}
		}
	}
}

// Several promoters that meet the same jobs find them all, and promote the others
// once.
func TestPromotersSideBySideParkWhatIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	jobs, due := b.manyDue(t, 60)
	bad := map[uuid.UUID]bool{jobs[3].ID: true, jobs[4].ID: true, jobs[59].ID: true}
	b.refuse(t, "active_executions", "INSERT", fmt.Sprintf("NEW.job_id IN ('%s', '%s', '%s')", jobs[3].ID, jobs[4].ID, jobs[59].ID), no)
	now := due.Add(2 * time.Second)
	var group errgroup.Group
	for range 4 {
		p := b.another()
		group.Go(func() error {
			for range 30 {
				if _, err := p.Pass(t.Context(), now); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	b.drain(t, b.another(), now)
	var healthy []job.Job
	for _, j := range jobs {
		if bad[j.ID] {
			b.isParked(t, j, due, "this row is not wanted")
		} else {
			healthy = append(healthy, j)
		}
	}
	b.promotedAll(t, healthy, due, now)
}
