package monitor

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Store keeps a tenant's monitors. Each method acts for one tenant; the id of another
// tenant's monitor is answered as one that does not exist.
type Store struct{ db *postgres.DB }

// NewStore makes a store.
func NewStore(on *postgres.DB) *Store { return &Store{on} }

// Position is a place in a list, newest first.
type Position struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

// Filter says which monitors a list has; empty fields leave none out.
type Filter struct{ Tag, Status string }

// Create stores a valid monitor, which waits for its first ping. A name that is taken is a
// Conflict.
func (s *Store) Create(ctx context.Context, who tenant.Actor, spec Spec) (made Monitor, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if err := checkRoom(ctx, tx, who); err != nil {
			return err
		}
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make a monitor's id: %w", err)
		}
		row, err := tx.InsertMonitor(ctx, db.InsertMonitorParams{
			ID: id, TenantID: who.TenantID, Name: spec.Name, Tags: append([]string{}, spec.Tags...), CronExpression: columns.OrNull(spec.Cron), Timezone: zoneOf(spec),
			IntervalSeconds: columns.OrNull(seconds(spec.Interval)), StartGraceSeconds: seconds(spec.StartGrace), CompletionGraceSeconds: seconds(spec.CompletionGrace),
			MaxRuntimeSeconds: seconds(spec.MaxRuntime), MinRuntimeSeconds: seconds(spec.MinRuntime), AlertTooOften: spec.AlertTooOften, ExtendOnLog: spec.ExtendOnLog,
			FailureThreshold: int16(spec.FailureThreshold), RecoveryThreshold: int16(spec.RecoveryThreshold), PingKey: newKey(), CreatedBy: who.Subject, Now: tx.At,
		})
		if err != nil {
			return taken(err)
		}
		made, err = FromRow(row)
		return err
	})
	return made, err
}

// checkRoom refuses one more than a tenant may have. The tenant's row stays locked, so that
// of two that are made at once the second counts the first.
func checkRoom(ctx context.Context, tx *postgres.Tx, who tenant.Actor) error {
	if _, err := tx.LockTenantBounds(ctx, who.TenantID); err != nil {
		return fmt.Errorf("lock the tenant: %w", err)
	}
	n, err := tx.CountMonitors(ctx, who.TenantID)
	if err != nil {
		return fmt.Errorf("count monitors: %w", err)
	}
	if n < most {
		return nil
	}
	return fault.Exceeded(fault.Limit{Name: "maxMonitors", Value: most},
		fmt.Sprintf("a tenant may have %d monitors, which is fixed: delete one that is not needed", most), tx.At)
}

// newKey makes a ping key of 144 random bits.
func newKey() string {
	raw := make([]byte, 18)
	_, _ = rand.Read(raw) // it never fails; see its documentation
	return base64.RawURLEncoding.EncodeToString(raw)
}

// Get reads one monitor.
func (s *Store) Get(ctx context.Context, who tenant.Actor, id uuid.UUID) (found Monitor, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.GetMonitor(ctx, db.GetMonitorParams{TenantID: who.TenantID, ID: id})
		if err != nil {
			return missing(err)
		}
		found, err = FromRow(row)
		return err
	})
	return found, err
}

// List reads a page of monitors, newest first, from after a position on (nil: from the first).
func (s *Store) List(ctx context.Context, who tenant.Actor, f Filter, limit int, after *Position) (list []Monitor, err error) {
	p := db.ListMonitorsParams{TenantID: who.TenantID, PageSize: int32(limit), BeforeCreatedAt: columns.Never, BeforeID: uuid.Max, Tag: columns.OrNull(f.Tag), Status: columns.OrNull(f.Status)}
	if after != nil {
		p.BeforeCreatedAt, p.BeforeID = after.CreatedAt, after.ID
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListMonitors(ctx, p)
		if err != nil {
			return fmt.Errorf("list monitors: %w", err)
		}
		list = make([]Monitor, len(rows))
		for i, row := range rows {
			if list[i], err = FromRow(row); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

// Runs reads a page of a monitor's runs, newest first, from before run n on (0: from the last).
func (s *Store) Runs(ctx context.Context, who tenant.Actor, id uuid.UUID, limit int, n int64) (list []StoredRun, err error) {
	if n == 0 {
		n = math.MaxInt64
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.GetMonitor(ctx, db.GetMonitorParams{TenantID: who.TenantID, ID: id})
		if err != nil {
			return missing(err)
		}
		m, err := FromRow(row)
		if err != nil {
			return err
		}
		rows, err := tx.ListMonitorRuns(ctx, db.ListMonitorRunsParams{TenantID: who.TenantID, MonitorID: id, BeforeN: n, PageSize: int32(limit)})
		if err != nil {
			return fmt.Errorf("list the runs of a monitor: %w", err)
		}
		for _, r := range rows {
			run := runOf(r)
			if run.Outcome == runRunning && (m.State.Run == nil || m.State.Run.N != run.N) {
				run.Outcome = runAbandoned // nobody waits for its end since the monitor began anew
			}
			list = append(list, run)
		}
		return nil
	})
	return list, err
}

// Update replaces what a tenant may set. Where the schedule is another, the monitor begins
// anew: what was expected is not any more. With ifVersion other than zero, only if it still
// has that version.
func (s *Store) Update(ctx context.Context, who tenant.Actor, id uuid.UUID, spec Spec, ifVersion int) (Monitor, error) {
	return s.change(ctx, who, id, ifVersion, func(m *Monitor, now time.Time) (bool, error) {
		moved := m.Cron != spec.Cron || m.Zone != zoneOf(spec) || m.Interval != spec.Interval
		m.Spec = spec
		return true, restart(m, now, moved)
	})
}

// Pause keeps a monitor from judging: pings are stored, and nobody is late. Resume ends that:
// the next run is expected from now on. Each changes nothing where it is so already.
func (s *Store) Pause(ctx context.Context, who tenant.Actor, id uuid.UUID, paused bool) (Monitor, error) {
	return s.change(ctx, who, id, 0, func(m *Monitor, now time.Time) (bool, error) {
		if m.Paused == paused {
			return false, nil
		}
		m.Paused = paused
		return true, restart(m, now, true)
	})
}

// RotateKey gives a monitor another ping key; the one before is unknown at once.
func (s *Store) RotateKey(ctx context.Context, who tenant.Actor, id uuid.UUID) (Monitor, error) {
	return s.change(ctx, who, id, 0, func(m *Monitor, _ time.Time) (bool, error) {
		m.PingKey = newKey()
		return true, nil
	})
}

func restart(m *Monitor, now time.Time, moved bool) error {
	if !moved {
		return nil
	}
	machine, err := m.Machine()
	if err != nil {
		return err
	}
	machine.Restart(now)
	return nil
}

// change changes a monitor that it holds locked, unless do says that nothing changes.
func (s *Store) change(ctx context.Context, who tenant.Actor, id uuid.UUID, ifVersion int, do func(*Monitor, time.Time) (bool, error)) (m Monitor, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.LockMonitor(ctx, db.LockMonitorParams{TenantID: who.TenantID, ID: id})
		if err != nil {
			return missing(err)
		}
		if m, err = FromRow(row); err != nil {
			return err
		}
		if ifVersion != 0 && ifVersion != m.Version {
			return outdated(m.Version)
		}
		changes, err := do(&m, tx.At)
		if err != nil || !changes {
			return err
		}
		m, err = update(ctx, tx, m)
		return err
	})
	return m, err
}

func update(ctx context.Context, tx *postgres.Tx, m Monitor) (Monitor, error) {
	machine, err := m.Machine()
	if err != nil {
		return m, err
	}
	c, err := machine.stored()
	if err != nil {
		return m, err
	}
	row, err := tx.UpdateMonitor(ctx, db.UpdateMonitorParams{
		TenantID: m.TenantID, ID: m.ID, Name: m.Name, Tags: append([]string{}, m.Tags...), CronExpression: columns.OrNull(m.Cron), Timezone: zoneOf(m.Spec),
		IntervalSeconds: columns.OrNull(seconds(m.Interval)), StartGraceSeconds: seconds(m.StartGrace), CompletionGraceSeconds: seconds(m.CompletionGrace),
		MaxRuntimeSeconds: seconds(m.MaxRuntime), MinRuntimeSeconds: seconds(m.MinRuntime), AlertTooOften: m.AlertTooOften, ExtendOnLog: m.ExtendOnLog,
		FailureThreshold: int16(m.FailureThreshold), RecoveryThreshold: int16(m.RecoveryThreshold), Paused: m.Paused, PingKey: m.PingKey, Now: tx.At,
		Status: c.Status, ExpectedAt: c.ExpectedAt, RunningSince: c.RunningSince, Deadline: c.Deadline, State: c.State,
	})
	if err != nil {
		return m, taken(err)
	}
	return FromRow(row)
}

// Delete removes a monitor with its runs. With ifVersion other than zero, only if it still has
// that version.
func (s *Store) Delete(ctx context.Context, who tenant.Actor, id uuid.UUID, ifVersion int) error {
	return s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.LockMonitor(ctx, db.LockMonitorParams{TenantID: who.TenantID, ID: id})
		if err != nil {
			return missing(err)
		}
		if ifVersion != 0 && ifVersion != int(row.Version) {
			return outdated(int(row.Version))
		}
		if _, err := tx.DeleteMonitor(ctx, db.DeleteMonitorParams{TenantID: who.TenantID, ID: id}); err != nil {
			return fmt.Errorf("delete a monitor: %w", err)
		}
		return nil
	})
}

func seconds(d time.Duration) int32 { return int32(d / time.Second) }

func zoneOf(s Spec) string {
	if s.Zone == "" {
		return "UTC"
	}
	return s.Zone
}

func missing(err error) error {
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return NotFound()
	}
	return fmt.Errorf("read a monitor: %w", err)
}

func taken(err error) error {
	if fault.KindOf(postgres.Fault(err)) == fault.Conflict {
		return fault.New(fault.Conflict, fault.CodeConflict, "a monitor with this name exists already")
	}
	return fmt.Errorf("write a monitor: %w", err)
}

func outdated(version int) error {
	return fault.New(fault.Conflict, fault.CodePreconditionFailed, fmt.Sprintf("the monitor is at version %d now: read it again and repeat the change", version))
}
