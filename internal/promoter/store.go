package promoter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/job/schedules"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// store is the promoter's door to the database. Its queries
// see all tenants; they are a short, named list in package arch.
type store struct {
	db      *postgres.DB
	bounds  bounds
	backlog func() tenant.Backlog // limits of tenants that have none of their own
}

// claim is what a promoter holds locked, and what it must know to decide.
type claim struct {
	jobs         []dueJob
	calendars    schedules.Calendars
	at, database time.Time     // the time that decides, and the database's clock
	before       uuid.UUID     // where the turns of tenants go on
	took         time.Duration // claiming them
	mended       string        // what became of a due schedule that is nobody's; empty: there was none
}

// due says what to claim.
type due struct {
	now      time.Time   // zero: the database's clock
	since    time.Time   // nothing that was due before
	batch    int         // so many of the oldest
	rows     int         // that may be written
	backlogs bool        // look for tenants with a backlog in the pool
	chosen   []uuid.UUID // jobs of a batch that failed
	slow     bool        // chosen ones get less time
	awaits   bool        // for the locks that keep the chosen ones back, see locked
	turns    turns       // of tenants
	had      bool        // the lock of the one chosen, after it was waited for: that is due
	// Left out of the oldest.
	exceptIDs, exceptTenants []uuid.UUID
}

// promote claims what is due, lets decide say what becomes of it, and writes
// that: two round trips for up to batchSize jobs, one more each when tenants take
// turns, when a job has calendars, and when its tenant has a bound on a day's
// executions.
func (s *store) promote(ctx context.Context, d due, decide func(claim) (plan, error)) (made plan, err error) {
	of, full, err := s.executionBounds(ctx)
	if err != nil {
		return plan{}, fmt.Errorf("promote: %w", postgres.Fault(err))
	}
	err = s.db.InTxLed(ctx, func(tx *postgres.Tx) error {
		if err := d.begin(ctx, tx); err != nil {
			return err
		}
		mark := clock.Start()
		c, err := claimJobs(ctx, tx, d)
		if err != nil {
			return err
		}
		c.took = mark.Elapsed()
		if d.had && len(c.jobs) == 0 {
			if c.mended, err = mendSchedule(ctx, tx, d.chosen[0]); err != nil {
				return err
			}
		}
		if made, err = decide(c); err != nil {
			return err
		}
		made.refuse(full)
		if err := countDaily(ctx, tx, &made, of, c.at, d.awaits); err != nil {
			return d.noTurn(err)
		}
		if d.awaits { // the jobs are locked now, and others wait for that
			if err := boundStatements(ctx, tx, slowTrial); err != nil {
				return err
			}
		}
		if old := made.timesBefore(c.at.AddDate(0, 0, -partition.LeastDays)); len(old) > 0 {
			// Such a row ends in the partition of its scheduled time, which
			// retention may have removed.
			if _, err := partition.Make(ctx, tx.Queries, old); err != nil {
				return err
			}
		}
		return tx.CommitWith(ctx, func(q *db.Queries) error { return write(ctx, q, &made, c.at, d) })
	})
	if err != nil {
		return plan{}, fmt.Errorf("promote: %w", err)
	}
	return made, nil
}

// begin bounds the time of a trial. One that awaits a job stands in line for its row here, and then
// decides by the time at which it had it.
func (d *due) begin(ctx context.Context, tx *postgres.Tx) error {
	if !d.awaits {
		if !d.slow {
			return nil
		}
		return boundStatements(ctx, tx, slowTrial)
	}
	if err := boundStatements(ctx, tx, awaitTime); err != nil {
		return err
	}
	if len(d.chosen) != 1 {
		return nil
	}
	had, err := tx.AwaitDueJob(ctx, db.AwaitDueJobParams{ID: d.chosen[0], Now: postgres.At(d.now)})
	if err != nil {
		return d.noTurn(fmt.Errorf("wait for a due job: %w", err))
	}
	d.had = len(had) > 0
	if d.had && d.now.IsZero() {
		d.now = had[0].UTC()
		tx.At = d.now
	}
	return nil
}

// errNoTurn says that a lock that keeps jobs back did not come free in time.
var errNoTurn = errors.New("its turn has not come")

// noTurn marks the end of a wait that took too long.
func (d *due) noTurn(err error) error {
	if d.awaits && postgres.TimedOut(err) {
		return fmt.Errorf("%w: %w", errNoTurn, err)
	}
	return err
}

// claimJobs locks what is due, and reads what is needed to decide about it.
func claimJobs(ctx context.Context, tx *postgres.Tx, d due) (c claim, err error) {
	c.before = uuid.Max
	if d.turns.on {
		if c.before, err = d.lockInTurns(ctx, tx); err != nil {
			return claim{}, err
		}
	}
	rows, err := tx.ClaimDueJobs(ctx, claimDue(d))
	if err != nil {
		return claim{}, fmt.Errorf("claim due jobs: %w", err)
	}
	c.at, c.database = tx.At, tx.At
	if !d.now.IsZero() {
		c.at = d.now
	}
	c.jobs = dueJobs(rows)
	c.calendars, err = schedules.Load(ctx, tx, policies(c.jobs))
	return c, err
}

// mendSchedule says what became of a due schedule without a job that is as it says.
func mendSchedule(ctx context.Context, tx *postgres.Tx, id uuid.UUID) (string, error) {
	mended, err := tx.MendSchedule(ctx, id)
	switch {
	case err != nil:
		return "", fmt.Errorf("mend a schedule: %w", err)
	case mended.Removed:
		return "removed: there is no job of that id", nil
	case mended.Corrected:
		return "given the status that the job has", nil
	default:
		return "", nil
	}
}

// write writes the plan, and reads which job is due next. That may be now, where the batch is full
// or somebody holds a job locked.
func write(ctx context.Context, q *db.Queries, p *plan, at time.Time, d due) error {
	if err := cancelActive(ctx, q, p.cancels, at); err != nil {
		return err
	}
	if len(p.runs) > 0 {
		if err := q.InsertDueExecutions(ctx, insertDue(p.runs, d.now)); err != nil {
			return fmt.Errorf("insert executions: %w", err)
		}
	}
	if len(p.skips) > 0 {
		if err := q.InsertSkippedExecutions(ctx, insertSkips(p.skips, d.now)); err != nil {
			return fmt.Errorf("record times that do not run: %w", err)
		}
	}
	if len(p.advances) > 0 {
		if err := q.AdvanceJobs(ctx, advanceJobs(p.advances, d.now)); err != nil {
			return fmt.Errorf("advance jobs: %w", err)
		}
	}
	if d.batch == 0 { // a trial: others say what is next
		held, err := q.TransactionTime(ctx)
		if err != nil {
			return fmt.Errorf("write what was planned: %w", err)
		}
		p.held = microseconds(held)
		return nil
	}
	next, err := q.NextDue(ctx, db.NextDueParams{Since: d.since, ExceptIds: orEmpty(d.exceptIDs), ExceptTenants: orEmpty(d.exceptTenants)})
	if err != nil {
		return fmt.Errorf("write what was planned, and find the next due job: %w", err)
	}
	p.left, p.held = leftJob{suspect{next.JobID, next.TenantID}, next.NextAt.UTC()}, microseconds(next.HeldUs)
	if p.claimed < d.batch {
		p.next = p.left.at
	}
	return nil
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// cancelActive cancels what jobs have, or orders it where it is more than a promotion
// should cancel.
func cancelActive(ctx context.Context, q *db.Queries, jobs []*dueJob, at time.Time) error {
	var few, many []dispatch.Cancellation
	for _, j := range jobs {
		c := dispatch.Cancellation{
			Tenant: j.tenant, Job: j.id, At: at, SpareBackfills: true,
			Reason: "a later scheduled time took its place (overlapPolicy cancel_running)", By: "system",
		}
		if j.cancelling || j.active > dispatch.CancelAtOnce {
			many = append(many, c)
			j.generation++
		} else {
			few = append(few, c)
		}
	}
	return dispatch.CancelOfJobs(ctx, q, few, many)
}

// pollDue asks when the next job is due that was not due before since and is none of those
// that are kept out of batches, and whether a backfill is.
func (s *store) pollDue(ctx context.Context, d due) (db.PollDueRow, error) {
	row, err := s.queries().PollDue(ctx, db.PollDueParams{Since: d.since, ExceptIds: orEmpty(d.exceptIDs), ExceptTenants: orEmpty(d.exceptTenants)})
	if err != nil {
		return row, fmt.Errorf("poll for due jobs: %w", postgres.Fault(err))
	}
	return row, nil
}

func (s *store) queries() *db.Queries { return db.New(s.db.Pool()) }
