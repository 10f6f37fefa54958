package backfill

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Store keeps a tenant's backfills. Each method acts for one tenant; the id of
// another tenant's job or backfill is answered as one that does not exist.
type Store struct {
	db *postgres.DB
	c  Config
}

// Config says which backfills may begin.
type Config struct {
	// Kept is how long executions are kept, and so how long before now one may begin.
	Kept func() partition.Term
	// Backlog is how much may wait of tenants that have no limits of their own:
	// where it is met, no backfill begins. nil: any number.
	Backlog func() tenant.Backlog
}

// NewStore makes a store.
func NewStore(db *postgres.DB, c Config) *Store {
	if c.Backlog == nil {
		c.Backlog = func() tenant.Backlog { return tenant.Backlog{} }
	}
	return &Store{db: db, c: c}
}

// Position is a place in a list of backfills, newest first.
type Position struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

// NotFound is the answer for a backfill that is not there, or is not the
// caller's.
func NotFound() error {
	return fault.New(fault.NotFound, fault.CodeBackfillNotFound, "there is no backfill with this id")
}

// Preview returns what Create would make, and stores nothing. For a range without
// scheduled times the plan is empty.
func (s *Store) Preview(ctx context.Context, who tenant.Actor, jobID uuid.UUID, r Request) (p Plan, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		_, p, err = prepare(ctx, tx, who, jobID, r.settled(s.c.Kept()))
		return err
	})
	return p, err
}

// Create stores a backfill of the scheduled times that the job's current definition
// has in the range; a promoter begins with it at once. Each runs the definition
// as it is now, also when the job is changed meanwhile. It reports whether the
// answer is a remembered one.
func (s *Store) Create(ctx context.Context, who tenant.Actor, jobID uuid.UUID, r Request, key idempotency.Key) (b Backfill, replayed bool, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		store := idempotency.Store{Queries: tx.Queries}
		b, replayed, err = idempotency.Do(ctx, store, who.TenantID, key, func() (Backfill, error) {
			return s.create(ctx, tx, who, jobID, r.settled(s.c.Kept()))
		})
		return err
	})
	return b, replayed, err
}

func (s *Store) create(ctx context.Context, tx *postgres.Tx, who tenant.Actor, jobID uuid.UUID, r Request) (Backfill, error) {
	if fields := secret.Inline(r.Parameters); len(fields) > 0 {
		return Backfill{}, fault.Wrong(fault.CodeValidationFailed, fields...)
	}
	if err := secret.MayPass(who, nil, nil, r.Parameters); err != nil {
		return Backfill{}, err
	}
	from, p, err := prepare(ctx, tx, who, jobID, r)
	if err != nil {
		return Backfill{}, err
	}
	if p.Total == 0 {
		return Backfill{}, none()
	}
	if err := s.c.Backlog().Admit(ctx, tx, who.TenantID, jobID); err != nil {
		return Backfill{}, err
	}
	running, err := tx.CountRunningBackfills(ctx, db.CountRunningBackfillsParams{TenantID: who.TenantID, JobID: jobID})
	if err != nil {
		return Backfill{}, fmt.Errorf("count running backfills: %w", err)
	}
	if running >= MaxRunning {
		return Backfill{}, fault.New(fault.Conflict, fault.CodeTooManyBackfills,
			fmt.Sprintf("%d backfills of this job are running: wait for one of them, or cancel it", running))
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Backfill{}, fmt.Errorf("make a backfill id: %w", err)
	}
	row, err := tx.InsertBackfill(ctx, db.InsertBackfillParams{
		ID: id, TenantID: who.TenantID, JobID: jobID, JobVersion: from.Version, FromAt: r.From, ToAt: r.To,
		// Executions after the cursor are still to be made, and From is one of them.
		CursorAt: r.From.Add(-time.Microsecond), RatePerMinute: int32(r.RatePerMinute), Parameters: r.Parameters,
		Total: int32(p.Total), Now: tx.At, RequestedBy: who.Subject, AnchorAt: from.AnchorAt,
		DailyShare: int16(r.DailyShare),
	})
	if err != nil {
		return Backfill{}, fmt.Errorf("insert backfill: %w", err)
	}
	b := fromRow(row, 0)
	b.Outcomes = map[execution.Status]int{}
	return b, nil
}

// prepare locks the job, and plans a settled request by its current definition.
func prepare(ctx context.Context, tx *postgres.Tx, who tenant.Actor, jobID uuid.UUID, r Request) (row db.LockJobDefinitionRow, p Plan, err error) {
	row, err = tx.LockJobDefinition(ctx, db.LockJobDefinitionParams{TenantID: who.TenantID, JobID: jobID})
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return row, p, job.NotFound()
	}
	if err != nil {
		return row, p, fmt.Errorf("read the job's definition: %w", err)
	}
	if err := r.check(tx.At); err != nil {
		return row, p, err
	}
	var spec job.Spec
	if err := json.Unmarshal(row.Spec, &spec); err != nil {
		return row, p, fmt.Errorf("read version %d of job %s: %w", row.Version, jobID, err)
	}
	if !spec.Scheduled() {
		return row, p, noSchedule()
	}
	sets, err := contents(ctx, tx, who, spec.Calendars)
	if err != nil {
		return row, p, err
	}
	compiled, err := schedule.Compile(spec.Definition(jobID.String(), Anchor(spec.Policy, row.AnchorAt.UTC(), r.From), sets))
	if err != nil {
		return row, p, fmt.Errorf("compile the schedule of job %s: %w", jobID, err)
	}
	if p, err = r.plan(compiled); err != nil {
		return row, p, err
	}
	return row, p, inHistory(ctx, tx, p.days(compiled))
}

// inHistory refuses scheduled times of a day that an operator detached from the
// history: new records would stand beside the detached ones.
func inHistory(ctx context.Context, tx *postgres.Tx, times []time.Time) error {
	missing, err := partition.ListMissing(ctx, tx.Queries, times)
	if err != nil {
		return err
	}
	return detached(slices.DeleteFunc(missing, func(m partition.Missing) bool { return m.Detached == "" }))
}

// contents are the calendars that the definition names, as they are now.
func contents(ctx context.Context, tx *postgres.Tx, who tenant.Actor, named []job.Calendar) ([]schedule.Calendar, error) {
	ids := make([]uuid.UUID, len(named))
	for i, c := range named {
		ids[i] = c.ID
	}
	found, err := calendar.Load(ctx, tx, who.TenantID, ids)
	if err != nil {
		return nil, err
	}
	sets := make([]schedule.Calendar, len(named))
	for i, c := range named {
		sets[i] = found[c.ID]
		sets[i].Mode = c.Mode
	}
	return sets, nil
}

// List reads a page of a job's backfills, newest first; with the outcomes of those that run, if they are
// to be counted. A deleted job still has its own.
func (s *Store) List(ctx context.Context, who tenant.Actor, jobID uuid.UUID, limit int, after *Position, counted bool) (list []Backfill, err error) {
	params := db.ListBackfillsByJobParams{
		TenantID: who.TenantID, JobID: jobID, PageSize: int32(limit), BeforeCreatedAt: columns.Never, BeforeID: uuid.Max,
	}
	if after != nil {
		params.BeforeCreatedAt, params.BeforeID = after.CreatedAt, after.ID
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		known, err := tx.JobExists(ctx, db.JobExistsParams{TenantID: who.TenantID, ID: jobID})
		if err != nil {
			return fmt.Errorf("look for the job: %w", err)
		}
		if !known {
			return job.NotFound()
		}
		rows, err := tx.ListBackfillsByJob(ctx, params)
		if err != nil {
			return fmt.Errorf("list backfills: %w", err)
		}
		list = make([]Backfill, len(rows))
		for i, row := range rows {
			list[i] = fromRow(row.Backfill, row.Active)
			if counted && list[i].Status == Running {
				if err := count(ctx, tx, who, &list[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return list, err
}

// Get reads one backfill with its outcomes.
func (s *Store) Get(ctx context.Context, who tenant.Actor, jobID, id uuid.UUID) (b Backfill, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		b, err = get(ctx, tx, who, jobID, id)
		return err
	})
	return b, err
}

func get(ctx context.Context, tx *postgres.Tx, who tenant.Actor, jobID, id uuid.UUID) (Backfill, error) {
	row, err := tx.GetBackfill(ctx, db.GetBackfillParams{TenantID: who.TenantID, JobID: jobID, ID: id})
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return Backfill{}, NotFound()
	}
	if err != nil {
		return Backfill{}, fmt.Errorf("read backfill: %w", err)
	}
	b := fromRow(row.Backfill, row.Active)
	err = count(ctx, tx, who, &b)
	return b, err
}

// count reads what became of a backfill's executions so far.
func count(ctx context.Context, tx *postgres.Tx, who tenant.Actor, b *Backfill) error {
	counts, err := tx.CountBackfillOutcomes(ctx, db.CountBackfillOutcomesParams{
		TenantID: who.TenantID, JobID: b.JobID, BackfillID: &b.ID, FromAt: b.From, ToAt: b.To,
	})
	if err != nil {
		return fmt.Errorf("count the outcomes of a backfill: %w", err)
	}
	b.Outcomes = make(map[execution.Status]int, len(counts))
	for _, c := range counts {
		b.Outcomes[execution.Status(c.Status)] = int(c.Executions)
	}
	return nil
}

// Cancel ends a backfill: no further execution is made, those that wait are
// cancelled and those that run are asked to end, each with the reason, empty
// being "the backfill was cancelled". One that is cancelled already stays as it
// is; one that is completed is a Conflict.
func (s *Store) Cancel(ctx context.Context, who tenant.Actor, jobID, id uuid.UUID, reason string) (b Backfill, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		n, err := tx.CancelBackfill(ctx, db.CancelBackfillParams{TenantID: who.TenantID, JobID: jobID, ID: id, Now: tx.At})
		if err != nil {
			return fmt.Errorf("cancel backfill: %w", err)
		}
		if n == 1 {
			if err := dispatch.CancelOfBackfill(ctx, tx.Queries, id, dispatch.Cancellation{
				Tenant: who.TenantID, Job: jobID, At: tx.At, Reason: cmp.Or(reason, "the backfill was cancelled"), By: who.Subject,
			}); err != nil {
				return err
			}
		}
		b, err = get(ctx, tx, who, jobID, id)
		if err == nil && b.Status == Completed {
			return fault.New(fault.Conflict, fault.CodeConflict, "this backfill is completed: there is nothing left to cancel")
		}
		return err
	})
	return b, err
}

// Rows stop here.
func fromRow(r db.Backfill, active int64) Backfill {
	b := Backfill{
		ID: r.ID, TenantID: r.TenantID, JobID: r.JobID, JobVersion: int(r.JobVersion), From: r.FromAt.UTC(), To: r.ToAt.UTC(),
		RatePerMinute: int(r.RatePerMinute), DailyShare: int(r.DailyShare), Parameters: r.Parameters, Status: Status(r.Status), Total: int(r.Total),
		Created: int(r.Created), Active: int(active), RequestedBy: r.RequestedBy, HeldBy: r.HeldBy, CreatedAt: r.CreatedAt.UTC(),
	}
	if r.FinishedAt != nil {
		at := r.FinishedAt.UTC()
		b.FinishedAt = &at
	}
	return b
}
