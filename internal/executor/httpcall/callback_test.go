package httpcall_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/executor"
)

// Only a 202 has the attempt await the callback whose address the call brought.
func TestCompletionByCallback(t *testing.T) {
	t.Parallel()
	const address = "https://scheduler.example/callbacks/abc"
	ever, silence := time.Duration(0), 1500*time.Millisecond
	for _, test := range []struct {
		name, config string
		answers      int
		brings       string
		awaits       *time.Duration
		failure      executor.ErrorType
	}{
		{"202", `{"url":"$URL","completion":"callback"}`, 202, address, &ever, ""},
		{"202 with heartbeats", `{"url":"$URL","completion":"callback","heartbeatTimeout":1.5}`, 202, address, &silence, ""},
		{"202 that is not expected", `{"url":"$URL","completion":"callback","expectedStatusCode":200}`, 202, address, &ever, ""},
		{"200", `{"url":"$URL","completion":"callback"}`, 200, address, nil, ""},
		{"500", `{"url":"$URL","completion":"callback"}`, 500, address, nil, executor.SystemError},
		{"202 to a job that asked for none", `{"url":"$URL"}`, 202, "", nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			brought := make(chan string, 1)
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				brought <- r.Header.Get("X-Callback-Url")
				w.WriteHeader(test.answers)
			})
			r := run(server, test.config)
			r.Callback = func() (string, error) { return address, nil }
			out := call(t, t.Context(), r)
			if got := <-brought; got != test.brings {
				t.Errorf("the call brought %q, want %q", got, test.brings)
			}
			if out.Await != (test.awaits != nil) || out.Await && out.Heartbeat != *test.awaits {
				t.Errorf("awaits a callback: %v, with a heartbeat in %v", out.Await, out.Heartbeat)
			}
			if (out.Err == nil) != (test.failure == "") || out.Err != nil && out.Err.Type != test.failure {
				t.Errorf("failed with %v, want %q", out.Err, test.failure)
			}
		})
	}
}

// Without an address no call is made.
func TestNoCallWithoutACallbackAddress(t *testing.T) {
	t.Parallel()
	server := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the target was called") })
	r := run(server, `{"url":"$URL","completion":"callback"}`)
	if out := call(t, t.Context(), r); out.Err == nil || out.Err.Type != executor.ValidationError {
		t.Errorf("a worker that knows no address: %v", out.Err)
	}
	r.Callback = func() (string, error) { return "", errors.New("no key") }
	if out := call(t, t.Context(), r); out.Err == nil || out.Err.Type != executor.SystemError {
		t.Errorf("a token that cannot be made: %v", out.Err)
	}
}

func TestCompletionIsChecked(t *testing.T) {
	t.Parallel()
	with := newExecutor(t).WithCallbacks()
	for config, want := range map[string][]string{
		`{"url":"https://a.example","completion":"callback","heartbeatTimeout":60}`:        nil,
		`{"url":"https://a.example","completion":"response"}`:                              nil,
		`{"url":"https://a.example","completion":"later"}`:                                 {"config.completion enum"},
		`{"url":"https://a.example","heartbeatTimeout":60}`:                                {"config.heartbeatTimeout conflict"},
		`{"url":"https://a.example","completion":"callback","heartbeatTimeout":0.5}`:       {"config.heartbeatTimeout range"},
		`{"url":"https://a.example","headers":{"X-Callback-URL":"https://evil.example/"}}`: {"config.headers.X-Callback-URL reserved"},
	} {
		if diff := cmp.Diff(want, rules(with.Validate([]byte(config)))); diff != "" {
			t.Errorf("%s: (-want +got) %s", config, diff)
		}
	}
	if diff := cmp.Diff([]string{"config.completion unavailable"}, rules(newExecutor(t).Validate([]byte(`{"url":"https://a.example","completion":"callback"}`)))); diff != "" {
		t.Errorf("where no callback arrives: (-want +got) %s", diff)
	}
}
