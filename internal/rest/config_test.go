package rest_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/command"
	"github.com/scheduler-service/scheduler/internal/executor/function"
	"github.com/scheduler-service/scheduler/internal/executor/httpcall"
	"github.com/scheduler-service/scheduler/internal/executor/javascript"
	"github.com/scheduler-service/scheduler/internal/executor/remote"
	"github.com/scheduler-service/scheduler/internal/executor/runner"
	"github.com/scheduler-service/scheduler/internal/executor/wasm"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// realExecutors makes the API check configurations as in production.
func realExecutors(t *testing.T) func(*parts.Deps) {
	t.Helper()
	if underRace {
		t.Skip("processes that check scripts need more memory under the race detector than they may have")
	}
	client, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	runners := runner.New(runner.Config{Memory: 1 << 30, Log: log})
	t.Cleanup(func() { _ = runners.Close() })
	registry := executor.NewRegistry(map[string]executor.Executor{
		"http": httpcall.New(client, clock.Now), "function": function.New(nil),
		"command": command.NewChecker(command.Config{Level: command.Sandbox, Memory: 512}), "javascript": javascript.New(runners, client, log),
		"wasm": wasm.New(runners, nil), "remote": remote.Executor{},
	})
	return func(d *parts.Deps) {
		d.CheckConfig, d.CheckParameters, d.HostOf = registry.Validate, registry.ValidateParameters, registry.HostOf
	}
}

// The contract's schemas of configurations, which describe and do not check,
// say what the executors say.
func TestTheContractDescribesConfigurations(t *testing.T) {
	t.Parallel()
	b, token := limited(t, tenant.Spec{Limits: tenant.Limits{JobTypes: []string{"http", "function", "javascript", "command", "wasm", "remote"}}}, realExecutors(t))
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
		{"javascript", `{"source":"export default () => 1","parameters":{"a":1},"timeout":5}`, true},
		{"command", `{"command":"true"}`, true},
		{"command", `{"command":"/usr/bin/env","args":["a",""],"workingDirectory":"a/b","environment":{"A":"1"},"timeout":1,"network":false,"retryOnExitCodes":[75],
			"limits":{"memoryMb":8,"cpuSeconds":1,"processes":1,"fileSizeMb":1,"openFiles":16}}`, true},

		{"wasm", `{"function":"resize-images","parameters":{"a":1},"timeout":5}`, true},
		{"wasm", `{"function":"resize-images","version":2}`, true},

		{"remote", `{"functionName":"send-invoice","parameters":{"a":1}}`, true},
		{"remote", `{"functionName":"a/b.c"}`, true},

		{"remote", `{}`, false},
		{"remote", `{"functionName":""}`, false},
		{"remote", `{"functionName":"a","timeout":1}`, false},
		{"remote", `{"functionName":"a","parameters":[]}`, false},
		{"wasm", `{}`, false},
		{"wasm", `{"function":1}`, false},
		{"wasm", `{"function":"a","version":0}`, false},
		{"wasm", `{"function":"a","source":"x"}`, false},
		{"javascript", `{}`, false},
		{"javascript", `{"source":""}`, false},
		{"javascript", `{"source":"export default 1","parameters":[]}`, false},
		{"javascript", `{"source":"export default 1","timeout":0}`, false},
		{"javascript", `{"source":"export default 1","modulePath":"x"}`, false},
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
		{"command", `{}`, false},
		{"command", `{"command":"./a"}`, false},
		{"command", `{"command":"true","args":"a"}`, false},
		{"command", `{"command":"true","environment":{"A":1}}`, false},
		{"command", `{"command":"true","shell":true}`, false},
		{"command", `{"command":"true","retryOnExitCodes":[0]}`, false},
		{"command", `{"command":"true","limits":{"memoryMb":1}}`, false},
		{"command", `{"command":"true","limits":{"cpu":1}}`, false},
		{"function", `{"modulePath":"builtin"}`, false},
		{"function", `{"functionName":"noop"}`, false},
		{"function", `{"modulePath":"builtin","functionName":"noop","parameters":[1]}`, false},
		{"function", `{"modulePath":"builtin","functionName":"noop","args":{}}`, false},
	} {
		name := map[string]string{"http": "HttpConfig", "function": "FunctionConfig", "javascript": "JavascriptConfig", "command": "CommandConfig", "wasm": "WasmConfig", "remote": "RemoteConfig"}[test.jobType]
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

// A tenant with a list stores no job that calls another host, and keeps what it has.
func TestJobsCallAllowedHosts(t *testing.T) {
	t.Parallel()
	b := setup(t, realExecutors(t))
	platform, token := b.token(t, b.theirs, identity.PlatformAdmin), b.token(t, b.ours, identity.Developer)
	spec := func(target string) string {
		return `{"name":"x","trigger":"manual","jobType":"http","config":{"url":"` + target + `"}}`
	}
	old := b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: spec("https://elsewhere.test/")})
	if old.status != 201 {
		t.Fatalf("%d %s", old.status, old.body)
	}
	put := request{method: "PUT", path: base + "/tenants/" + b.ours.TenantID.String(), token: platform, body: `{"name":"x","allowedHosts":["*.example.com","api.test"]}`}
	if got := b.do(t, put); got.status != 200 || !strings.Contains(got.body, `"allowedHosts":["*.example.com","api.test"]`) {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := b.do(t, request{method: "GET", path: base + "/tenant", token: b.token(t, b.ours, identity.Admin)}); !strings.Contains(got.body, `"*.example.com"`) {
		t.Errorf("GET /tenant: %s", got.body)
	}
	for target, status := range map[string]int{
		"https://a.example.com/x": 201, "https://API.test:8443/": 201,
		"https://example.com/": 400, "https://elsewhere.test/": 400, "https://api.test.evil.test/": 400, "https://203.0.112.9/": 400,
	} {
		got := b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: spec(target)})
		if got.status != status || status == 400 && !strings.Contains(got.body, `"rule":"allowed-host"`) {
			t.Errorf("%s: %d %s", target, got.status, got.body)
		}
	}
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(old.body), &made); err != nil {
		t.Fatal(err)
	}
	change := request{method: "PUT", path: base + "/jobs/" + made.ID, token: token, body: strings.Replace(spec("https://elsewhere.test/"), `"x"`, `"y"`, 1)}
	refused(t, b.do(t, change), 400, "INVALID_JOB_CONFIG")
	put.body = `{"name":"x","allowedHosts":["https://a.example.com","*","Example.com"]}`
	refused(t, b.do(t, put), 400, "VALIDATION_FAILED")
}
