package maintenance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/divide"
)

const (
	// maxRounds is how often a sweep repeats a statement that comes back full.
	maxRounds = 20
	// awayPatience is how long hinted executions wait while Redis is away.
	awayPatience = time.Second
)

// SweepReport is what a sweep did.
type SweepReport struct {
	Dead      int  // workers marked dead
	Reclaimed int  // executions taken from them, or past their deadline
	Ended     int  // of those, how many have finished
	Parked    int  // of those, how many the database refused to change so; see package parking
	Settled   int  // parked executions whose end is stored now
	Pooled    int  // executions whose hint was lost, for which workers poll now
	RedisLost bool // Redis had lost what it held
}

// Sweep marks dead workers, reassigns or ends what they ran and what passed its
// deadline, pools executions whose hint should have come, and tries again to store the
// ends of parked executions; a zero now means the database's clock. An error of one
// step skips none of the others. Every statement skips locked rows and is a no-op the
// second time, so any number of processes may sweep at once.
func (m *Maintainer) Sweep(ctx context.Context, now time.Time) (report SweepReport, err error) {
	err = errors.Join(m.bury(ctx, now, &report), m.reassign(ctx, now, &report), m.poolLate(ctx, now, &report), m.settleParked(ctx, now, &report))
	if report.Pooled+report.Settled > 0 { // what is settled may be tried again
		m.c.CallWorkers(ctx)
	}
	return report, err
}

func (m *Maintainer) bury(ctx context.Context, now time.Time, report *SweepReport) error {
	dead, err := m.fleet.MarkDead(ctx, now)
	if err != nil {
		return err
	}
	for _, d := range dead {
		m.c.Log.WarnContext(ctx, "worker is dead", "worker_id", d.ID, "host", d.Host, "pid", d.PID)
	}
	report.Dead = len(dead)
	return nil
}

// poolLate puts into the pool what waits although its hint should have come.
func (m *Maintainer) poolLate(ctx context.Context, now time.Time, report *SweepReport) error {
	reason, ahead := "lost", time.Duration(0)
	lost, err := m.c.Hints.LostContents(ctx)
	switch {
	case err != nil:
		// Redis is away: no hint arrives, nor will those that it held.
		ahead = dispatch.HintPatience - awayPatience
	case lost:
		report.RedisLost, reason, ahead = true, "redis_generation", dispatch.HintPatience
		m.c.Metrics.RedisGenerationChanged()
		m.c.Log.WarnContext(ctx, "redis is empty, workers look for every execution that waits")
	}
	for range maxRounds {
		n, err := m.dispatch.PoolLate(ctx, now, ahead, dispatch.SweepBatch, nil)
		if postgres.Refused(err) {
			return m.poolDivided(ctx, now, ahead, report)
		}
		if err != nil {
			return err
		}
		m.c.Metrics.Redispatched(reason, n)
		report.Pooled += n
		if n < dispatch.SweepBatch {
			break
		}
	}
	return nil
}

// poolDivided is poolLate where the database refuses some rows: it leaves these.
func (m *Maintainer) poolDivided(ctx context.Context, now time.Time, ahead time.Duration, report *SweepReport) error {
	late, err := m.dispatch.ListLate(ctx, now, ahead)
	if err != nil {
		return err
	}
	d := divide.Items[dispatch.Found]{
		Send: func(some []dispatch.Found) error {
			n, err := m.dispatch.PoolLate(ctx, now, ahead, dispatch.SweepBatch, some)
			report.Pooled += n
			return err
		},
		Alone: func(one dispatch.Found, err error) error { return fmt.Errorf("%s waits without a hint: %w", one, err) },
	}
	return d.All(late)
}

// reassign reassigns or ends what lost its worker or passed its deadline.
func (m *Maintainer) reassign(ctx context.Context, now time.Time, report *SweepReport) error {
	for range maxRounds {
		rows, err := m.dispatch.Reassign(ctx, now, nil)
		if postgres.Refused(err) {
			return m.reassignDivided(ctx, now, report)
		}
		if err == nil {
			err = m.reassigned(ctx, now, rows, report)
		}
		if err != nil || len(rows) < dispatch.SweepBatch {
			return err
		}
	}
	return nil
}

// reassignDivided is reassign where the database refuses some rows: these are
// parked.
func (m *Maintainer) reassignDivided(ctx context.Context, now time.Time, report *SweepReport) error {
	taken, err := m.dispatch.ListLost(ctx, now)
	if err != nil {
		return err
	}
	d := divide.Items[dispatch.Found]{
		Send: func(some []dispatch.Found) error {
			rows, err := m.dispatch.Reassign(ctx, now, some)
			if err != nil {
				return err
			}
			return m.reassigned(ctx, now, rows, report)
		},
		Alone: func(one dispatch.Found, refused error) error {
			freed, err := m.dispatch.ParkLost(ctx, now, one.ID, postgres.Why(refused))
			if err != nil {
				return fmt.Errorf("%s can neither be reassigned nor parked: %w", one, err)
			}
			if len(freed) == 0 {
				return nil
			}
			m.c.Log.ErrorContext(ctx, "an execution is parked: the database refuses to reassign or to end it",
				"execution_id", one.ID, "job_id", one.Job, "tenant_id", one.Tenant, "error", refused)
			report.Parked++
			return m.reassigned(ctx, now, freed, report)
		},
	}
	return d.All(taken)
}

// reassigned counts what was taken from workers, and hints what may start now.
func (m *Maintainer) reassigned(ctx context.Context, now time.Time, rows []dispatch.Lost, report *SweepReport) error {
	var again []dispatch.Waiting
	var ended []dispatch.Freed
	for _, r := range rows {
		reason := "deadline"
		if r.WorkerLost {
			reason = "worker_dead"
		}
		m.c.Metrics.Reclaimed(reason, 1)
		if r.Verdict == "pending" {
			again = append(again, r.Waiting)
			continue
		}
		ended = append(ended, r.Freed)
		if r.Verdict != "parked" {
			report.Ended++
			m.c.Metrics.ExecutionFinished(r.JobType, r.Verdict, 0)
			m.c.Finished(r.Tenant, r.ID)
		}
	}
	report.Reclaimed += len(rows)
	next, err := m.dispatch.Next(ctx, now, ended, false)
	m.hints.Send(ctx, append(again, next...))
	return err
}

// settleParked tries to store the ends of parked executions.
func (m *Maintainer) settleParked(ctx context.Context, now time.Time, report *SweepReport) error {
	for range maxRounds {
		tried, err := m.parking.Retry(ctx, now)
		for _, s := range tried.Stored {
			report.Settled++
			m.c.Log.InfoContext(ctx, "the end of a parked execution is stored", "execution_id", s.ID, "status", s.Status)
			if s.Status != "retrying" {
				m.c.Metrics.ExecutionFinished(s.JobType, s.Status, s.Ran)
			}
		}
		for _, r := range tried.Refused {
			m.c.Log.WarnContext(ctx, "a parked execution stays parked", "execution_id", r.ID, "job_id", r.Job, "tenant_id", r.Tenant, "reason", r.Why)
		}
		m.c.Metrics.SetParked(tried.Parked)
		if err != nil || len(tried.Stored) == 0 || tried.Parked == 0 {
			return err
		}
	}
	return nil
}
