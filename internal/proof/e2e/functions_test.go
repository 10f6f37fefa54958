package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/api"
)

// A worker of a team's own, built with api/functions: the API learns what its function
// takes, refuses what it does not, and the function runs, retries and reports.
func TestOwnWorkerRuns(t *testing.T) {
	t.Parallel()
	s := start(t, polled, 0)
	job := func(parameters map[string]any) api.JobSpec {
		return api.JobSpec{
			Name: "f", JobType: api.JobTypeFunction, Trigger: new(api.JobSpecTriggerManual),
			Config: config(t, map[string]any{"modulePath": "billing", "functionName": "invoice", "parameters": parameters}),
		}
	}
	good := map[string]any{"year": 2026, "month": 3, "customers": []string{"7", "busy"}}
	create := func(parameters map[string]any) *api.CreateJobResponse {
		answer, err := s.client.CreateJobWithResponse(t.Context(), nil, job(parameters))
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if got := create(good); got.StatusCode() != http.StatusBadRequest || !strings.Contains(string(got.Body), "config.modulePath") {
		t.Fatalf("a module that nobody has: %s", got.Body)
	}
	s.process("exampleworker", lasting()...)
	s.eventually("the API knows the function", func() bool { return create(good).StatusCode() == http.StatusCreated })
	if got := create(map[string]any{"year": 2026.5, "form": "doc", "customers": []int{1}, "x": 1}); got.StatusCode() != http.StatusBadRequest {
		t.Errorf("wrong parameters: %s", got.Body)
	} else {
		for _, path := range []string{"config.parameters.month", "config.parameters.year", "config.parameters.form", "config.parameters.customers[0]", "config.parameters.x"} {
			if !strings.Contains(string(got.Body), `"`+path+`"`) {
				t.Errorf("the answer does not name %s: %s", path, got.Body)
			}
		}
	}
	run := s.trigger(create(good).JSON201.ID).ID
	var result string
	s.eventually("the function ran", func() bool {
		s.query(&result, "SELECT coalesce((SELECT status || ' ' || attempt || ' ' || (result->>'written') || ' ' || (result->>'form') || ' ' || ((result->>'key') = id::text)::text FROM job_executions WHERE id = $1), '')", run)
		return result != ""
	})
	if result != "completed 2 2 pdf true" {
		t.Errorf("the execution holds %q", result)
	}
}
