package collect

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// store is the collector's door to the database; it sees all tenants.
type store struct{ db *postgres.DB }

// advance counts one interval, rolls it up and, when that reaches the present, up to which
// outcomes may be counted, takes the numbers where nobody has yet; done says that nothing
// is left for now.
func (s store) advance(ctx context.Context, held lease.Lease, present time.Time) (done, taken bool, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := held.Guard(ctx, tx); err != nil {
			return err
		}
		c, err := tx.LockMetricCursor(ctx)
		if err != nil {
			return fmt.Errorf("find what is counted: %w", err)
		}
		span, err := tx.LockRolledSpan(ctx)
		if err != nil {
			return fmt.Errorf("find what is rolled up: %w", err)
		}
		// Of its own: collectors of the version before leave it behind.
		rolled, err := reach(ctx, tx, span.RolledTo, present)
		if err != nil {
			return err
		}
		counted := rolled
		if !c.CountedTo.Equal(span.RolledTo) {
			if counted, err = reach(ctx, tx, c.CountedTo, present); err != nil {
				return err
			}
		}
		if counted.After(c.CountedTo) {
			if err := tx.CountOutcomes(ctx, db.CountOutcomesParams{FromAt: c.CountedTo, ToAt: counted}); err != nil {
				return fmt.Errorf("count outcomes: %w", err)
			}
		}
		if rolled.After(span.RolledTo) {
			if err := roll(ctx, tx, span.RolledTo, rolled); err != nil {
				return err
			}
			if err := move(ctx, tx, span.RolledFrom, rolled); err != nil {
				return err
			}
		}
		done = !counted.Before(present) && !rolled.Before(present)
		if !done || c.Taken {
			return nil
		}
		taken = true
		if err := tx.TakeMetrics(ctx, c.Slot); err != nil {
			return fmt.Errorf("take the numbers: %w", err)
		}
		if err := tx.KeepJobGauges(ctx, c.Slot); err != nil {
			return fmt.Errorf("keep the number of active jobs: %w", err)
		}
		return nil
	})
	return done, taken && err == nil, err
}

// reach is up to where one interval goes that begins at a time: the time
// itself where nothing may be counted yet.
func reach(ctx context.Context, tx *postgres.Tx, from, present time.Time) (to time.Time, err error) {
	to = present
	if bound := from.Add(interval); bound.Before(to) {
		to = bound
	}
	if !to.After(from) {
		return from, nil
	}
	if to, err = tx.FindIntervalEnd(ctx, db.FindIntervalEndParams{FromAt: from, ToAt: to, Rows: intervalRows}); err != nil {
		return from, fmt.Errorf("find the end of an interval: %w", err)
	}
	return to, nil
}

// Store reads the numbers.
type Store struct{ db *postgres.DB }

// NewStore makes a store.
func NewStore(d *postgres.DB) *Store { return &Store{db: d} }

// Recent is the newest numbers, and what happened in the hour before them, or since
// the first ones where those are younger.
type Recent struct {
	Numbers

	LastHour Outcomes
}

// Newest reads the newest numbers of a tenant, or of Service, which is for
// platform administrators only. Those of a tenant that none were taken of yet are
// zero, and so is their time.
func (s *Store) Newest(ctx context.Context, tenant uuid.UUID) (r Recent, err error) {
	err = s.db.InTenant(ctx, tenant, func(tx *postgres.Tx) error {
		newest, err := tx.GetMetrics(ctx, db.GetMetricsParams{TenantID: tenant, At: tx.At})
		if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		r.Numbers = fromRow(newest)
		before, err := tx.GetMetrics(ctx, db.GetMetricsParams{TenantID: tenant, At: newest.TakenAt.Add(-time.Hour)})
		if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
			r.LastHour = r.Executions // counted since less than an hour
			return nil
		}
		r.LastHour = r.Executions.Since(fromRow(before).Executions)
		return err
	})
	if err != nil {
		return Recent{}, fmt.Errorf("read the newest metrics: %w", postgres.Fault(err))
	}
	return r, nil
}

// History reads the numbers of a tenant, or of Service, newest first: from is
// included, to is not. There is one for each half minute of the last six hours and
// one for each five minutes of the days before, as far as they are kept.
func (s *Store) History(ctx context.Context, tenant uuid.UUID, from, to time.Time, limit int) (history []Numbers, err error) {
	err = s.db.InTenant(ctx, tenant, func(tx *postgres.Tx) error {
		rows, err := tx.ListMetrics(ctx, db.ListMetricsParams{TenantID: tenant, FromAt: from, ToAt: to, PageSize: int32(limit)})
		for _, r := range rows {
			history = append(history, fromRow(r))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the history of metrics: %w", postgres.Fault(err))
	}
	return history, nil
}

func fromRow(r db.MetricHistory) Numbers {
	return Numbers{
		TakenAt: r.TakenAt.UTC(), Jobs: Jobs{Total: r.Jobs, Active: r.ActiveJobs, Paused: r.PausedJobs},
		Waiting: r.Waiting, Running: r.Running, Workers: r.Workers,
		Executions: Outcomes{
			Completed: r.Completed, Failed: r.Failed, Cancelled: r.Cancelled, Skipped: r.Skipped, TimedOut: r.TimedOut,
			Retried: r.Retried, Timed: r.Timed, Duration: time.Duration(r.DurationMs) * time.Millisecond,
		},
	}
}
