package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// No edit of a calendar brings scheduled times of a job closer together than the
// tenant's smallest interval; jobs that are closer already hinder no edit.
func TestAnEditOfACalendarKeepsTheSmallestInterval(t *testing.T) {
	t.Parallel()
	b, token := limited(t, tenant.Spec{})
	// Of two scheduled times a day, ten seconds apart, the calendar leaves one.
	guard := b.makeCalendar(t, b.ours, calendar.Day{Start: "2026-01-01T00:00:05", End: "2200-01-01"}).ID.String()
	days := func(list string) answer {
		return b.do(t, request{method: "PUT", path: base + "/calendars/" + guard, token: token, body: `{"name":"guard","days":[` + list + `]}`})
	}
	var ranges []string
	for day := 1; day <= 28; day++ {
		ranges = append(ranges, fmt.Sprintf(`{"start":"2090-02-%02dT00:00:05","end":"2090-02-%02dT00:00:15"}`, day, day))
	}
	all := strings.Join(ranges, ",")
	read[api.Calendar](t, days(all), http.StatusOK)
	const pairs = `"cronExpression":"0,10 0 0 * * *","startDate":"2090-02-01T00:00:00Z","endDate":"2090-02-28T12:00:00Z"`
	closer := read[api.Job](t, b.bound(t, token, strings.Replace(pairs, "0,10", "0,1", 1), guard, "exclude"), http.StatusCreated)
	if _, err := b.deps.Tenants.Change(t.Context(), b.ours.TenantID, tenant.Spec{Name: "x", Limits: tenant.Limits{MinIntervalSeconds: ptr(60)}}, 0); err != nil {
		t.Fatal(err)
	}
	guarded := read[api.Job](t, b.bound(t, token, pairs, guard, "exclude"), http.StatusCreated)
	got := days(strings.Join(ranges[:27], ","))
	met(t, got, http.StatusForbidden, "QUOTA_EXCEEDED", "minIntervalSeconds", 60)
	if !strings.Contains(got.body, guarded.ID.String()) || strings.Contains(got.body, closer.ID.String()) {
		t.Errorf("the jobs are named as %s", got.body)
	}
	// Nothing of it stands; what keeps the distance does.
	stored := read[api.Calendar](t, b.do(t, request{method: "GET", path: base + "/calendars/" + guard, token: token}), http.StatusOK)
	if len(stored.Days) != 28 {
		t.Errorf("the calendar has %d days", len(stored.Days))
	}
	read[api.Calendar](t, days(all+`,{"start":"2091-01-01"}`), http.StatusOK)
	// Without the job that it guards, any edit is one.
	if gone := b.do(t, request{method: "DELETE", path: base + "/jobs/" + guarded.ID.String(), token: token}); gone.status != http.StatusNoContent {
		t.Fatal(gone)
	}
	read[api.Calendar](t, days(`{"start":"2091-01-01"}`), http.StatusOK)
}
