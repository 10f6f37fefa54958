package rest_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
)

func TestCreateAndReadAJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	got := b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: `{"name":"report","description":"daily","tags":["a","b"],
		"interval":"PT1M30S","startDate":"2020-01-01T00:00:00+08:00","jobType":"function","config":{"modulePath":"builtin","functionName":"echo","parameters":{"big":12345678901234567890}},
		"retryConfig":{"maxRetries":0,"exponentialBackoff":false,"retryOnErrorTypes":[]},"timeout":7,"priority":9}`})
	created := read[api.Job](t, got, http.StatusCreated)
	if want := base + "/jobs/" + created.ID.String(); got.header.Get("Location") != want || !tagged(got, 1) {
		t.Errorf("headers %v, want Location %s and ETag \"1\"", got.header, want)
	}
	var shown map[string]any
	decoder := json.NewDecoder(strings.NewReader(got.body))
	decoder.UseNumber()
	if err := decoder.Decode(&shown); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"id", "createdAt", "updatedAt", "statusAt", "nextExecutionAt"} {
		delete(shown, name)
	}
	n := func(text string) json.Number { return json.Number(text) }
	want := map[string]any{
		"tenantId": b.ours.TenantID.String(), "version": n("1"), "createdBy": "ada", "status": "active", "statusReason": nil,
		"name": "report", "description": "daily", "tags": []any{"a", "b"},
		"cronExpression": nil, "interval": "PT1M30S", "runAt": nil, "timezone": "UTC", "startDate": "2019-12-31T16:00:00Z", "endDate": nil,
		"jobType": "function", "config": map[string]any{"modulePath": "builtin", "functionName": "echo", "parameters": map[string]any{"big": n("12345678901234567890")}},
		"retryConfig": map[string]any{
			"maxRetries": n("0"), "retryDelayMs": n("1000"), "exponentialBackoff": false, "maxRetryDelayMs": n("60000"), "retryOnErrorTypes": []any{}, "jitter": n("0.1"),
		},
		"timeout": n("7"), "priority": n("9"), "lastExecutionAt": nil, "executionCount": n("0"),
		"jitterSeconds": n("0"), "dstGap": "shift", "dstOverlap": "first", "calendars": []any{}, "maxExecutions": nil, "maxConcurrent": n("1"), "concurrencyKey": nil,
		"overlapPolicy": "skip", "overlapQueueLimit": n("100"), "misfirePolicy": "fire_once", "misfireLimit": n("100"), "misfireGraceSeconds": n("60"),
		"disableAfterFailures": nil, "executionTimeout": nil, "completeWithin": nil, "statusBy": "ada", "pausedUntil": nil, "trigger": nil, "set": nil, "reconciledAt": nil, "reconciledDifference": nil,
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("the job differs (-want +got):\n%s", diff)
	}
	again := b.do(t, request{method: "GET", path: base + "/jobs/" + created.ID.String(), token: token})
	if again.body != got.body || again.header.Get("ETag") != got.header.Get("ETag") {
		t.Errorf("read again it is %s, ETag %s", again.body, again.header.Get("ETag"))
	}
}

func TestCreateFillsInDefaults(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := b.do(t, request{method: "POST", path: base + "/jobs", token: b.token(t, b.ours, identity.Admin), body: `{"name":"a","trigger":"manual","jobType":"http","config":{"url":"https://example.com"}}`})
	created := read[api.Job](t, got, http.StatusCreated)
	if created.Timezone != "UTC" || created.Timeout != 300 || created.Priority != 0 || created.Description != "" || len(created.Tags) != 0 ||
		*created.RetryConfig.MaxRetries != 3 || *created.RetryConfig.Jitter != 0.1 || len(*created.RetryConfig.RetryOnErrorTypes) != 3 || created.NextExecutionAt != nil {
		t.Errorf("the defaults are %s", got.body)
	}
}

// All faults come back at once: those that the contract finds, the domain, and the
// job type.
func TestCreateNamesEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	for _, test := range []struct {
		name, body, code string
		want             []string // "field rule", sorted
	}{
		{
			"contract, domain and config", `{"name":"","interval":"soon","timezone":"Mars/Olympus","jobType":"http","config":{"method":"GET","x":1},"timeout":0,"colour":"x"}`,
			"INVALID_JOB_CONFIG",
			[]string{"colour unknown", "config.url required", "config.x unknown", "interval duration", "name minLength", "timeout minimum", "timezone zone"},
		},
		{
			"a bad expression", `{"name":"a","cronExpression":"0 61 * * * *","jobType":"http","config":{"url":"https://example.com"}}`,
			"INVALID_CRON_EXPRESSION",
			[]string{"cronExpression minute"},
		},
		{
			"an expression that never fires", `{"name":"a","cronExpression":"0 0 0 30 2 *","jobType":"http","config":{"url":"https://example.com"}}`,
			"INVALID_CRON_EXPRESSION", nil,
		},
		{"a bad config", `{"name":"a","trigger":"manual","jobType":"http","config":{}}`, "INVALID_JOB_CONFIG", []string{"config.url required"}},
		{"config missing", `{"name":"a","trigger":"manual","jobType":"http"}`, "VALIDATION_FAILED", []string{"config required"}},
		{"everything missing", `{}`, "VALIDATION_FAILED", []string{"config required", "jobType required", "name required", "trigger required"}},
		{"a config that is none", `{"name":"a","trigger":"manual","jobType":"http","config":null}`, "INVALID_JOB_CONFIG", []string{"config type"}},
		{"two schedules", `{"name":"a","interval":"1m","runAt":"2090-01-01T00:00:00Z","jobType":"http","config":{"url":"https://example.com"}}`, "VALIDATION_FAILED", nil},
		{"a blank name", `{"name":"  ","trigger":"manual","jobType":"http","config":{"url":"https://example.com"}}`, "VALIDATION_FAILED", []string{"name bounds"}},
		{"a job type that is not here", `{"name":"a","trigger":"manual","jobType":"command","config":{"command":"ls"}}`, "VALIDATION_FAILED", []string{"jobType enum"}},
		{"a whole number with an exponent", `{"name":"a","trigger":"manual","jobType":"http","config":{"url":"https://example.com"},"timeout":1e2}`, "VALIDATION_FAILED", []string{"timeout type"}},
		{"a time that has passed", `{"name":"a","runAt":"2020-01-01T00:00:00Z","jobType":"http","config":{"url":"https://example.com"}}`, "VALIDATION_FAILED", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, r := range []request{{method: "POST", path: base + "/jobs"}, {method: "PUT", path: base + "/jobs/" + uuid.NewString()}} {
				r.token, r.body = token, test.body
				got := refused(t, b.do(t, r), http.StatusBadRequest, test.code)
				var fields []string
				for _, d := range got.Error.Details {
					fields = append(fields, d.Field+" "+d.Rule)
				}
				slices.Sort(fields)
				if test.want != nil {
					if diff := cmp.Diff(test.want, fields); diff != "" {
						t.Errorf("%s: details differ (-want +got):\n%s", r.method, diff)
					}
				}
				if len(fields) == 0 {
					t.Errorf("%s: no details: %v", r.method, got)
				}
			}
		})
	}
	if diff := cmp.Diff(0, b.stored(t)["scheduled_jobs"]); diff != "" {
		t.Errorf("jobs were stored: %s", diff)
	}
}

func TestUpdateAJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	path := base + "/jobs/" + b.makeJob(t, b.ours).ID.String()
	calls := 0
	put := func(match string) answer {
		calls++ // each call changes something
		r := request{method: "PUT", path: path, token: token, body: strings.Replace(webhook, "{", `{"misfireLimit":`+strconv.Itoa(calls)+",", 1)}
		if match != "" {
			r.header = map[string]string{"If-Match": match}
		}
		return b.do(t, r)
	}
	if got := put(`"1"`); got.status != http.StatusOK || !tagged(got, 2) {
		t.Fatalf("answered %d, ETag %s", got.status, got.header.Get("ETag"))
	}
	for _, stale := range []string{`"1"`, `"3"`, `"0"`, `"02"`, `W/"2"`, `"abc"`, `""`, `"-1"`, `"99999999999999999999"`} {
		refused(t, put(stale), http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	}
	for _, malformed := range []string{`2`, `"2", "3"`, `"2`, `'2'`} {
		refused(t, put(malformed), http.StatusBadRequest, "VALIDATION_FAILED")
	}
	for _, fine := range []string{`"2"`, `*`, ``} {
		if got := put(fine); got.status != http.StatusOK {
			t.Errorf("If-Match %q answered %d %s", fine, got.status, got.body)
		}
	}
	got := read[api.Job](t, b.do(t, request{method: "GET", path: path, token: token}), http.StatusOK)
	if got.Version != 5 || got.Name != "report" || got.Timezone != "Asia/Shanghai" {
		t.Errorf("the job is %+v", got)
	}
}

func TestDeleteAJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	made := b.makeJob(t, b.ours)
	path := base + "/jobs/" + made.ID.String()
	run := b.makeExecution(t, b.ours, made.ID)
	if got := b.do(t, request{method: "DELETE", path: path, token: token}); got.status != http.StatusNoContent || got.body != "" {
		t.Fatalf("answered %d %q", got.status, got.body)
	}
	for _, r := range []request{
		{method: "GET", path: path},
		{method: "DELETE", path: path},
		{method: "PUT", path: path, body: webhook},
		{method: "POST", path: path + "/trigger"},
		{method: "POST", path: path + "/trigger", body: `{"parameters":{}}`},
		{method: "POST", path: path + "/pause"},
		{method: "POST", path: path + "/resume"},
	} {
		r.token = token
		refused(t, b.do(t, r), http.StatusNotFound, "JOB_NOT_FOUND")
	}
	// Its history stays.
	list := read[api.ExecutionPage](t, b.do(t, request{method: "GET", path: path + "/executions", token: token}), http.StatusOK)
	if len(list.Items) != 1 || list.Items[0].ID != run.ID || list.Items[0].Status != "cancelled" {
		t.Errorf("the history is %+v", list.Items)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Operator)
	path := base + "/jobs/" + b.makeJob(t, b.ours).ID.String()
	for _, step := range []struct {
		name, path, body string
		status           api.JobStatus
		reason           string
	}{
		{"pause without a body", "/pause", "", "paused", ""},
		{"pause with a reason", "/pause", `{"reason":"moving"}`, "paused", "moving"},
		{"pause with an empty object", "/pause", `{}`, "paused", ""},
		{"resume", "/resume", "", "active", ""},
		{"resume again", "/resume", "", "active", ""},
	} {
		got := b.do(t, request{method: "POST", path: path + step.path, token: token, body: step.body})
		now := read[api.Job](t, got, http.StatusOK)
		reason := now.StatusReason
		if now.Status != step.status || (reason == nil) != (step.reason == "") || reason != nil && *reason != step.reason || !tagged(got, 1) {
			t.Errorf("%s: %s", step.name, got.body)
		}
		if next := now.NextExecutionAt == nil; next != (step.status == "paused") {
			t.Errorf("%s: nextExecutionAt is null: %v", step.name, next)
		}
	}
}

func TestTriggerAJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Operator)
	made := b.makeJob(t, b.ours)
	path := base + "/jobs/" + made.ID.String() + "/trigger"
	got := b.do(t, request{method: "POST", path: path, token: token, body: `{"parameters":{"date":"2026-03-01"}}`})
	run := read[api.Execution](t, got, http.StatusAccepted)
	if run.JobID != made.ID || run.Status != "pending" || run.TriggerType != "manual" || *run.TriggeredBy != "ada" ||
		string(*run.Parameters) != `{"date":"2026-03-01"}` || run.MaxAttempts != 4 || run.RetryCount != 0 {
		t.Errorf("the execution is %s", got.body)
	}
	if got.header.Get("Location") != base+"/executions/"+run.ID.String() {
		t.Errorf("Location is %q", got.header.Get("Location"))
	}
	if diff := cmp.Diff([]uuid.UUID{run.ID}, b.hinted); diff != "" {
		t.Errorf("hints differ (-want +got):\n%s", diff)
	}
	again := b.do(t, request{method: "GET", path: got.header.Get("Location"), token: token})
	// Read again, it also says what it waits for.
	reread := read[api.Execution](t, again, http.StatusOK)
	if reread.WaitingOn == nil {
		t.Errorf("read again it is %s", again.body)
	}
	reread.WaitingOn = run.WaitingOn
	if diff := cmp.Diff(run, reread); diff != "" {
		t.Errorf("read again it differs (-trigger +get):\n%s", diff)
	}
	for _, body := range []string{"", "{}", `{"parameters":{}}`} {
		if got := b.do(t, request{method: "POST", path: path, token: token, body: body}); got.status != http.StatusAccepted {
			t.Errorf("with body %q: %d %s", body, got.status, got.body)
		}
	}
	b.refuse = []fault.Field{{Path: "parameters.x", Rule: "unknown", Message: "is not a field here"}}
	e := refused(t, b.do(t, request{method: "POST", path: path, token: token, body: `{"parameters":{"x":1}}`}), http.StatusBadRequest, "VALIDATION_FAILED")
	if len(e.Error.Details) != 1 || e.Error.Details[0].Field != "parameters.x" {
		t.Errorf("details are %+v", e.Error.Details)
	}
}

func TestTriggersQueueUpToABound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	of := b.makeJob(t, b.ours).ID
	lastRun := func() (at time.Time) {
		t.Helper()
		if err := b.engine.Pool().QueryRow(t.Context(), "SELECT last_execution_at FROM scheduled_jobs WHERE id = $1", of).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	r := request{method: "POST", path: base + "/jobs/" + of.String() + "/trigger", token: b.token(t, b.ours, identity.Operator)}
	b.do(t, r)
	waits := read[api.Execution](t, b.do(t, r), http.StatusAccepted)
	noted := lastRun()
	if !noted.Equal(waits.ScheduledAt) {
		t.Errorf("the job ran last at %v, and the trigger was at %v", noted, waits.ScheduledAt)
	}
	_, err := b.engine.Pool().Exec(t.Context(), `INSERT INTO active_executions
		(id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts, timeout_ms, concurrency_limit, available_at, sweep_at)
		SELECT gen_random_uuid(), tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts, timeout_ms, concurrency_limit, available_at, sweep_at
		FROM active_executions e, generate_series(1, 1000) WHERE e.id = $1`, waits.ID)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, b.do(t, r), http.StatusConflict, "JOB_ALREADY_RUNNING")
	if now := lastRun(); !now.Equal(noted) {
		t.Errorf("a trigger that was refused moved the last run from %v to %v", noted, now)
	}
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	made := b.makeJob(t, b.ours)
	post := func(path, key, body string) answer {
		return b.do(t, request{method: "POST", path: base + path, token: token, body: body, header: map[string]string{"Idempotency-Key": key}})
	}
	trigger := "/jobs/" + made.ID.String() + "/trigger"
	for _, test := range []struct{ path, body, other string }{
		{"/jobs", webhook, strings.Replace(webhook, "report", "another", 1)},
		{trigger, `{"parameters":{"a":1}}`, `{"parameters":{"a":2}}`},
	} {
		first := post(test.path, "key"+test.path, test.body)
		second := post(test.path, "key"+test.path, test.body)
		if first.status != second.status || first.body != second.body || first.status >= 300 {
			t.Errorf("%s: %d %s\nand then %d %s", test.path, first.status, first.body, second.status, second.body)
		}
		if first.header.Get("Location") != second.header.Get("Location") || first.header.Get("ETag") != second.header.Get("ETag") {
			t.Errorf("%s: headers differ: %v and %v", test.path, first.header, second.header)
		}
		if first.header.Get("Idempotent-Replayed") != "" || second.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: Idempotent-Replayed is %q and then %q", test.path, first.header.Get("Idempotent-Replayed"), second.header.Get("Idempotent-Replayed"))
		}
		refused(t, post(test.path, "key"+test.path, test.other), http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED")
	}
	// The same key and body on another job is another request.
	elsewhere := "/jobs/" + b.makeJob(t, b.ours).ID.String() + "/trigger"
	refused(t, post(elsewhere, "key"+trigger, `{"parameters":{"a":1}}`), http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED")
	if len(b.hinted) != 1 {
		t.Errorf("%d hints for one execution", len(b.hinted))
	}
	// A refusal is not remembered: the mended request goes through.
	refused(t, post("/jobs", "mend", `{"name":"a"}`), http.StatusBadRequest, "VALIDATION_FAILED")
	if got := post("/jobs", "mend", webhook); got.status != http.StatusCreated {
		t.Errorf("mended: %d %s", got.status, got.body)
	}
	// Another tenant's key is another key.
	theirs := b.do(t, request{method: "POST", path: base + "/jobs", token: b.token(t, b.theirs, identity.Developer), body: webhook, header: map[string]string{"Idempotency-Key": "key/jobs"}})
	if theirs.status != http.StatusCreated || theirs.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("another tenant: %d %v", theirs.status, theirs.header)
	}
}

// Promoters are called for a job that is due before they poll again, and for no other.
func TestPromotersAreCalledForWhatIsDueSoon(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Admin)
	definition := func(cron string) string {
		return `{"name":"a","cronExpression":"` + cron + `","jobType":"http","config":{"url":"https://example.com"}}`
	}
	step := func(method, path, body string, status, calls int) answer {
		t.Helper()
		before := b.called.Load()
		got := b.do(t, request{method: method, path: path, token: token, body: body})
		if got.status != status {
			t.Fatalf("%s %s: %d %s", method, path, got.status, got.body)
		}
		if n := b.called.Load() - before; n != int64(calls) {
			t.Errorf("%s %s %s: %d calls, want %d", method, path, body, n, calls)
		}
		return got
	}
	later := read[api.Job](t, step("POST", base+"/jobs", definition("0 0 0 1 1 *"), http.StatusCreated, 0), http.StatusCreated)
	path := base + "/jobs/" + later.ID.String()
	step("POST", base+"/jobs", definition("* * * * * *"), http.StatusCreated, 1)
	step("PUT", path, definition("0 0 0 1 2 *"), http.StatusOK, 0)
	step("PUT", path, definition("* * * * * *"), http.StatusOK, 1)
	step("POST", path+"/pause", "", http.StatusOK, 0)
	step("POST", path+"/resume", "", http.StatusOK, 1)
	step("POST", path+"/backfills", `{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T00:00:10Z"}`, http.StatusAccepted, 1)
}
