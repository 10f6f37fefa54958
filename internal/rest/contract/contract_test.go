package contract_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/contract"
	"github.com/scheduler-service/scheduler/internal/rest/strictjson"
)

const base = "/api/v1/scheduler"

func load(t *testing.T) *contract.Contract {
	t.Helper()
	c, err := contract.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func operation(t *testing.T, method, path string) *contract.Operation {
	t.Helper()
	o, ok := load(t).Operation(method, path)
	if !ok {
		t.Fatalf("the contract has no %s %s", method, path)
	}
	return o
}

// Every operation names a permission that somebody has, and those that need no
// token are the ones that anybody may see.
func TestEveryOperationNamesAPermission(t *testing.T) {
	t.Parallel()
	for name, o := range load(t).Operations() {
		path := strings.Fields(name)[1]
		health := strings.HasPrefix(name, "GET /health") || name == "GET /internal/health"
		internal := strings.HasPrefix(path, "/internal/") && !health
		callback := strings.HasPrefix(path, "/callbacks/{token}/")
		if token := o.Permission == contract.Callback; token != callback {
			t.Errorf("%s: permission %q", name, o.Permission)
		}
		ping := strings.HasPrefix(path, "/ping/{key}")
		if (o.Permission == contract.Ping) != ping {
			t.Errorf("%s: permission %q", name, o.Permission)
		}
		callback = callback || ping
		if open := o.Permission == contract.Public; open != health {
			t.Errorf("%s: permission %q", name, o.Permission)
		}
		if service := o.Permission == contract.Service; service != internal {
			t.Errorf("%s: permission %q", name, o.Permission)
		}
		if !health && !internal && !callback && !identity.Permission(o.Permission).Known() {
			t.Errorf("%s needs %q, which no role grants", name, o.Permission)
		}
		if !health && !internal && !callback && !strings.HasPrefix(path, base+"/") {
			t.Errorf("%s is not under %s", name, base)
		}
	}
}

// texts writes fields as "path rule: message".
func texts(fields []fault.Field) []string {
	var all []string
	for _, f := range fields {
		all = append(all, f.Path+" "+f.Rule+": "+f.Message)
	}
	return all
}

func TestCheckBodyNamesEveryField(t *testing.T) {
	t.Parallel()
	create := operation(t, http.MethodPost, base+"/jobs")
	for _, test := range []struct {
		name, body string
		want       []string
	}{
		{"the least", `{"name":"a","jobType":"http","config":{}}`, nil},
		{"everything", `{"name":"a","description":"","tags":["x"],"cronExpression":"0 0 * * * *","timezone":"UTC","startDate":"2026-01-01T00:00:00Z",
			"endDate":null,"interval":null,"runAt":null,"jobType":"function","config":{"x":1},"timeout":1,"priority":9,
			"retryConfig":{"maxRetries":0,"retryDelayMs":0,"exponentialBackoff":false,"maxRetryDelayMs":86400000,"retryOnErrorTypes":[],"jitter":1}}`, nil},
		{"config is free", `{"name":"a","jobType":"http","config":{"tenantId":1,"a":{"b":[null]}}}`, nil},
		{"no object", `[]`, []string{"body type: must be an object"}},
		{"null", `null`, []string{"body type: must be an object"}},
		{"nothing in it", `{}`, []string{"config required: is missing", "jobType required: is missing", "name required: is missing"}},
		{"names that are ours", `{"name":"a","jobType":"http","config":{},"id":1,"tenantId":"x","TENANT_ID":"x"}`, []string{
			"TENANT_ID unknown: is not a field here", "id unknown: is not a field here", "tenantId unknown: is not a field here",
		}},
		{"another case", `{"Name":"a","name":"a","jobType":"http","config":{},"retryConfig":{"maxretries":1}}`, []string{
			"Name unknown: is not a field here; did you mean name?",
			"retryConfig.maxretries unknown: is not a field here; did you mean maxRetries?",
		}},
		{"wrong types, all at once", `{"name":1,"jobType":"cron","config":[],"tags":["",2,"x"],"timeout":"5","priority":1.5,"runAt":"soon",
			"retryConfig":{"exponentialBackoff":"yes","retryOnErrorTypes":["TIMEOUT","OOPS"]}}`, []string{
			"config type: must be an object",
			`jobType enum: must be one of http, function, javascript, command, wasm, remote, not "cron"`,
			"name type: must be a text",
			"priority type: must be a whole number",
			"retryConfig.exponentialBackoff type: must be true or false",
			`retryConfig.retryOnErrorTypes[1] enum: must be one of TIMEOUT, NETWORK_ERROR, VALIDATION_ERROR, SYSTEM_ERROR, USER_ERROR, not "OOPS"`,
			"runAt format: must be a time with an offset, such as 2026-03-01T09:00:00Z",
			"tags[0] minLength: must have at least 1 character",
			"tags[1] type: must be a text",
			"timeout type: must be a whole number",
		}},
		{"bounds", `{"name":"` + strings.Repeat("é", 201) + `","jobType":"http","config":{},"timeout":0,"priority":10,
			"retryConfig":{"maxRetries":101,"retryDelayMs":-1,"jitter":1.01,"maxRetryDelayMs":86400001,"retryOnErrorTypes":["TIMEOUT","TIMEOUT"]}}`, []string{
			"name maxLength: must have at most 200 characters",
			"priority maximum: must be at most 9",
			"retryConfig.jitter maximum: must be at most 1",
			"retryConfig.maxRetries maximum: must be at most 100",
			"retryConfig.maxRetryDelayMs maximum: must be at most 86400000",
			"retryConfig.retryDelayMs minimum: must be at least 0",
			"retryConfig.retryOnErrorTypes uniqueItems: must not name the same thing twice",
			"timeout minimum: must be at least 1",
		}},
		{"fields of an inner object beside it", `{"name":"a","jobType":"http","url":"https://example.com/","method":"POST"}`, []string{
			"method unknown: is not a field here; did you mean config.method?", "url unknown: is not a field here; did you mean config.url?",
		}},
		{"a number of more than 64 bits", `{"name":"a","jobType":"http","config":{},"maxExecutions":99999999999999999999}`, []string{
			"maxExecutions maximum: must be at most 1000000000",
		}},
		{"null where none may be", `{"name":null,"jobType":null,"config":null,"timezone":null}`, []string{
			"config type: must be an object", "jobType enum: must be one of http, function, javascript, command, wasm, remote", "name type: must be a text", "timezone type: must be a text",
		}},
		{"times that do not exist", `{"name":"a","jobType":"http","config":{},"runAt":"2026-02-30T00:00:00Z","startDate":"2026-01-01T24:00:00Z","endDate":"2026-01-01 00:00:00Z"}`, []string{
			"endDate format: must be a time with an offset, such as 2026-03-01T09:00:00Z",
			"runAt format: must be a time with an offset, such as 2026-03-01T09:00:00Z",
			"startDate format: must be a time with an offset, such as 2026-03-01T09:00:00Z",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			value, faults := strictjson.Decode([]byte(test.body), strictjson.MaxNames)
			if len(faults) > 0 {
				t.Fatalf("the test's body is no JSON: %v", faults)
			}
			if diff := cmp.Diff(test.want, texts(create.CheckBody(value))); diff != "" {
				t.Errorf("fields differ (-want +got):\n%s", diff)
			}
		})
	}
}

// A name that people type for another, or for a field of an inner object, is
// answered with the right one, and that one is not missing as well.
func TestCheckBodyNamesTheFieldThatIsMeant(t *testing.T) {
	t.Parallel()
	create := operation(t, http.MethodPost, base+"/jobs")
	for given, want := range map[string]string{
		"tz": "timezone", "zone": "timezone", "time_zone": "timezone", "type": "jobType", "cron": "cronExpression", "schedule": "cronExpression",
		"every": "interval", "at": "runAt", "labels": "tags", "retryPolicy": "retryConfig", "concurrency": "maxConcurrent",
		"url": "config.url", "URL": "config.url", "uri": "config.url", "method": "config.method", "headers": "config.headers", "payload": "config.body",
		"functionName": "config.functionName", "maxRetries": "retryConfig.maxRetries", "maxRetires": "retryConfig.maxRetries", "retries": "retryConfig.maxRetries",
		"jitter": "retryConfig.jitter", "colour": "", "id": "", "tenantId": "",
	} {
		message := given + " unknown: is not a field here"
		if want != "" {
			message += "; did you mean " + want + "?"
		}
		body := map[string]any{"name": "a", "jobType": "http", "config": map[string]any{}, given: "x"}
		delete(body, want)
		if diff := cmp.Diff([]string{message}, texts(create.CheckBody(body))); diff != "" {
			t.Errorf("%s: fields differ (-want +got):\n%s", given, diff)
		}
	}
}

func TestCheckBodyBoundsItsFields(t *testing.T) {
	t.Parallel()
	body := map[string]any{}
	for i := range 500 {
		body[strings.Repeat("x", i+1)] = 1.0
	}
	if got := len(operation(t, http.MethodPost, base+"/jobs").CheckBody(body)); got != 50 {
		t.Errorf("%d fields, want the list cut at 50", got)
	}
}

func TestCheckParameters(t *testing.T) {
	t.Parallel()
	const id = "0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10"
	for _, test := range []struct {
		name, method, path, query string
		header                    http.Header
		id, version               string
		want                      []string
	}{
		{name: "none", method: "GET", path: "/jobs"},
		{name: "all", method: "GET", path: "/jobs", query: "status=active&jobType=http&limit=100&cursor=abc"},
		{name: "the least limit", method: "GET", path: "/jobs", query: "limit=1"},
		{name: "repeated where it may be", method: "GET", path: "/executions", query: "status=pending&status=running&from=2026-01-01T00:00:00%2B08:00"},
		{name: "UUIDv7 in the path", method: "GET", path: "/jobs/{id}", id: id},
		{name: "UUIDv8 in the path", method: "GET", path: "/executions/{id}", id: "0192f0a1-7b3c-8d4e-8f5a-6b7c8d9e0f10"},
		{name: "headers", method: "PUT", path: "/jobs/{id}", id: id, header: http.Header{"If-Match": {`"3"`}}},
		{name: "any version", method: "PUT", path: "/jobs/{id}", id: id, header: http.Header{"If-Match": {`*`}}},
		{name: "a key", method: "POST", path: "/jobs", header: http.Header{"Idempotency-Key": {"!a~"}}},

		{name: "bounds", method: "GET", path: "/jobs", query: "limit=0", want: []string{"limit minimum: must be at least 1"}},
		{name: "over the bound", method: "GET", path: "/jobs", query: "limit=101", want: []string{"limit maximum: must be at most 100"}},
		{name: "no number", method: "GET", path: "/jobs", query: "limit=ten", want: []string{"limit type: must be a whole number"}},
		{name: "beyond any number", method: "GET", path: "/jobs/{id}/versions/{version}", id: id, version: "99999999999999999999", want: []string{"version maximum: must be at most 2147483647"}},
		{name: "below any number", method: "GET", path: "/jobs", query: "limit=-99999999999999999999", want: []string{"limit minimum: must be at least 1"}},
		{name: "digits and more", method: "GET", path: "/jobs", query: "limit=99999999999999999999x", want: []string{"limit type: must be a whole number"}},
		{name: "another name", method: "GET", path: "/jobs", query: "type=http&pageSize=5&page=2&state=active", want: []string{
			"page unknown: is not a parameter of this operation; did you mean cursor?",
			"pageSize unknown: is not a parameter of this operation; did you mean limit?",
			"state unknown: is not a parameter of this operation; did you mean status?",
			"type unknown: is not a parameter of this operation; did you mean jobType?",
		}},
		{name: "a fraction", method: "GET", path: "/jobs", query: "limit=1.5", want: []string{"limit type: must be a whole number"}},
		{name: "empty", method: "GET", path: "/jobs", query: "limit=&cursor=&status=", want: []string{
			"cursor minLength: must have at least 1 character", "limit required: must not be empty", "status required: must not be empty",
		}},
		{name: "several at once", method: "GET", path: "/executions", query: "status=done&jobId=1&from=now&triggerType=x&x=1", want: []string{
			"from format: must be a time with an offset, such as 2026-03-01T09:00:00Z",
			"jobId format: must be a UUID",
			`status enum: must be one of pending, running, retrying, completed, failed, cancelled, skipped, missed, not "done"`,
			`triggerType enum: must be one of scheduled, manual, retry, backfill, not "x"`,
			"x unknown: is not a parameter of this operation",
		}},
		{name: "a plus in a URL", method: "GET", path: "/executions", query: "from=2026-03-01T09:00:00+08:00&status=complete", want: []string{
			"from format: must be a time with an offset, such as 2026-03-01T09:00:00Z; in a URL, + is written %2B",
			`status enum: must be one of pending, running, retrying, completed, failed, cancelled, skipped, missed, not "complete"; did you mean completed?`,
		}},
		{name: "a comma is no repetition", method: "GET", path: "/executions", query: "status=pending,running", want: []string{
			`status enum: must be one of pending, running, retrying, completed, failed, cancelled, skipped, missed, not "pending,running"; give several by repeating the parameter`,
		}},
		{name: "unknown", method: "GET", path: "/jobs", query: "tenantId=x&LIMIT=5", want: []string{
			"LIMIT unknown: is not a parameter of this operation; did you mean limit?", "tenantId unknown: is not a parameter of this operation",
		}},
		{name: "twice", method: "GET", path: "/jobs", query: "limit=5&limit=6", want: []string{"limit duplicate: stands more than once"}},
		{name: "the same state twice", method: "GET", path: "/executions", query: "status=failed&status=failed", want: []string{"status uniqueItems: must not name the same thing twice"}},
		{name: "no query at all", method: "GET", path: "/jobs", query: "limit=%zz", want: []string{"query syntax: is not a well-formed query"}},
		{name: "a semicolon", method: "GET", path: "/jobs", query: "limit=5;cursor=x", want: []string{"query syntax: is not a well-formed query"}},
		{name: "no UUID in the path", method: "GET", path: "/jobs/{id}", id: "1", want: []string{"id format: must be a UUID"}},
		{name: "a UUID in braces", method: "GET", path: "/jobs/{id}", id: "{" + id + "}", want: []string{"id format: must be a UUID"}},
		{name: "a query where none is", method: "GET", path: "/jobs/{id}", id: id, query: "debug", want: []string{"debug unknown: is not a parameter of this operation"}},
		{name: "If-Match without quotes", method: "PUT", path: "/jobs/{id}", id: id, header: http.Header{"If-Match": {`3`}}, want: []string{`If-Match pattern: must be one ETag such as "3", or *`}},
		{name: "If-Match twice", method: "PUT", path: "/jobs/{id}", id: id, header: http.Header{"If-Match": {`"3"`, `"4"`}}, want: []string{"If-Match duplicate: stands more than once"}},
		{name: "a key with a space", method: "POST", path: "/jobs", header: http.Header{"Idempotency-Key": {"a b"}}, want: []string{"Idempotency-Key pattern: must be visible ASCII without spaces"}},
		{name: "a key too long", method: "POST", path: "/jobs", header: http.Header{"Idempotency-Key": {strings.Repeat("k", 256)}}, want: []string{"Idempotency-Key maxLength: must have at most 255 characters"}},
		{name: "an empty key", method: "POST", path: "/jobs", header: http.Header{"Idempotency-Key": {""}}, want: []string{
			"Idempotency-Key minLength: must have at least 1 character", "Idempotency-Key pattern: must be visible ASCII without spaces",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(test.method, "/", nil)
			r.URL.RawQuery = test.query
			if test.header != nil {
				r.Header = test.header
			}
			got := operation(t, test.method, base+test.path).CheckParameters(r, map[string]string{"id": test.id, "version": test.version})
			if diff := cmp.Diff(test.want, texts(got)); diff != "" {
				t.Errorf("fields differ (-want +got):\n%s", diff)
			}
		})
	}
}

// A bulk call selects by the conditions of the list, under the same names.
func TestBulkFiltersHaveTheConditionsOfLists(t *testing.T) {
	t.Parallel()
	document, err := api.GetSpec()
	if err != nil {
		t.Fatal(err)
	}
	for path, schema := range map[string]string{"/jobs": "JobSelection", "/executions": "ExecutionSelection"} {
		list := map[string]string{}
		for _, p := range document.Paths.Value(base + path).Get.Parameters {
			if !slices.Contains([]string{"sort", "include", "limit", "cursor"}, p.Value.Name) {
				list[p.Value.Name] = fmt.Sprint(*p.Value.Schema.Value.Type)
			}
		}
		selection := map[string]string{}
		for name, field := range document.Components.Schemas[schema].Value.Properties {
			selection[name] = fmt.Sprint(*field.Value.Type)
		}
		if diff := cmp.Diff(list, selection); diff != "" {
			t.Errorf("GET %s and %s differ (-list +bulk):\n%s", path, schema, diff)
		}
	}
}
