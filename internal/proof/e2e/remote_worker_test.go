package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// The example of a worker that runs outside the service, beside no worker of the service: it knows
// the address of the API and a key that may work.
func TestRemoteWorkerRuns(t *testing.T) {
	t.Parallel()
	s := stores(t, hinted)
	s.env = []string{"SECRETS_KEYS=" + keyring.Generate("k1")}
	s.up(0)
	made, err := s.client.CreateAPIKeyWithResponse(t.Context(), api.APIKeySpec{Name: "worker", Scopes: []string{"workers:run"}})
	if err != nil || made.JSON201 == nil {
		t.Fatalf("no key: %v", err)
	}
	job := func(function string, parameters map[string]any) api.JobSpec {
		return api.JobSpec{
			Name: "f", JobType: api.JobTypeRemote, Trigger: new(api.JobSpecTriggerManual),
			Config: config(t, map[string]any{"functionName": function, "parameters": parameters}),
		}
	}
	create := func(spec api.JobSpec) *api.CreateJobResponse {
		answer, err := s.client.CreateJobWithResponse(t.Context(), nil, spec)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	counts := job("count-words", map[string]any{"text": "one two three"})
	if got := create(counts); got.StatusCode() != http.StatusBadRequest || !strings.Contains(string(got.Body), "config.functionName") {
		t.Fatalf("a function that nobody has: %s", got.Body)
	}
	key := []string{"SCHEDULER_URL=" + s.url, "SCHEDULER_API_KEY=" + made.JSON201.Key}
	first := s.process("exampleremote", key...)
	s.eventually("the worker registered", func() bool { return create(counts).StatusCode() == http.StatusCreated })
	if got := create(job("count-words", map[string]any{"text": 7})); got.StatusCode() != http.StatusBadRequest || !strings.Contains(string(got.Body), "config.parameters.text") {
		t.Errorf("parameters that do not fit: %s", got.Body)
	}
	ends := func(run api.Execution, want api.ExecutionStatus) api.Execution {
		t.Helper()
		s.eventually("an execution is "+string(want), func() bool { return s.execution(run.ID).Status == want })
		return s.execution(run.ID)
	}
	counted := ends(s.trigger(create(counts).JSON201.ID), api.ExecutionStatusCompleted)
	if text := string(counted.Result); !strings.Contains(text, `"words":3`) || !strings.Contains(text, counted.ID.String()) || counted.Progress != 100 {
		t.Errorf("counted %s, progress %d", text, counted.Progress)
	}
	if logs, err := s.client.ListExecutionLogsWithResponse(t.Context(), counted.ID, nil); err != nil || logs.JSON200 == nil || len(logs.JSON200.Items) != 1 || logs.JSON200.Items[0].Text != "counts 3 words" {
		t.Errorf("its output: %v, %s", err, logs.Body)
	}
	ends(s.trigger(create(job("count-words", map[string]any{"text": " "})).JSON201.ID), api.ExecutionStatusFailed)

	// A cancellation reaches the run with a heartbeat.
	waits := create(job("wait-for-end", nil)).JSON201.ID
	cancelled := s.trigger(waits)
	s.eventually("it runs", func() bool { return s.execution(cancelled.ID).Progress == 50 })
	if answer, err := s.client.CancelExecutionWithResponse(t.Context(), cancelled.ID, api.CancelRequest{}); err != nil || answer.StatusCode() >= 300 {
		t.Fatalf("cancel: %v, %s", err, answer.Body)
	}
	ends(cancelled, api.ExecutionStatusCancelled)

	// A worker that dies loses its run to the next one.
	lost := s.trigger(waits)
	s.eventually("it runs", func() bool { return s.execution(lost.ID).Progress == 50 })
	first.kill()
	second := s.process("exampleremote", key...)
	s.eventually("it runs again", func() bool {
		e := s.execution(lost.ID)
		return len(e.Attempts) == 2 && e.Status == api.ExecutionStatusRunning
	})
	if e := s.execution(lost.ID); *e.Attempts[0].WorkerID == *e.Attempts[1].WorkerID || !strings.Contains(*e.Attempts[0].ErrorMessage, "no heartbeat came") {
		t.Errorf("the attempts are %+v", e.Attempts)
	}
	if answer, err := s.client.CancelExecutionWithResponse(t.Context(), lost.ID, api.CancelRequest{}); err != nil || answer.StatusCode() >= 300 {
		t.Fatalf("cancel: %v, %s", err, answer.Body)
	}
	ends(lost, api.ExecutionStatusCancelled)
	second.stop() // as an orchestrator does: it drains and deregisters
	if list, err := s.client.ListRemoteWorkersWithResponse(t.Context()); err != nil || list.JSON200 == nil {
		t.Errorf("list: %v", err)
	} else {
		for _, w := range list.JSON200.Items {
			if w.Running != 0 {
				t.Errorf("still lives: %+v", w)
			}
		}
	}
}
