package backfill_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/backfill"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

type bundle struct {
	api       *postgres.DB
	jobs      *job.Store
	backfills *backfill.Store
	who       tenant.Actor
	today     time.Time // the midnight that has just passed, in UTC
}

func setup(t *testing.T) *bundle {
	t.Helper()
	api, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.New(t).URL, Role: postgres.API, Name: "test", MaxConns: 4, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	b := &bundle{
		api: api, jobs: job.NewStore(api, job.Config{}), backfills: backfill.NewStore(api, backfill.Config{Kept: func() partition.Term { return partition.Term{Months: 13} }}), who: tenant.Actor{TenantID: uuid.New(), Subject: "ada"},
		today: clock.Now().UTC().Truncate(24 * time.Hour),
	}
	b.admit(t, b.who)
	return b
}

func (b *bundle) admit(t *testing.T, who tenant.Actor) {
	t.Helper()
	if err := tenant.NewStore(b.api, true).Admit(t.Context(), who.TenantID); err != nil {
		t.Fatal(err)
	}
}

// create makes a job that is due every hour, changed by edit.
func (b *bundle) create(t *testing.T, edit func(*job.Spec)) job.Job {
	t.Helper()
	spec := job.Spec{Name: "hourly", Type: "function", Config: []byte(`{}`), Retry: job.DefaultRetry(), Policy: job.Policy{CronExpression: "0 0 * * * *"}}
	if edit != nil {
		edit(&spec)
	}
	j, _, err := b.jobs.Create(t.Context(), b.who, spec.WithDefaults(), idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// ask makes a backfill of the day before yesterday.
func (b *bundle) ask(t *testing.T, j job.Job) backfill.Backfill {
	t.Helper()
	made, _, err := b.backfills.Create(t.Context(), b.who, j.ID, b.aDay(), idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (b *bundle) aDay() backfill.Request {
	return backfill.Request{From: b.today.AddDate(0, 0, -2), To: b.today.AddDate(0, 0, -1)}
}

// paths are the fields of an Invalid fault, with the rule that each breaks.
func paths(t *testing.T, err error) map[string]string {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Invalid {
		t.Fatalf("the error is %v, want one that lists fields", err)
	}
	found := map[string]string{}
	for _, field := range f.Fields {
		found[field.Path] = field.Rule
		if field.Message == "" {
			t.Errorf("%s has no message", field.Path)
		}
	}
	return found
}

func code(err error) fault.Code {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Code
	}
	return ""
}

func TestFromIsIncludedAndToIsNot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	hour := func(n int) time.Time { return b.today.Add(time.Duration(n-48) * time.Hour) }
	for _, test := range []struct {
		name     string
		from, to time.Time
		want     backfill.Plan
	}{
		{"a day", hour(0), hour(24), backfill.Plan{Total: 24, First: hour(0), Last: hour(23)}},
		{"one scheduled time, at its beginning", hour(3), hour(3).Add(time.Microsecond), backfill.Plan{Total: 1, First: hour(3), Last: hour(3)}},
		{"a microsecond after a scheduled time", hour(3).Add(time.Microsecond), hour(5), backfill.Plan{Total: 1, First: hour(4), Last: hour(4)}},
		{"a microsecond past a scheduled time", hour(3), hour(4).Add(time.Microsecond), backfill.Plan{Total: 2, First: hour(3), Last: hour(4)}},
		{"none", hour(3).Add(time.Minute), hour(4), backfill.Plan{}},
		{"another zone", hour(3).In(time.FixedZone("", 3600)), hour(4), backfill.Plan{Total: 1, First: hour(3), Last: hour(3)}},
	} {
		got, err := b.backfills.Preview(t.Context(), b.who, j.ID, backfill.Request{From: test.from, To: test.to})
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", test.name, err, diff)
		}
	}
}

func TestBadRequestsNameTheirFields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hourly := b.create(t, nil)
	often := b.create(t, func(s *job.Spec) { s.CronExpression = "* * * * * *" })
	byHand := b.create(t, func(s *job.Spec) { s.CronExpression = "" })
	now := clock.Now()
	for _, test := range []struct {
		name string
		of   job.Job
		r    backfill.Request
		want map[string]string
	}{
		{"the wrong way round", hourly, backfill.Request{From: b.today, To: b.today.Add(-time.Hour)}, map[string]string{"to": "order"}},
		{"nothing between", hourly, backfill.Request{From: b.today, To: b.today}, map[string]string{"to": "order"}},
		{"the future", hourly, backfill.Request{From: b.today, To: now.Add(time.Hour)}, map[string]string{"to": "past"}},
		{"before retention", hourly, backfill.Request{From: now.AddDate(0, -13, -2), To: now.AddDate(0, -13, 2)}, map[string]string{"from": "retention"}},
		{"too fast", hourly, backfill.Request{From: b.today.Add(-time.Hour), To: b.today, RatePerMinute: 6001}, map[string]string{"ratePerMinute": "bounds"}},
		{"too slow", hourly, backfill.Request{From: b.today.Add(-time.Hour), To: b.today, RatePerMinute: -1}, map[string]string{"ratePerMinute": "bounds"}},
		{"everything", hourly, backfill.Request{From: now.AddDate(-2, 0, 0), To: now.AddDate(1, 0, 0), RatePerMinute: 7000}, map[string]string{"from": "retention", "to": "past", "ratePerMinute": "bounds"}},
		{"10,001 scheduled times", often, backfill.Request{From: b.today.Add(-10_001 * time.Second), To: b.today}, map[string]string{"from": "maximum"}},
		{"a year of seconds", often, backfill.Request{From: b.today.AddDate(-1, 0, 0), To: b.today}, map[string]string{"from": "maximum"}},
		{"no scheduled time", hourly, backfill.Request{From: b.today.Add(-time.Hour + 1000), To: b.today}, map[string]string{"from": "never"}},
		{"no schedule", byHand, backfill.Request{From: b.today.Add(-time.Hour), To: b.today}, map[string]string{"id": "schedule"}},
	} {
		_, _, err := b.backfills.Create(t.Context(), b.who, test.of.ID, test.r, idempotency.Key{})
		if diff := cmp.Diff(test.want, paths(t, err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		_, err = b.backfills.Preview(t.Context(), b.who, test.of.ID, test.r)
		if test.name == "no scheduled time" {
			if err != nil {
				t.Errorf("a dry run of nothing: %v", err)
			}
		} else if diff := cmp.Diff(test.want, paths(t, err)); diff != "" {
			t.Errorf("%s, as a dry run (-want +got):\n%s", test.name, diff)
		}
	}
	p, err := b.backfills.Preview(t.Context(), b.who, often.ID, backfill.Request{From: b.today.Add(-10_000 * time.Second), To: b.today})
	if err != nil || p.Total != 10_000 {
		t.Errorf("10,000 scheduled times: %+v, %v", p, err)
	}
	if list, err := b.backfills.List(t.Context(), b.who, hourly.ID, 10, nil, false); err != nil || len(list) != 0 {
		t.Errorf("stored %d backfills (%v)", len(list), err)
	}
}

func TestABackfillIsStoredAsAsked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	r := b.aDay()
	r.RatePerMinute, r.Parameters = 90, json.RawMessage(`{"day": 1}`)
	key := idempotency.Key{Value: "k", Route: "POST"}
	made, replayed, err := b.backfills.Create(t.Context(), b.who, j.ID, r, key)
	if err != nil || replayed {
		t.Fatalf("%v, replayed %v", err, replayed)
	}
	want := backfill.Backfill{
		ID: made.ID, TenantID: b.who.TenantID, JobID: j.ID, JobVersion: 1, From: r.From, To: r.To, RatePerMinute: 90, DailyShare: 50, Parameters: r.Parameters,
		Status: backfill.Running, Total: 24, RequestedBy: "ada", CreatedAt: made.CreatedAt, Outcomes: map[execution.Status]int{},
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	got, err := b.backfills.Get(t.Context(), b.who, j.ID, made.ID)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("read: %v (-want +got):\n%s", err, diff)
	}
	again, replayed, err := b.backfills.Create(t.Context(), b.who, j.ID, r, key)
	if diff := cmp.Diff(made.ID, again.ID); err != nil || !replayed || diff != "" {
		t.Errorf("repeated: %v, replayed %v (-want +got):\n%s", err, replayed, diff)
	}
	plain := b.ask(t, j)
	if plain.RatePerMinute != backfill.DefaultRate {
		t.Errorf("the rate is %d", plain.RatePerMinute)
	}
	list, err := b.backfills.List(t.Context(), b.who, j.ID, 1, nil, false)
	if err != nil || len(list) != 1 || list[0].ID != plain.ID || list[0].Outcomes != nil {
		t.Fatalf("first page %+v, %v", list, err)
	}
	list, err = b.backfills.List(t.Context(), b.who, j.ID, 10, &backfill.Position{CreatedAt: plain.CreatedAt, ID: plain.ID}, true)
	if err != nil || len(list) != 1 || list[0].ID != made.ID {
		t.Errorf("second page %+v, %v", list, err)
	}
}

func TestAnothersBackfillsDoNotExist(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	made := b.ask(t, j)
	eve := tenant.Actor{TenantID: uuid.New(), Subject: "eve"}
	b.admit(t, eve)
	if _, _, err := b.backfills.Create(t.Context(), eve, j.ID, b.aDay(), idempotency.Key{}); code(err) != "JOB_NOT_FOUND" {
		t.Errorf("create: %v", err)
	}
	if _, err := b.backfills.Preview(t.Context(), eve, j.ID, b.aDay()); code(err) != "JOB_NOT_FOUND" {
		t.Errorf("preview: %v", err)
	}
	if _, err := b.backfills.List(t.Context(), eve, j.ID, 10, nil, false); code(err) != "JOB_NOT_FOUND" {
		t.Errorf("list: %v", err)
	}
	if _, err := b.backfills.Get(t.Context(), eve, j.ID, made.ID); code(err) != "BACKFILL_NOT_FOUND" {
		t.Errorf("get: %v", err)
	}
	if _, err := b.backfills.Cancel(t.Context(), eve, j.ID, made.ID, ""); code(err) != "BACKFILL_NOT_FOUND" {
		t.Errorf("cancel: %v", err)
	}
	// Nor is it another job's.
	if _, err := b.backfills.Get(t.Context(), b.who, b.create(t, nil).ID, made.ID); code(err) != "BACKFILL_NOT_FOUND" {
		t.Errorf("get by another job: %v", err)
	}
	if got, err := b.backfills.Get(t.Context(), b.who, j.ID, made.ID); err != nil || got.Status != backfill.Running {
		t.Errorf("it is %+v, %v", got, err)
	}
}

func TestOnlySoManyRunAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	first := b.ask(t, j)
	for range backfill.MaxRunning - 1 {
		b.ask(t, j)
	}
	if _, _, err := b.backfills.Create(t.Context(), b.who, j.ID, b.aDay(), idempotency.Key{}); code(err) != "TOO_MANY_BACKFILLS" {
		t.Errorf("one too many: %v", err)
	}
	cancelled, err := b.backfills.Cancel(t.Context(), b.who, j.ID, first.ID, "")
	if err != nil || cancelled.Status != backfill.Cancelled || cancelled.FinishedAt == nil {
		t.Fatalf("cancelled: %+v, %v", cancelled, err)
	}
	again, err := b.backfills.Cancel(t.Context(), b.who, j.ID, first.ID, "")
	if diff := cmp.Diff(cancelled, again); err != nil || diff != "" {
		t.Errorf("cancelled twice: %v (-once +twice):\n%s", err, diff)
	}
	b.ask(t, j)
}

func TestProgress(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		of   backfill.Backfill
		want int
	}{
		{"nothing made", backfill.Backfill{Total: 10}, 0},
		{"made and not finished", backfill.Backfill{Total: 10, Created: 4, Active: 4}, 0},
		{"some finished", backfill.Backfill{Total: 10, Created: 4, Active: 1}, 30},
		{"rounds down", backfill.Backfill{Total: 3, Created: 2}, 66},
		{"all finished", backfill.Backfill{Total: 10, Created: 10}, 100},
		{"a calendar gave more than were counted", backfill.Backfill{Total: 10, Created: 12}, 100},
	} {
		if got := test.of.Progress(); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

// The scheduled times before an interval's anchor are those that it would have had.
func TestAnchorReachesBackByWholeIntervals(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		step := time.Duration(rapid.Int64Range(1000, 366*24*3600*1000).Draw(t, "ms")) * time.Millisecond
		anchor := time.UnixMicro(rapid.Int64Range(1.5e15, 2e15).Draw(t, "anchor")).UTC()
		from := anchor.Add(time.Duration(rapid.Int64Range(-400*24*3600e6, 400*24*3600e6).Draw(t, "from")) * time.Microsecond)
		got := backfill.Anchor(job.Policy{Interval: job.Duration(step)}, anchor, from)
		switch {
		case anchor.Sub(got)%step != 0:
			t.Fatalf("%v is not whole steps of %v before %v", got, step, anchor)
		case from.After(anchor) && !got.Equal(anchor):
			t.Fatalf("moved to %v without need", got)
		case !from.After(anchor) && got.Add(step).After(from):
			t.Fatalf("from %v: the first scheduled time would be %v", from, got.Add(step))
		}
	})
	anchor := time.UnixMicro(1.7e15)
	if got := backfill.Anchor(job.Policy{CronExpression: "0 0 * * * *"}, anchor, anchor.Add(-time.Hour)); !got.Equal(anchor) {
		t.Errorf("a cron's anchor moved to %v", got)
	}
}
