package rest_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
)

// policies is every field that says how a job's scheduled times are treated, at a
// value that is not its default.
const policies = `"jitterSeconds":86400,"dstGap":"skip","dstOverlap":"both","maxExecutions":1000000000,"maxConcurrent":1000,
	"overlapPolicy":"cancel_running","overlapQueueLimit":1000,"misfirePolicy":"fire_all","misfireLimit":1000,"misfireGraceSeconds":86400,"disableAfterFailures":1000,
	"concurrencyKey":"device-{{config.url}}/{{parameters.account}}/{{job.id}}"`

func TestPoliciesAreKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	got := b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: more(policies + `,"cronExpression":"@daily"`)})
	created := read[map[string]any](t, got, http.StatusCreated)
	var want map[string]any
	if err := json.Unmarshal([]byte("{"+policies+"}"), &want); err != nil {
		t.Fatal(err)
	}
	for name, value := range want {
		if diff := cmp.Diff(value, created[name]); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", name, diff)
		}
	}
	// A replacement without them brings the defaults back, and null is none.
	path := base + "/jobs/" + created["id"].(string)
	put := b.do(t, request{method: "PUT", path: path, token: token, body: more(`"cronExpression":"@daily","maxExecutions":null,"disableAfterFailures":null`)})
	plain := read[api.Job](t, put, http.StatusOK)
	if plain.MaxExecutions != nil || plain.DisableAfterFailures != nil || plain.ConcurrencyKey != nil || plain.JitterSeconds != 0 || plain.OverlapPolicy != "skip" ||
		plain.MaxConcurrent != 1 || plain.MisfirePolicy != "fire_once" || plain.MisfireLimit != 100 || plain.DstGap != "shift" {
		t.Errorf("the replaced job is %s", put.body)
	}
}

// The time limit of a job that names none is the server's.
func TestTheDefaultTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t, func(d *parts.Deps) { d.DefaultTimeout = 42*time.Second + 900*time.Millisecond })
	token := b.token(t, b.ours, identity.Developer)
	for _, test := range []struct {
		members string
		want    int
	}{{"", 42}, {`"timeout":7`, 7}} {
		got := b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: more(test.members)})
		if created := read[api.Job](t, got, http.StatusCreated); created.Timeout != test.want {
			t.Errorf("%q: the time-out is %d, want %d", test.members, created.Timeout, test.want)
		}
	}
}

// Everything out of bounds is named, and nothing is stored.
func TestBadPoliciesAreNamed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	made := b.makeJob(t, b.ours).ID
	past, future := b.now.Add(-time.Hour).Format(time.RFC3339), b.now.Add(time.Hour).Format(time.RFC3339)
	for _, test := range []struct {
		name, members string
		want          []string // "field rule", sorted
	}{
		{"below the bounds", `"jitterSeconds":-1,"maxExecutions":0,"maxConcurrent":0,"overlapQueueLimit":0,"misfireLimit":0,"misfireGraceSeconds":0,"disableAfterFailures":0,"executionTimeout":0,"completeWithin":59`, []string{
			"completeWithin minimum", "disableAfterFailures minimum", "executionTimeout minimum", "jitterSeconds minimum", "maxConcurrent minimum", "maxExecutions minimum", "misfireGraceSeconds minimum", "misfireLimit minimum", "overlapQueueLimit minimum",
		}},
		{"above the bounds", `"jitterSeconds":86401,"maxExecutions":1000000001,"maxConcurrent":1001,"overlapQueueLimit":1001,"misfireLimit":1001,"misfireGraceSeconds":86401,"disableAfterFailures":1001,"executionTimeout":2592001,"completeWithin":604801`, []string{
			"completeWithin maximum", "disableAfterFailures maximum", "executionTimeout maximum", "jitterSeconds maximum", "maxConcurrent maximum", "maxExecutions maximum", "misfireGraceSeconds maximum", "misfireLimit maximum", "overlapQueueLimit maximum",
		}},
		{"beyond 64 bits", `"maxExecutions":99999999999999999999,"jitterSeconds":1e30`, []string{"jitterSeconds maximum", "maxExecutions maximum"}},
		{"unknown words", `"dstGap":"first","dstOverlap":"shift","overlapPolicy":"queue","misfirePolicy":"fire_now"`, []string{
			"dstGap enum", "dstOverlap enum", "misfirePolicy enum", "overlapPolicy enum",
		}},
		{"null where none may be", `"overlapPolicy":null,"misfirePolicy":null,"calendars":null`, []string{"calendars type", "misfirePolicy enum", "overlapPolicy enum"}},
		{"calendars that are none", `"calendars":[{"calendarId":"1","mode":"exclude"},{"calendarId":"0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10"},{"calendarId":"0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10","mode":"only","name":"x"}]`, []string{
			"calendars[0].calendarId format", "calendars[1].mode required", "calendars[2].mode enum", "calendars[2].name unknown",
		}},
		{"one calendar twice", `"calendars":[{"calendarId":"0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10","mode":"exclude"},{"calendarId":"0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10","mode":"exclude"}]`, []string{"calendars uniqueItems"}},
		{"eleven calendars", `"calendars":[` + strings.TrimSuffix(strings.Repeat(`{"calendarId":"0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10","mode":"exclude"},`, 11), ",") + `]`, []string{"calendars maxItems", "calendars uniqueItems"}},
		{"a key that looks elsewhere", `"concurrencyKey":"{{env.HOME}}"`, []string{"concurrencyKey template"}},
		{"a key of 201 characters", `"concurrencyKey":"` + strings.Repeat("k", 201) + `"`, []string{"concurrencyKey maxLength"}},
		{"contract and domain at once", `"cronExpression":"61 * * * * *","overlapPolicy":"no"`, []string{"cronExpression second", "overlapPolicy enum"}},
		{"a zone in the expression", `"cronExpression":"TZ=Asia/Shanghai 0 0 9 * * *"`, nil},
		{"a zone in the expression, cron's way", `"cronExpression":"CRON_TZ=UTC 0 0 9 * * *"`, nil},
		{"an expression of 257 characters", `"cronExpression":"` + strings.Repeat("1", 257) + `"`, []string{"cronExpression maxLength"}},
		{"a NUL-like expression", `"cronExpression":"0 0 9 * * *\u0001"`, nil},
		{"two expressions", `"cronExpression":"0 0 9 * * *; 0 0 10 * * *"`, nil},
		{"an interval below zero", `"interval":"-1h"`, []string{"interval duration"}},
		{"a tiny interval", `"interval":"999ms"`, []string{"interval duration"}},
		{"an interval of nothing", `"interval":"PT0S"`, []string{"interval duration"}},
		{"an interval of 367 days", `"interval":"P367D"`, []string{"interval duration"}},
		{"an end before a start", `"cronExpression":"@daily","startDate":"2090-01-02T00:00:00Z","endDate":"2090-01-01T00:00:00Z"`, []string{"endDate order"}},
		{"an end that has passed", `"cronExpression":"@daily","endDate":"` + past + `"`, []string{"endDate past"}},
		{"an end before the first scheduled time", `"runAt":"2090-01-01T00:00:00Z","endDate":"` + future + `"`, []string{"runAt window"}},
		{"a one-off in the past", `"runAt":"` + past + `"`, []string{"runAt past"}},
		{"a year that has passed", `"cronExpression":"0 0 0 1 1 * 2020"`, []string{"cronExpression never"}},
		{"two rules", `"cronExpression":"@daily","interval":"1h","runAt":"` + future + `"`, []string{"interval conflict", "runAt conflict"}},
	} {
		for _, r := range []request{
			{method: "POST", path: base + "/jobs"},
			{method: "PUT", path: base + "/jobs/0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10"},
			{method: "POST", path: base + "/jobs/validate"},
			{method: "POST", path: base + "/jobs/" + made.String() + "/validate"},
		} {
			r.token, r.body = token, more(test.members)
			got := b.do(t, r)
			if got.status != http.StatusBadRequest {
				t.Errorf("%s: answered %d %s", test.name, got.status, got.body)
				continue
			}
			var fields []string
			for _, d := range problem(t, got).Error.Details {
				fields = append(fields, d.Field+" "+d.Rule)
			}
			slices.Sort(fields)
			if diff := cmp.Diff(test.want, fields); test.want != nil && diff != "" {
				t.Errorf("%s: details differ (-want +got):\n%s", test.name, diff)
			}
			if test.want == nil && (len(fields) == 0 || !strings.HasPrefix(fields[0], "cronExpression ")) {
				t.Errorf("%s: the details are %v", test.name, fields)
			}
		}
	}
	if n := b.stored(t)["scheduled_jobs"]; n != 1 {
		t.Errorf("%d jobs are stored, want the one of before", n)
	}
}

func TestAPauseThatEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Operator)
	path := base + "/jobs/" + b.makeJob(t, b.ours).ID.String()
	until := b.now.Add(time.Hour).UTC().Truncate(time.Microsecond)
	for _, test := range []struct {
		body string
		want *time.Time
	}{
		{`{"reason":"moving","until":"` + until.Format(time.RFC3339Nano) + `"}`, &until},
		{`{"until":null}`, nil},
		{`{"until":"` + until.In(time.FixedZone("", 3600)).Format(time.RFC3339Nano) + `"}`, &until},
		{``, nil},
	} {
		got := read[api.Job](t, b.do(t, request{method: "POST", path: path + "/pause", token: token, body: test.body}), http.StatusOK)
		at := got.PausedUntil
		if (at != nil) != (test.want != nil) || test.want != nil && !at.Equal(*test.want) {
			t.Errorf("%s: pausedUntil is %v", test.body, got.PausedUntil)
		}
		if *got.StatusBy != "ada" || got.StatusAt.IsZero() {
			t.Errorf("%s: the state is by %v at %s", test.body, got.StatusBy, got.StatusAt)
		}
	}
	e := refused(t, b.do(t, request{method: "POST", path: path + "/pause", token: token, body: `{"until":"` + b.now.Add(-time.Minute).Format(time.RFC3339) + `"}`}), http.StatusBadRequest, "VALIDATION_FAILED")
	if len(e.Error.Details) != 1 || e.Error.Details[0].Field != "until" {
		t.Errorf("the details are %+v", e.Error.Details)
	}
	resumed := read[api.Job](t, b.do(t, request{method: "POST", path: path + "/resume", token: token}), http.StatusOK)
	if resumed.PausedUntil != nil || resumed.Status != "active" {
		t.Errorf("the resumed job is %+v", resumed)
	}
}

// A job keeps the times that a pause held back, and what to do about them, until the
// next promotion; resuming once more does not change that.
func TestResumeSaysWhatBecomesOfMissedTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Operator)
	for _, test := range []struct{ body, want string }{
		{``, "fire_once"}, {`{}`, "fire_once"}, {`{"misfirePolicy":"skip"}`, "skip"}, {`{"misfirePolicy":"fire_once"}`, "fire_once"}, {`{"misfirePolicy":"fire_all"}`, "fire_all"},
	} {
		id := b.makeJob(t, b.ours).ID
		path := base + "/jobs/" + id.String()
		read[api.Job](t, b.do(t, request{method: "POST", path: path + "/pause", token: token}), http.StatusOK)
		if _, err := b.engine.Pool().Exec(t.Context(), "UPDATE scheduled_jobs SET next_execution_at = now() - interval '1 hour' WHERE id = $1", id); err != nil {
			t.Fatal(err)
		}
		first := b.do(t, request{method: "POST", path: path + "/resume", token: token, body: test.body})
		again := b.do(t, request{method: "POST", path: path + "/resume", token: token, body: `{"misfirePolicy":"skip"}`})
		if first.status != http.StatusOK || first.body != again.body {
			t.Errorf("resumed: %d %s\nand again: %s", first.status, first.body, again.body)
		}
		var policy string
		if err := b.engine.Pool().QueryRow(t.Context(), "SELECT coalesce(resume_policy, '') FROM scheduled_jobs WHERE id = $1", id).Scan(&policy); err != nil {
			t.Fatal(err)
		}
		if policy != test.want {
			t.Errorf("%q: the policy is %q, want %q", test.body, policy, test.want)
		}
	}
}
