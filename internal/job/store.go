package job

import (
	"context"
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
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Store keeps a tenant's jobs. Each method acts for one tenant; the id of
// another tenant's job is answered as one that does not exist.
type Store struct {
	db    *postgres.DB
	c     Config
	vault *secret.Vault
}

// Config says what a store of jobs keeps.
type Config struct {
	// Keys seal the credentials that stand in definitions; nil: the store refuses
	// definitions with credentials in them.
	Keys *keyring.Ring
	// MaxJobs bounds the jobs of a tenant that has no bound of its own; 0: any
	// number, as nil.
	MaxJobs func() int
	// Versions is how many versions of a job are kept, 100 and more, beside those
	// that a run or a backfill needs; 0: all, as nil.
	Versions func() int
	// Changed names the fields that differ between two definitions, as the contract
	// writes them; nil: they are not stored.
	Changed func(from, to Spec) ([]string, error)
}

// NewStore makes a store.
func NewStore(db *postgres.DB, c Config) *Store {
	unbounded := func() int { return 0 }
	if c.MaxJobs == nil {
		c.MaxJobs = unbounded
	}
	if c.Versions == nil {
		c.Versions = unbounded
	}
	return &Store{db: db, c: c, vault: secret.NewVault(c.Keys)}
}

// NotFound is the answer for a job that is not there, or is not the caller's.
func NotFound() error {
	return fault.New(fault.NotFound, fault.CodeJobNotFound, "there is no job with this id")
}

// Create stores a valid definition with its first version. It reports whether
// the answer is a remembered one.
func (s *Store) Create(ctx context.Context, who tenant.Actor, spec Spec, key idempotency.Key) (Job, bool, error) {
	return create(ctx, s, who, []Spec{spec}, key, func(jobs []Job) Job { return jobs[0] })
}

// Get reads one job.
func (s *Store) Get(ctx context.Context, who tenant.Actor, id uuid.UUID) (job Job, err error) {
	err = s.db.InTenantEach(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.GetJob(ctx, db.GetJobParams{TenantID: who.TenantID, ID: id})
		if err != nil {
			return missing(err)
		}
		job, err = shown(ctx, tx, row)
		return err
	})
	return job, err
}

// CountDueAt is how many active jobs of the tenant are due at one time.
func (s *Store) CountDueAt(ctx context.Context, who tenant.Actor, at time.Time) (n int, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		count, err := tx.CountJobsDueAt(ctx, db.CountJobsDueAtParams{TenantID: who.TenantID, At: at})
		if err != nil {
			return fmt.Errorf("count the jobs due at one time: %w", err)
		}
		n = int(count)
		return nil
	})
	return n, err
}

// Update replaces a job's definition by a new version. With ifVersion other
// than zero, only if the job still has that version. A definition that is the one
// of the job makes no version and changes nothing. A time that is due
// already and not yet promoted still runs, with the new definition.
func (s *Store) Update(ctx context.Context, who tenant.Actor, id uuid.UUID, spec Spec, ifVersion int) (Job, error) {
	return s.replace(ctx, who, id, edit{spec: spec, ifVersion: ifVersion})
}

// edit is a new definition of a job.
type edit struct {
	spec      Spec
	calendars []schedule.Calendar // the contents of those that it names, which are locked
	ifVersion int                 // only if the job has this version; 0: any
	restored  int                 // the version that it brings back; 0: none
}

func (s *Store) replace(ctx context.Context, who tenant.Actor, id uuid.UUID, e edit) (job Job, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		// The calendars before the job, as an edit of a calendar takes them: in
		// the other order two edits could wait for each other.
		if e.calendars, err = contents(ctx, tx, who, e.spec.Calendars, calendar.Lock); err != nil {
			return err
		}
		old, err := lock(ctx, tx, who, id)
		if err != nil {
			return err
		}
		if err := old.has(e.ifVersion); err != nil {
			return err
		}
		job, err = s.redefine(ctx, tx, who, old, e)
		return err
	})
	return job, err
}

// redefine replaces the definition of a job that the caller holds locked.
func (s *Store) redefine(ctx context.Context, tx *postgres.Tx, who tenant.Actor, old Job, e edit) (job Job, err error) {
	spec := e.spec
	if err := secret.MayUse(who, old.Config, spec.Config); err != nil {
		return job, err
	}
	protected, err := s.protect(ctx, tx, who, old, e)
	if err != nil {
		return job, err
	}
	spec.Config = protected.Config
	changed, err := s.differs(old.Spec, spec)
	if err != nil {
		return job, err
	}
	if changed != nil && len(changed) == 0 && !protected.New() && e.restored == 0 {
		return old, nil
	}
	p := db.UpdateJobParams{TenantID: who.TenantID, ID: old.ID, Now: tx.At, SecretNames: protected.Names, MaxAttempts: spec.Retry.attempts()}
	if err := writeColumns(&p, &spec); err != nil {
		return job, fmt.Errorf("write the job: %w", err)
	}
	state := old.Edited(spec, who.Subject, tx.At)
	p.AnchorAt, p.Status, p.StatusReason = state.AnchorAt, string(state.Status), state.StatusReason
	p.StatusBy, p.StatusAt = state.StatusBy, state.StatusAt
	if state.Status != Inactive {
		if p.NextExecutionAt, err = bound(spec, e.calendars, state, tx.At); err != nil {
			return job, err
		}
	}
	row, err := tx.UpdateJob(ctx, p)
	if err != nil {
		return job, renamed(fmt.Errorf("update job: %w", err))
	}
	if job, err = fromRow(&row); err != nil {
		return job, err
	}
	return job, s.insertVersion(ctx, tx, job, author{who.Subject, e.restored, changed}, protected)
}

// renamed tells that a job of a set cannot have the name of another one there.
func renamed(err error) error {
	if fault.KindOf(postgres.Fault(err)) == fault.Conflict {
		return fault.New(fault.Conflict, fault.CodeConflict, "the set of this job has another job of this name")
	}
	return err
}

// protect takes the credentials out of a new definition. Those that it keeps are of
// the version before, or of the one that it brings back.
func (s *Store) protect(ctx context.Context, tx *postgres.Tx, who tenant.Actor, old Job, e edit) (secret.Protected, error) {
	before, stored := secret.Version{Tenant: who.TenantID, Job: old.ID, Number: old.Version}, old.Config
	if e.restored != 0 {
		before.Number, stored = e.restored, e.spec.Config
	}
	return s.vault.ProtectNext(ctx, tx, before, stored, e.spec.Config)
}

// Pause stops new scheduled runs; running ones go on. Once it returned, no
// later promotion sees the job as active. With until, the pause ends by itself
// then. The next time stays stored, so that the times which the pause held back are known when
// the job is resumed.
func (s *Store) Pause(ctx context.Context, who tenant.Actor, id uuid.UUID, reason string, until *time.Time) (job Job, err error) {
	err = s.change(ctx, who, id, func(tx *postgres.Tx, old Job) (db.ScheduledJob, error) {
		if old.Status == Inactive {
			return db.ScheduledJob{}, errPauseInactive()
		}
		if until != nil && !until.After(tx.At) {
			return db.ScheduledJob{}, fault.Wrong(fault.CodeValidationFailed,
				fault.Field{Path: "until", Rule: "future", Message: "has passed already; give a time in the future, or none"})
		}
		return tx.UpdateJobStatus(ctx, db.UpdateJobStatusParams{
			TenantID: who.TenantID, ID: id, Status: string(Paused), StatusReason: reason, StatusBy: who.Subject,
			PausedUntil: until, NextExecutionAt: old.NextExecutionAt, Now: tx.At,
		})
	}, &job)
	return job, err
}

// Resume makes the schedule fire again. Times that a pause held back are treated as
// missed says; empty means as the job's misfire policy does. So is what was due
// since the job was parked. A job that was stopped starts from now.
func (s *Store) Resume(ctx context.Context, who tenant.Actor, id uuid.UUID, missed MisfirePolicy) (job Job, err error) {
	err = s.change(ctx, who, id, func(tx *postgres.Tx, old Job) (db.ScheduledJob, error) {
		r, decided, err := old.resumption(missed, tx.At)
		if err != nil {
			return db.ScheduledJob{}, err
		}
		if old.Status == Active {
			return tx.GetJob(ctx, db.GetJobParams{TenantID: who.TenantID, ID: id})
		}
		if !decided {
			// An edit of one of them waits for this job's lock and comes after.
			calendars, err := contents(ctx, tx, who, old.Calendars, calendar.Load)
			if err != nil {
				return db.ScheduledJob{}, err
			}
			if r.next, err = old.resumes(calendars, tx.At); err != nil {
				return db.ScheduledJob{}, err
			}
		}
		return tx.UpdateJobStatus(ctx, db.UpdateJobStatusParams{
			TenantID: who.TenantID, ID: id, Status: string(Active), StatusBy: who.Subject, Now: tx.At,
			NextExecutionAt: r.next, ResumePolicy: columns.OrNull(string(r.policy)),
		})
	}, &job)
	return job, err
}

// Delete ends a job: what waits is cancelled, what runs is asked to end, and
// no due time becomes an execution any more. Its history stays readable. The
// reason is kept with what it cancels; an empty one is "the job was deleted". With
// ifVersion other than zero, only if the job still has that version.
func (s *Store) Delete(ctx context.Context, who tenant.Actor, id uuid.UUID, reason string, ifVersion int) error {
	return s.change(ctx, who, id, func(tx *postgres.Tx, old Job) (db.ScheduledJob, error) {
		if err := old.has(ifVersion); err != nil {
			return db.ScheduledJob{}, err
		}
		return db.ScheduledJob{}, remove(ctx, tx, who, []uuid.UUID{id}, reason)
	}, nil)
}

// change locks a job, lets fn decide and write by the database's clock, and
// reads what became of it.
func (s *Store) change(ctx context.Context, who tenant.Actor, id uuid.UUID,
	fn func(tx *postgres.Tx, old Job) (db.ScheduledJob, error), into *Job,
) error {
	return s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		old, err := lock(ctx, tx, who, id)
		if err != nil {
			return err
		}
		row, err := fn(tx, old)
		if err != nil || into == nil {
			return err
		}
		*into, err = shown(ctx, tx, row)
		return err
	})
}

// has refuses a caller who knows another version of the job; 0 is any.
func (j Job) has(version int) error {
	if version != 0 && version != j.Version {
		return fault.New(fault.Conflict, fault.CodePreconditionFailed,
			fmt.Sprintf("the job is at version %d now: read it again and repeat the change", j.Version))
	}
	return nil
}

func lock(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID) (Job, error) {
	row, err := tx.LockJob(ctx, db.LockJobParams{TenantID: who.TenantID, ID: id})
	if err != nil {
		return Job{}, missing(err)
	}
	return fromRow(&row)
}

// missing turns "no row" into the answer for a job that is not there.
func missing(err error) error {
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return NotFound()
	}
	return fmt.Errorf("read job: %w", err)
}
