package e2e_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// A target takes the call with 202, the only worker is killed, and the report that comes
// after that ends the execution: nothing was repeated.
func TestCallbackOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	s := stores(t, hinted)
	s.env = []string{"SECRETS_KEYS=" + keyring.Generate("k1"), "SCHEDULER_MAX_CONCURRENT_JOBS=1"}
	s.up(0)
	addresses := make(chan string, 100)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		addresses <- r.Header.Get("X-Callback-Url")
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(target.Close)
	allow := api.OverlapPolicyAllow
	job := s.create(api.JobSpec{Name: "import", OverlapPolicy: &allow, JobType: api.JobTypeHTTP, Config: config(t, map[string]any{"url": target.URL, "completion": "callback", "heartbeatTimeout": 600})}).ID
	worker := s.worker()
	first, second := s.trigger(job).ID, s.trigger(job).ID
	report := func(address, step, body string, want int) string {
		t.Helper()
		answer, err := http.Post(address+step, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != want {
			t.Errorf("%s %s: %s %s, want %d", step, body, answer.Status, text, want)
		}
		return string(text)
	}
	s.eventually("the one slot serves both", func() bool { return len(addresses) == 2 })
	byPath := map[string]bool{<-addresses: true, <-addresses: true}
	for _, id := range []string{first.String(), second.String()} {
		s.eventually("both await their callbacks", func() bool {
			for _, e := range s.executions(job) {
				if w := e.WaitingOn; e.ID.String() == id && w != nil && w.Reason == api.WaitReasonCallback {
					return true
				}
			}
			return false
		})
	}
	worker.kill()
	for address := range byPath {
		if !strings.HasPrefix(address, s.url+"/callbacks/") {
			t.Fatalf("the call brought %q", address)
		}
		report(address, "/progress", `{"progress":50}`, http.StatusOK)
		for range 2 {
			if got := report(address, "/complete", `{"result":{"rows":7}}`, http.StatusOK); !strings.Contains(got, "completed") {
				t.Errorf("the end was answered %s", got)
			}
		}
		report(address, "/heartbeat", "", http.StatusConflict)
		report(address[:len(address)-5], "/heartbeat", "", http.StatusNotFound)
	}
	for _, e := range s.executions(job) {
		e = s.execution(e.ID) // with its result
		if e.Status != api.ExecutionStatusCompleted || e.RetryCount != 0 || !strings.Contains(string(e.Result), `"rows"`) {
			t.Errorf("recorded: %+v", e)
		}
	}
	if len(addresses) != 0 {
		t.Error("the target was called again")
	}
}
