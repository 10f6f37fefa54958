package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// CreateAll stores valid definitions, all or none, and returns the ids in their
// order. It reports whether the answer is a remembered one.
func (s *Store) CreateAll(ctx context.Context, who tenant.Actor, specs []Spec, key idempotency.Key) (ids []uuid.UUID, replayed bool, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		store := idempotency.Store{Queries: tx.Queries}
		ids, replayed, err = idempotency.Do(ctx, store, who.TenantID, key, func() ([]uuid.UUID, error) {
			jobs, err := s.createAll(ctx, tx, who, specs)
			made := make([]uuid.UUID, len(jobs))
			for i, one := range jobs {
				made[i] = one.ID
			}
			return made, err
		})
		return err
	})
	return ids, replayed, err
}

func (s *Store) create(ctx context.Context, tx *postgres.Tx, who tenant.Actor, spec Spec) (Job, error) {
	jobs, err := s.createAll(ctx, tx, who, []Spec{spec})
	if err != nil {
		return Job{}, err
	}
	return jobs[0], nil
}

// createAll stores definitions with their first versions in two round trips,
// however many they are, and what their calendars and secrets take.
func (s *Store) createAll(ctx context.Context, tx *postgres.Tx, who tenant.Actor, specs []Spec) ([]Job, error) {
	params, protected := make([]db.InsertJobParams, len(specs)), make([]secret.Protected, len(specs))
	for i, spec := range specs {
		var err error
		if params[i], protected[i], err = s.newParams(ctx, tx, who, spec); err != nil {
			return nil, err
		}
	}
	if err := s.count(ctx, tx, who, len(specs)); err != nil {
		return nil, err
	}
	rows, errs := make([]db.ScheduledJob, len(specs)), make([]error, len(specs))
	tx.InsertJob(ctx, params).QueryRow(func(i int, row db.ScheduledJob, err error) { rows[i], errs[i] = row, err })
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("insert job: %w", err)
	}
	return s.insertVersions(ctx, tx, rows, author{by: who.Subject}, protected)
}

// count refuses jobs beyond the tenant's bound, where it has one. Then the
// tenant's row stays locked until the end of the transaction, so that of two
// creations at once the second counts what the first made.
func (s *Store) count(ctx context.Context, tx *postgres.Tx, who tenant.Actor, added int) error {
	own, err := tx.GetJobBound(ctx, who.TenantID)
	if err != nil && fault.KindOf(postgres.Fault(err)) != fault.NotFound {
		return fmt.Errorf("read the bound on jobs: %w", err)
	}
	bound := s.c.MaxJobs
	switch {
	case own != nil:
		bound = int(*own)
	case bound == 0:
		return nil
	}
	if _, err := tx.LockTenant(ctx, who.TenantID); err != nil {
		return fmt.Errorf("lock the tenant: %w", err)
	}
	jobs, err := tx.CountJobs(ctx, who.TenantID)
	if err != nil {
		return fmt.Errorf("count jobs: %w", err)
	}
	if int(jobs)+added <= bound {
		return nil
	}
	return fault.Exceeded(fault.Limit{Name: "maxJobs", Value: int64(bound)},
		fmt.Sprintf("this tenant may have %d jobs and has %d: delete some that are not needed", bound, jobs), tx.At)
}

// newParams is the row of a new job, and what of its config is kept apart.
func (s *Store) newParams(ctx context.Context, tx *postgres.Tx, who tenant.Actor, spec Spec) (p db.InsertJobParams, protected secret.Protected, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return p, protected, fmt.Errorf("make a job id: %w", err)
	}
	p = db.InsertJobParams{
		ID: id, TenantID: who.TenantID, CreatedBy: who.Subject, Now: tx.At, AnchorAt: tx.At, Status: string(Active), MaxAttempts: spec.Retry.attempts(),
	}
	var calendars []schedule.Calendar
	if len(spec.Calendars) > 0 {
		if calendars, err = contents(ctx, tx, who, spec.Calendars, calendar.Lock); err != nil {
			return p, protected, err
		}
	}
	if p.NextExecutionAt, err = bound(spec, calendars, Job{ID: id, AnchorAt: tx.At}, tx.At); err != nil {
		return p, protected, err
	}
	if protected, err = s.vault.Protect(ctx, tx, who, spec.Config); err != nil {
		return p, protected, err
	}
	spec.Config, p.SecretNames = protected.Config, protected.Names
	if err := writeColumns(&p, &spec); err != nil {
		return p, protected, fmt.Errorf("write the job: %w", err)
	}
	return p, protected, nil
}

// author is who made a version, from which other one, and in place of what.
type author struct {
	by       string
	restored int
	previous *Spec // nil for the first version
}

// insertVersion keeps the definition of a row that was just changed, and removes
// versions that are not kept any more.
func (s *Store) insertVersion(ctx context.Context, tx *postgres.Tx, row db.ScheduledJob, from author, protected secret.Protected) error {
	if _, err := s.insertVersions(ctx, tx, []db.ScheduledJob{row}, from, []secret.Protected{protected}); err != nil {
		return err
	}
	if s.c.Versions == 0 || int(row.Version) <= s.c.Versions {
		return nil
	}
	_, err := tx.DeleteSurplusJobVersions(ctx, db.DeleteSurplusJobVersionsParams{TenantID: row.TenantID, JobID: row.ID, UpTo: row.Version - int32(s.c.Versions)})
	if err != nil {
		return fmt.Errorf("remove old job versions: %w", err)
	}
	return nil
}

// differs names the fields that a version changed; nil where nobody can tell.
func (s *Store) differs(from *Spec, to Spec) ([]string, error) {
	switch {
	case from == nil:
		return []string{}, nil
	case s.c.Changed == nil:
		return nil, nil
	}
	return s.c.Changed(*from, to)
}

// insertVersions keeps the definitions of rows that were just written, and
// returns the jobs.
func (s *Store) insertVersions(ctx context.Context, tx *postgres.Tx, rows []db.ScheduledJob, from author, protected []secret.Protected) ([]Job, error) {
	jobs, params := make([]Job, len(rows)), make([]db.InsertJobVersionParams, len(rows))
	for i, row := range rows {
		var err error
		if jobs[i], err = fromRow(row); err != nil {
			return nil, err
		}
		spec, err := json.Marshal(jobs[i].Spec)
		if err != nil {
			return nil, fmt.Errorf("write the job version: %w", err)
		}
		changed, err := s.differs(from.previous, jobs[i].Spec)
		if err != nil {
			return nil, err
		}
		params[i] = db.InsertJobVersionParams{
			JobID: row.ID, Version: row.Version, TenantID: row.TenantID, Spec: spec, CreatedBy: from.by, Now: tx.At,
			RestoredFrom: columns.OrNull(int32(from.restored)), ChangedFields: changed,
		}
	}
	errs := make([]error, len(rows))
	tx.InsertJobVersion(ctx, params).Exec(func(i int, err error) { errs[i] = err })
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("insert job version: %w", err)
	}
	for i, row := range rows {
		if err := s.vault.Store(ctx, tx, secret.Version{Tenant: row.TenantID, Job: row.ID, Number: int(row.Version)}, protected[i]); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}
