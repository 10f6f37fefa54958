package maintenance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/internal/hint"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/divide"
)

const (
	// sweepBatch bounds one statement of a sweep, and maxRounds how often a
	// sweep repeats it while it comes back full.
	sweepBatch = 1000
	maxRounds  = 20
	// hintPatience is how long a hint may take while Redis is there; the
	// statements that insert executions state it too. While Redis is away,
	// what was hinted waits for awayPatience.
	hintPatience = 5 * time.Second
	awayPatience = time.Second
)

// SweepReport is what a sweep did.
type SweepReport struct {
	Dead      int  // workers marked dead
	Reclaimed int  // executions taken from them, or past their deadline
	Ended     int  // of those, how many are over
	Parked    int  // of those, how many the database refused to change so; see package parking
	Settled   int  // parked executions whose end is stored now
	Pooled    int  // executions whose hint was lost, and which workers look for now
	RedisLost bool // Redis had lost what it held
}

// Sweep marks dead workers, hands on or ends what they ran and what passed its
// deadline, puts into the pool what waits although its hint should have come, and
// tries again to store the ends of parked executions; a zero now means the
// database's clock. An error of one step skips none of the others.
// Every statement skips what is locked and is a no-op the second time, so any
// number of promoters may sweep at once.
func (m *Maintainer) Sweep(ctx context.Context, now time.Time) (report SweepReport, err error) {
	return report, errors.Join(
		m.bury(ctx, now, &report), m.reclaim(ctx, now, &report), m.poolLate(ctx, now, &report), m.settleParked(ctx, now, &report),
	)
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
		ahead = hintPatience - awayPatience
	case lost:
		report.RedisLost, reason, ahead = true, "redis_generation", hintPatience
		m.c.Metrics.RedisGenerationChanged()
		m.c.Log.WarnContext(ctx, "redis is empty, workers look for every execution that waits")
	}
	for range maxRounds {
		n, err := m.store.poolLate(ctx, now, ahead, nil)
		if postgres.Refused(err) {
			return m.poolDivided(ctx, now, ahead, report)
		}
		if err != nil {
			return err
		}
		m.c.Metrics.Redispatched(reason, n)
		report.Pooled += n
		if n < sweepBatch {
			break
		}
	}
	return nil
}

// poolDivided is poolLate where the database refuses some rows: it leaves these.
func (m *Maintainer) poolDivided(ctx context.Context, now time.Time, ahead time.Duration, report *SweepReport) error {
	late, err := m.store.listLate(ctx, now, ahead)
	if err != nil {
		return err
	}
	d := divide.Items[found]{
		Send: func(some []found) error {
			n, err := m.store.poolLate(ctx, now, ahead, some)
			report.Pooled += n
			return err
		},
		Alone: func(one found, err error) error { return fmt.Errorf("%s waits without a hint: %w", one, err) },
	}
	return d.All(late)
}

// reclaim reassigns or ends what lost its worker or passed its deadline.
func (m *Maintainer) reclaim(ctx context.Context, now time.Time, report *SweepReport) error {
	for range maxRounds {
		rows, err := m.store.reclaim(ctx, now, nil)
		if postgres.Refused(err) {
			return m.reclaimDivided(ctx, now, report)
		}
		if err == nil {
			err = m.reclaimed(ctx, now, rows, report)
		}
		if err != nil || len(rows) < sweepBatch {
			return err
		}
	}
	return nil
}

// reclaimDivided is reclaim where the database refuses some rows: these are
// parked.
func (m *Maintainer) reclaimDivided(ctx context.Context, now time.Time, report *SweepReport) error {
	taken, err := m.store.listLost(ctx, now)
	if err != nil {
		return err
	}
	d := divide.Items[found]{
		Send: func(some []found) error {
			rows, err := m.store.reclaim(ctx, now, some)
			if err != nil {
				return err
			}
			return m.reclaimed(ctx, now, rows, report)
		},
		Alone: func(one found, refused error) error {
			freed, err := m.parking.ParkLost(ctx, now, one.id, postgres.Why(refused))
			if err != nil {
				return fmt.Errorf("%s can neither be reassigned nor parked: %w", one, err)
			}
			if len(freed) == 0 {
				return nil
			}
			m.c.Log.ErrorContext(ctx, "an execution is parked: the database refuses to reassign or to end it",
				"execution_id", one.id, "job_id", one.job, "tenant_id", one.tenant, "error", refused)
			report.Parked++
			return m.reclaimed(ctx, now, []lost{{Execution: hint.Execution{ID: one.id}, verdict: "parked", tenant: one.tenant, key: freed[0].Key}}, report)
		},
	}
	return d.All(taken)
}

// reclaimed counts what was taken from workers, and hints what may start now.
func (m *Maintainer) reclaimed(ctx context.Context, now time.Time, rows []lost, report *SweepReport) error {
	var again []hint.Execution
	var ended []lost
	for _, r := range rows {
		reason := "deadline"
		if r.workerLost {
			reason = "worker_dead"
		}
		m.c.Metrics.Reclaimed(reason, 1)
		if r.verdict == "pending" {
			again = append(again, r.Execution)
			continue
		}
		ended = append(ended, r)
		if r.verdict != "parked" {
			report.Ended++
			m.c.Metrics.ExecutionOver(r.jobType, r.verdict, 0)
		}
	}
	report.Reclaimed += len(rows)
	next, err := m.store.next(ctx, now, ended, m.c.TenantMaxRunning)
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
				m.c.Metrics.ExecutionOver(s.JobType, s.Status, s.Ran)
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
