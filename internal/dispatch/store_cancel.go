package dispatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// CancelOfTenant cancels the waiting executions of jobs of one tenant, whose rows the
// caller holds locked, and asks the running ones to end. It does so now for the jobs with
// fewest executions, up to CancelAtOnce executions in all. For the others it stores an order,
// which maintenance carries out. c names no job.
func CancelOfTenant(ctx context.Context, q *db.Queries, c Cancellation, jobs ...uuid.UUID) error {
	counted, err := q.CountExecutionsOfJobs(ctx, db.CountExecutionsOfJobsParams{TenantID: c.Tenant, JobIds: jobs, Most: CancelAtOnce + 1})
	if err != nil {
		return fmt.Errorf("count executions: %w", err)
	}
	var few, many []uuid.UUID
	sum := int32(0)
	for _, of := range counted {
		switch sum += of.Executions; {
		case of.Executions == 0:
		case sum <= CancelAtOnce:
			few = append(few, of.JobID)
		default:
			many = append(many, of.JobID)
		}
	}
	if err := cancelAtOnce(ctx, q, c, few...); err != nil {
		return err
	}
	return order(ctx, q, c, many...)
}

// CancelOfJobs does so for jobs of several tenants, each with a reason of its own: those in few
// now, those in many by an order. Orders come last, because they lock the tenants' counts, and everybody
// locks executions first and counts after them, in the order of tenants.
func CancelOfJobs(ctx context.Context, q *db.Queries, few, many []Cancellation) error {
	if len(few) > 1 { // several jobs, in the order in which completions lock
		ids := make([]uuid.UUID, len(few))
		for i, c := range few {
			ids[i] = c.Job
		}
		if err := q.LockExecutionsOfJobs(ctx, ids); err != nil {
			return fmt.Errorf("lock the executions of jobs: %w", err)
		}
	}
	for _, c := range few {
		if err := cancelAtOnce(ctx, q, c, c.Job); err != nil {
			return err
		}
	}
	sorted := slices.SortedFunc(slices.Values(many), func(a, b Cancellation) int { return bytes.Compare(a.Tenant[:], b.Tenant[:]) })
	for _, c := range sorted {
		if err := order(ctx, q, c, c.Job); err != nil {
			return err
		}
	}
	return nil
}

func cancelAtOnce(ctx context.Context, q *db.Queries, c Cancellation, jobs ...uuid.UUID) error {
	if len(jobs) == 0 {
		return nil
	}
	err := q.CancelExecutionsOfJobs(ctx, db.CancelExecutionsOfJobsParams{
		TenantID: c.Tenant, JobIds: jobs, Now: c.At, SpareBackfills: c.SpareBackfills, Reason: c.Reason, CancelledBy: c.By,
	})
	if err != nil {
		return fmt.Errorf("cancel the executions of jobs: %w", err)
	}
	return nil
}

func order(ctx context.Context, q *db.Queries, c Cancellation, jobs ...uuid.UUID) error {
	if len(jobs) == 0 {
		return nil
	}
	err := q.OrderCancellations(ctx, db.OrderCancellationsParams{
		TenantID: c.Tenant, JobIds: jobs, Now: c.At, SpareBackfills: c.SpareBackfills, Reason: c.Reason, CancelledBy: c.By,
	})
	if err != nil {
		return fmt.Errorf("order the executions of jobs to be cancelled: %w", err)
	}
	return nil
}

// CancelOfBackfill cancels the waiting executions of a backfill and asks the running
// ones to end.
func CancelOfBackfill(ctx context.Context, q *db.Queries, backfill uuid.UUID, c Cancellation) error {
	err := q.CancelExecutionsOfBackfill(ctx, db.CancelExecutionsOfBackfillParams{
		TenantID: c.Tenant, JobID: c.Job, BackfillID: &backfill, Now: c.At, Reason: c.Reason, CancelledBy: c.By,
	})
	if err != nil {
		return fmt.Errorf("cancel the executions of a backfill: %w", err)
	}
	return nil
}

// maxNext is how many executions are named that may start after a cancellation.
const maxNext = 10

// Cancel cancels one execution where it waits, asks it to end where it runs, and tries
// again to store its outcome where it is parked. c names no job. It returns which
// executions of the same job may start now; nothing happens to a finished one.
func Cancel(ctx context.Context, q *db.Queries, id uuid.UUID, c Cancellation) ([]Waiting, error) {
	row, err := q.CancelExecution(ctx, db.CancelExecutionParams{TenantID: c.Tenant, ID: id, Now: c.At, Reason: c.Reason, CancelledBy: c.By})
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cancel execution: %w", err)
	}
	if !row.Cancelled {
		return nil, nil
	}
	rows, err := q.ListNextInLine(ctx, db.ListNextInLineParams{TenantID: c.Tenant, JobID: row.JobID, PageSize: maxNext})
	if err != nil {
		return nil, fmt.Errorf("list the next in line: %w", err)
	}
	next := make([]Waiting, len(rows))
	for i, r := range rows {
		next[i] = Waiting{ID: r.ID, Priority: int(r.Priority)}
	}
	return next, nil
}

// Orders lists what is to be cancelled in pieces: the oldest order of each job, and
// suspended tenants, up to most of each. One list that cannot be read leaves the
// other.
func (s *Store) Orders(ctx context.Context, most int32) (orders []Order, err error) {
	rows, errJobs := s.queries().ListCancellations(ctx, most)
	if errJobs != nil {
		errJobs = fmt.Errorf("list what is to be cancelled: %w", postgres.Fault(errJobs))
	}
	for _, o := range rows {
		orders = append(orders, Order{
			Tenant: o.TenantID, Job: o.JobID, Generation: o.Generation, SpareBackfills: o.SpareBackfills, Reason: o.Reason, By: o.CancelledBy,
		})
	}
	ids, errTenants := s.queries().ListSuspendedTenants(ctx, most)
	if errTenants != nil {
		errTenants = fmt.Errorf("list suspended tenants: %w", postgres.Fault(errTenants))
	}
	for _, id := range ids {
		orders = append(orders, Order{Tenant: id, Reason: "the tenant is suspended", By: "platform"})
	}
	return orders, errors.Join(errJobs, errTenants)
}

// aloneFor is how long CancelAlone waits for a second connection.
const aloneFor = 2 * time.Second

// CancelAlone calls fn unless another process is in such a call. The lock ends with
// the connection, so a process that is killed stops nobody. The statements of fn have another
// connection, and fn is called only where there is one within aloneFor. The pool may have no more
// than one, because the server refuses it sessions: they would wait for the one that has the lock,
// and so would everybody else.
func (s *Store) CancelAlone(ctx context.Context, fn func() error) error {
	return s.db.InTx(ctx, func(tx *postgres.Tx) error {
		mine, err := tx.TakeCancelTurn(ctx)
		if err != nil {
			return fmt.Errorf("ask for the turn to cancel: %w", postgres.Fault(err))
		}
		if !mine {
			return nil
		}
		wait, cancel := context.WithTimeout(ctx, aloneFor)
		defer cancel()
		if err := s.db.Ping(wait); err != nil {
			return fmt.Errorf("find a second connection to cancel by: %w", err)
		}
		return fn()
	})
}

// CancelPiece cancels up to so many executions behind a place, and returns how many
// they were and the place of the last. The error is the driver's own.
func (s *Store) CancelPiece(ctx context.Context, o Order, after Place, most int32) (n int, last Place, err error) {
	var row db.CancelPieceOfJobRow
	if o.Job == uuid.Nil {
		var of db.CancelPieceOfTenantRow
		of, err = s.queries().CancelPieceOfTenant(ctx, db.CancelPieceOfTenantParams{
			TenantID: o.Tenant, AfterAt: after.At, AfterID: after.ID, PieceSize: most, Reason: o.Reason, CancelledBy: o.By,
		})
		row = db.CancelPieceOfJobRow(of)
	} else {
		row, err = s.queries().CancelPieceOfJob(ctx, db.CancelPieceOfJobParams{
			TenantID: o.Tenant, JobID: o.Job, Generation: o.Generation, SpareBackfills: o.SpareBackfills,
			AfterAt: after.At, AfterID: after.ID, PieceSize: most, Reason: o.Reason, CancelledBy: o.By,
		})
	}
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return 0, Place{}, nil
	}
	if err != nil {
		return 0, Place{}, fmt.Errorf("cancel a piece of %d executions: %w", most, err)
	}
	return int(row.Executions), Place{At: row.ScheduledAt, ID: row.ID}, nil
}

// NextPlace is the place of the next execution to cancel; the given one where there is
// none.
func (s *Store) NextPlace(ctx context.Context, o Order, after Place) (Place, error) {
	var row db.FindPieceOfJobRow
	var err error
	if o.Job == uuid.Nil {
		var of db.FindPieceOfTenantRow
		of, err = s.queries().FindPieceOfTenant(ctx, db.FindPieceOfTenantParams{TenantID: o.Tenant, AfterAt: after.At, AfterID: after.ID})
		row = db.FindPieceOfJobRow(of)
	} else {
		row, err = s.queries().FindPieceOfJob(ctx, db.FindPieceOfJobParams{
			TenantID: o.Tenant, JobID: o.Job, Generation: o.Generation, SpareBackfills: o.SpareBackfills, AfterAt: after.At, AfterID: after.ID,
		})
	}
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return after, nil
	}
	if err != nil {
		return after, fmt.Errorf("find the execution that cannot be cancelled: %w", postgres.Fault(err))
	}
	return Place{At: row.ScheduledAt, ID: row.ID}, nil
}

// ParkWaiting parks a waiting execution whose cancelling the database refuses; why is
// what it said.
func (s *Store) ParkWaiting(ctx context.Context, o Order, id uuid.UUID, why string) error {
	err := s.queries().ParkWaitingExecution(ctx, db.ParkWaitingExecutionParams{
		TenantID: o.Tenant, ID: id, Reason: o.Reason, CancelledBy: o.By,
		Why: fmt.Sprintf("the execution is cancelled and its end could not be stored: %.500s. It is kept and tried again by itself", why),
	})
	if err != nil {
		return fmt.Errorf("park an execution: %w", postgres.Fault(err))
	}
	return nil
}

// CloseOrder deletes an order under which nothing is left to cancel.
func (s *Store) CloseOrder(ctx context.Context, o Order) error {
	if o.Job == uuid.Nil {
		return nil
	}
	_, err := s.queries().CloseCancellation(ctx, db.CloseCancellationParams{TenantID: o.Tenant, JobID: o.Job, Generation: o.Generation})
	if err != nil {
		return fmt.Errorf("close an order to cancel: %w", postgres.Fault(err))
	}
	return nil
}
