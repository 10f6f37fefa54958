package watch

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/monitor"
	"github.com/scheduler-service/scheduler/internal/monitor/intake"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// store is the door to the database; it sees all tenants.
type store struct{ db *postgres.DB }

func (s store) queries() *db.Queries { return db.New(s.db.Pool()) }

// sight is how far the signs let us see.
type sight struct {
	// until is the time up to which deadlines may be looked at: by signs that came after them,
	// pings could be stored, each process took them, and they came in by the public address.
	until time.Time
	blind bool          // the last sign is old
	taker string        // the process whose last sign is the oldest; empty: none takes pings
	late  time.Duration // how old that sign is
	front time.Duration // how old the last ping of our own is, by the public address; zero: none is waited for
}

func (s store) sight(ctx context.Context) (v sight, err error) {
	row, err := s.queries().GetMonitorIntake(ctx, intake.MaxHold.Seconds())
	if err != nil {
		return v, fmt.Errorf("find when pings could be stored: %w", postgres.Fault(err))
	}
	silent := time.Duration(row.SilentSeconds * float64(time.Second))
	now := row.TouchedAt.Add(silent)
	v = sight{blind: silent > stale, taker: row.Taker, late: now.Sub(row.TakerAt), front: now.Sub(row.FrontAt)}
	v.until = clock.Earlier(clock.Earlier(row.TouchedAt, now.Add(-margin)), clock.Earlier(row.TakerAt, row.FrontAt))
	return v, nil
}

// due lists monitors whose deadlines have passed.
func (s store) due(ctx context.Context, until time.Time, most int) ([]uuid.UUID, error) {
	ids, err := s.queries().ListDueMonitors(ctx, db.ListDueMonitorsParams{Until: until, Most: int32(most)})
	if err != nil {
		return nil, fmt.Errorf("list monitors that are due: %w", postgres.Fault(err))
	}
	return ids, nil
}

// decide decides about some, in one transaction.
func (s store) decide(ctx context.Context, held lease.Lease, until time.Time, ids []uuid.UUID) error {
	return s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := held.Guard(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.LockDueMonitors(ctx, db.LockDueMonitorsParams{Ids: ids, Until: until})
		if err != nil {
			return fmt.Errorf("lock monitors that are due: %w", err)
		}
		gaps, err := readGaps(ctx, tx)
		if err != nil {
			return err
		}
		var changes monitor.Batch
		for _, row := range rows {
			m, err := monitor.FromRow(row)
			if err != nil {
				return err
			}
			machine, err := m.Machine()
			if err != nil {
				return err
			}
			machine.Due(until, gaps)
			if err := changes.Add(machine); err != nil {
				return err
			}
		}
		return changes.Write(ctx, tx)
	})
}

func readGaps(ctx context.Context, tx *postgres.Tx) ([]monitor.Gap, error) {
	rows, err := tx.ListMonitorGaps(ctx, tx.At.Add(-monitor.MaxInterval-2*monitor.MaxGrace))
	if err != nil {
		return nil, fmt.Errorf("list when pings could not be stored: %w", err)
	}
	gaps := make([]monitor.Gap, len(rows))
	for i, r := range rows {
		gaps[i] = monitor.Gap{From: r.FromAt, To: r.ToAt}
	}
	return gaps, nil
}

func (s store) putOff(ctx context.Context, id uuid.UUID) error {
	return postgres.Fault(s.queries().PutOffMonitor(ctx, id))
}

// measure keeps how many monitors have each status where every promoter may read it.
func (s store) measure(ctx context.Context) error {
	rows, err := s.queries().CountMonitorsByStatus(ctx)
	if err != nil {
		return fmt.Errorf("count monitors: %w", postgres.Fault(err))
	}
	counts := map[string]int64{}
	for _, status := range fleet.MonitorStatuses {
		counts[status] = 0
	}
	for _, r := range rows {
		counts[r.Status] = r.Monitors
	}
	var p db.SetGaugesParams
	v, err := s.sight(ctx)
	if err != nil {
		return err
	}
	p.Names, p.Values = append(p.Names, fleet.GaugeMonitors+"hold_seconds"), append(p.Values, int64(v.held().Seconds()))
	for status, n := range counts {
		p.Names, p.Values = append(p.Names, fleet.GaugeMonitors+status), append(p.Values, n)
	}
	if err := s.queries().SetGauges(ctx, p); err != nil {
		return fmt.Errorf("keep the numbers of monitors: %w", postgres.Fault(err))
	}
	return nil
}
