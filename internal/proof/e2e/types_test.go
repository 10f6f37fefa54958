package e2e_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/api"
)

// Two workers of which each runs one job type: each execution finds the one
// that runs it, in both ways of learning what to run. An execution that no worker runs waits,
// says so, and starts with the first worker that runs it.
func TestWorkersOfDifferentTypes(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{hinted, polled} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			s := start(t, backend, 0)
			var calls atomic.Int64
			target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
			t.Cleanup(target.Close)
			call := s.create(api.JobSpec{Name: "call", JobType: api.JobTypeHTTP, Config: config(t, map[string]any{"url": target.URL})}).ID
			function := s.create(sleepJob(t, "function", time.Millisecond)).ID

			s.process("worker", lasting("EGRESS_ALLOW=127.0.0.0/8", "WORKER_JOB_TYPES=http")...)
			lone := s.trigger(function).ID
			s.eventually("it waits for a worker of its type", func() bool {
				for _, e := range s.executions(function) {
					if w := e.WaitingOn; w != nil && w.Reason == api.WaitReasonNoWorker {
						return true
					}
				}
				return false
			})
			s.trigger(call)
			s.eventually("the worker for calls works", func() bool { return calls.Load() > 0 })
			s.process("worker", lasting("WORKER_JOB_TYPES=function")...)
			var over, strange int
			s.eventually("it runs", func() bool {
				s.query(&over, "SELECT count(*) FROM job_executions WHERE id = $1 AND status = 'completed'", lone)
				return over == 1
			})
			for range 40 {
				s.trigger(call)
				s.trigger(function)
			}
			s.eventually("all are finished", func() bool {
				s.query(&over, "SELECT count(*) FROM active_executions")
				return over == 0
			})
			s.query(&strange, `SELECT count(*) FROM job_executions e LEFT JOIN workers w ON w.id = e.worker_id
				WHERE e.status <> 'completed' OR e.attempt <> 1 OR w.job_types <> ARRAY[e.job_type]`)
			if strange != 0 {
				t.Errorf("%d executions did not run once and at a worker of their type", strange)
			}
		})
	}
}
