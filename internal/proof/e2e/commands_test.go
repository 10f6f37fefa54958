package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/executor/command/commandtest"
)

// running tells whether a process with a mark among its arguments lives.
func running(mark string) bool {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), mark) {
			return true
		}
	}
	return false
}

// A job of type command, from the operator's word and the tenant's to its result, and
// what is left of a program when its worker is killed: nothing.
func TestCommandsRun(t *testing.T) {
	t.Parallel()
	level := "sandbox"
	if err := commandtest.Bubblewrap(t.Context()); err != nil {
		t.Log(err)
		level = "unsafe"
	}
	s := stores(t, polled)
	s.env = []string{"COMMAND_JOBS=" + level}
	s.up(0)
	runs := func(script string) api.JobSpec {
		return api.JobSpec{Name: "c", JobType: api.JobTypeCommand, Trigger: new(api.JobSpecTriggerManual), Config: config(t, map[string]any{"command": "sh", "args": []string{"-c", script}})}
	}
	refused, err := s.client.CreateJobWithResponse(t.Context(), nil, runs("true"))
	if err != nil || refused.StatusCode() != http.StatusForbidden || !strings.Contains(string(refused.Body), "jobTypes") {
		t.Fatalf("a tenant without a word got %v %s", err, refused.Body)
	}
	var one int
	s.query(&one, "UPDATE tenants SET job_types = '{http,command}' WHERE id = $1 RETURNING 1", s.tenant)

	s.eventually("the API has heard the word", func() bool {
		created, err := s.client.CreateJobWithResponse(t.Context(), nil, runs("true"))
		return err == nil && created.StatusCode() == http.StatusCreated
	})
	worker := s.process("worker", lasting("EGRESS_ALLOW=127.0.0.0/8")...)
	job := s.create(runs("echo hello; echo wrong >&2; exit 3")).ID
	run := s.trigger(job).ID
	var result string
	s.eventually("the program ran", func() bool {
		s.query(&result, "SELECT coalesce((SELECT error_type || ' ' || (result->>'exitCode') || ' ' || (result->>'stdout') || (memory_peak_mb > 0)::text FROM job_executions WHERE id = $1), '')", run)
		return result != ""
	})
	if result != "USER_ERROR 3 hello\ntrue" {
		t.Errorf("the execution holds %q", result)
	}

	mark := strings.ReplaceAll(uuid.NewString(), "-", "")
	long := s.create(runs("(setsid sleep 1000 </dev/null >/dev/null 2>&1 &) & sleep 1000; : " + mark)).ID
	s.trigger(long)
	s.eventually("the program runs", func() bool { return running(mark) })
	worker.kill()
	s.eventually("the program is gone with its worker", func() bool { return !running(mark) })
}

// Where commands are off, the API says so and says the way out.
func TestCommandsAreOff(t *testing.T) {
	t.Parallel()
	s := start(t, polled, 0)
	refused, err := s.client.CreateJobWithResponse(t.Context(), nil, api.JobSpec{
		Name: "c", JobType: api.JobTypeCommand, Trigger: new(api.JobSpecTriggerManual), Config: config(t, map[string]any{"command": "true"}),
	})
	if err != nil || refused.StatusCode() != http.StatusBadRequest || !strings.Contains(string(refused.Body), "COMMAND_JOBS") {
		t.Errorf("got %v %s", err, refused.Body)
	}
	wrong := s.process("worker", "WORKER_JOB_TYPES=command")
	<-wrong.done
	if wrong.err == nil || !strings.Contains(wrong.log.String(), "COMMAND_JOBS is off") {
		t.Errorf("a worker for commands ended with %v: %s", wrong.err, wrong.log)
	}
}
