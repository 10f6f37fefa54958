package job

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Version is a definition that a job had. It never changes.
type Version struct {
	Spec
	Number       int // from 1, without gaps
	By           string
	At           time.Time
	RestoredFrom int   // the version that it brought back; 0 for none
	Previous     *Spec // of a list: the definition that it replaced; nil for the first
}

// Versions reads a page of a job's versions, newest first, of numbers below
// before; zero means from the newest on. A deleted job still has its own.
func (s *Store) Versions(ctx context.Context, who tenant.Actor, id uuid.UUID, before, limit int) (list []Version, err error) {
	params := db.ListJobVersionsParams{TenantID: who.TenantID, JobID: id, BeforeVersion: math.MaxInt32, PageSize: int32(limit)}
	if before != 0 {
		params.BeforeVersion = int32(before)
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if err := known(ctx, tx, who, id); err != nil {
			return err
		}
		rows, err := tx.ListJobVersions(ctx, params)
		if err != nil {
			return fmt.Errorf("list job versions: %w", err)
		}
		list = make([]Version, len(rows))
		for i, r := range rows {
			v := Version{Number: int(r.Version), By: r.CreatedBy, At: r.CreatedAt.UTC(), RestoredFrom: int(orZero(r.RestoredFrom))}
			if v.Spec, err = readSpec(id, r.Version, r.Spec); err != nil {
				return err
			}
			if len(r.Previous) > 0 {
				previous, err := readSpec(id, r.Version-1, r.Previous)
				if err != nil {
					return err
				}
				v.Previous = &previous
			}
			list[i] = v
		}
		return nil
	})
	return list, err
}

// Version reads one version of a job, which may be deleted, with what it
// replaced.
func (s *Store) Version(ctx context.Context, who tenant.Actor, id uuid.UUID, number int) (v Version, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if err := known(ctx, tx, who, id); err != nil {
			return err
		}
		rows, err := tx.GetJobVersions(ctx, db.GetJobVersionsParams{
			TenantID: who.TenantID, JobID: id, Versions: []int32{int32(number) - 1, int32(number)},
		})
		if err != nil {
			return fmt.Errorf("read job version: %w", err)
		}
		for _, r := range rows {
			spec, err := readSpec(id, r.Version, r.Spec)
			if err != nil {
				return err
			}
			if int(r.Version) == number-1 {
				v.Previous = &spec
				continue
			}
			v.Spec, v.Number, v.By, v.At, v.RestoredFrom = spec, number, r.CreatedBy, r.CreatedAt.UTC(), int(orZero(r.RestoredFrom))
		}
		if v.Number == 0 {
			return fault.New(fault.NotFound, "VERSION_NOT_FOUND", "the job has no version with this number")
		}
		return nil
	})
	return v, err
}

// Restore replaces a job's definition by that of one of its versions, which the
// caller read and found valid now; otherwise as Update.
func (s *Store) Restore(ctx context.Context, who tenant.Actor, id uuid.UUID, v Version, ifVersion int) (Job, error) {
	return s.replace(ctx, who, id, edit{spec: v.Spec, ifVersion: ifVersion, restored: v.Number})
}

// known answers NotFound for a job that never was.
func known(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID) error {
	exists, err := tx.JobExists(ctx, db.JobExistsParams{TenantID: who.TenantID, ID: id})
	if err != nil {
		return fmt.Errorf("look for the job: %w", err)
	}
	if !exists {
		return NotFound()
	}
	return nil
}

// readSpec reads a stored definition; fields that came later have their
// defaults.
func readSpec(id uuid.UUID, number int32, raw json.RawMessage) (Spec, error) {
	var spec Spec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return Spec{}, fmt.Errorf("read version %d of job %s: %w", number, id, err)
	}
	return spec.WithDefaults(), nil
}
