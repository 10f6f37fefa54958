package rest_test

import (
	"encoding/json"
	"testing"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/function"
	"github.com/scheduler-service/scheduler/internal/executor/httpcall"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest"
)

// realExecutors makes the API check configurations as in production.
func realExecutors(t *testing.T) func(*rest.Deps) {
	t.Helper()
	client, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	registry := executor.NewRegistry(map[string]executor.Executor{
		"http": httpcall.New(client, clock.Now), "function": function.New(nil),
	})
	return func(d *rest.Deps) { d.CheckConfig, d.CheckParameters = registry.Validate, registry.ValidateParameters }
}

// The contract's schemas of configurations, which describe and do not check,
// say what the executors say.
func TestTheContractDescribesConfigurations(t *testing.T) {
	t.Parallel()
	b := setup(t, realExecutors(t))
	token := b.token(t, b.ours, identity.Developer)
	for _, test := range []struct {
		jobType, config string
		fine            bool
	}{
		{"http", `{"url":"https://example.com/report"}`, true},
		{"http", `{"url":"http://example.com","method":"DELETE","headers":{"Accept":"text/plain"},"timeout":0.5}`, true},
		{"http", `{"url":"http://example.com","method":"POST","body":"text"}`, true},
		{"http", `{"url":"http://example.com","method":"POST","body":{"a":[1]}}`, true},
		{"http", `{"url":"http://example.com","expectedStatusCode":204}`, true},
		{"http", `{"url":"http://example.com","expectedStatusCode":"200-299"}`, true},
		{"http", `{"url":"http://example.com","expectedStatusCode":"2xx"}`, true},
		{"http", `{"url":"http://example.com","expectedStatusCode":[200,"300-399"],"retryOnStatusCodes":[500]}`, true},
		{"function", `{"modulePath":"builtin","functionName":"noop"}`, true},
		{"function", `{"modulePath":"builtin","functionName":"sleep","parameters":{"durationMs":1},"timeout":86400}`, true},

		{"http", `{}`, false},
		{"http", `{"url":1}`, false},
		{"http", `{"URL":"https://example.com"}`, false},
		{"http", `{"url":"https://example.com","uri":"x"}`, false},
		{"http", `{"url":"https://example.com","method":"TRACE"}`, false},
		{"http", `{"url":"https://example.com","method":"get"}`, false},
		{"http", `{"url":"https://example.com","headers":["a"]}`, false},
		{"http", `{"url":"https://example.com","headers":{"a":1}}`, false},
		{"http", `{"url":"https://example.com","timeout":0}`, false},
		{"http", `{"url":"https://example.com","timeout":86401}`, false},
		{"http", `{"url":"https://example.com","timeout":"5"}`, false},
		{"http", `{"url":"https://example.com","expectedStatusCode":99}`, false},
		{"http", `{"url":"https://example.com","expectedStatusCode":"200-600"}`, false},
		{"http", `{"url":"https://example.com","expectedStatusCode":[]}`, false},
		{"http", `{"url":"https://example.com","expectedStatusCode":{"from":200}}`, false},
		{"http", `{"url":"https://example.com","retryOnStatusCodes":[true]}`, false},
		{"function", `{"modulePath":"builtin"}`, false},
		{"function", `{"functionName":"noop"}`, false},
		{"function", `{"modulePath":"builtin","functionName":"noop","parameters":[1]}`, false},
		{"function", `{"modulePath":"builtin","functionName":"noop","args":{}}`, false},
	} {
		name := map[string]string{"http": "HttpConfig", "function": "FunctionConfig"}[test.jobType]
		var value any
		if err := json.Unmarshal([]byte(test.config), &value); err != nil {
			t.Fatal(err)
		}
		if err := b.spec.Components.Schemas[name].Value.VisitJSON(value); (err == nil) != test.fine {
			t.Errorf("%s says of %s: %v", name, test.config, err)
		}
		got := b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: `{"name":"a","trigger":"manual","jobType":"` + test.jobType + `","config":` + test.config + `}`})
		if want := map[bool]int{true: 201, false: 400}[test.fine]; got.status != want {
			t.Errorf("%s %s: answered %d %s", test.jobType, test.config, got.status, got.body)
		}
		if !test.fine {
			refused(t, got, 400, "INVALID_JOB_CONFIG")
		}
	}
}

// The contract's examples work.
func TestTheContractsExamplesWork(t *testing.T) {
	t.Parallel()
	b := setup(t, realExecutors(t))
	token := b.token(t, b.ours, identity.Developer)
	for _, path := range []string{base + "/jobs", base + "/calendars"} {
		body := b.spec.Paths.Value(path).Post.RequestBody.Value.Content.Get("application/json")
		for name, example := range body.Examples {
			raw, err := json.Marshal(example.Value.Value)
			if err != nil {
				t.Fatal(err)
			}
			if got := b.do(t, request{method: "POST", path: path, token: token, body: string(raw)}); got.status != 201 {
				t.Errorf("%s: answered %d %s", name, got.status, got.body)
			}
		}
	}
	file := b.spec.Paths.Value(base + "/calendars/import").Post.RequestBody.Value.Content.Get("text/calendar")
	got := b.do(t, request{
		method: "POST", path: base + "/calendars/import?name=file", token: token, body: file.Example.(string),
		header: map[string]string{"Content-Type": "text/calendar"},
	})
	if got.status != 201 {
		t.Errorf("the file: answered %d %s", got.status, got.body)
	}
	if err := b.spec.Validate(t.Context()); err != nil {
		t.Errorf("the contract, its examples included, is not valid: %v", err)
	}
}

// Overrides are checked against the job that they are for.
func TestOverridesFitTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t, realExecutors(t))
	path := base + "/jobs/" + b.makeJob(t, b.ours).ID.String() + "/trigger"
	for _, test := range []struct {
		parameters string
		status     int
	}{
		{`{}`, 202}, {`{"query":{"a":"b"}}`, 202}, {`{"headers":{"Accept":"text/plain"}}`, 202}, {`{"url":"http://10.0.0.1/"}`, 400}, {`{"query":{"a":1}}`, 400},
	} {
		got := b.do(t, request{method: "POST", path: path, token: b.token(t, b.ours, identity.Operator), body: `{"parameters":` + test.parameters + `}`})
		if got.status != test.status {
			t.Errorf("%s: answered %d %s", test.parameters, got.status, got.body)
		}
	}
}
