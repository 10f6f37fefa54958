package forecast

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

const (
	// maxJobs is how many jobs and monitors a forecast looks at, those that are due first.
	maxJobs = 5_000
	// budget is how long it computes.
	budget = 200 * time.Millisecond
)

// Store makes forecasts. It acts for one tenant.
type Store struct {
	db      *postgres.DB
	maxJobs int32
	budget  func() (spent func() bool) // begins to measure
}

// NewStore makes a store.
func NewStore(db *postgres.DB) *Store {
	return &Store{db: db, maxJobs: maxJobs, budget: func() func() bool {
		begun := clock.Start()
		return func() bool { return begun.Elapsed() > budget }
	}}
}

// Count counts the runs of a tenant's active jobs and monitors by their schedules. Those that are
// due first come first, so that a forecast of too many of them is complete up to some time.
func (s *Store) Count(ctx context.Context, who tenant.Actor, q Query) (f Forecast, err error) {
	var found map[uuid.UUID]schedule.Calendar
	var jobs, monitors []planned
	// The connection is given back before the computing begins.
	err = s.db.InSnapshot(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if q.Monitors {
			if monitors, err = s.listMonitors(ctx, tx, who, q); err != nil {
				return err
			}
		}
		if !q.Jobs {
			return nil
		}
		rows, err := tx.ListUpcomingJobs(ctx, db.ListUpcomingJobsParams{TenantID: who.TenantID, ToAt: q.To, Most: s.maxJobs + 1})
		if err != nil {
			return fmt.Errorf("list jobs that are due: %w", err)
		}
		var ids []uuid.UUID
		if jobs, ids, err = plannedOf(rows); err != nil {
			return err
		}
		found, err = calendar.Load(ctx, tx, who.TenantID, ids)
		return err
	})
	if err != nil {
		return Forecast{}, err
	}
	jobs = append(jobs, monitors...)
	slices.SortStableFunc(jobs, func(a, b planned) int { return a.next.Compare(b.next) })
	b := &book{counter: newCounter(q), calendars: found, known: map[string]timetable{}, spent: s.budget()}
	for i, one := range jobs {
		done := i < int(s.maxJobs)
		if done {
			if done, err = b.count(one); err != nil {
				return Forecast{}, err
			}
		}
		if !done {
			f = b.forecast()
			f.Truncated, f.CompleteUntil = true, clock.Later(one.next, q.From)
			return f, nil
		}
	}
	return b.forecast(), nil
}

// listMonitors lists monitors whose next run is expected before the end of a query. The runs of
// an interval are those that it expects if each takes no time: it counts from the end of a run.
func (s *Store) listMonitors(ctx context.Context, tx *postgres.Tx, who tenant.Actor, q Query) ([]planned, error) {
	rows, err := tx.ListUpcomingMonitors(ctx, db.ListUpcomingMonitorsParams{TenantID: who.TenantID, ToAt: q.To, Most: s.maxJobs + 1})
	if err != nil {
		return nil, fmt.Errorf("list monitors that expect a run: %w", err)
	}
	list := make([]planned, len(rows))
	for i, row := range rows {
		one := planned{id: row.ID, name: row.Name, monitor: true, next: row.ExpectedAt.UTC()}
		interval := time.Duration(row.IntervalSeconds) * time.Second
		one.policy = job.Policy{CronExpression: row.CronExpression, Timezone: row.Timezone, Interval: job.Duration(interval)}
		one.anchor = one.next.Add(-interval)
		list[i] = one
	}
	return list, nil
}

// plannedOf reads the jobs of rows, and the ids of the calendars that they name.
func plannedOf(rows []db.ListUpcomingJobsRow) (jobs []planned, calendars []uuid.UUID, err error) {
	seen := map[uuid.UUID]bool{}
	for _, row := range rows {
		one := planned{id: row.ID, name: row.Name, anchor: row.AnchorAt.UTC(), next: row.NextExecutionAt.UTC(), runs: row.ExecutionCount}
		if err := one.policy.Read(&row); err != nil {
			return nil, nil, fmt.Errorf("job %s: %w", row.ID, err)
		}
		for _, named := range one.policy.Calendars {
			if !seen[named.ID] {
				seen[named.ID] = true
				calendars = append(calendars, named.ID)
			}
		}
		jobs = append(jobs, one)
	}
	return jobs, calendars, nil
}
