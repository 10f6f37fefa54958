package e2e_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// awayLimit is how late half of the runs may start that come due while Redis is away, on
// a busy machine too. A run that waits for the sweep, because no poll finds it, starts 5 s
// late at least.
const awayLimit = 4 * time.Second

// Redis goes in the middle of everything and comes back empty: runs go on, at
// most three seconds late on a quiet machine, none is lost or made twice, and afterwards they are
// started by hints again.
func TestRunsGoOnWithoutRedis(t *testing.T) {
	t.Parallel()
	s := start(t, auto, 2)
	job := s.create(everySecond(t))
	s.completes(job.ID, 3)

	// A busy machine may stand still for many seconds at that time. Then Redis goes once more.
	for try := 1; ; try++ {
		gone := s.now()
		s.redis.Halt(t)
		s.completes(job.ID, 8)
		manual := s.trigger(s.create(sleepJob(t, "asked for while it is away", 0)).ID)
		s.eventually("what was triggered is completed", func() bool { return s.execution(manual.ID).Status == api.ExecutionStatusCompleted })
		back := s.now()
		s.redis.Restart(t)
		s.completes(job.ID, 5)

		s.hinted(job.ID)

		before, during, after := s.lag(gone.Add(-time.Hour), gone), s.lag(gone, back), s.lag(back, back.Add(6*time.Second))
		t.Logf("median start, and latest: with Redis %v, without %v, when it was back %v", before, during, after)
		if during[0] <= awayLimit && after[0] <= awayLimit {
			break
		}
		if try == 3 {
			t.Errorf("half of the runs started %v late while Redis was away and %v when it was back, want at most %v", during[0], after[0], awayLimit)
			break
		}
	}
	var gaps int
	s.query(&gaps, `SELECT count(*) FROM (SELECT scheduled_at - lag(scheduled_at) OVER (ORDER BY scheduled_at) AS gap
		FROM executions WHERE job_id = $1) g WHERE gap <> interval '1 s'`, job.ID)
	if gaps != 0 {
		t.Errorf("%d scheduled times have no execution or two", gaps)
	}
}

// The processes start without their Redis, work, and use it when it comes.
func TestRedisMayComeLater(t *testing.T) {
	t.Parallel()
	s := stores(t, auto)
	s.redis.Halt(t)
	s.up(1)
	job := s.create(everySecond(t))
	from := s.now().Add(-time.Hour)
	for try := 1; ; try++ { // as above
		s.completes(job.ID, 3)
		late := s.lag(from, s.now())
		if late[0] <= awayLimit {
			break
		}
		if try == 5 {
			t.Errorf("half of the runs started %v late, want at most %v", late[0], awayLimit)
			break
		}
		from = s.now()
	}
	s.redis.Restart(t)
	s.hinted(job.ID)
}

// hinted waits until runs of a job that is due every second are started by
// hints. While hints come, polling takes nothing that has waited for less than a
// second, so a run that started sooner had its hint.
func (s *installation) hinted(job uuid.UUID) {
	s.t.Helper()
	settled := s.timeOf("SELECT now() + interval '6 s'") // polling has ended by then
	s.eventually("runs are started by hints", func() bool {
		var n int
		s.query(&n, `SELECT count(*) FROM executions WHERE job_id = $1 AND scheduled_at >= $2 AND started_at < scheduled_at + interval '1 s'`, job, settled)
		return n >= 3
	})
}

// A backlog without any Redis: everything runs once, and workers that poll side
// by side do not hinder one another.
func TestBacklogWithoutRedis(t *testing.T) {
	t.Parallel()
	s := start(t, polled, 0)
	one := s.create(sleepJob(t, "short", 0))
	s.trigger(one.ID)
	const waiting = 5000
	s.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts,
			timeout_ms, concurrency_limit, available_at, sweep_at)
		SELECT gen_random_uuid(), tenant_id, job_id, job_version, now() - i * interval '1 ms', 'manual', job_type, i % 10, max_attempts, timeout_ms, 0, now(), now()
		FROM active_executions, generate_series(1, $1::int) i`, waiting)
	begun := s.now()
	for range 3 {
		s.worker()
	}
	s.eventually("all are completed", func() bool {
		var n int
		s.query(&n, "SELECT count(*) FROM job_executions WHERE job_id = $1 AND status = 'completed'", one.ID)
		return n == waiting+1
	})
	took := s.timeOf("SELECT max(completed_at) FROM job_executions WHERE job_id = $1", one.ID).Sub(begun)
	t.Logf("%d runs in %v", waiting+1, took.Round(time.Millisecond))
	var again int
	if s.query(&again, "SELECT count(*) FROM job_executions WHERE attempt <> 1"); again != 0 {
		t.Errorf("%d runs took more than one attempt", again)
	}
}

func everySecond(t *testing.T) api.JobSpec {
	spec := sleepJob(t, "every second", 0)
	spec.CronExpression = new("* * * * * *")
	return spec
}

// completes waits until so many more runs of a job are completed.
func (s *installation) completes(job uuid.UUID, more int) {
	s.t.Helper()
	completed := func() (n int) {
		s.query(&n, "SELECT count(*) FROM job_executions WHERE job_id = $1 AND status = 'completed'", job)
		return n
	}
	want := completed() + more
	s.eventually("more runs are completed", func() bool { return completed() >= want })
}

func (s *installation) exec(sql string, args ...any) {
	s.t.Helper()
	pgtest.Exec(s.t, s.database.AdminURL, sql, args...)
}

// lag is how late the runs started that were due in a time, by the scheduled times that
// the database recorded: the median of them, and the latest.
func (s *installation) lag(from, to time.Time) (late [2]time.Duration) {
	s.t.Helper()
	var seconds []float64
	s.query(&seconds, `SELECT coalesce(percentile_disc(ARRAY[0.5, 1]) WITHIN GROUP (ORDER BY extract(epoch FROM coalesce(started_at, now()) - scheduled_at)::float8), '{0,0}')
		FROM executions WHERE scheduled_at >= $1 AND scheduled_at < $2`, from, to)
	for i := range late {
		late[i] = time.Duration(seconds[i] * float64(time.Second)).Round(time.Millisecond)
	}
	return late
}
