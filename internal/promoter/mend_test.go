package promoter_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/job"
)

// Due schedules without their jobs, more than a batch has, keep no job back. They are mended one by one,
// so that a scan does not meet them again.
func TestSchedulesWithoutJobsStopNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	due := clockIn(time.Minute).Truncate(time.Second)
	var gone []job.Job
	for range 3 {
		gone = append(gone, b.create(t, nil))
	}
	paused, good := b.create(t, nil), b.create(t, nil)
	for i, j := range append(gone, paused, good) {
		b.dueAt(t, j, due.Add(time.Duration(i)*time.Millisecond))
	}
	exec(t, b.database.AdminURL, "ALTER TABLE job_definitions DISABLE TRIGGER ALL")
	for _, j := range gone {
		exec(t, b.database.AdminURL, "DELETE FROM job_definitions WHERE id = '"+j.ID.String()+"'")
	}
	exec(t, b.database.AdminURL, "UPDATE job_definitions SET status = 'paused' WHERE id = '"+paused.ID.String()+"'")
	exec(t, b.database.AdminURL, "ALTER TABLE job_definitions ENABLE TRIGGER ALL")
	p, now := b.another(), due.Add(time.Second)
	p.SetBatch(2)
	for range 10 {
		b.pass(t, p, now)
		if _, err := p.PromoteLocked(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.rows(t, good)); n == 0 {
		t.Errorf("the job behind them has not run")
	}
	if n := b.number(t, "SELECT count(*) FROM job_schedule WHERE status = 'active' AND job_id <> $1", good.ID); n != 0 {
		t.Errorf("%d of them are due still", n)
	}
	if got, err := b.jobs.Get(t.Context(), b.who, paused.ID); err != nil || got.Status != job.Paused {
		t.Errorf("the paused job is %q; %v", got.Status, err)
	}
}

// Mending goes on at once while more schedules wait for it: scans find them faster than it
// would come to them with a pause after each two.
func TestMendingGoesOnAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []uuid.UUID
	for range 3 { // two are waited for at once
		j := b.create(t, nil)
		b.dueAt(t, j, clockIn(-time.Minute))
		ids = append(ids, j.ID)
	}
	exec(t, b.database.AdminURL, "ALTER TABLE job_definitions DISABLE TRIGGER ALL")
	exec(t, b.database.AdminURL, "DELETE FROM job_definitions")
	exec(t, b.database.AdminURL, "ALTER TABLE job_definitions ENABLE TRIGGER ALL")
	if again, err := b.another().WaitTurn(t.Context(), b.who.TenantID, ids...); err != nil || again != 0 {
		t.Errorf("with one left it comes again after %v, %v; want at once", again, err)
	}
	if n := b.number(t, "SELECT count(*) FROM job_schedule"); n != 1 {
		t.Errorf("%d schedules are left after a turn, want 1", n)
	}
}
