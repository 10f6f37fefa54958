package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

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
	return create(ctx, s, who, specs, key, func(jobs []Job) []uuid.UUID {
		made := make([]uuid.UUID, len(jobs))
		for i, one := range jobs {
			made[i] = one.ID
		}
		return made
	})
}

// create stores definitions and answers what is remembered of them. Without a key
// nothing follows the definitions, which travel with the commit then.
func create[T any](ctx context.Context, s *Store, who tenant.Actor, specs []Spec, key idempotency.Key, as func([]Job) T) (answer T, replayed bool, err error) {
	begin := s.db.InTenantLed
	if key.Value != "" {
		begin = s.db.InTenant
	}
	once := func(c creation) error {
		return begin(ctx, who.TenantID, func(tx *postgres.Tx) error {
			store := idempotency.Store{Queries: tx.Queries}
			answer, replayed, err = idempotency.Do(ctx, store, who.TenantID, key, func() (made T, err error) {
				jobs, err := s.createAll(ctx, tx, who, c)
				if err != nil {
					return made, err
				}
				return as(jobs), nil
			})
			return err
		})
	}
	c := creation{specs: specs, last: key.Value == "", shared: len(specs) == 1}
	if err = once(c); errors.Is(err, errLittleRoom) {
		c.shared = false
		err = once(c)
	}
	return answer, replayed, err
}

// creation is definitions to be stored.
type creation struct {
	specs   []Spec
	set     string // that owns them; empty: none
	counted bool   // against the bound on jobs, by the caller
	shared  bool   // the count of jobs is; otherwise it is locked where there is a bound
	last    bool   // they are the last of their transaction
}

// createAll stores definitions with their first versions in two round trips,
// however many they are, and what their calendars and secrets take. The second
// commits if the definitions are the last of their transaction.
func (s *Store) createAll(ctx context.Context, tx *postgres.Tx, who tenant.Actor, c creation) ([]Job, error) {
	specs, has, err := c.specs, room{}, error(nil)
	if !c.counted {
		if has, err = s.room(ctx, tx, who, c.shared); err != nil {
			return nil, err
		}
	}
	if c.shared && has.little() {
		return nil, errLittleRoom
	}
	params, versions, protected := make([]db.InsertJobParams, len(specs)), make([]db.InsertJobVersionParams, len(specs)), make([]secret.Protected, len(specs))
	for i, spec := range specs {
		if params[i], protected[i], err = s.newParams(ctx, tx, who, spec); err != nil {
			return nil, err
		}
		params[i].SetName = c.set
		var stored Spec // as it is read again
		if err := readColumns(&stored, &params[i]); err != nil {
			return nil, fmt.Errorf("read the new job: %w", err)
		}
		made := Job{Spec: stored, ID: params[i].ID, TenantID: who.TenantID, Version: 1}
		if versions[i], err = s.versionParams(made, author{by: who.Subject, changed: []string{}}, tx.At); err != nil {
			return nil, err
		}
	}
	if !c.counted && !c.shared {
		if err := s.count(ctx, tx, who, has.bound, len(specs)); err != nil {
			return nil, err
		}
	}
	send := tx.Together
	if c.last {
		send = tx.CommitWith
	}
	jobs, errs := make([]Job, len(specs)), make([]error, 2*len(specs))
	err = send(ctx, func(q *db.Queries) error {
		inserted, kept := q.InsertJob(ctx, params), q.InsertJobVersion(ctx, versions)
		for i, p := range params {
			if err := s.vault.Store(ctx, q, secret.Version{Tenant: who.TenantID, Job: p.ID, Number: 1}, protected[i]); err != nil {
				return err
			}
		}
		inserted.QueryRow(func(i int, row db.InsertJobRow, err error) {
			if errs[i] = err; err == nil {
				jobs[i], errs[i] = fromRow((*db.ScheduledJob)(&row))
			}
		})
		kept.Exec(func(i int, err error) { errs[len(specs)+i] = err })
		return errors.Join(errs...)
	})
	if err != nil {
		return nil, fmt.Errorf("insert job: %w", err)
	}
	return jobs, nil
}

// muchRoom is how many jobs a tenant must be short of its bound for one more to be judged by
// what others have committed. Creations that are under way cannot be as many: an API process
// lends a tenant 16 connections at most, so it would take 63 of them.
const muchRoom = 1000

// errLittleRoom ends a creation that shares the count of jobs while the bound is near. It
// begins again, and locks the count.
var errLittleRoom = errors.New("the tenant is near its bound on jobs")

// room is how many jobs a tenant may have, 0 for any number, and has.
type room struct{ bound, jobs int }

// little says whether creations that are under way could take what is left.
func (r room) little() bool { return r.bound != 0 && r.bound-r.jobs < muchRoom }

// room reads what a tenant may have and has, in one round trip. If the count is shared,
// those who lock it wait until the end of the transaction.
func (s *Store) room(ctx context.Context, tx *postgres.Tx, who tenant.Actor, shared bool) (r room, err error) {
	err = tx.Together(ctx, func(q *db.Queries) (err error) {
		if shared {
			err = q.ShareJobCount(ctx, who.TenantID)
		}
		q.GetJobRoom(ctx, []uuid.UUID{who.TenantID}).QueryRow(func(_ int, row db.GetJobRoomRow, failed error) {
			err = errors.Join(err, failed)
			if r.jobs, r.bound = int(row.Jobs), s.c.MaxJobs(); row.MaxJobs != nil {
				r.bound = int(*row.MaxJobs)
			}
		})
		return err
	})
	if err != nil {
		return r, fmt.Errorf("read the bound on jobs: %w", err)
	}
	return r, nil
}

// count refuses jobs beyond the tenant's bound, where it has one. Then the count stays
// locked until the end of the transaction, so that of two creations at once the second
// counts what the first made.
func (s *Store) count(ctx context.Context, tx *postgres.Tx, who tenant.Actor, bound, added int) error {
	if bound == 0 {
		return nil
	}
	if _, err := tx.LockJobCount(ctx, who.TenantID); err != nil {
		return fmt.Errorf("lock the count of jobs: %w", err)
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
	changed  []string // the fields that differ from the version before; nil where nobody can tell
}

// insertVersion keeps the definition of a job that was just changed, and removes
// versions that are not kept any more.
func (s *Store) insertVersion(ctx context.Context, tx *postgres.Tx, j Job, from author, protected secret.Protected) error {
	params, err := s.versionParams(j, from, tx.At)
	if err != nil {
		return err
	}
	tx.InsertJobVersion(ctx, []db.InsertJobVersionParams{params}).Exec(func(_ int, failed error) { err = failed })
	if err != nil {
		return fmt.Errorf("insert job version: %w", err)
	}
	if err := s.vault.Store(ctx, tx.Queries, secret.Version{Tenant: j.TenantID, Job: j.ID, Number: j.Version}, protected); err != nil {
		return err
	}
	kept := s.c.Versions()
	if kept == 0 || j.Version <= kept {
		return nil
	}
	_, err = tx.DeleteSurplusJobVersions(ctx, db.DeleteSurplusJobVersionsParams{TenantID: j.TenantID, JobID: j.ID, UpTo: int32(j.Version - kept)})
	if err != nil {
		return fmt.Errorf("remove old job versions: %w", err)
	}
	return nil
}

// differs names the fields in which a definition differs from another; nil where
// nobody can tell.
func (s *Store) differs(from, to Spec) ([]string, error) {
	if s.c.Changed == nil {
		return nil, nil
	}
	return s.c.Changed(from, to)
}

// versionParams is the row of a job's version.
func (s *Store) versionParams(j Job, from author, at time.Time) (p db.InsertJobVersionParams, err error) {
	spec, err := json.Marshal(j.Spec)
	if err != nil {
		return p, fmt.Errorf("write the job version: %w", err)
	}
	return db.InsertJobVersionParams{
		JobID: j.ID, Version: int32(j.Version), TenantID: j.TenantID, Spec: spec, CreatedBy: from.by, Now: at,
		RestoredFrom: columns.OrNull(int32(from.restored)), ChangedFields: from.changed,
	}, nil
}
