package promoter_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/backfill"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// limited gives the tenant limits of its own on what waits; 0: none.
func (b *bundle) limited(t *testing.T, all, perJob int) {
	t.Helper()
	var limits tenant.Limits
	if all > 0 {
		limits.MaxWaiting = &all
	}
	if perJob > 0 {
		limits.MaxWaitingPerJob = &perJob
	}
	if _, err := b.tenants(t).Change(t.Context(), b.who.TenantID, tenant.Spec{Name: "x", Limits: limits}, 0); err != nil {
		t.Fatal(err)
	}
}

// count counts what waits, of all tenants.
func (b *bundle) count(t *testing.T) {
	t.Helper()
	for all := false; !all; {
		var err error
		if all, err = b.maintainer.CountWaiting(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// refused says that an error names a limit, its value and who set it.
func refused(t *testing.T, what string, err error, limit string, value int64, by string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.TooMany || f.Code != "QUOTA_EXCEEDED" || f.Limit == nil || f.Limit.Name != limit || f.Limit.Value != value ||
		!strings.Contains(f.Message, by) || !strings.Contains(f.Message, "there is room again") || f.RetryAfter == 0 {
		t.Errorf("%s: %+v, want a refusal that names %s %d, %s", what, err, limit, value, by)
	}
}

// Where as many wait as may, a trigger is refused, and there is room again once
// one of them is cancelled or the rest is being cancelled.
func TestTriggersAreRefusedWhereAsManyWaitAsMay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	trigger := func(s *execution.Store, j job.Job) error {
		_, _, err := s.Trigger(t.Context(), b.who, j.ID, nil, idempotency.Key{})
		return err
	}
	allows := func(s *job.Spec) { s.CronExpression, s.Overlap = "", job.OverlapAllow }
	j, other := b.create(t, allows), b.create(t, triggered)
	b.limited(t, 5, 3)
	b.backlog(t, j, 3)
	refused(t, "the fourth of a job", trigger(b.executions, j), "maxWaitingPerJob", 3, "set for this tenant by the platform's administrator")
	b.backlog(t, other, 2)
	refused(t, "the sixth of a tenant", trigger(b.executions, other), "maxWaiting", 5, "set for this tenant")
	if _, _, err := b.executions.Cancel(t.Context(), b.who, b.waiting(t, j)[0], ""); err != nil {
		t.Fatal(err)
	}
	if err := trigger(b.executions, j); err != nil {
		t.Errorf("with room again: %v", err)
	}

	b.limited(t, 0, 0)
	defaults := execution.NewStore(open(t, b.database.URL, postgres.API), execution.Config{Backlog: func() tenant.Backlog { return tenant.Backlog{Max: 1_000_000, MaxPerJob: many} }})
	large := b.create(t, triggered)
	b.backlog(t, large, many)
	if err := trigger(defaults, large); err != nil {
		t.Errorf("before anybody counted: %v", err)
	}
	b.count(t)
	refused(t, "one more than the default", trigger(defaults, large), "maxWaitingPerJob", many, "default of this installation")
	if _, err := b.jobs.Stop(t.Context(), b.who, large.ID, ""); err != nil {
		t.Fatal(err)
	}
	b.count(t)
	if err := trigger(defaults, large); err != nil {
		t.Errorf("while the backlog is being cancelled: %v", err)
	}
	if n := b.number(t, "SELECT count(*) FROM waiting_counts WHERE waiting > 500"); n != 0 {
		t.Errorf("%d numbers of what does not wait any more are left", n)
	}
}

// A scheduled time of a job of which as many wait as may is skipped, and its record
// names the limit; another tenant's is not.
func TestScheduledTimesAreSkippedWhereAsManyWaitAsMay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.limited(t, 0, 3)
	j, free := b.create(t, nil), b.create(t, nil)
	b.backlog(t, j, 3)
	b.count(t)
	now := *free.NextExecutionAt // that of j, or the second after it
	b.pass(t, b.promoter, now)
	rows := b.rows(t, j)
	last := rows[len(rows)-1]
	if last.Status != execution.Skipped || !strings.Contains(last.Reason, "maxWaitingPerJob") || !strings.Contains(last.Reason, "3 executions") {
		t.Errorf("the scheduled time is %s: %s", last.Status, last.Reason)
	}
	if got := b.rows(t, free); len(got) != 1 || got[0].Status != execution.Pending {
		t.Errorf("another job's scheduled time: %+v", got)
	}
	exec(t, b.database.AdminURL, "DELETE FROM active_executions")
	b.count(t)
	b.pass(t, b.another(), now.Add(time.Second))
	if rows := b.rows(t, j); rows[len(rows)-1].Status != execution.Pending {
		t.Errorf("with room again the scheduled time is %s", rows[len(rows)-1].Status)
	}
}

// A backfill makes nothing where as many wait as may and says why, none begins
// there, and it goes on by itself.
func TestBackfillsWaitForRoom(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.CronExpression = "0 0 * * *" })
	store := backfill.NewStore(open(t, b.database.URL, postgres.API), backfill.Config{Kept: func() partition.Term { return partition.Term{Months: 12} }})
	to := clock.Now().Truncate(24 * time.Hour)
	request := backfill.Request{From: to.AddDate(0, 0, -5), To: to, RatePerMinute: 6000}
	made, _, err := store.Create(t.Context(), b.who, j.ID, request, idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	b.limited(t, 2, 0)
	b.backlog(t, j, 2)
	b.count(t)
	_, _, err = store.Create(t.Context(), b.who, j.ID, request, idempotency.Key{})
	refused(t, "a backfill", err, "maxWaiting", 2, "set for this tenant")
	now := made.CreatedAt.Add(10 * time.Second)
	report, err := b.promoter.Backfill(t.Context(), now)
	if err != nil || report.Created != 0 {
		t.Errorf("it made %d executions, %v", report.Created, err)
	}
	if got, err := store.Get(t.Context(), b.who, j.ID, made.ID); err != nil || got.HeldBy != "maxWaiting" {
		t.Errorf("it is held by %q, %v", got.HeldBy, err)
	}
	b.limited(t, 0, 0)
	report, err = b.another().Backfill(t.Context(), now.Add(10*time.Second))
	if err != nil || report.Created == 0 {
		t.Errorf("with room again it made %d executions, %v", report.Created, err)
	}
}
