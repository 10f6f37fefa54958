package httpcall_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/version"
)

// The request that the target gets, by the job's configuration and the overrides.
func TestRequest(t *testing.T) {
	t.Parallel()
	type sent struct{ Method, URI, Type, Body, Key, Agent string }
	requests := make(chan sent, 1)
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- sent{
			r.Method, r.RequestURI, r.Header.Get("Content-Type"), string(body),
			r.Header.Get("X-Api-Key"), r.Header.Get("User-Agent"),
		}
	})
	agent := "scheduler-service/" + version.String()
	for _, test := range []struct {
		name, config, parameters string
		want                     sent
	}{
		{"least", `{"url":"$URL/a?b=c"}`, ``, sent{"GET", "/a?b=c", "", "", "", agent}},
		{"a text", `{"url":"$URL","method":"POST","body":"a=b"}`, ``, sent{"POST", "/", "text/plain; charset=utf-8", "a=b", "", agent}},
		{"an object", `{"url":"$URL","method":"PUT","body":{"a":[1]}}`, ``, sent{"PUT", "/", "application/json", `{"a":[1]}`, "", agent}},
		{"a number", `{"url":"$URL","method":"PATCH","body":1}`, ``, sent{"PATCH", "/", "application/json", `1`, "", agent}},
		{"false", `{"url":"$URL","method":"PATCH","body":false}`, ``, sent{"PATCH", "/", "application/json", `false`, "", agent}},
		{"null", `{"url":"$URL","method":"POST","body":null}`, ``, sent{"POST", "/", "", "", "", agent}},
		{
			"own type", `{"url":"$URL","method":"POST","body":"{}","headers":{"content-type":"application/json","x-api-key":"k"}}`, ``,
			sent{"POST", "/", "application/json", "{}", "k", agent},
		},
		{"own agent", `{"url":"$URL","headers":{"User-Agent":"mine"}}`, ``, sent{"GET", "/", "", "", "", "mine"}},
		{"delete with a body", `{"url":"$URL","method":"DELETE","body":"x"}`, ``, sent{"DELETE", "/", "text/plain; charset=utf-8", "x", "", agent}},
		{"head", `{"url":"$URL","method":"HEAD"}`, ``, sent{"HEAD", "/", "", "", "", agent}},
		{
			"overridden", `{"url":"$URL/?a=1&b=2","method":"POST","body":"x","headers":{"X-Api-Key":"k"}}`,
			`{"body":{"n":1},"headers":{"x-api-key":"other"},"query":{"b":"3&","c":"4"}}`,
			sent{"POST", "/?a=1&b=3%26&c=4", "application/json", `{"n":1}`, "other", agent},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := run(server, test.config)
			r.Parameters = json.RawMessage(test.parameters)
			if out := call(t, t.Context(), r); out.Err != nil {
				t.Fatal(out.Err)
			}
			if diff := cmp.Diff(test.want, <-requests); diff != "" {
				t.Errorf("the target was sent something else (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTargetIsToldWhoCalls(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	if out := call(t, t.Context(), run(server, `{"url":"$URL"}`)); out.Err != nil {
		t.Fatal(out.Err)
	}
	want := http.Header{
		"X-Execution-Id":  {"00000000-0000-8000-8000-00000000000e"},
		"X-Job-Id":        {"00000000-0000-4000-8000-00000000000a"},
		"X-Scheduled-At":  {"2026-03-04T01:00:00.123456Z"},
		"X-Attempt":       {"3"},
		"Idempotency-Key": {"00000000-0000-8000-8000-00000000000e"},
		"User-Agent":      {"scheduler-service/" + version.String()},
	}
	if diff := cmp.Diff(want, <-got); diff != "" {
		t.Errorf("headers differ (-want +got):\n%s", diff)
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	const server, user = executor.SystemError, executor.UserError
	for _, test := range []struct {
		name, rules string
		status      int
		want        *executor.Error // without its message; nil is success
	}{
		{"200", ``, 200, nil},
		{"204", ``, 204, nil},
		{"299", ``, 299, nil},
		{"304", ``, 304, &executor.Error{Type: user}},
		{"404", ``, 404, &executor.Error{Type: user}},
		{"408", ``, 408, &executor.Error{Type: server}},
		{"425", ``, 425, &executor.Error{Type: server}},
		{"429", ``, 429, &executor.Error{Type: server}},
		{"500", ``, 500, &executor.Error{Type: server}},
		{"503", ``, 503, &executor.Error{Type: server}},
		{"599", ``, 599, &executor.Error{Type: server}},
		{"a code met", `,"expectedStatusCode":404`, 404, nil},
		{"a code missed", `,"expectedStatusCode":201`, 200, &executor.Error{Type: user}},
		{"a text", `,"expectedStatusCode":"201"`, 201, nil},
		{"a range", `,"expectedStatusCode":"400 - 404"`, 404, nil},
		{"a range missed", `,"expectedStatusCode":"400-404"`, 405, &executor.Error{Type: user}},
		{"a list", `,"expectedStatusCode":[200,"4XX"]`, 499, nil},
		{"a redirect expected", `,"expectedStatusCode":302`, 302, nil},
		{"a redirect to be retried", `,"retryOnStatusCodes":302`, 302, &executor.Error{Type: user, Retry: &yes}},
		{"listed for a retry", `,"retryOnStatusCodes":[404]`, 404, &executor.Error{Type: user, Retry: &yes}},
		{"not in the list", `,"retryOnStatusCodes":[404]`, 500, &executor.Error{Type: server, Retry: &no}},
		{"not ready yet", `,"retryOnStatusCodes":[202]`, 202, &executor.Error{Type: user, Retry: &yes}},
		{"success beside a list", `,"retryOnStatusCodes":[202]`, 200, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			target := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if test.status == http.StatusFound {
					w.Header().Set("Location", "http://10.0.0.1/")
				}
				w.WriteHeader(test.status)
			})
			out := call(t, t.Context(), run(target, `{"url":"$URL"`+test.rules+`}`))
			if got := result(t, out).StatusCode; got != test.status {
				t.Errorf("statusCode = %d, want %d", got, test.status)
			}
			if out.Err != nil {
				if !strings.HasPrefix(out.Err.Message, "unexpected status ") {
					t.Errorf("message = %q", out.Err.Message)
				}
				out.Err.Message = ""
			}
			if diff := cmp.Diff(test.want, out.Err); diff != "" {
				t.Errorf("error differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ value, want string }{
		{"", "0s"},
		{"0", "0s"},
		{"120", "2m0s"},
		{"3600", "1h0m0s"},
		{"3601", "1h0m0s"},
		{"99999999999999999999", "1h0m0s"},
		{"-5", "0s"},
		{"1.5", "0s"},
		{"soon", "0s"},
		{"Wed, 04 Mar 2026 05:07:07 GMT", "1m0s"},
		{"Wed, 04 Mar 2026 05:05:07 GMT", "0s"},
		{"Thu, 05 Mar 2026 05:05:07 GMT", "1h0m0s"},
		{"Wed Mar  4 05:06:37 2026", "30s"},
	} {
		t.Run(test.value, func(t *testing.T) {
			t.Parallel()
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", test.value)
				w.WriteHeader(http.StatusServiceUnavailable)
			})
			out := call(t, t.Context(), run(server, `{"url":"$URL"}`))
			if got := out.Err.RetryAfter.String(); got != test.want {
				t.Errorf("RetryAfter = %s, want %s", got, test.want)
			}
		})
	}
}

// A configuration that Validate would refuse does not run either: it may have
// been stored when the rules were others.
func TestExecuteRefusesWhatValidateRefuses(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	for _, test := range []struct{ config, parameters, want string }{
		{`{"url":"http://169.254.169.254/"}`, ``, "config.url: not allowed (link-local)"},
		{`{"url":"https://example.com","headers":{"Host":"x"}}`, ``, "config.headers.Host: "},
		{`{"url":"https://example.com"}`, `{"url":"x"}`, "parameters.url: "},
		{``, ``, "config: is missing"},
	} {
		t.Run(test.want, func(t *testing.T) {
			t.Parallel()
			out := e.Execute(t.Context(), executor.Run{
				ExecutionID: uuid.New(), Config: json.RawMessage(test.config), Parameters: json.RawMessage(test.parameters),
			})
			if out.Err == nil || out.Err.Type != executor.ValidationError || !strings.HasPrefix(out.Err.Message, test.want) {
				t.Errorf("error = %v, want a VALIDATION_ERROR beginning %q", out.Err, test.want)
			}
		})
	}
}
