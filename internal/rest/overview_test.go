package rest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// One answer has what the status, the statistics, the list of failures and the forecast say.
func TestOverview(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	get := func(path string) answer {
		return b.do(t, request{method: "GET", path: base + path, token: token})
	}
	if none := read[api.Overview](t, get("/overview"), http.StatusOK); none.Status.Jobs.Total != 0 || none.Day.Total.Count != 0 || len(*none.Failures) != 0 || none.NextHour.Total != 0 || len(none.Unavailable) != 0 {
		t.Errorf("without jobs: %+v", none)
	}
	made := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: b.token(t, b.ours, identity.Developer), body: strings.Replace(webhook, "0 0 9 * * 1-5", "0 * * * * *", 1)}), http.StatusCreated)
	b.over(t, b.ours, made.ID, b.now.Add(-2*time.Hour), "completed", 5, 7)
	b.over(t, b.ours, made.ID, b.now.Add(-90*time.Minute), "failed", 9)
	b.over(t, b.ours, made.ID, b.now.Add(-3*time.Hour), "failed", make([]int, 25)...)
	b.over(t, b.ours, made.ID, b.now.Add(-25*time.Hour), "failed", 9)
	b.over(t, b.theirs, b.makeJob(t, b.theirs).ID, b.now.Add(-time.Hour), "failed", 9)

	seen := read[api.Overview](t, get("/overview"), http.StatusOK)
	if diff := cmp.Diff(read[api.Status](t, get("/status"), http.StatusOK).Jobs, seen.Status.Jobs); diff != "" || seen.Status.Jobs.Active != 1 {
		t.Errorf("the jobs are not those of the status:\n%s", diff)
	}
	if day := seen.Day; day.Total.Completed != 2 || day.Total.Failed != 26 || day.To.Sub(day.From) != 24*time.Hour || *day.GroupBy != "hour" || len(day.Groups) < 2 {
		t.Errorf("the day is %+v", day)
	}
	failures := *seen.Failures
	if len(failures) != 20 || !failures[0].ScheduledAt.Equal(b.now.Add(-90*time.Minute)) || failures[19].JobID != made.ID || failures[19].Status != api.ExecutionStatusFailed {
		t.Errorf("%d failures, the first %+v", len(failures), failures[0])
	}
	hour := seen.NextHour
	if hour.Bucket != api.UpcomingBucketUnitMinute || hour.Total < 59 || hour.Total > 60 || !hour.To.Equal(b.now.Truncate(time.Minute).Add(time.Hour)) || hour.Buckets[0].Jobs[0].JobID != made.ID {
		t.Errorf("the next hour is %+v", hour)
	}
}

// A part that somebody may not read is not there.
func TestOverviewShowsWhatOneMayRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.over(t, b.ours, b.makeJob(t, b.ours).ID, b.now.Add(-time.Hour), "failed", 9)
	for _, test := range []struct {
		scopes              []identity.Permission
		day, failures, hour bool
	}{
		{[]identity.Permission{"monitoring:read"}, false, false, false},
		{[]identity.Permission{"monitoring:read", "jobs:read"}, false, false, true},
		{[]identity.Permission{"monitoring:read", "executions:read"}, true, true, false},
		{[]identity.Permission{"monitoring:read", "executions:read", "jobs:read"}, true, true, true},
	} {
		_, key := b.makeKey(t, b.ours, test.scopes...)
		seen := read[api.Overview](t, b.do(t, request{method: "GET", path: base + "/overview", token: key}), http.StatusOK)
		if seen.Status.Jobs.Total != 1 || (seen.Day != nil) != test.day || (seen.Failures != nil) != test.failures || (seen.NextHour != nil) != test.hour || len(seen.Unavailable) != 0 {
			t.Errorf("%v see %+v", test.scopes, seen)
		}
	}
	_, key := b.makeKey(t, b.ours, "jobs:read", "executions:read")
	refused(t, b.do(t, request{method: "GET", path: base + "/overview", token: key}), http.StatusForbidden, "FORBIDDEN")
}

// A part that cannot be computed in time leaves the others as they are.
func TestOverviewWithoutAPart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.makeJob(t, b.ours)
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
	seen := read[api.Overview](t, b.again(t, request{method: "GET", path: base + "/overview", token: b.token(t, b.ours, identity.Viewer)}, `"unavailable":["day","failures"]`), http.StatusOK)
	if diff := cmp.Diff([]api.OverviewPart{"day", "failures"}, seen.Unavailable); diff != "" || seen.Day != nil || seen.Failures != nil || seen.NextHour == nil || seen.Status.Jobs.Total != 1 {
		t.Errorf("without the history: %+v\n%s", seen, diff)
	}
}
