package count

import (
	"context"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/objective"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// store is the door to the database; it sees all tenants.
type store struct{ db *postgres.DB }

func (s store) queries() *db.Queries { return db.New(s.db.Pool()) }

func (s store) hasObjectives(ctx context.Context) (bool, error) {
	has, err := s.queries().HasObjectives(ctx)
	if err != nil {
		return false, fmt.Errorf("look for objectives: %w", postgres.Fault(err))
	}
	return has, nil
}

// advance counts one interval, up to the present at most.
func (s store) advance(ctx context.Context, held lease.Lease, present time.Time) (more bool, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := held.Guard(ctx, tx); err != nil {
			return err
		}
		from, err := tx.LockObjectiveCursor(ctx)
		if err != nil {
			return fmt.Errorf("find how far executions are counted: %w", err)
		}
		if !present.After(from) {
			return nil
		}
		to, err := tx.FindObjectiveIntervalEnd(ctx, db.FindObjectiveIntervalEndParams{FromAt: from, ToAt: present, Most: intervalRows + 1, Rows: intervalRows, Pairs: intervalPairs})
		if err != nil {
			return fmt.Errorf("find the end of an interval: %w", err)
		}
		if err := tx.AddObjectiveCounts(ctx, db.AddObjectiveCountsParams{FromAt: from, ToAt: to}); err != nil {
			return fmt.Errorf("count for objectives: %w", err)
		}
		more = to.Before(present)
		if err := tx.MoveObjectiveCursor(ctx, to); err != nil {
			return fmt.Errorf("note how far executions are counted: %w", err)
		}
		return nil
	})
	return more, err
}

// trim removes counts that no window needs.
func (s store) trim(ctx context.Context) error {
	if err := s.queries().DeleteOldObjectiveCounts(ctx); err != nil {
		return fmt.Errorf("remove old counts of objectives: %w", postgres.Fault(err))
	}
	return nil
}

// measure keeps how many objectives are in danger where every promoter may read it.
func (s store) measure(ctx context.Context) error {
	row, err := s.queries().MeasureObjectives(ctx, db.MeasureObjectivesParams{Fast: objective.FastBurn, Slow: objective.SlowBurn})
	if err != nil {
		return fmt.Errorf("measure objectives: %w", postgres.Fault(err))
	}
	err = s.queries().SetGauges(ctx, db.SetGaugesParams{
		Names:  []string{fleet.GaugeFastBurn, fleet.GaugeSlowBurn, fleet.GaugeNoBudget},
		Values: []int64{row.Fast, row.Slow, row.Exhausted},
	})
	if err != nil {
		return fmt.Errorf("keep the numbers of objectives: %w", postgres.Fault(err))
	}
	return nil
}
