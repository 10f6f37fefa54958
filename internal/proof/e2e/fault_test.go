package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/api"
)

// noise is what a machine that does other things may add to a promised time.
const noise = 30 * time.Second

// SIGKILL of the worker during a run of 5 s: another worker makes the run
// again within 15 s, and the row has exactly one outcome.
func TestKilledWorkersRunIsMadeAgain(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{auto, hinted, polled} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			killedWorkersRunIsMadeAgain(t, start(t, backend, 0))
		})
	}
}

func killedWorkersRunIsMadeAgain(t *testing.T, s *installation) {
	victim := s.worker("SCHEDULER_FENCE_MS=7000", "SCHEDULER_LEASE_TTL_MS=10000") // the defaults: it is missed soon
	job := s.create(sleepJob(t, "five seconds", 5*time.Second))
	run := s.trigger(job.ID)
	var before api.Execution
	s.eventually("the run has started", func() bool {
		before = s.execution(run.ID)
		return before.Status == api.ExecutionStatusRunning
	})
	s.worker()
	victim.kill()
	killed := s.now()

	var again api.Execution
	s.eventually("the run is completed", func() bool {
		again = s.execution(run.ID)
		return again.Status == api.ExecutionStatusCompleted
	})
	restarted := again.CompletedAt.Add(-time.Duration(*again.DurationMs * float64(time.Millisecond)))
	t.Logf("started again %v after the kill", restarted.Sub(killed).Round(time.Millisecond))
	if late := restarted.Sub(killed); late > 15*time.Second+noise {
		t.Errorf("made again %v after the kill, want at most 15 s on a quiet machine", late)
	}
	if *again.WorkerID == *before.WorkerID || len(again.Attempts) != 2 || again.RetryCount != 1 {
		t.Errorf("outcome: %+v", again)
	}
	if list := s.executions(job.ID); len(list) != 1 {
		t.Errorf("%d rows for one run", len(list))
	}
}

// FLUSHALL while 500 executions are pending, and nobody polls: all run within
// 10 s.
func TestFlushedRedisLosesNothing(t *testing.T) {
	t.Parallel()
	s := start(t, hinted, 0)
	for range 500 {
		s.trigger(s.create(sleepJob(t, "short", 0)).ID)
	}
	s.redis.FlushAll(t)
	flushed := s.now()
	s.worker()
	completed := func() (n int) {
		s.query(&n, "SELECT count(*) FROM job_executions WHERE tenant_id = $1 AND status = 'completed'", s.tenant)
		return n
	}
	s.eventually("all are completed", func() bool { return completed() == 500 })
	last := s.timeOf("SELECT max(completed_at) FROM job_executions WHERE tenant_id = $1", s.tenant)
	t.Logf("all had run %v after the flush", last.Sub(flushed).Round(time.Millisecond))
	if late := last.Sub(flushed); late > 10*time.Second+noise {
		t.Errorf("the last of them ran %v after the flush, want at most 10 s on a quiet machine", late)
	}
	var rows int
	if s.query(&rows, "SELECT count(*) FROM executions WHERE tenant_id = $1", s.tenant); rows != 500 {
		t.Errorf("%d rows for 500 executions", rows)
	}
}

// A process that cannot start says everything that is wrong, in one message,
// and ends.
func TestWrongConfigurationIsNamed(t *testing.T) {
	t.Parallel()
	s := &installation{t: t, database: nil}
	for name, test := range map[string]struct {
		program string
		env     []string
		want    []string
	}{
		"nothing set":        {"api", nil, []string{"DATABASE_URL", "JWT_SECRET"}},
		"hints, no redis":    {"promoter", []string{"DATABASE_URL=postgres://u@127.0.0.1:1/x", "QUEUE_BACKEND=redis"}, []string{"REDIS_URL"}},
		"everything wrong":   {"worker", []string{"DATABASE_URL=mysql://x", "REDIS_URL=http://x", "EGRESS_ALLOW=10.0.0.0/99"}, []string{"DATABASE_URL", "REDIS_URL", "EGRESS_ALLOW"}},
		"no database there":  {"promoter", []string{"DATABASE_URL=postgres://u:hunter2@127.0.0.1:1/x", "REDIS_URL=redis://127.0.0.1:1"}, []string{"database"}},
		"migrate, no owner":  {"migrate", nil, []string{"DATABASE_OWNER_URL"}},
		"a guessable secret": {"api", []string{"DATABASE_URL=postgres://u@127.0.0.1:1/x", "REDIS_URL=redis://127.0.0.1:1", "JWT_SECRET=changeme-changeme-changeme-changeme"}, []string{"JWT_SECRET"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := program(s.t, test.program) // which may have to be built first
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			out, err := command(ctx, path, append(test.env, "METRICS_ENABLED=false")...).CombinedOutput()
			if err == nil {
				t.Fatalf("it ended well:\n%s", out)
			}
			for _, want := range test.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("%q is not named in:\n%s", want, out)
				}
			}
			if strings.Contains(string(out), "hunter2") {
				t.Errorf("the password is shown:\n%s", out)
			}
		})
	}
}
