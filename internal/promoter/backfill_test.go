package promoter_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/backfill"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/promoter"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// past is a bundle with a tenant's door to backfills.
type past struct {
	*bundle
	backfills *backfill.Store
	midnight  time.Time // the one that has just passed, in UTC
}

func setupPast(t *testing.T) *past {
	t.Helper()
	b := setup(t)
	return &past{
		bundle: b, backfills: backfill.NewStore(open(t, b.database.URL, postgres.API), backfill.Config{Kept: func() partition.Term { return partition.Term{Months: 13} }}),
		midnight: clock.Now().UTC().Truncate(24 * time.Hour),
	}
}

// hourly makes a job whose schedule is finished at once, so that nothing but its
// backfills makes executions.
func (p *past) hourly(t *testing.T, edit func(*job.Spec)) job.Job {
	t.Helper()
	return p.create(t, func(s *job.Spec) {
		s.CronExpression = "0 0 * * * *"
		if edit != nil {
			edit(s)
		}
	})
}

// ask makes a backfill of the last so many hours before midnight.
func (p *past) ask(t *testing.T, j job.Job, hours, rate int) backfill.Backfill {
	t.Helper()
	made, _, err := p.backfills.Create(t.Context(), p.who, j.ID, backfill.Request{
		From: p.midnight.Add(-time.Duration(hours) * time.Hour), To: p.midnight, RatePerMinute: rate, DailyShare: 100, Parameters: json.RawMessage(`{"a": 1}`),
	}, idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (p *past) fill(t *testing.T, by *promoter.Promoter, now time.Time) promoter.BackfillReport {
	t.Helper()
	report, err := by.Backfill(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func (p *past) get(t *testing.T, b backfill.Backfill) backfill.Backfill {
	t.Helper()
	got, err := p.backfills.Get(t.Context(), p.who, b.JobID, b.ID)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// finish ends every active execution of a backfill as a worker does.
func (p *past) finish(t *testing.T, b backfill.Backfill, succeeded bool) {
	t.Helper()
	_, err := p.engine.Pool().Exec(t.Context(), `UPDATE active_executions SET status = 'running', attempt = max_attempts, lease_token = id,
		started_at = now(), attempt_started_at = now() WHERE backfill_id = $1`, b.ID)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := p.engine.Pool().Query(t.Context(), "SELECT id, attempt FROM active_executions WHERE backfill_id = $1", b.ID)
	if err != nil {
		t.Fatal(err)
	}
	var params db.CompleteExecutionsParams
	for rows.Next() {
		var id uuid.UUID
		var attempt int32
		if err := rows.Scan(&id, &attempt); err != nil {
			t.Fatal(err)
		}
		params.Ids, params.LeaseTokens, params.Attempts = append(params.Ids, id), append(params.LeaseTokens, id), append(params.Attempts, attempt)
		params.Succeeded, params.RetryMs, params.DurationsUs = append(params.Succeeded, succeeded), append(params.RetryMs, -1), append(params.DurationsUs, 1)
		params.Results, params.MemoryMb, params.CpuMs = append(params.Results, ""), append(params.MemoryMb, 0), append(params.CpuMs, 0)
		failure := "USER_ERROR"
		if succeeded {
			failure = ""
		}
		params.ErrorTypes, params.ErrorMessages, params.ErrorStacks = append(params.ErrorTypes, failure), append(params.ErrorMessages, ""), append(params.ErrorStacks, "")
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	over, err := db.New(p.engine.Pool()).CompleteExecutions(t.Context(), params)
	if err != nil || len(over) != len(params.Ids) {
		t.Fatalf("completed %d of %d: %v", len(over), len(params.Ids), err)
	}
}

// times are those of a job's rows, each with how often it is there.
func (p *past) times(t *testing.T, j job.Job) map[time.Time]int {
	t.Helper()
	found := map[time.Time]int{}
	for _, row := range p.rows(t, j) {
		found[row.ScheduledAt]++
	}
	return found
}

// hoursBefore are the whole hours before a time, each once.
func hoursBefore(end time.Time, hours int) map[time.Time]int {
	all := map[time.Time]int{}
	for i := range hours {
		all[end.Add(-time.Duration(i+1)*time.Hour)] = 1
	}
	return all
}

func TestBackfillMakesTheExecutionsOfARange(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	j := p.hourly(t, func(s *job.Spec) {
		s.Overlap, s.MaxConcurrent, s.Priority, s.Timeout, s.Retry.MaxRetries = job.OverlapSkip, 3, 8, 20, 4
	})
	ask := p.ask(t, j, 24, 6000)
	if r := p.fill(t, p.promoter, ask.CreatedAt.Add(-time.Millisecond)); r.Claimed != 0 {
		t.Errorf("too early: %+v", r)
	}
	if r := p.fill(t, p.promoter, ask.CreatedAt); r.Created != 1 {
		t.Errorf("at once: %+v, want one", r)
	}
	if r := p.fill(t, p.promoter, ask.CreatedAt.Add(time.Second)); r.Created != 23 || r.Finished != 0 {
		t.Errorf("after a second: %+v, want the other 23", r)
	}
	if diff := cmp.Diff(hoursBefore(p.midnight, 24), p.times(t, j)); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
	row := p.rows(t, j)[0]
	want := execution.Execution{
		ID: execution.BackfillID(ask.ID, ask.From), TenantID: p.who.TenantID, JobID: j.ID, JobVersion: 1, JobName: j.Name, JobType: "function", Trigger: execution.Backfill,
		TriggeredBy: "ada", Priority: 8, Parameters: json.RawMessage(`{"a": 1}`), Status: execution.Pending, ScheduledAt: ask.From, MaxAttempts: 5,
		AvailableAt: &ask.CreatedAt, CreatedAt: ask.CreatedAt, BackfillID: &ask.ID, Attempts: []execution.Attempt{},
		WaitingOn: &execution.Wait{Reason: execution.WaitWorker},
	}
	if diff := cmp.Diff(want, row); diff != "" {
		t.Errorf("the first execution (-want +got):\n%s", diff)
	}
	if sent := p.hints.take(); len(sent) != 1 || len(sent[queue.High]) != 24 || sent[queue.High][0] != want.ID {
		t.Errorf("hints %v", sent)
	}
	var gate, timeout int
	if err := p.engine.Pool().QueryRow(t.Context(), "SELECT max(concurrency_limit), max(timeout_ms) FROM active_executions").Scan(&gate, &timeout); err != nil || gate != 3 || timeout != 20_000 {
		t.Errorf("gate %d, time-out %d ms (%v)", gate, timeout, err)
	}
	after, err := p.jobs.Get(t.Context(), p.who, j.ID)
	if err != nil || after.ExecutionCount != 0 || !after.NextExecutionAt.Equal(*j.NextExecutionAt) {
		t.Errorf("the job's own schedule moved: %+v, %v", after, err)
	}
}

func TestBackfillIsOverWhenItsRunsAre(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	j := p.hourly(t, nil)
	ask := p.ask(t, j, 4, 60)
	at := ask.CreatedAt
	p.fill(t, p.promoter, at.Add(time.Second)) // two
	p.finish(t, ask, true)
	if got := p.get(t, ask); got.Progress() != 50 || got.Created != 2 || got.Status != backfill.Running {
		t.Errorf("half way: %d %%, %+v", got.Progress(), got)
	}
	p.fill(t, p.promoter, at.Add(3*time.Second)) // the other two
	if r := p.fill(t, p.promoter, at.Add(10*time.Second)); r.Claimed != 1 || r.Finished != 0 {
		t.Errorf("all made and two still wait: %+v", r)
	}
	p.finish(t, ask, false)
	if r := p.fill(t, p.promoter, at.Add(20*time.Second)); r.Finished != 1 || r.Created != 0 {
		t.Errorf("all over: %+v", r)
	}
	got := p.get(t, ask)
	want := ask
	finished := at.Add(20 * time.Second)
	want.Status, want.Created, want.FinishedAt = backfill.Completed, 4, &finished
	want.Outcomes = map[execution.Status]int{execution.Completed: 2, execution.Failed: 2}
	if diff := cmp.Diff(want, got); diff != "" || got.Progress() != 100 {
		t.Errorf("at the end: %d %% (-want +got):\n%s", got.Progress(), diff)
	}
	if r := p.fill(t, p.promoter, at.Add(time.Hour)); r.Claimed != 0 {
		t.Errorf("after the end: %+v", r)
	}
	if _, err := p.backfills.Cancel(t.Context(), p.who, j.ID, ask.ID, ""); err == nil {
		t.Error("cancelled what is completed")
	}
}

func TestBackfillKeepsItsRate(t *testing.T) {
	t.Parallel()
	ticks := func(every, until time.Duration) (all []time.Duration) {
		for at := time.Duration(0); at <= until; at += every {
			all = append(all, at)
		}
		return all
	}
	for _, test := range []struct {
		name  string
		rate  int
		at    []time.Duration // passes, after the creation
		hours int
		want  int
	}{
		{"one a second, asked every 300 ms", 60, ticks(300*time.Millisecond, 9900*time.Millisecond), 48, 10},
		{"one a second, asked every 3 s", 60, ticks(3*time.Second, 9*time.Second), 48, 10},
		{"one a minute", 1, ticks(time.Second, 59*time.Second), 48, 1},
		{"the second one a minute later", 1, ticks(time.Second, time.Minute), 48, 2},
		{"seven a minute, which divides nothing", 7, ticks(time.Second, time.Minute), 48, 8},
		{"90 a minute", 90, ticks(time.Second, 10*time.Second), 48, 16},
		{"100 a second", 6000, ticks(time.Second, time.Second), 300, 101},
		{"an outage is made up for 5 s at most", 60, []time.Duration{0, 10 * time.Minute, 10*time.Minute + 999*time.Millisecond}, 48, 7},
		{"and then goes on", 60, []time.Duration{0, 10 * time.Minute, 10*time.Minute + time.Second}, 48, 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := setupPast(t)
			j := p.hourly(t, nil)
			ask := p.ask(t, j, test.hours, test.rate)
			got := 0
			for _, after := range test.at {
				got += p.fill(t, p.promoter, ask.CreatedAt.Add(after)).Created
			}
			if got != test.want {
				t.Errorf("made %d, want %d", got, test.want)
			}
		})
	}
}

// More than so many never wait: a job that cannot keep up slows its backfill.
func TestBackfillWaitsForItsJob(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	j := p.hourly(t, func(s *job.Spec) { s.Overlap = job.OverlapSkip })
	ask := p.ask(t, j, 300, 6000)
	at := ask.CreatedAt
	for second := range 30 {
		p.fill(t, p.promoter, at.Add(time.Duration(second)*time.Second))
	}
	if got := p.get(t, ask); got.Created != 200 || got.Active != 200 {
		t.Fatalf("made %d, of which %d are active", got.Created, got.Active)
	}
	p.finish(t, ask, true)
	for second := range 3 {
		p.fill(t, p.promoter, at.Add(time.Duration(40+second)*time.Second))
	}
	if diff := cmp.Diff(hoursBefore(p.midnight, 300), p.times(t, j)); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
}

func TestPromotersSideBySideBackfillEachTimeOnce(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	var asked []backfill.Backfill
	for range 4 {
		asked = append(asked, p.ask(t, p.hourly(t, nil), 50, 600))
		asked = append(asked, p.ask(t, p.hourly(t, nil), 7, 6000))
	}
	start := asked[len(asked)-1].CreatedAt
	var group errgroup.Group
	for range 3 {
		by := p.another()
		group.Go(func() error {
			for tick := range 30 {
				if _, err := by.Backfill(context.Background(), start.Add(time.Duration(tick)*300*time.Millisecond)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for p.fill(t, p.promoter, start.Add(time.Minute)).Created > 0 {
	}
	for _, ask := range asked {
		got := p.get(t, ask)
		if got.Created != got.Total || got.Outcomes[execution.Pending] != got.Total {
			t.Errorf("made %d of %d: %v", got.Created, got.Total, got.Outcomes)
		}
	}
}

// A promoter that is started in the middle goes on where the last one stopped,
// and doing a part again changes nothing, not even after it has run.
func TestBackfillGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	j := p.hourly(t, nil)
	ask := p.ask(t, j, 10, 60)
	at := ask.CreatedAt
	for second := range 5 {
		p.fill(t, p.another(), at.Add(time.Duration(second)*time.Second))
	}
	p.finish(t, ask, true)
	p.fill(t, p.another(), at.Add(5*time.Second))
	// As after a database that was put back to an earlier state.
	if _, err := p.engine.Pool().Exec(t.Context(), "UPDATE backfills SET cursor_at = from_at - interval '1 microsecond', created = 0"); err != nil {
		t.Fatal(err)
	}
	for second := range 12 {
		p.fill(t, p.another(), at.Add(time.Duration(10+second)*time.Second))
	}
	if diff := cmp.Diff(hoursBefore(p.midnight, 10), p.times(t, j)); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
}

func TestCancelledBackfillMakesNothingMore(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	j := p.hourly(t, nil)
	other := p.ask(t, j, 3, 6000)
	p.fill(t, p.promoter, other.CreatedAt.Add(time.Second))
	ask := p.ask(t, j, 48, 60)
	p.fill(t, p.promoter, ask.CreatedAt.Add(2*time.Second))
	runs := execution.BackfillID(ask.ID, ask.From)
	if _, err := p.engine.Pool().Exec(t.Context(), "UPDATE active_executions SET status = 'running', worker_id = id, lease_token = id, attempt = 1 WHERE id = $1", runs); err != nil {
		t.Fatal(err)
	}
	got, err := p.backfills.Cancel(t.Context(), p.who, j.ID, ask.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	want := map[execution.Status]int{execution.Running: 1, execution.Cancelled: 2}
	if diff := cmp.Diff(want, got.Outcomes); got.Status != backfill.Cancelled || got.FinishedAt == nil || diff != "" {
		t.Errorf("cancelled: %+v (-want +got):\n%s", got, diff)
	}
	if e, err := p.executions.Get(t.Context(), p.who, runs); err != nil || !e.Cancelling {
		t.Errorf("what runs is not asked to end: %+v, %v", e, err)
	}
	if r := p.fill(t, p.promoter, ask.CreatedAt.Add(time.Minute)); r.Created != 0 {
		t.Errorf("after it was cancelled: %+v", r)
	}
	if got := p.get(t, other); got.Outcomes[execution.Pending] != 3 {
		t.Errorf("the other backfill: %+v", got)
	}
}

func TestBackfillOfADeletedJobIsCancelled(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	j := p.hourly(t, nil)
	ask := p.ask(t, j, 10, 60)
	p.fill(t, p.promoter, ask.CreatedAt.Add(2*time.Second))
	if err := p.jobs.Delete(t.Context(), p.who, j.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	if r := p.fill(t, p.promoter, ask.CreatedAt.Add(10*time.Second)); r.Created != 0 || r.Finished != 1 {
		t.Errorf("after the deletion: %+v", r)
	}
	got := p.get(t, ask)
	if diff := cmp.Diff(map[execution.Status]int{execution.Cancelled: 3}, got.Outcomes); got.Status != backfill.Cancelled || diff != "" {
		t.Errorf("it is %s (-want +got):\n%s", got.Status, diff)
	}
}

// The backfills of a suspended tenant wait, and go on where they were.
func TestBackfillsOfASuspendedTenantWait(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	b := p.ask(t, p.hourly(t, nil), 5, 6000)
	tenants := p.tenants(t)
	if _, err := tenants.Suspend(t.Context(), p.who.TenantID, "unpaid"); err != nil {
		t.Fatal(err)
	}
	p.fill(t, p.promoter, time.Time{})
	if got := p.get(t, b); got.Created != 0 || got.Status != backfill.Running {
		t.Errorf("while suspended: %d made, %s", got.Created, got.Status)
	}
	if _, err := tenants.Activate(t.Context(), p.who.TenantID); err != nil {
		t.Fatal(err)
	}
	p.fill(t, p.promoter, time.Time{})
	if got := p.get(t, b); got.Created == 0 {
		t.Error("nothing was made once the tenant was active again")
	}
}
