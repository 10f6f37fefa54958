package objective

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Store keeps a tenant's objectives. Each method acts for one tenant; the id of another
// tenant's objective is answered as one that does not exist.
type Store struct{ db *postgres.DB }

// NewStore makes a store.
func NewStore(on *postgres.DB) *Store { return &Store{on} }

// Create stores a valid objective. It counts what ends from now on.
func (s *Store) Create(ctx context.Context, who tenant.Actor, spec Spec) (made Objective, err error) {
	id := uuid.New()
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if _, err := tx.LockTenantBounds(ctx, who.TenantID); err != nil {
			return fmt.Errorf("lock the tenant: %w", err)
		}
		n, err := tx.CountObjectives(ctx, who.TenantID)
		if err != nil {
			return fmt.Errorf("count objectives: %w", err)
		}
		if n >= MaxObjectives {
			return tooMany(tx.At)
		}
		if err := findJob(ctx, tx, who, spec.JobID); err != nil {
			return err
		}
		p := db.InsertObjectiveParams{
			ID: id, TenantID: who.TenantID, Name: spec.Name, Kind: string(spec.Kind), JobID: spec.JobID,
			Target: spec.Target, WindowDays: int16(spec.WindowDays), CreatedBy: who.Subject,
		}
		if spec.Tag != "" {
			p.Tag = &spec.Tag
		}
		if spec.Threshold > 0 {
			ms := int32(spec.Threshold.Milliseconds())
			p.ThresholdMs = &ms
		}
		if _, err := tx.InsertObjective(ctx, p); err != nil {
			return fmt.Errorf("insert an objective: %w", err)
		}
		made, err = one(ctx, tx, who, id, time.Time{})
		return err
	})
	return made, err
}

func findJob(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id *uuid.UUID) error {
	if id == nil {
		return nil
	}
	has, err := tx.HasJob(ctx, db.HasJobParams{TenantID: who.TenantID, ID: *id})
	if err != nil {
		return fmt.Errorf("look for a job: %w", err)
	}
	if !has {
		return fault.Wrong(fault.CodeValidationFailed, fault.Field{Path: "jobId", Rule: "unknown", Message: "names no job"})
	}
	return nil
}

// List lists all objectives, the newest first. A zero now means the database's clock.
func (s *Store) List(ctx context.Context, who tenant.Actor, now time.Time) (list []Objective, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		list, err = read(ctx, tx, db.ListObjectivesParams{TenantID: who.TenantID, Now: postgres.At(now)})
		return err
	})
	return list, err
}

// Get reads one objective.
func (s *Store) Get(ctx context.Context, who tenant.Actor, id uuid.UUID) (found Objective, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		found, err = one(ctx, tx, who, id, time.Time{})
		return err
	})
	return found, err
}

// Update changes the name, target and window of an objective. A version other than zero is the
// one that it has to have. Its counts stay.
func (s *Store) Update(ctx context.Context, who tenant.Actor, id uuid.UUID, spec Spec, ifVersion int) (updated Objective, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if _, err := tx.LockObjective(ctx, db.LockObjectiveParams{TenantID: who.TenantID, ID: id}); err != nil {
			return fmt.Errorf("lock an objective: %w", err)
		}
		old, err := one(ctx, tx, who, id, time.Time{})
		if err != nil {
			return err
		}
		if ifVersion != 0 && ifVersion != old.Version {
			return outdated(old.Version)
		}
		if faults := old.stays(spec); len(faults) > 0 {
			return fault.Wrong(fault.CodeValidationFailed, faults...)
		}
		err = tx.UpdateObjective(ctx, db.UpdateObjectiveParams{
			TenantID: who.TenantID, ID: id, Name: spec.Name, Target: spec.Target, WindowDays: int16(spec.WindowDays), Now: tx.At,
		})
		if err != nil {
			return fmt.Errorf("update an objective: %w", err)
		}
		updated, err = one(ctx, tx, who, id, time.Time{})
		return err
	})
	return updated, err
}

// Delete removes an objective with its counts.
func (s *Store) Delete(ctx context.Context, who tenant.Actor, id uuid.UUID) error {
	return s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		n, err := tx.DeleteObjective(ctx, db.DeleteObjectiveParams{TenantID: who.TenantID, ID: id})
		if err != nil {
			return fmt.Errorf("delete an objective: %w", err)
		}
		if n == 0 {
			return NotFound()
		}
		return nil
	})
}

func one(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID, now time.Time) (Objective, error) {
	list, err := read(ctx, tx, db.ListObjectivesParams{TenantID: who.TenantID, ID: &id, Now: postgres.At(now)})
	if err != nil {
		return Objective{}, err
	}
	if len(list) == 0 {
		return Objective{}, NotFound()
	}
	return list[0], nil
}

func read(ctx context.Context, tx *postgres.Tx, p db.ListObjectivesParams) ([]Objective, error) {
	rows, err := tx.ListObjectives(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("read objectives: %w", err)
	}
	list := make([]Objective, len(rows))
	for i, r := range rows {
		one := Objective{
			ID: r.ID, Version: int(r.Version), CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
			Spec: Spec{Name: r.Name, Kind: Kind(r.Kind), JobID: r.JobID, Target: r.Target, WindowDays: int(r.WindowDays)},
			Status: Status{
				From: r.FromAt.UTC(), CountedTo: r.CountedTo.UTC(), Window: Counts{r.Good, r.Bad},
				Hour: Counts{r.GoodHour, r.BadHour}, SixHours: Counts{r.GoodSix, r.BadSix},
			},
		}
		if r.Tag != nil {
			one.Tag = *r.Tag
		}
		if r.ThresholdMs != nil {
			one.Threshold = time.Duration(*r.ThresholdMs) * time.Millisecond
		}
		list[i] = one
	}
	return list, nil
}
