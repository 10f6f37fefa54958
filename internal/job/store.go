package job

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/postgres"
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
	// number.
	MaxJobs int
	// Versions is how many versions of a job are kept, 100 and more, beside those
	// that a run or a backfill needs; 0: all.
	Versions int
	// Changed names the fields that differ between two definitions, as the contract
	// writes them; nil: they are not stored.
	Changed func(from, to Spec) ([]string, error)
}

// NewStore makes a store.
func NewStore(db *postgres.DB, c Config) *Store {
	return &Store{db: db, c: c, vault: secret.NewVault(c.Keys)}
}

// NotFound is the answer for a job that is not there, or is not the caller's.
func NotFound() error {
	return fault.New(fault.NotFound, fault.CodeJobNotFound, "there is no job with this id")
}

// Create stores a valid definition with its first version. It reports whether
// the answer is a remembered one.
func (s *Store) Create(ctx context.Context, who tenant.Actor, spec Spec, key idempotency.Key) (job Job, replayed bool, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		store := idempotency.Store{Queries: tx.Queries}
		job, replayed, err = idempotency.Do(ctx, store, who.TenantID, key, func() (Job, error) {
			return s.create(ctx, tx, who, spec)
		})
		return err
	})
	return job, replayed, err
}

// Get reads one job.
func (s *Store) Get(ctx context.Context, who tenant.Actor, id uuid.UUID) (job Job, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
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
// than zero, only if the job still has that version. A time that is due
// already and not yet promoted still runs, with the new definition.
func (s *Store) Update(ctx context.Context, who tenant.Actor, id uuid.UUID, spec Spec, ifVersion int) (Job, error) {
	return s.replace(ctx, who, id, edit{spec: spec, ifVersion: ifVersion})
}

// edit is a new definition of a job.
type edit struct {
	spec      Spec
	ifVersion int // only if the job has this version; 0: any
	restored  int // the version that it brings back; 0: none
}

func (s *Store) replace(ctx context.Context, who tenant.Actor, id uuid.UUID, e edit) (job Job, err error) {
	spec, ifVersion := e.spec, e.ifVersion
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		// The calendars before the job, as an edit of a calendar takes them: in
		// the other order two edits could wait for each other.
		calendars, err := contents(ctx, tx, who, spec.Calendars, calendar.Lock)
		if err != nil {
			return err
		}
		old, err := lock(ctx, tx, who, id)
		if err != nil {
			return err
		}
		if ifVersion != 0 && ifVersion != old.Version {
			return fault.New(fault.Conflict, fault.CodePreconditionFailed,
				fmt.Sprintf("the job is at version %d now: read it again and repeat the change", old.Version))
		}
		if err := secret.MayUse(who, old.Config, spec.Config); err != nil {
			return err
		}
		before, stored := secret.Version{Tenant: who.TenantID, Job: id, Number: old.Version}, old.Config
		if e.restored != 0 { // its credentials come back with it
			before.Number, stored = e.restored, spec.Config
		}
		protected, err := s.vault.ProtectNext(ctx, tx, before, stored, spec.Config)
		if err != nil {
			return err
		}
		spec.Config = protected.Config
		p := db.UpdateJobParams{TenantID: who.TenantID, ID: id, Now: tx.At, SecretNames: protected.Names, MaxAttempts: spec.Retry.attempts()}
		if err := writeColumns(&p, &spec); err != nil {
			return fmt.Errorf("write the job: %w", err)
		}
		state := old.Edited(spec, who.Subject, tx.At)
		p.AnchorAt, p.Status, p.StatusReason = state.AnchorAt, string(state.Status), state.StatusReason
		p.StatusBy, p.StatusAt = state.StatusBy, state.StatusAt
		if state.Status != Inactive {
			if p.NextExecutionAt, err = bound(spec, calendars, state, tx.At); err != nil {
				return err
			}
		}
		row, err := tx.UpdateJob(ctx, p)
		if err != nil {
			return fmt.Errorf("update job: %w", err)
		}
		if job, err = fromRow(row); err != nil {
			return err
		}
		return s.insertVersion(ctx, tx, row, author{who.Subject, e.restored, &old.Spec}, protected)
	})
	return job, err
}

// Pause stops new scheduled runs; running ones go on. Once it returned, no
// later promotion sees the job as active. With until, the pause ends by itself
// then. The next time stays stored, so that the times which the pause held back are known when
// the job is resumed.
func (s *Store) Pause(ctx context.Context, who tenant.Actor, id uuid.UUID, reason string, until *time.Time) (job Job, err error) {
	err = s.change(ctx, who, id, func(tx *postgres.Tx, old Job) (db.ScheduledJob, error) {
		if old.Status == Inactive {
			return db.ScheduledJob{}, fault.New(fault.Conflict, fault.CodeConflict, "an inactive job cannot be paused: nothing of its schedule is due; resume it first")
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
// since the job was parked. A job that was
// stopped starts from now.
func (s *Store) Resume(ctx context.Context, who tenant.Actor, id uuid.UUID, missed MisfirePolicy) (job Job, err error) {
	err = s.change(ctx, who, id, func(tx *postgres.Tx, old Job) (db.ScheduledJob, error) {
		p := db.UpdateJobStatusParams{
			TenantID: who.TenantID, ID: id, Status: string(Active), StatusBy: who.Subject, Now: tx.At, NextExecutionAt: old.NextExecutionAt,
		}
		switch {
		case old.Status == Active: // nothing changes, above all not what an earlier resume said of missed times
			return tx.GetJob(ctx, db.GetJobParams{TenantID: who.TenantID, ID: id})
		case old.Exhausted():
			return db.ScheduledJob{}, fault.New(fault.Conflict, fault.CodeConflict,
				"the job has had as many executions of its schedule as maxExecutions allows: raise that with PUT, which also resumes the job")
		case (old.Status == Paused || old.Parked()) && old.NextExecutionAt != nil && !old.NextExecutionAt.After(tx.At):
			policy := string(old.Misfire.Policy)
			if missed != "" {
				policy = string(missed)
			}
			p.ResumePolicy = &policy
			return tx.UpdateJobStatus(ctx, p)
		}
		// An edit of one of them waits for this job's lock and comes after.
		calendars, err := contents(ctx, tx, who, old.Calendars, calendar.Load)
		if err != nil {
			return db.ScheduledJob{}, err
		}
		next, err := bound(old.Spec, calendars, old, tx.At)
		if err != nil {
			return db.ScheduledJob{}, err
		}
		if next == nil && old.Scheduled() {
			return db.ScheduledJob{}, fault.New(fault.Conflict, fault.CodeConflict,
				"the schedule has no time left: change it with PUT, which also resumes the job")
		}
		p.NextExecutionAt = next
		return tx.UpdateJobStatus(ctx, p)
	}, &job)
	return job, err
}

// Delete ends a job: what waits is cancelled, what runs is asked to end, and
// no due time becomes an execution any more. Its history stays readable. The
// reason is kept with what it cancels; an empty one is "the job was deleted".
func (s *Store) Delete(ctx context.Context, who tenant.Actor, id uuid.UUID, reason string) error {
	return s.change(ctx, who, id, func(tx *postgres.Tx, _ Job) (db.ScheduledJob, error) {
		var none db.ScheduledJob
		if err := tx.DeleteJob(ctx, db.DeleteJobParams{TenantID: who.TenantID, ID: id, Now: tx.At}); err != nil {
			return none, fmt.Errorf("delete job: %w", err)
		}
		return none, dispatch.CancelOfJob(ctx, tx.Queries, dispatch.Cancellation{
			Tenant: who.TenantID, Job: id, At: tx.At, Reason: cmp.Or(reason, "the job was deleted"), By: who.Subject,
		})
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

func lock(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID) (Job, error) {
	row, err := tx.LockJob(ctx, db.LockJobParams{TenantID: who.TenantID, ID: id})
	if err != nil {
		return Job{}, missing(err)
	}
	return fromRow(row)
}

// missing turns "no row" into the answer for a job that is not there.
func missing(err error) error {
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return NotFound()
	}
	return fmt.Errorf("read job: %w", err)
}
