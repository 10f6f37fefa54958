package e2e_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
)

// The limit of a tenant's running executions, and that of a concurrency key,
// holds over two workers, in both ways of learning what to run; and each that
// ends frees its slot at once.
func TestLimitsOfATenant(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{hinted, polled} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			s := start(t, backend, 2)
			allow := api.OverlapPolicyAllow
			free, keyed := sleepJob(t, "free", 100*time.Millisecond), sleepJob(t, "keyed", 20*time.Millisecond)
			free.OverlapPolicy, keyed.OverlapPolicy = &allow, &allow
			keyed.ConcurrencyKey = new("sleeper of {{config.parameters.durationMs}}")
			jobs := []uuid.UUID{s.create(free).ID, s.create(keyed).ID, s.create(keyed).ID}
			// Nothing runs until all were seen to wait.
			s.exec("UPDATE tenants SET max_running = 0")
			for i := range 45 {
				s.trigger(jobs[i%3])
			}
			s.eventually("something waits for the limit", func() bool {
				for _, e := range s.executions(jobs[0]) {
					if w := e.WaitingOn; w != nil && w.Reason == api.WaitReasonTenantLimit {
						return true
					}
				}
				return false
			})
			s.exec("UPDATE tenants SET max_running = 3")
			var done, running, oneKey int
			s.eventually("all are finished", func() bool {
				s.query(&running, "SELECT count(*) FROM active_executions WHERE status = 'running'")
				s.query(&oneKey, "SELECT count(*) FROM active_executions WHERE status = 'running' AND job_id <> $1", jobs[0])
				if running > 3 || oneKey > 1 {
					t.Errorf("%d run at once and %d with one key, want at most 3 and 1", running, oneKey)
				}
				s.query(&done, "SELECT count(*) FROM job_executions WHERE status = 'completed'")
				return done == 45
			})
			var waited int
			s.query(&waited, "SELECT extract(epoch FROM max(completed_at) - min(started_at))::int FROM job_executions")
			if waited > 15+int(noise.Seconds()) {
				t.Errorf("it took %d s: slots were not passed on", waited)
			}
		})
	}
}
