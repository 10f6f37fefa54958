package rest_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// good is the least definition, with room for more members after it.
const good = `{"name":"a","jobType":"http","config":{"url":"https://example.com/"}%s}`

// hostile are bodies of POST /jobs that must be refused: members that are ours
// to set, JSON that two readers read differently, and JSON bombs.
var hostile = []struct {
	name, body string
	status     int
	field      string // that details name; empty: any
}{
	// mass assignment
	{"tenantId", more(`"tenantId":"0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10"`), 400, "tenantId"},
	{"tenant_id", more(`"tenant_id":"0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10"`), 400, "tenant_id"},
	{"TENANT_ID", more(`"TENANT_ID":"0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10"`), 400, "TENANT_ID"},
	{"tenant_Id", more(`"tenant_Id":"x"`), 400, "tenant_Id"},
	{"TenantID", more(`"TenantID":"x"`), 400, "TenantID"},
	{"id", more(`"id":"0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10"`), 400, "id"},
	{"ID", more(`"ID":"0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10"`), 400, "ID"},
	{"status", more(`"status":"paused"`), 400, "status"},
	{"ſtatus, with a long s", more(`"ſtatus":"paused"`), 400, "ſtatus"},
	{"state", more(`"state":"active"`), 400, "state"},
	{"statusReason", more(`"statusReason":"x"`), 400, "statusReason"},
	{"version", more(`"version":7`), 400, "version"},
	{"createdBy", more(`"createdBy":"root"`), 400, "createdBy"},
	{"created_by", more(`"created_by":"root"`), 400, "created_by"},
	{"createdAt", more(`"createdAt":"2020-01-01T00:00:00Z"`), 400, "createdAt"},
	{"updatedAt", more(`"updatedAt":"2020-01-01T00:00:00Z"`), 400, "updatedAt"},
	{"nextExecutionAt", more(`"nextExecutionAt":"2020-01-01T00:00:00Z"`), 400, "nextExecutionAt"},
	{"next_run_at", more(`"next_run_at":"2020-01-01T00:00:00Z"`), 400, "next_run_at"},
	{"lastExecutionAt", more(`"lastExecutionAt":null`), 400, "lastExecutionAt"},
	{"executionCount", more(`"executionCount":-5`), 400, "executionCount"},
	{"anchorAt", more(`"anchorAt":"2020-01-01T00:00:00Z"`), 400, "anchorAt"},
	{"attempt", more(`"attempt":0`), 400, "attempt"},
	{"role", more(`"role":"admin"`), 400, "role"},
	{"roles", more(`"roles":["admin"]`), 400, "roles"},
	{"deletedAt", more(`"deletedAt":null`), 400, "deletedAt"},
	{"__proto__", more(`"__proto__":{"status":"paused"}`), 400, "__proto__"},
	{"an empty name", more(`"":1`), 400, ""},
	{"a definition inside", more(`"Spec":{"name":"b"}`), 400, "Spec"},
	{"in retryConfig", more(`"retryConfig":{"maxRetries":1,"MaxRetries":100}`), 400, "retryConfig.MaxRetries"},
	{"in retryConfig, by another name", more(`"retryConfig":{"max_retries":1}`), 400, "retryConfig.max_retries"},
	// two readings
	{"a name in another case", `{"Name":"a","jobType":"http","config":{"url":"https://example.com/"}}`, 400, "Name"},
	{"a name in both cases", more(`"NAME":"b"`), 400, "NAME"},
	{"priority with a Kelvin sign", more(`"\u212Aind":1`), 400, ""},
	{"name twice", more(`"name":"b"`), 400, "name"},
	{"name twice, once escaped", more(`"n\u0061me":"b"`), 400, "name"},
	{"jobType twice", more(`"jobType":"function"`), 400, "jobType"},
	{"config twice", more(`"config":{}`), 400, "config"},
	{"twice in config", `{"name":"a","jobType":"http","config":{"url":"https://example.com/","url":"http://10.0.0.1/"}}`, 400, "config.url"},
	{"another case in config", `{"name":"a","jobType":"http","config":{"URL":"https://example.com/"}}`, 400, "config.URL"},
	{"a value after it", fmt.Sprintf(good, "") + ` {"name":"b"}`, 400, "body"},
	{"text after it", fmt.Sprintf(good, "") + ` x`, 400, "body"},
	{"a comma after it", fmt.Sprintf(good, "") + `,`, 400, "body"},
	{"a list of it", "[" + fmt.Sprintf(good, "") + "]", 400, "body"},
	{"a text of it", fmt.Sprintf("%q", fmt.Sprintf(good, "")), 400, "body"},
	{"a comment", "/* x */" + fmt.Sprintf(good, ""), 400, "body"},
	{"a byte order mark", "\ufeff" + fmt.Sprintf(good, ""), 400, "body"},
	{"UTF-16", "\xff\xfe{\x00}\x00", 400, "body"},
	{"invalid UTF-8", strings.Replace(fmt.Sprintf(good, ""), `"a"`, "\"\xc3\x28\"", 1), 400, "body"},
	{"half a surrogate pair", strings.Replace(fmt.Sprintf(good, ""), `"a"`, `"\ud800"`, 1), 400, "body"},
	{"an escaped NUL", strings.Replace(fmt.Sprintf(good, ""), `"a"`, `"a\u0000b"`, 1), 400, "body"},
	{"an escaped NUL in config", `{"name":"a","jobType":"http","config":{"url":"https://example.com/","body":"\u0000"}}`, 400, "body"},
	{"a NUL in a name", more(`"\u0000":1`), 400, "body"},
	{"a raw NUL", "{\"name\":\"a\x00\"}", 400, "body"},
	{"null", "null", 400, "body"},
	{"a number", "1", 400, "body"},
	{"an empty object", "{}", 400, "name"},
	// wrong types
	{"name a number", strings.Replace(fmt.Sprintf(good, ""), `"a"`, `1`, 1), 400, "name"},
	{"name a list", strings.Replace(fmt.Sprintf(good, ""), `"a"`, `["a"]`, 1), 400, "name"},
	{"config a text", `{"name":"a","jobType":"http","config":"{}"}`, 400, "config"},
	{"config null", `{"name":"a","jobType":"http","config":null}`, 400, "config"},
	{"timeout a text", more(`"timeout":"300"`), 400, "timeout"},
	{"timeout a fraction", more(`"timeout":1.5`), 400, "timeout"},
	{"timeout beyond 64 bits", more(`"timeout":9223372036854775808`), 400, "timeout"},
	{"timeout below zero", more(`"timeout":-9223372036854775809`), 400, "timeout"},
	{"tags an object", more(`"tags":{"0":"a"}`), 400, "tags"},
	{"tags in one another", more(`"tags":[["a"]]`), 400, "tags[0]"},
	{"runAt a number", more(`"runAt":1700000000`), 400, "runAt"},
	{"runAt far away", more(`"runAt":"99999-01-01T00:00:00Z"`), 400, "runAt"},
	{"cronExpression with a zone in it", more(`"cronExpression":"TZ=UTC * * * * * *"`), 400, "cronExpression"},
	{"cronExpression too long", more(`"cronExpression":"` + strings.Repeat("*", 10_000) + `"`), 400, "cronExpression"},
	{"interval below zero", more(`"interval":"-1h"`), 400, "interval"},
	{"interval of a nanosecond", more(`"interval":"1ns"`), 400, "interval"},
	{"timezone a path", more(`"timezone":"../../etc/passwd"`), 400, "timezone"},
	{"timezone Local", more(`"timezone":"Local"`), 400, "timezone"},
	{"NaN", more(`"timeout":NaN`), 400, "body"},
	// bombs
	{"a number out of range", more(`"timeout":1e999999`), 400, "timeout"},
	{"a number out of range in config", `{"name":"a","jobType":"http","config":{"url":"https://example.com/","body":1e999999}}`, 400, "config.body"},
	{"a number of 1000 digits", more(`"timeout":` + strings.Repeat("9", 1000)), 400, "timeout"},
	{"deep lists", `{"name":"a","jobType":"http","config":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, 400, "body"},
	{"deep objects, never closed", strings.Repeat(`{"config":`, 100_000), 400, "body"},
	{"too many names", `{"name":"a","jobType":"http","config":{` + strings.Repeat(`"a":1,`, 10_001) + `"b":1}}`, 400, ""},
	{"too many tags", more(`"tags":[` + strings.Repeat(`"x",`, 100_000) + `"x"]`), 400, "tags"},
	{"ten megabytes", `{"name":"` + strings.Repeat("a", 10<<20) + `"}`, 413, ""},
	{"ten megabytes of blanks", strings.Repeat(" ", 10<<20) + fmt.Sprintf(good, ""), 413, ""},
	{"one byte too many", fmt.Sprintf(good, "") + strings.Repeat(" ", 1<<20+1-len(fmt.Sprintf(good, ""))), 413, ""},
	{"nothing", " ", 400, "body"},
}

// more is a good definition with members, and without a schedule where they say none.
func more(members string) string {
	for _, name := range []string{"cronExpression", "interval", "runAt", "trigger"} {
		if strings.Contains(members, `"`+name+`":`) {
			return fmt.Sprintf(good, ","+members)
		}
	}
	return fmt.Sprintf(good, strings.TrimSuffix(`,"trigger":"manual",`+members, ","))
}

func TestHostileBodiesAreRefusedAndStoreNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.makeJob(t, b.ours)
	token := b.token(t, b.ours, identity.Admin)
	before := b.snapshot(t)
	for _, test := range hostile {
		for _, r := range []request{
			{method: "POST", path: base + "/jobs", header: map[string]string{"Idempotency-Key": "k"}},
			{method: "PUT", path: base + "/jobs/" + made.ID.String()},
			{method: "POST", path: base + "/jobs/validate"},
		} {
			if r.method == "PUT" && slices.Contains([]string{"updatedAt", "nextExecutionAt", "lastExecutionAt", "executionCount"}, test.name) {
				continue // it changes by itself, so that a PUT ignores it
			}
			if r.method == "PUT" && test.name == "version" {
				continue // a body of another version is outdated: TestPutTakesBackWhatGetAnswered
			}
			r.token, r.body = token, test.body
			got := b.do(t, r)
			if got.status != test.status {
				t.Errorf("%s %s: answered %d %.300s, want %d", r.method, test.name, got.status, got.body, test.status)
				continue
			}
			e := problem(t, got)
			named := slices.ContainsFunc(e.Error.Details, func(d api.ErrorDetail) bool { return d.Field == test.field })
			if test.status == http.StatusBadRequest && (len(e.Error.Details) == 0 || test.field != "" && !named) {
				t.Errorf("%s %s: the details do not name %q: %.500s", r.method, test.name, test.field, got.body)
			}
			if len(got.body) > 20_000 {
				t.Errorf("%s %s: an answer of %d bytes", r.method, test.name, len(got.body))
			}
		}
	}
	if diff := cmp.Diff(before, b.snapshot(t)); diff != "" {
		t.Errorf("something was stored (-before +after):\n%s", diff)
	}
}

// However much is wrong, the answer stays small.
func TestDetailsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var names strings.Builder
	for i := range 60 {
		fmt.Fprintf(&names, `,"x%d":1`, i)
	}
	got := b.do(t, request{method: "POST", path: base + "/jobs?a=1&b=2&c=3", token: b.token(t, b.ours, identity.Admin), body: fmt.Sprintf(good, names.String())})
	if e := refused(t, got, http.StatusBadRequest, "VALIDATION_FAILED"); len(e.Error.Details) != 50 {
		t.Errorf("%d details, want 50", len(e.Error.Details))
	}
}

// The small bodies are as strict.
func TestHostileBodiesOfTriggerAndPause(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := base + "/jobs/" + b.makeJob(t, b.ours).ID.String()
	token := b.token(t, b.ours, identity.Admin)
	before := b.snapshot(t)
	for _, test := range []struct {
		path, body string
		status     int
	}{
		{"/trigger", `{"parameters":{},"Parameters":{}}`, 400},
		{"/trigger", `{"parameters":{"a":1},"parameters":{"a":2}}`, 400},
		{"/trigger", `{"parameters":{"a":1,"a":2}}`, 400},
		{"/trigger", `{"parameters":[]}`, 400},
		{"/trigger", `{"parameters":null}`, 400},
		{"/trigger", `{"parameters":"x"}`, 400},
		{"/trigger", `{"parameters":{"a":"\u0000"}}`, 400},
		{"/trigger", `{"parameters":{"a":1e400}}`, 400},
		{"/trigger", `{"priority":9}`, 400},
		{"/trigger", `{"scheduledAt":"2020-01-01T00:00:00Z"}`, 400},
		{"/trigger", `[]`, 400},
		{"/trigger", `null`, 400},
		{"/trigger", `{} {}`, 400},
		{"/trigger", `{"parameters":` + strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40) + `}`, 400},
		{"/trigger", `{"parameters":{"a":"` + strings.Repeat("x", 2<<20) + `"}}`, 413},
		{"/pause", `{"reason":1}`, 400},
		{"/pause", `{"reason":null}`, 400},
		{"/pause", `{"reason":"` + strings.Repeat("x", 501) + `"}`, 400},
		{"/pause", `{"Reason":"x"}`, 400},
		{"/pause", `{"status":"inactive"}`, 400},
		{"/pause", `"x"`, 400},
		{"/pause", `{"until":"soon"}`, 400},
		{"/pause", `{"until":1700000000}`, 400},
		{"/pause", `{"until":"2020-01-01T00:00:00Z"}`, 400},
		{"/pause", `{"until":"0000-01-01T00:00:00Z"}`, 400},
		{"/resume", `{"misfirePolicy":"all"}`, 400},
		{"/resume", `{"misfirePolicy":null}`, 400},
		{"/resume", `{"Missed":"skip"}`, 400},
		{"/resume", `[]`, 400},
		{"/resume", `x`, 400},
		{"/resume", strings.Repeat("x", 2<<20), 413},
	} {
		got := b.do(t, request{method: "POST", path: path + test.path, token: token, body: test.body})
		if got.status != test.status {
			t.Errorf("%s %.100s: answered %d %.300s, want %d", test.path, test.body, got.status, got.body, test.status)
		}
	}
	if diff := cmp.Diff(before, b.snapshot(t)); diff != "" {
		t.Errorf("something was stored (-before +after):\n%s", diff)
	}
}

func TestContentTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Admin)
	for _, test := range []struct {
		media, coding string
		status        int
	}{
		{"application/json", "", 201},
		{"Application/JSON; charset=UTF-8", "", 201},
		{"application/json", "identity", 201},
		{"text/plain", "", 415},
		{"application/json; charset=latin1", "", 415},
		{"application/x-www-form-urlencoded", "", 415},
		{"application/merge-patch+json", "", 415},
		{"application/vnd.api+json", "", 415},
		{"application/jsonx", "", 415},
		{"*/*", "", 415},
		{"", "", 415},
		{"application/json, text/plain", "", 415},
		{"application/json", "gzip", 415},
		{"multipart/form-data; boundary=x", "", 415},
	} {
		got := b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: webhook, header: map[string]string{"Content-Type": test.media, "Content-Encoding": test.coding}})
		if got.status != test.status {
			t.Errorf("%q, coded %q: answered %d %s, want %d", test.media, test.coding, got.status, got.body, test.status)
		}
	}
	// Where there is no body, its type does not matter.
	path := base + "/jobs/" + b.makeJob(t, b.ours).ID.String() + "/trigger"
	if got := b.do(t, request{method: "POST", path: path, token: token, header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}}); got.status != http.StatusAccepted {
		t.Errorf("without a body: %d %s", got.status, got.body)
	}
	// Nobody's body is read before it is known who asks.
	refused(t, b.do(t, request{method: "POST", path: base + "/jobs", body: strings.Repeat("x", 2<<20)}), http.StatusUnauthorized, "UNAUTHORIZED")
}

// A value that no row can hold is the caller's mistake and not ours.
func TestQueriesThatCannotBeStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token, made := b.token(t, b.ours, identity.Admin), b.makeJob(t, b.ours)
	for _, test := range []struct{ method, path, name string }{
		{"GET", "/audit", "actor"},
		{"GET", "/audit", "action"},
		{"GET", "/audit", "objectId"},
		{"GET", "/jobs", "tags"},
		{"GET", "/executions", "triggeredBy"},
		{"DELETE", "/jobs/" + made.ID.String(), "reason"},
	} {
		for _, text := range []string{"%00", "a%ff"} {
			got := b.do(t, request{method: test.method, path: base + test.path + "?" + test.name + "=" + text, token: token})
			if e := refused(t, got, http.StatusBadRequest, "VALIDATION_FAILED"); len(e.Error.Details) != 1 || e.Error.Details[0].Field != test.name {
				t.Errorf("%s?%s=%s: %s", test.path, test.name, text, got.body)
			}
		}
	}
}

// Browsers are told to come back encrypted by answers that are.
func TestStrictTransportSecurity(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, encrypted := range []*tls.ConnectionState{nil, {}} {
		sent := httptest.NewRequest("GET", "http://localhost/health/live", nil)
		sent.TLS = encrypted
		recorder := httptest.NewRecorder()
		b.handler.ServeHTTP(recorder, sent)
		if got := recorder.Result().Header.Get("Strict-Transport-Security"); (got != "") != (encrypted != nil) {
			t.Errorf("encrypted: %v, the header is %q", encrypted != nil, got)
		}
	}
}
