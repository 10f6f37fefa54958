package rest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// lines writes occurrences as "at change dropped".
func lines(list []api.Occurrence) []string {
	var all []string
	for _, o := range list {
		at := "-"
		if scheduled := o.ScheduledAt; scheduled != nil {
			at = scheduled.Format(time.RFC3339)
		}
		var change api.ClockChange
		if o.ClockChange != nil {
			change = *o.ClockChange
		}
		var dropped api.DropReason
		if o.DropReason != nil {
			dropped = *o.DropReason
		}
		all = append(all, strings.TrimSpace(at+" "+o.LocalTime+" "+string(change)+" "+string(dropped)))
	}
	return all
}

// codes are the codes of warnings.
func codes(list []api.ScheduleWarning) []string {
	all := []string{}
	for _, w := range list {
		all = append(all, w.Code)
	}
	return all
}

func TestValidateAJobThatIsNotStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.now = time.Date(2026, 3, 6, 12, 0, 0, 0, time.UTC)
	token := b.token(t, b.ours, identity.Viewer)
	before := b.snapshot(t)
	for _, test := range []struct {
		name, members string
		next          []string // the first ones
		warnings      []string
	}{
		{"a plain expression", `"cronExpression":"0 0 9 * * *","timezone":"Asia/Shanghai"`, []string{"2026-03-07T09:00:00+08:00 2026-03-07T09:00:00"}, []string{}},
		{"a time that does not exist", `"cronExpression":"0 30 2 * * *","timezone":"America/New_York"`, []string{
			"2026-03-07T02:30:00-05:00 2026-03-07T02:30:00", "2026-03-08T03:30:00-04:00 2026-03-08T02:30:00 moved",
		}, []string{"CLOCK_CHANGE"}},
		{"a time that does not exist and is skipped", `"cronExpression":"0 30 2 * * *","timezone":"America/New_York","dstGap":"skip"`, []string{
			"2026-03-07T02:30:00-05:00 2026-03-07T02:30:00", "- 2026-03-08T02:30:00  gap", "2026-03-09T02:30:00-04:00 2026-03-09T02:30:00",
		}, []string{"CLOCK_CHANGE"}},
		{"a time that comes twice", `"cronExpression":"0 30 1 1 11 *","timezone":"America/New_York","dstOverlap":"both"`, []string{
			"2026-11-01T01:30:00-04:00 2026-11-01T01:30:00", "2026-11-01T01:30:00-05:00 2026-11-01T01:30:00 repeated",
		}, []string{"CLOCK_CHANGE"}},
		{"the 31st", `"cronExpression":"0 0 0 31 * *"`, []string{"2026-03-31T00:00:00Z 2026-03-31T00:00:00", "2026-05-31T00:00:00Z 2026-05-31T00:00:00"}, []string{"SKIPS_MONTHS"}},
		{"an end", `"cronExpression":"@daily","endDate":"2026-03-08T00:00:00Z"`, []string{"2026-03-07T00:00:00Z 2026-03-07T00:00:00"}, []string{"ENDS"}},
		{"an interval", `"interval":"PT90S"`, []string{"2026-03-06T12:01:30Z 2026-03-06T12:01:30", "2026-03-06T12:03:00Z 2026-03-06T12:03:00"}, []string{}},
		{"a one-off", `"runAt":"2026-03-06T20:00:00+08:00"`, nil, nil}, // now, so it has passed
		{"a one-off to come", `"runAt":"2026-03-06T20:00:01+08:00"`, []string{"2026-03-06T12:00:01Z 2026-03-06T12:00:01"}, []string{}},
		{"only when triggered", `"description":"x"`, []string{}, []string{}},
		{"settings that contradict each other", `"trigger":"manual","tags":["a","b","a"],"maxExecutions":90,"retryConfig":{"maxRetries":2,"retryDelayMs":5000,"maxRetryDelayMs":1000}`, []string{}, []string{"RETRY_DELAY_CAPPED", "DUPLICATE_TAGS", "NO_EFFECT"}},
		{"few executions", `"interval":"1h","maxExecutions":3`, []string{"2026-03-06T13:00:00Z 2026-03-06T13:00:00"}, []string{"LAST_RUNS"}},
	} {
		got := b.do(t, request{method: "POST", path: base + "/jobs/validate", token: token, body: more(test.members)})
		if test.warnings == nil {
			refused(t, got, http.StatusBadRequest, "VALIDATION_FAILED")
			continue
		}
		seen := read[api.JobValidation](t, got, http.StatusOK)
		next := lines(seen.Occurrences)
		if diff := cmp.Diff(test.next, next[:min(len(next), len(test.next))]); diff != "" && len(next)+len(test.next) > 0 {
			t.Errorf("%s: what comes next differs (-want +got):\n%s", test.name, diff)
		}
		if diff := cmp.Diff(test.warnings, slices.Compact(codes(seen.Warnings))); diff != "" {
			t.Errorf("%s: warnings differ (-want +got):\n%s%s", test.name, diff, got.body)
		}
	}
	if diff := cmp.Diff(before, b.snapshot(t)); diff != "" {
		t.Errorf("something was stored (-before +after):\n%s", diff)
	}
}

func TestValidateAStoredJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	made := b.makeJob(t, b.ours)
	path := base + "/jobs/" + made.ID.String() + "/validate"
	before := b.snapshot(t)
	stored := read[api.JobValidation](t, b.do(t, request{method: "POST", path: path, token: token}), http.StatusOK)
	if len(stored.Occurrences) != 5 || !stored.Occurrences[0].ScheduledAt.Equal(*made.NextExecutionAt) {
		t.Errorf("the stored job is next due at %v, want %v", lines(stored.Occurrences), made.NextExecutionAt)
	}
	changed := read[api.JobValidation](t, b.do(t, request{method: "POST", path: path, token: token, body: more(`"interval":"1h"`)}), http.StatusOK)
	if at := *changed.Occurrences[0].ScheduledAt; !at.Equal(b.now.Truncate(time.Microsecond).Add(time.Hour)) {
		t.Errorf("changed, it is next due at %s, want an hour from %s", at, b.now)
	}
	refused(t, b.do(t, request{method: "POST", path: path, token: token, body: more(`"interval":"1ms"`)}), http.StatusBadRequest, "VALIDATION_FAILED")
	if diff := cmp.Diff(before, b.snapshot(t)); diff != "" {
		t.Errorf("something was stored (-before +after):\n%s", diff)
	}
	// The validation of a stored definition that could not be sent again says so.
	once := more(`"runAt":"` + b.now.Add(time.Hour).Format(time.RFC3339) + `"`)
	over := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: b.token(t, b.ours, identity.Developer), body: once}), http.StatusCreated)
	b.now = b.now.Add(2 * time.Hour)
	e := refused(t, b.do(t, request{method: "POST", path: base + "/jobs/" + over.ID.String() + "/validate", token: b.token(t, b.ours, identity.Viewer)}), http.StatusBadRequest, "VALIDATION_FAILED")
	if len(e.Error.Details) != 1 || e.Error.Details[0].Field != "runAt" {
		t.Errorf("the details are %+v", e.Error.Details)
	}
}

func TestPreviewASchedule(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	make := func(members string) string {
		return read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: more(members)}), http.StatusCreated).ID.String()
	}
	preview := func(id, query string) api.SchedulePreview {
		t.Helper()
		return read[api.SchedulePreview](t, b.do(t, request{method: "GET", path: base + "/jobs/" + id + "/schedule?" + query, token: token}), http.StatusOK)
	}
	berlin := make(`"cronExpression":"0 30 2 * * *","timezone":"Europe/Berlin"`)
	seen := preview(berlin, "count=2&from="+url.QueryEscape("2030-03-30T02:30:00+01:00"))
	if diff := cmp.Diff([]string{"2030-03-30T02:30:00+01:00 2030-03-30T02:30:00", "2030-03-31T03:30:00+02:00 2030-03-31T02:30:00 moved"}, lines(seen.Occurrences)); diff != "" {
		t.Errorf("occurrences differ (-want +got):\n%s", diff)
	}
	if seen.Timezone != "Europe/Berlin" {
		t.Errorf("the zone is %q", seen.Timezone)
	}
	for query, want := range map[string]int{"": 10, "count=1": 1, "count=100": 100, "from=2499-12-31T12:00:00Z": 0, "from=9999-12-31T23:59:59Z": 0, "from=0000-01-01T00:00:00Z": 10} {
		if got := len(preview(berlin, query).Occurrences); got != want {
			t.Errorf("%q: %d occurrences, want %d", query, got, want)
		}
	}
	spread := preview(make(`"cronExpression":"@daily","jitterSeconds":3600`), "count=20")
	moved := 0
	for _, o := range spread.Occurrences {
		at, offset := *o.ScheduledAt, time.Duration(o.JitterSeconds*float64(time.Second)).Round(time.Millisecond)
		if !at.Equal(o.NominalAt.Add(offset)) || offset < 0 || offset >= time.Hour {
			t.Errorf("nominal %s, at %s, jitter %s", o.NominalAt, at, offset)
		}
		if offset > 0 {
			moved++
		}
	}
	if moved < 10 {
		t.Errorf("%d of 20 slots are spread", moved)
	}
	if got := preview(make(`"description":"only when triggered"`), ""); len(got.Occurrences)+len(got.Warnings) != 0 {
		t.Errorf("without a schedule: %+v", got)
	}
	paused := make(`"interval":"1h"`)
	read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs/" + paused + "/pause", token: token}), http.StatusOK)
	if diff := cmp.Diff([]string{"NOT_ACTIVE"}, codes(preview(paused, "").Warnings)); diff != "" {
		t.Errorf("warnings of a paused job differ (-want +got):\n%s", diff)
	}
	for _, query := range []string{"count=0", "count=101", "count=x", "count=1&count=2", "from=tomorrow", "from=", "until=2030-01-01T00:00:00Z"} {
		refused(t, b.do(t, request{method: "GET", path: base + "/jobs/" + berlin + "/schedule?" + query, token: token}), http.StatusBadRequest, "VALIDATION_FAILED")
	}
}

// The first scheduled time of a preview is the one at which the job becomes due, also with
// what depends on the job's id.
func TestThePreviewIsWhatHappens(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	for _, members := range []string{
		`"cronExpression":"H H(2-4) * * *","timezone":"Australia/Lord_Howe"`, `"cronExpression":"@hourly","jitterSeconds":1800`, `"interval":"7m","jitterSeconds":60`,
		`"runAt":"2090-01-01T00:00:00Z","jitterSeconds":60`, `"cronExpression":"*/20 * * * * *","startDate":"2091-05-05T05:05:05Z"`,
	} {
		made := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: more(members)}), http.StatusCreated)
		path := fmt.Sprintf("%s/jobs/%s/schedule?count=3&from=%s", base, made.ID, url.QueryEscape(made.CreatedAt.Format(time.RFC3339Nano)))
		seen := read[api.SchedulePreview](t, b.do(t, request{method: "GET", path: path, token: token}), http.StatusOK)
		if at := *seen.Occurrences[0].ScheduledAt; !at.Equal(*made.NextExecutionAt) {
			t.Errorf("%s: the preview says %s, the job %s", members, at, *made.NextExecutionAt)
		}
	}
}

// Many of the tenant's jobs at one time are worth a warning; those of
// another tenant are not, nor are paused ones.
func TestStampedesAreWarnedOf(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	var of uuid.UUID
	warned := func() string {
		seen := read[api.SchedulePreview](t, b.do(t, request{method: "GET", path: base + "/jobs/" + of.String() + "/schedule", token: token}), http.StatusOK)
		for _, w := range seen.Warnings {
			if w.Code == "STAMPEDE" {
				return w.Message
			}
		}
		return ""
	}
	for range 49 {
		of = b.makeJob(t, b.ours).ID
		b.makeJob(t, b.theirs)
	}
	if _, err := b.jobs.Pause(t.Context(), b.ours, b.makeJob(t, b.ours).ID, "", nil); err != nil {
		t.Fatal(err)
	}
	if got := warned(); got != "" {
		t.Errorf("49 jobs are warned of: %s", got)
	}
	b.makeJob(t, b.ours)
	if got := warned(); !strings.HasPrefix(got, "50 of this tenant's jobs are due at 20") {
		t.Errorf("50 jobs: the warning is %q", got)
	}
	// A job that is not stored yet is warned too.
	got := read[api.JobValidation](t, b.do(t, request{method: "POST", path: base + "/jobs/validate", token: token, body: more(`"cronExpression":"0 0 0 1 1 *"`)}), http.StatusOK)
	if diff := cmp.Diff([]string{"STAMPEDE"}, codes(got.Warnings)); diff != "" {
		t.Errorf("warnings differ (-want +got):\n%s", diff)
	}
}

// The runs to come of all jobs of a tenant, by the contract's bounds.
func TestUpcomingRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	get := func(query string) answer {
		return b.do(t, request{method: "GET", path: base + "/upcoming-runs" + query, token: token})
	}
	if none := read[api.UpcomingRuns](t, get(""), http.StatusOK); none.Total != 0 || none.Jobs != 0 || none.Truncated || len(none.Buckets) != 0 || none.To.Sub(none.From) != time.Hour {
		t.Errorf("without jobs: %+v", none)
	}
	due := b.now.Truncate(time.Hour).Add(2 * time.Hour)
	hourly := func(who tenant.Actor) uuid.UUID {
		made := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: b.token(t, who, identity.Developer), body: strings.Replace(webhook, "0 0 9 * * 1-5", "0 0 * * * *", 1)}), http.StatusCreated)
		if _, err := b.engine.Pool().Exec(t.Context(), "UPDATE scheduled_jobs SET next_execution_at = $2 WHERE id = $1", made.ID, due); err != nil {
			t.Fatal(err)
		}
		return made.ID
	}
	ours := hourly(b.ours)
	hourly(b.theirs)
	seen := read[api.UpcomingRuns](t, get("?bucket=day&timezone=Asia/Kolkata&to="+due.Add(10*time.Hour).Format(time.RFC3339)), http.StatusOK)
	var sum int64
	for _, bucket := range seen.Buckets {
		sum += bucket.Count
		if _, offset := bucket.StartAt.Zone(); offset != 19800 || bucket.JobCount != 1 || len(bucket.Jobs) != 1 || bucket.Jobs[0].JobID != ours || bucket.Jobs[0].Count != bucket.Count {
			t.Errorf("a day is %+v", bucket)
		}
	}
	if sum != 10 || seen.Total != 10 || seen.Jobs != 1 || seen.Timezone != "Asia/Kolkata" || !seen.CompleteUntil.Equal(seen.To) {
		t.Errorf("%d runs: %+v", sum, seen)
	}
	watched := b.makeMonitor(t, b.ours)
	b.makeMonitor(t, b.theirs)
	if _, err := b.engine.Pool().Exec(t.Context(), "UPDATE monitors SET expected_at = $1", due); err != nil {
		t.Fatal(err)
	}
	to := "&to=" + due.Add(time.Minute).Format(time.RFC3339)
	both := read[api.UpcomingRuns](t, get("?bucket=hour"+to), http.StatusOK)
	if both.Total != 2 || both.Monitors != 1 || len(both.Buckets) != 1 || len(both.Buckets[0].Jobs) != 1 || both.Buckets[0].Jobs[0].Kind != api.UpcomingKindJob ||
		len(both.Buckets[0].Monitors) != 1 || both.Buckets[0].Monitors[0].MonitorID != watched.ID || both.Buckets[0].Monitors[0].Kind != api.UpcomingKindMonitor {
		t.Errorf("a job and a monitor are %+v", both)
	}
	if alone := read[api.UpcomingRuns](t, get("?bucket=hour&kind=monitor"+to), http.StatusOK); alone.Total != 1 || alone.Jobs != 0 || alone.Monitors != 1 {
		t.Errorf("monitors alone are %+v", alone)
	}
	_, blind := b.makeKey(t, b.ours, "jobs:read")
	if without := read[api.UpcomingRuns](t, b.do(t, request{method: "GET", path: base + "/upcoming-runs?bucket=hour" + to, token: blind}), http.StatusOK); without.Total != 1 || without.Monitors != 0 {
		t.Errorf("without monitors:read: %+v", without)
	}
	if got := b.do(t, request{method: "GET", path: base + "/upcoming-runs?kind=monitor" + to, token: blind}); got.status != http.StatusForbidden {
		t.Errorf("monitors alone without monitors:read are answered %d %s", got.status, got.body)
	}
	for query, field := range map[string]string{
		"?to=" + b.now.Add(-time.Minute).Format(time.RFC3339):             "to",
		"?bucket=hour&to=" + b.now.AddDate(0, 0, 32).Format(time.RFC3339): "to",
		"?to=" + b.now.AddDate(0, 0, 2).Format(time.RFC3339):              "bucket",
		"?timezone=Mars/Olympus":                                          "timezone",
	} {
		if got := get(query); got.status != http.StatusBadRequest || !strings.Contains(got.body, `"field":"`+field+`"`) {
			t.Errorf("%s is answered %d %s, want a complaint about %s", query, got.status, got.body, field)
		}
	}
}
