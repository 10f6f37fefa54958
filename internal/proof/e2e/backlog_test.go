package e2e_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// makeBacklog makes n runs of a job of the tenant that wait, as after an outage.
func (s *installation) makeBacklog(d time.Duration, n int) api.Job {
	s.t.Helper()
	one := s.create(sleepJob(s.t, "one of many", d))
	first := s.trigger(one.ID)
	s.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts,
			timeout_ms, concurrency_limit, pooled, available_at, sweep_at)
		SELECT gen_random_uuid(), $2, $3, 1, now() - i * interval '1 ms', 'manual', 'function', 9, 1, 300000, 0, true, now() - interval '1 hour', 'infinity'
		FROM generate_series(1, $1::int) i`, n, s.tenant, one.ID)
	s.eventually("some run", func() bool { return s.execution(first.ID).Status != api.ExecutionStatusPending })
	return one
}

// single triggers a run of another tenant, waits for its end, and answers how
// many runs of a job started, and how many ended, before it and after it was due.
func (s *installation) single(of uuid.UUID) (started, ended int, lag time.Duration) {
	s.t.Helper()
	mine := s.client
	defer func() { s.client = mine }()
	s.client = s.clientOf(uuid.New(), identity.Admin)
	e := s.trigger(s.create(sleepJob(s.t, "the single one", 0)).ID)
	s.eventually("another tenant's run is completed", func() bool { return s.execution(e.ID).Status == api.ExecutionStatusCompleted })
	e = s.execution(e.ID)
	begun := s.timeOf("SELECT started_at FROM executions WHERE id = $1", e.ID)
	const count = "SELECT count(*) FROM executions WHERE job_id = $1 AND "
	s.query(&started, count+"started_at BETWEEN $2 AND $3", of, e.ScheduledAt, begun)
	s.query(&ended, count+"completed_at < $2", of, begun)
	return started, ended, begun.Sub(e.ScheduledAt)
}

// A tenant that has very many runs waiting, the most urgent and the oldest there
// are, does not keep another's single one from its turn.
func TestBacklogLeavesOthersTheirTurn(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{auto, hinted, polled} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			s := start(t, backend, 1)
			const waiting = 15_000
			job := s.makeBacklog(0, waiting)
			overtaken, _, lag := s.single(job.ID)
			t.Logf("it started after %v and after %d of the %d", lag, overtaken, waiting)
			if overtaken > waiting/4 {
				t.Errorf("%d of %d that waited started before it and after it was due", overtaken, waiting)
			}
		})
	}
}

// The same where the runs are long and hold every slot that hints and lines can
// have: the single one starts before any of them has ended.
func TestBacklogOfLongRunsLeavesOthersASlot(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{auto, polled} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			s := start(t, backend, 1)
			job := s.makeBacklog(5*time.Minute, 2000)
			s.eventually("the open slots are held", func() bool {
				var n int
				s.query(&n, "SELECT count(*) FROM active_executions WHERE status = 'running'")
				return n == 94 // of 100
			})
			_, ended, lag := s.single(job.ID)
			t.Logf("it started after %v", lag)
			if ended > 0 {
				t.Errorf("%d of the long runs ended before it started", ended)
			}
		})
	}
}
