package rest_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// One answer has what the statistics, the counts of monitors' runs and the forecast say.
func TestRunCalendar(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	made := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: b.token(t, b.ours, identity.Developer), body: strings.Replace(webhook, "0 0 9 * * 1-5", "0 * * * * *", 1)}), http.StatusCreated)
	b.over(t, b.ours, made.ID, b.now.Add(-2*time.Hour), "completed", 5, 7)
	b.over(t, b.ours, made.ID, b.now.Add(-90*time.Minute), "failed", 9)
	b.makeMonitor(t, b.ours)
	span := func(from, to time.Duration) string {
		return "?timezone=Asia/Kolkata&from=" + url.QueryEscape(b.now.Add(from).Format(time.RFC3339)) + "&to=" + url.QueryEscape(b.now.Add(to).Format(time.RFC3339))
	}
	get := func(path string) answer { return b.do(t, request{method: "GET", path: base + path, token: token}) }
	around := span(-24*time.Hour, 24*time.Hour)
	for _, bucket := range []string{"hour", "day"} {
		seen := read[api.RunCalendar](t, get("/run-calendar"+around+"&bucket="+bucket), http.StatusOK)
		if diff := cmp.Diff(read[api.ExecutionStats](t, get("/executions/stats"+around+"&groupBy="+bucket), http.StatusOK), *seen.Executions); diff != "" || seen.Executions.Total.Count != 3 {
			t.Errorf("by %s, executions (-alone +here):\n%s", bucket, diff)
		}
		if diff := cmp.Diff(read[api.MonitorRunCounts](t, get("/monitor-runs"+around+"&bucket="+bucket), http.StatusOK).Buckets, seen.MonitorRuns.Buckets); diff != "" {
			t.Errorf("by %s, runs of monitors (-alone +here):\n%s", bucket, diff)
		}
		if diff := cmp.Diff(read[api.UpcomingRuns](t, get("/upcoming-runs"+around+"&bucket="+bucket), http.StatusOK), *seen.Upcoming); diff != "" || seen.Upcoming.Jobs != 1 {
			t.Errorf("by %s, runs to come (-alone +here):\n%s", bucket, diff)
		}
	}
	for _, test := range []struct {
		name, query              string
		executions, told, coming bool
	}{
		{"what is past", span(-48*time.Hour, -24*time.Hour), true, true, false},
		{"what is to come", span(24*time.Hour, 48*time.Hour), false, false, true},
		{"jobs", around + "&kind=job", true, false, true},
		{"monitors", around + "&kind=monitor", false, true, true},
	} {
		seen := read[api.RunCalendar](t, get("/run-calendar"+test.query), http.StatusOK)
		if (seen.Executions != nil) != test.executions || (seen.MonitorRuns != nil) != test.told || (seen.Upcoming != nil) != test.coming || len(seen.Unavailable) != 0 {
			t.Errorf("%s: %+v", test.name, seen)
		}
	}
	refused(t, get("/run-calendar"+span(0, 33*24*time.Hour)), http.StatusBadRequest, "VALIDATION_FAILED")
	refused(t, get("/run-calendar"), http.StatusBadRequest, "VALIDATION_FAILED")
}

// A part that somebody may not read is not there, and one that cannot be computed in time leaves the others as they are.
func TestRunCalendarWithoutAPart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.makeJob(t, b.ours)
	around := "?from=" + url.QueryEscape(b.now.Add(-time.Hour).Format(time.RFC3339)) + "&to=" + url.QueryEscape(b.now.Add(time.Hour).Format(time.RFC3339))
	_, key := b.makeKey(t, b.ours, "jobs:read")
	if seen := read[api.RunCalendar](t, b.do(t, request{method: "GET", path: base + "/run-calendar" + around, token: key}), http.StatusOK); seen.Executions != nil || seen.MonitorRuns != nil || seen.Upcoming == nil {
		t.Errorf("who may read jobs alone sees %+v", seen)
	}
	refused(t, b.do(t, request{method: "GET", path: base + "/run-calendar" + around + "&kind=monitor", token: key}), http.StatusForbidden, "FORBIDDEN")

	b.impatient(t)
	// A superuser's session: one of a process may stand in a transaction for five seconds only.
	tx, err := b.connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }() // the test has finished
	if _, err := tx.Exec(t.Context(), "LOCK TABLE job_executions"); err != nil {
		t.Fatal(err)
	}
	seen := read[api.RunCalendar](t, b.again(t, request{method: "GET", path: base + "/run-calendar" + around, token: b.token(t, b.ours, identity.Viewer)}, `"unavailable":["executions"]`), http.StatusOK)
	if diff := cmp.Diff([]api.RunCalendarPart{"executions"}, seen.Unavailable); diff != "" || seen.Executions != nil || seen.MonitorRuns == nil || seen.Upcoming == nil {
		t.Errorf("without the history: %+v\n%s", seen, diff)
	}
}
