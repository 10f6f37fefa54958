package e2e_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// call is what a target of ours was sent.
type call struct {
	header http.Header
	body   string
}

// sink is a target that takes down its calls.
func sink(t *testing.T) (url string, calls <-chan call) {
	t.Helper()
	came := make(chan call, 10_000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		came <- call{r.Header, string(body)}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"thanks":true}`))
	}))
	t.Cleanup(server.Close)
	return server.URL, came
}

// create makes a job through the API.
func (s *installation) create(spec api.JobSpec) api.Job {
	s.t.Helper()
	if spec.CronExpression == nil && spec.Interval == nil && spec.RunAt == nil {
		spec.Trigger = new(api.JobSpecTriggerManual)
	}
	answer, err := s.client.CreateJobWithResponse(s.t.Context(), nil, spec)
	if err != nil {
		s.t.Fatal(err)
	}
	if answer.JSON201 == nil {
		s.t.Fatalf("create: %s: %s", answer.Status(), answer.Body)
	}
	return *answer.JSON201
}

// trigger runs a job now.
func (s *installation) trigger(id uuid.UUID) api.Execution {
	s.t.Helper()
	answer, err := s.client.TriggerJobWithResponse(s.t.Context(), id, nil, api.TriggerRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	if answer.JSON202 == nil {
		s.t.Fatalf("trigger: %s: %s", answer.Status(), answer.Body)
	}
	return *answer.JSON202
}

func (s *installation) execution(id uuid.UUID) api.Execution {
	s.t.Helper()
	answer, err := s.client.GetExecutionWithResponse(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	if answer.JSON200 == nil {
		s.t.Fatalf("get execution: %s: %s", answer.Status(), answer.Body)
	}
	return *answer.JSON200
}

// executions are a job's, newest first.
func (s *installation) executions(id uuid.UUID) []api.Execution {
	s.t.Helper()
	limit := 100
	answer, err := s.client.ListJobExecutionsWithResponse(s.t.Context(), id, &api.ListJobExecutionsParams{Limit: &limit})
	if err != nil {
		s.t.Fatal(err)
	}
	if answer.JSON200 == nil {
		s.t.Fatalf("list executions: %s: %s", answer.Status(), answer.Body)
	}
	return answer.JSON200.Items
}

func config(t *testing.T, v any) (config api.JobConfig) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err == nil {
		err = config.UnmarshalJSON(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func sleepJob(t *testing.T, name string, d time.Duration) api.JobSpec {
	return api.JobSpec{Name: name, JobType: api.JobTypeFunction, Config: config(t, map[string]any{
		"modulePath": "builtin", "functionName": "sleep", "parameters": map[string]any{"durationMs": d.Milliseconds()},
	})}
}

// From an HTTP request to a stored result, through an API, a promoter and a
// worker of their own, on time, with Redis and without.
func TestWholePath(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{auto, hinted, polled} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			wholePath(t, start(t, backend, 1))
		})
	}
}

func wholePath(t *testing.T, s *installation) {
	target, calls := sink(t)
	job := s.create(api.JobSpec{
		Name: "hello", JobType: api.JobTypeHTTP, CronExpression: new("* * * * * *"),
		Config: config(t, map[string]any{"url": target, "method": "POST", "body": "hello, world"}),
	})
	first := <-calls
	if first.body != "hello, world" || first.header.Get("X-Job-Id") != job.ID.String() || first.header.Get("X-Attempt") != "1" ||
		first.header.Get("Idempotency-Key") != first.header.Get("X-Execution-Id") {
		t.Errorf("the target was sent %+v", first)
	}
	at, err := time.Parse(time.RFC3339Nano, first.header.Get("X-Scheduled-At"))
	if err != nil || at.Nanosecond() != 0 {
		t.Errorf("X-Scheduled-At %q is no whole second: %v", first.header.Get("X-Scheduled-At"), err)
	}

	id := uuid.MustParse(first.header.Get("X-Execution-Id"))
	var done api.Execution
	s.eventually("the first run is completed", func() bool {
		done = s.execution(id)
		return done.Status == api.ExecutionStatusCompleted
	})
	if started := done.StartedAt; started == nil || started.Sub(at) > time.Second+noise || started.Before(at) {
		t.Errorf("started at %v, want within a second of %v on a quiet machine", started, at)
	}
	result, _ := json.Marshal(done.Result)
	if !json.Valid(result) || done.RetryCount != 0 || done.TriggerType != api.TriggerTypeScheduled {
		t.Errorf("stored: %+v", done)
	}

	manual := s.trigger(job.ID)
	s.eventually("the triggered run is completed", func() bool {
		return s.execution(manual.ID).Status == api.ExecutionStatusCompleted
	})
	if answer, err := s.client.DeleteJobWithResponse(t.Context(), job.ID, nil); err != nil || answer.StatusCode() != http.StatusNoContent {
		t.Errorf("delete: %v, %v", answer.StatusCode(), err)
	}
	if list := s.executions(job.ID); len(list) < 2 {
		t.Errorf("%d executions are readable after the job was deleted", len(list))
	}
}

// Another tenant's ids answer exactly as ids that do not exist.
func TestTenantsDoNotSeeOneAnother(t *testing.T) {
	t.Parallel()
	s := start(t, auto, 1)
	job := s.create(sleepJob(t, "mine", 0))
	run := s.trigger(job.ID)
	stranger := s.clientOf(uuid.New(), identity.Admin)
	random := uuid.New()
	foreign, err := stranger.GetJobWithResponse(t.Context(), job.ID)
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := stranger.GetJobWithResponse(t.Context(), random)
	if err != nil {
		t.Fatal(err)
	}
	if foreign.StatusCode() != http.StatusNotFound || unknown.StatusCode() != http.StatusNotFound ||
		foreign.JSON404.Error.Message != unknown.JSON404.Error.Message {
		t.Errorf("foreign %s %s, unknown %s %s", foreign.Status(), foreign.Body, unknown.Status(), unknown.Body)
	}
	for name, status := range map[string]func() (int, error){
		"delete": func() (int, error) {
			a, err := stranger.DeleteJobWithResponse(t.Context(), job.ID, nil)
			return a.StatusCode(), err
		},
		"trigger": func() (int, error) {
			a, err := stranger.TriggerJobWithResponse(t.Context(), job.ID, nil, api.TriggerRequest{})
			return a.StatusCode(), err
		},
		"execution": func() (int, error) {
			a, err := stranger.GetExecutionWithResponse(t.Context(), run.ID)
			return a.StatusCode(), err
		},
	} {
		if got, err := status(); err != nil || got != http.StatusNotFound {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
}
