package promoter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/backfill"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/postgres/refusal"
)

// detach takes the month of a time out of the history, as an operator does who
// wants to keep it.
func (b *bundle) detach(t *testing.T, at time.Time) (table string) {
	t.Helper()
	exec(t, b.database.AdminURL, fmt.Sprintf("SELECT create_job_executions_partition('%s')", at.Format(time.RFC3339)))
	table = "job_executions_" + at.UTC().Format("2006_01")
	exec(t, b.database.AdminURL, "ALTER TABLE job_executions DETACH PARTITION "+table)
	return table
}

// TestDetachedMonthIsMadeAgain detaches the current month, whose table keeps its
// name. On the commit before, its name passed for the month: every completion and
// promotion of that month was refused.
func TestDetachedMonthIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	now := *j.NextExecutionAt
	table := b.detach(t, now)
	if err := b.maintainer.MakePartitions(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	b.pass(t, b.promoter, now)
	e := b.rows(t, j)[0]
	if _, _, err := b.executions.Cancel(t.Context(), b.who, e.ID, ""); err != nil {
		t.Fatalf("a record of that month: %v", err)
	}
	if n := b.number(t, "SELECT count(*) FROM job_executions WHERE tableoid = $1::regclass", table+"_2"); n != 1 {
		t.Errorf("%d rows are in the new partition", n)
	}
	if err := b.maintainer.MakePartitions(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if n := b.number(t, "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname LIKE $1", table+"%"); n != 2 {
		t.Errorf("%d tables of the month: another pass made one more", n)
	}
	if n := b.number(t, "SELECT count(*) FROM pg_class WHERE relname = $1 AND relrowsecurity AND relforcerowsecurity AND relacl IS NULL", table+"_2"); n != 1 {
		t.Error("row-level security does not guard the partition with the other name")
	}
}

// TestParkedIsStoredOnceItsMonthIsThere parks an execution of a month that is not
// there, and the sweep makes it.
func TestParkedIsStoredOnceItsMonthIsThere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	now := *j.NextExecutionAt
	b.pass(t, b.promoter, now)
	old := now.AddDate(0, -5, 0)
	exec(t, b.database.AdminURL, fmt.Sprintf("UPDATE active_executions SET scheduled_at = '%s', status = 'parked', parked_at = '%[2]s', sweep_at = '%[2]s', concurrency_limit = -1, parked_outcome = '{\"succeeded\":true}'",
		old.Format(time.RFC3339), now.Format(time.RFC3339)))
	if r := b.sweep(t, now); r.Settled != 1 {
		t.Errorf("%+v", r)
	}
	if n := b.number(t, "SELECT count(*) FROM job_executions WHERE scheduled_at = $1", old); n != 1 {
		t.Errorf("%d rows", n)
	}
}

func TestBackfillOfADetachedMonthIsRefused(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	j := p.hourly(t, nil)
	lost := time.Date(p.midnight.Year(), p.midnight.Month()-2, 10, 0, 0, 0, 0, time.UTC)
	table := p.detach(t, lost)
	across := backfill.Request{From: lost.AddDate(0, -1, 0), To: lost, RatePerMinute: 60}
	_, _, created := p.backfills.Create(t.Context(), p.who, j.ID, across, idempotency.Key{})
	_, planned := p.backfills.Preview(t.Context(), p.who, j.ID, across)
	for _, err := range []error{created, planned} {
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Rule != "detached" ||
			!strings.Contains(f.Fields[0].Message, lost.Format("2006-01")) || !strings.Contains(f.Fields[0].Message, table) {
			t.Errorf("answered %v", err)
		}
	}
	beside := backfill.Request{From: lost.AddDate(0, 0, -30), To: lost.AddDate(0, 0, -15), RatePerMinute: 60}
	if _, _, err := p.backfills.Create(t.Context(), p.who, j.ID, beside, idempotency.Key{}); err != nil {
		t.Errorf("a range without the month: %v", err)
	}
}

// TestBackfillIsHeldByADetachedMonth detaches the month while two backfills run.
func TestBackfillIsHeldByADetachedMonth(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	first := time.Date(p.midnight.Year(), p.midnight.Month()-3, 1, 0, 0, 0, 0, time.UTC)
	next := first.AddDate(0, 1, 0) // from midnight on the month that is detached
	ask := func(from, to time.Time) backfill.Backfill {
		t.Helper()
		made, _, err := p.backfills.Create(t.Context(), p.who, p.hourly(t, nil).ID, backfill.Request{From: from, To: to, RatePerMinute: 6000}, idempotency.Key{})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	across, beside := ask(next.Add(-2*time.Hour), next.Add(2*time.Hour)), ask(first, first.Add(4*time.Hour))
	table := p.detach(t, next)
	now := p.midnight.Add(48 * time.Hour)
	p.fill(t, p.promoter, now)
	held, other := p.get(t, across), p.get(t, beside)
	if held.Created != 2 || !strings.Contains(held.HeldBy, next.Format("2006-01")) || held.Status != backfill.Running || other.Created != 4 || other.HeldBy != "" {
		t.Errorf("held: %+v\nother: %+v", held, other)
	}
	month := fmt.Sprintf("FOR VALUES FROM ('%s') TO ('%s')", next.Format(time.RFC3339), next.AddDate(0, 1, 0).Format(time.RFC3339))
	exec(t, p.database.AdminURL, "ALTER TABLE job_executions ATTACH PARTITION "+table+" "+month)
	p.fill(t, p.promoter, now.Add(time.Hour))
	if held = p.get(t, across); held.Created != 4 || held.HeldBy != "" {
		t.Errorf("once it is attached again: %+v", held)
	}
}

// TestBackfillThatFailsIsHeldAlone has of three backfills one that the database
// refuses and one whose definition cannot be read. On the commit before, all three
// stood still.
func TestBackfillThatFailsIsHeldAlone(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	var made []backfill.Backfill
	for range 3 {
		made = append(made, p.ask(t, p.hourly(t, nil), 3, 6000))
	}
	now := p.midnight.Add(48 * time.Hour)
	unread := fmt.Sprintf("UPDATE job_versions SET spec = '[]' WHERE job_id = '%s'", made[0].JobID)
	exec(t, p.database.AdminURL, unread)
	for _, code := range refusal.SQLSTATEs() {
		refused := refusal.Refusal{Name: "one", Table: "active_executions", Rows: "NEW.job_id = '" + made[1].JobID.String() + "'", SQLSTATE: code}
		exec(t, p.database.AdminURL, refused.Begin())
		exec(t, p.database.AdminURL, "DELETE FROM active_executions")
		exec(t, p.database.AdminURL, "UPDATE backfills SET created = 0, cursor_at = from_at - interval '1 microsecond', next_batch_at = created_at, held_by = ''")
		report, err := p.promoter.Backfill(t.Context(), now)
		if err != nil || report.Held != 1 || report.Created != 3 {
			t.Fatalf("%s: %+v, %v", code, report, err)
		}
		if b := p.get(t, made[1]); !strings.Contains(b.HeldBy, "SQLSTATE "+code) || b.Status != backfill.Running {
			t.Errorf("%s: held by %q", code, b.HeldBy)
		}
		exec(t, p.database.AdminURL, refused.End())
	}
	if b := p.get(t, made[0]); !strings.Contains(b.HeldBy, "cannot be read") {
		t.Errorf("the unreadable one is held by %q", b.HeldBy)
	}
	if p.fill(t, p.promoter, now.Add(time.Hour)); p.get(t, made[1]).Created != 3 {
		t.Errorf("once it is mended: %+v", p.get(t, made[1]))
	}
}
