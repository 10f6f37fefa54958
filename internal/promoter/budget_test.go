package promoter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// neighbour is the same installation as seen by another tenant.
func (b *bundle) neighbour(t *testing.T) *bundle {
	t.Helper()
	other := *b
	other.who = tenant.Actor{TenantID: uuid.New(), Subject: "grace"}
	if err := tenant.NewStore(open(t, b.database.URL, "scheduler_api"), true).Admit(t.Context(), other.who.TenantID); err != nil {
		t.Fatal(err)
	}
	return &other
}

// Jobs of one tenant with more to catch up than a pass takes are promoted in pieces, none
// of which is larger, and another tenant's job that is due has its run after the
// first of them. Whichever promoter takes the pieces, each scheduled time has its outcome.
func TestALongCatchUpIsPromotedInPieces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var jobs []job.Job
	for i := range 60 {
		jobs = append(jobs, b.create(t, func(s *job.Spec) { s.Name, s.Misfire.Policy = fmt.Sprint("job ", i), job.FireAll }))
	}
	due := clockIn(2 * time.Second).Truncate(time.Second)
	exec(t, b.database.AdminURL, fmt.Sprintf("UPDATE scheduled_jobs SET next_execution_at = '%s', resume_policy = 'fire_all'", due.Format(time.RFC3339)))
	now := due.Add(419 * time.Second)
	other := b.neighbour(t)
	single := other.create(t, func(s *job.Spec) { s.CronExpression = "0 0 0 1 1 *" })
	b.dueAt(t, single, now)

	rows := func() int {
		return b.number(t, "SELECT (SELECT count(*) FROM active_executions) + (SELECT count(*) FROM job_executions)")
	}
	before, turn := 0, b.another()
	for pass := 1; ; pass++ {
		if b.pass(t, turn, now).Claimed == 0 {
			break
		}
		after := rows()
		if after-before > 5000 {
			t.Fatalf("pass %d wrote %d rows", pass, after-before)
		}
		if pass == 1 && len(other.rows(t, single)) != 1 {
			t.Error("the other tenant's job waits behind what the jobs catch up")
		}
		before, turn = after, b.another() // each piece by another promoter
	}
	for _, j := range jobs {
		list := b.rows(t, j)
		if len(list) != 101 || list[0].Status != execution.Missed || list[0].MissedCount != 320 || !list[0].ScheduledAt.Equal(due) {
			t.Fatalf("%d rows, the first of them %+v", len(list), list[0])
		}
		for i, r := range list[1:] {
			if r.Status != execution.Pending || !r.ScheduledAt.Equal(due.Add(time.Duration(320+i)*time.Second)) {
				t.Fatalf("row %d is %s of %v", i+1, r.Status, r.ScheduledAt)
			}
		}
		got, err := b.jobs.Get(t.Context(), b.who, j.ID)
		if err != nil || got.ExecutionCount != 100 || !got.NextExecutionAt.Equal(now.Add(time.Second)) {
			t.Fatalf("%d runs are counted, next %v, %v", got.ExecutionCount, got.NextExecutionAt, err)
		}
	}
}

// Jobs that each take long to decide share a pass only as far as its time goes.
// Another tenant's job that is due after all of them is promoted in the first pass,
// and the passes reach every job once.
func TestDecidingIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 120 {
		b.create(t, func(s *job.Spec) { s.Name, s.CronExpression = fmt.Sprint("job ", i), "0 0 0 1 1 *" })
	}
	due := clockIn(time.Hour).Truncate(time.Second)
	exec(t, b.database.AdminURL, fmt.Sprintf("UPDATE scheduled_jobs SET next_execution_at = '%s'", due.Format(time.RFC3339)))
	other := b.neighbour(t)
	single := other.create(t, func(s *job.Spec) { s.CronExpression = "0 0 0 1 1 *" })
	now := due.Add(4 * time.Second)
	b.dueAt(t, single, now)
	spent := b.promoter.DecideAt(45 * time.Millisecond)

	first := b.pass(t, b.promoter, now)
	if spent() > 245*time.Millisecond || first.Promoted != 5 {
		t.Errorf("the first pass decided for %v and promoted %d, want 5 jobs of 45 ms", spent(), first.Promoted)
	}
	if len(other.rows(t, single)) != 1 {
		t.Error("the other tenant's job waits behind those that take long")
	}
	promoted := first.Promoted
	for range 30 {
		promoted += b.pass(t, b.promoter, now).Promoted
	}
	if promoted != 121 || spent() != 121*45*time.Millisecond {
		t.Errorf("%d jobs are promoted after %v, want each of 121 once", promoted, spent())
	}
}

// Late runs start at a rate for each tenant: the single late run of one does not
// wait behind the many of another.
func TestLateRunsStartAtARateForEachTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.neighbour(t)
	for i := range 50 {
		b.create(t, func(s *job.Spec) { s.Name, s.CronExpression = fmt.Sprint("job ", i), "0 0 0 1 1 *" })
	}
	single := other.create(t, func(s *job.Spec) { s.CronExpression = "0 0 0 1 1 *" })
	due := clockIn(time.Hour).Truncate(time.Second)
	exec(t, b.database.AdminURL, fmt.Sprintf("UPDATE scheduled_jobs SET next_execution_at = '%s'", due.Format(time.RFC3339)))
	b.dueAt(t, single, due.Add(time.Second))
	now := due.Add(12 * time.Second)
	b.pass(t, b.promoter, now)

	starts := func(j job.Job) (at time.Time) {
		if err := b.engine.Pool().QueryRow(t.Context(), "SELECT available_at FROM active_executions WHERE job_id = $1", j.ID).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	if at := starts(single); !at.Equal(now) {
		t.Errorf("the only late run of a tenant may start %v after the pass, want at once", at.Sub(now))
	}
	var last time.Time
	err := b.engine.Pool().QueryRow(t.Context(), "SELECT max(available_at) FROM active_executions WHERE tenant_id = $1", b.who.TenantID).Scan(&last)
	if err != nil || !last.Equal(now.Add(490*time.Millisecond)) {
		t.Errorf("the last of 50 late runs may start after %v, want after 490 ms at 100 a second; %v", last.Sub(now), err)
	}
}
