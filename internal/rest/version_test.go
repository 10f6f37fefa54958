package rest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

const mergePatch = "application/merge-patch+json"

// full is a definition that gives every field of the contract another value
// than its default.
func (b *bundle) full(t *testing.T) string {
	t.Helper()
	of := b.makeCalendar(t, b.ours, calendar.Day{Start: "2026-12-25"}).ID.String()
	return `{"name":"full","description":"d","tags":["a","b"],"cronExpression":"0 0 9 * * 1-5","timezone":"Asia/Shanghai",
		"startDate":"2026-01-01T00:00:00Z","endDate":"2090-01-01T00:00:00Z","jobType":"http",
		"config":{"url":"https://example.com/","method":"POST","body":{"n":12345678901234567890}},
		"retryConfig":{"maxRetries":1,"retryDelayMs":2,"exponentialBackoff":false,"maxRetryDelayMs":4,"retryOnErrorTypes":["TIMEOUT"],"jitter":0.5},
		"timeout":7,"executionTimeout":3600,"completeWithin":600,"priority":3,"jitterSeconds":5,"dstGap":"skip","dstOverlap":"both","calendars":[{"calendarId":"` + of + `","mode":"exclude"}],
		"maxExecutions":9,"maxConcurrent":2,"overlapPolicy":"queue_all","overlapQueueLimit":3,"misfirePolicy":"skip","misfireLimit":4,
		"misfireGraceSeconds":6,"disableAfterFailures":8,"concurrencyKey":"{{config.body.n}}"}`
}

func (b *bundle) patch(t *testing.T, id uuid.UUID, body string, header ...string) answer {
	t.Helper()
	r := request{method: "PATCH", path: base + "/jobs/" + id.String(), token: b.token(t, b.ours, identity.Developer), body: body}
	r.header = map[string]string{"Content-Type": mergePatch}
	if len(header) == 2 {
		r.header[header[0]] = header[1]
	}
	return b.do(t, r)
}

// A patch sees every field that the contract has: what it does not name stays
// as it is.
func TestAPatchKeepsWhatItDoesNotName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	body := b.full(t)
	var given map[string]any
	if err := json.Unmarshal([]byte(body), &given); err != nil {
		t.Fatal(err)
	}
	given["interval"], given["runAt"], given["trigger"] = nil, nil, nil // with an expression they cannot be given
	if diff := cmp.Diff(slices.Sorted(maps.Keys(b.spec.Components.Schemas["JobSpec"].Value.Properties)), slices.Sorted(maps.Keys(given))); diff != "" {
		t.Fatalf("the full definition lacks fields of the contract, or has others (-contract +full):\n%s", diff)
	}
	got := b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: body})
	made := read[map[string]any](t, got, http.StatusCreated)
	id := uuid.MustParse(made["id"].(string))
	patched := b.patch(t, id, `{"description":"other"}`)
	after := read[map[string]any](t, patched, http.StatusOK)
	if !tagged(patched, 2) || !strings.Contains(patched.body, "12345678901234567890") {
		t.Errorf("ETag %s, %s", patched.header.Get("ETag"), patched.body)
	}
	made["description"], made["version"], made["updatedAt"] = "other", 2.0, after["updatedAt"]
	if diff := cmp.Diff(made, after); diff != "" {
		t.Errorf("the job differs (-want +got):\n%s", diff)
	}
	// And the version holds all of it.
	v := read[struct {
		Definition map[string]any
		Changes    []any
	}](t, b.do(t, request{method: "GET", path: base + "/jobs/" + id.String() + "/versions/2", token: token}), http.StatusOK)
	given["description"] = "other"
	delete(given, "interval")
	delete(given, "runAt")
	delete(given, "trigger")
	if diff := cmp.Diff(given, v.Definition); diff != "" {
		t.Errorf("the version differs (-sent +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{map[string]any{"field": "description", "from": "d", "to": "other"}}, v.Changes); diff != "" {
		t.Errorf("its changes differ (-want +got):\n%s", diff)
	}
}

func TestPatchAJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	id := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: b.full(t)}), http.StatusCreated).ID
	for _, step := range []struct {
		name, patch string
		check       func(api.Job) bool
	}{
		{"from an expression to an interval", `{"cronExpression":null,"interval":"PT30S"}`, func(j api.Job) bool {
			return j.CronExpression == nil && *j.Interval == "PT30S"
		}},
		{"within the config", `{"config":{"method":"PUT","body":null}}`, func(j api.Job) bool {
			config, err := j.Config.AsHTTPConfig()
			return err == nil && config.URL == "https://example.com/" && *config.Method == api.HTTPConfigMethodPUT && config.Body == nil
		}},
		{"within the retry rule", `{"retryConfig":{"maxRetries":5}}`, func(j api.Job) bool {
			return *j.RetryConfig.MaxRetries == 5 && *j.RetryConfig.RetryDelayMs == 2
		}},
		{"a list as a whole", `{"tags":["z"]}`, func(j api.Job) bool { return cmp.Equal(j.Tags, []string{"z"}) }},
		{"null is the default", `{"tags":null,"retryConfig":null,"maxConcurrent":null,"disableAfterFailures":null}`, func(j api.Job) bool {
			return len(j.Tags) == 0 && *j.RetryConfig.MaxRetries == 3 && j.MaxConcurrent == 1 && j.DisableAfterFailures == nil
		}},
	} {
		before := read[api.Job](t, b.do(t, request{method: "GET", path: base + "/jobs/" + id.String(), token: token}), http.StatusOK)
		got := b.patch(t, id, step.patch, "If-Match", fmt.Sprintf("%q", fmt.Sprint(before.Version)))
		if j := read[api.Job](t, got, http.StatusOK); !step.check(j) || j.Version != before.Version+1 || j.Name != "full" {
			t.Errorf("%s: the job is %s", step.name, got.body)
		}
		same := b.patch(t, id, step.patch)
		if j := read[api.Job](t, same, http.StatusOK); j.Version != before.Version+1 {
			t.Errorf("%s: repeated, it made version %d", step.name, j.Version)
		}
	}
	for _, test := range []struct{ patch, code, field string }{
		{`{"cronExpression":"0 61 * * * *"}`, "INVALID_CRON_EXPRESSION", "cronExpression"},
		{`{"config":{"url":null}}`, "INVALID_JOB_CONFIG", "config.url"},
		{`{"name":null}`, "VALIDATION_FAILED", "name"},
		{`{"cronExpression":"0 * * * * *"}`, "VALIDATION_FAILED", "interval"}, // beside it
		{`{"priority":10}`, "VALIDATION_FAILED", "priority"},
		{`{"status":"paused"}`, "VALIDATION_FAILED", "status"},
		{`{"priority":1,"priority":2}`, "VALIDATION_FAILED", "priority"},
		{`[]`, "VALIDATION_FAILED", "body"},
		{`null`, "VALIDATION_FAILED", "body"},
		{``, "VALIDATION_FAILED", "body"},
		{`{"priority":1e0}`, "VALIDATION_FAILED", "priority"},
	} {
		e := refused(t, b.patch(t, id, test.patch), http.StatusBadRequest, test.code)
		if !slices.ContainsFunc(e.Error.Details, func(d api.ErrorDetail) bool { return d.Field == test.field }) {
			t.Errorf("%s: details are %+v, want %s", test.patch, e.Error.Details, test.field)
		}
	}
	refused(t, b.patch(t, id, `{"name":"x"}`, "If-Match", `"1"`), http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	refused(t, b.patch(t, id, `{}`, "If-Match", `"1"`), http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	refused(t, b.patch(t, id, `{}`, "Content-Type", "application/json"), http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE")
}

// Patches of different fields at the same time all hold.
func TestPatchesAtTheSameTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.makeJob(t, b.ours).ID
	var all sync.WaitGroup
	for _, change := range []string{`{"priority":7}`, `{"timeout":77}`, `{"description":"d"}`} {
		all.Go(func() {
			if got := b.patch(t, id, change); got.status != http.StatusOK {
				t.Errorf("%s answered %d %s", change, got.status, got.body)
			}
		})
	}
	all.Wait()
	j, err := b.jobs.Get(t.Context(), b.ours, id)
	if err != nil || j.Priority != 7 || j.Timeout != 77 || j.Description != "d" || j.Version != 4 {
		t.Errorf("the job is %+v: %v", j, err)
	}
}

func TestVersionsOfAJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	id := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: b.full(t)}), http.StatusCreated).ID
	b.patch(t, id, `{"timezone":"UTC","config":{"url":"https://example.org/"}}`)
	b.patch(t, id, `{"priority":9}`)
	path := base + "/jobs/" + id.String() + "/versions"
	var fields [][]string
	next := ""
	for range 3 {
		page := read[api.JobVersionPage](t, b.do(t, request{method: "GET", path: path + "?limit=1" + next, token: token}), http.StatusOK)
		for _, v := range page.Items {
			if v.CreatedBy != "ada" || v.JobID != id || v.Version != 3-len(fields) {
				t.Errorf("the version is %+v", v)
			}
			fields = append(fields, v.ChangedFields)
		}
		if page.HasMore {
			next = "&cursor=" + *page.NextCursor
		}
	}
	if diff := cmp.Diff([][]string{{"priority"}, {"config.url", "timezone"}, {}}, fields); diff != "" {
		t.Errorf("changed fields differ (-want +got):\n%s", diff)
	}
	compared := read[api.JobComparison](t, b.do(t, request{method: "GET", path: path + "/3/compare/1", token: token}), http.StatusOK)
	want := []api.Change{
		{Field: "config.url", From: "https://example.org/", To: "https://example.com/"},
		{Field: "priority", From: 9.0, To: 3.0},
		{Field: "timezone", From: "UTC", To: "Asia/Shanghai"},
	}
	if diff := cmp.Diff(want, compared.Changes); diff != "" {
		t.Errorf("the comparison differs (-want +got):\n%s", diff)
	}
	// Back to the first, as a new version.
	restore := request{method: "POST", path: path + "/1/restore", token: token, header: map[string]string{"If-Match": `"3"`}}
	back := read[api.Job](t, b.do(t, restore), http.StatusOK)
	if back.Version != 4 || back.Priority != 3 || back.Timezone != "Asia/Shanghai" {
		t.Errorf("restored the job is %+v", back)
	}
	refused(t, b.do(t, restore), http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	restore.header = nil
	if again := read[api.Job](t, b.do(t, restore), http.StatusOK); again.Version != 4 {
		t.Errorf("restored again it has version %d", again.Version)
	}
	v := read[api.JobVersion](t, b.do(t, request{method: "GET", path: path + "/4", token: token}), http.StatusOK)
	if *v.RestoredFrom != 1 || len(v.Changes) != 3 {
		t.Errorf("the version is %+v", v)
	}
	for _, missing := range []string{"/5", "/5/compare/1", "/1/compare/5"} {
		refused(t, b.do(t, request{method: "GET", path: path + missing, token: token}), http.StatusNotFound, "VERSION_NOT_FOUND")
	}
	refused(t, b.do(t, request{method: "GET", path: path + "/0", token: token}), http.StatusBadRequest, "VALIDATION_FAILED")
	// The versions of a deleted job can be read and not restored.
	if err := b.jobs.Delete(t.Context(), b.ours, id, "", 0); err != nil {
		t.Fatal(err)
	}
	if got := b.do(t, request{method: "GET", path: path, token: token}); got.status != http.StatusOK {
		t.Errorf("deleted: %d %s", got.status, got.body)
	}
	refused(t, b.do(t, restore), http.StatusNotFound, "JOB_NOT_FOUND")
}

// A restored version does not bring back what the tenant may not define any more.
func TestARestoreKeepsTheLimitsOfTheTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.makeJob(t, b.ours).ID
	b.patch(t, id, `{"cronExpression":"* * * * * *"}`)
	b.patch(t, id, `{"cronExpression":"0 0 9 * * *"}`)
	spec := tenant.Spec{Name: "ours", Limits: tenant.Limits{MinIntervalSeconds: ptr(60)}}
	if _, err := b.deps.Tenants.Change(t.Context(), b.ours.TenantID, spec, 0); err != nil {
		t.Fatal(err)
	}
	token := b.token(t, b.ours, identity.Developer)
	restore := func(version string) answer {
		return b.do(t, request{method: "POST", path: base + "/jobs/" + id.String() + "/versions/" + version + "/restore", token: token})
	}
	met(t, restore("2"), http.StatusForbidden, "QUOTA_EXCEEDED", "minIntervalSeconds", 60)
	read[api.Job](t, restore("1"), http.StatusOK)
}

// A definition that is not valid any more is not brought back.
func TestAVersionThatIsNotValidAnyMoreIsNotRestored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	at := b.now.Add(time.Hour).UTC().Format(time.RFC3339)
	id := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: more(`"runAt":"` + at + `"`)}), http.StatusCreated).ID
	b.patch(t, id, `{"runAt":null,"interval":"1h"}`)
	b.now = b.now.Add(2 * time.Hour)
	token = b.token(t, b.ours, identity.Developer)
	e := refused(t, b.do(t, request{method: "POST", path: base + "/jobs/" + id.String() + "/versions/1/restore", token: token}), http.StatusBadRequest, "VALIDATION_FAILED")
	if len(e.Error.Details) != 1 || e.Error.Details[0].Field != "runAt" {
		t.Errorf("details are %+v", e.Error.Details)
	}
}

// Clients learn from the service by which media type a job is changed in part.
func TestPatchesAreAnnounced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path, token := base+"/jobs/"+b.makeJob(t, b.ours).ID.String(), b.token(t, b.ours, identity.Admin)
	for _, got := range []answer{
		b.send(request{method: "OPTIONS", path: path}),
		b.do(t, request{method: "PATCH", path: path, token: token, body: `{"name":"x"}`, header: map[string]string{"Content-Type": "application/json"}}),
	} {
		if got.header.Get("Accept-Patch") != "application/merge-patch+json" {
			t.Errorf("%d: %q", got.status, got.header.Get("Accept-Patch"))
		}
	}
	if got := b.send(request{method: "OPTIONS", path: base + "/jobs"}); got.header.Get("Accept-Patch") != "" {
		t.Errorf("a list: %q", got.header.Get("Accept-Patch"))
	}
}
