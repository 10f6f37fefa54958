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
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Version is a definition that a job had. It never changes.
type Version struct {
	Spec
	Number       int // from 1, without gaps
	By           string
	At           time.Time
	RestoredFrom int      // the version that it brought back; 0 for none
	Previous     *Spec    // the definition that it replaced; nil for the first, and of a list
	Changed      []string // of a list, in the place of its definition: the fields that differ from the one that it replaced
}

// maxCompared bounds the definitions, in bytes, that one page of versions reads to
// find out what versions changed of which that is not stored. The last pair may go
// beyond it.
const maxCompared = 2 << 20

// Versions reads a page of a job's versions without their definitions, newest
// first, of numbers below before; zero means from the newest on. A page may be
// shorter than its limit; more says that there are others behind it. A deleted job
// still has its own.
func (s *Store) Versions(ctx context.Context, who tenant.Actor, id uuid.UUID, before, limit int) (list []Version, more bool, err error) {
	params := db.ListJobVersionsParams{TenantID: who.TenantID, JobID: id, BeforeVersion: math.MaxInt32, PageSize: int32(limit) + 1}
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
		more = len(rows) > limit
		rows = rows[:min(len(rows), limit)]
		read := 0
		for _, r := range rows {
			if read > maxCompared {
				more = true
				return nil
			}
			v := Version{
				Number: int(r.Version), By: r.CreatedBy, At: r.CreatedAt.UTC(), RestoredFrom: int(columns.OrZero(r.RestoredFrom)), Changed: r.ChangedFields,
			}
			if r.ChangedFields == nil {
				var bytes int
				if v.Changed, bytes, err = s.compare(ctx, tx, who, id, r.Version); err != nil {
					return err
				}
				read += bytes
			}
			list = append(list, v)
		}
		return nil
	})
	return list, more, err
}

// compare finds out what a version changed of which that is not stored, and how
// many bytes were read for it. Of the first, and where the one before is gone, it is
// nothing.
func (s *Store) compare(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID, number int32) (changed []string, read int, err error) {
	rows, err := tx.GetJobVersions(ctx, db.GetJobVersionsParams{TenantID: who.TenantID, JobID: id, Versions: []int32{number - 1, number}})
	if err != nil {
		return nil, 0, fmt.Errorf("read job versions: %w", err)
	}
	var specs []Spec
	for _, r := range rows {
		read += len(r.Spec)
		spec, err := readSpec(id, r.Version, r.Spec)
		if err != nil {
			return nil, read, err
		}
		specs = append(specs, spec)
	}
	if len(specs) == 2 {
		changed, err = s.differs(specs[0], specs[1])
	}
	return changed, read, err
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
			v.Spec, v.Number, v.By, v.At, v.RestoredFrom = spec, number, r.CreatedBy, r.CreatedAt.UTC(), int(columns.OrZero(r.RestoredFrom))
		}
		if v.Number == 0 {
			return fault.New(fault.NotFound, fault.CodeVersionNotFound, "the version does not exist or was removed: old versions that nothing runs are removed")
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
