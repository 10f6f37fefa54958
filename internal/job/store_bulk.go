package job

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// The bulk verbs act on a piece of jobs in one transaction, with as many statements as
// one job costs. Each job comes to what the verb for one would have made of it, with
// its own entry of the audit log: the triggers of the table write those. They answer why
// jobs of the piece are refused; with an error, nothing is known of any.

// Piece bounds how many jobs one call of a bulk verb takes: their rows stay locked until
// the commit, and promoters pass over them meanwhile.
const Piece = 500

// Keys reads the places of the jobs that a filter selects, newest first, and where the
// next page begins; nil: nowhere. It walks the list as List does.
func (s *Store) Keys(ctx context.Context, who tenant.Actor, f Filter) (keys []Position, next *Position, err error) {
	p := listParams(who, f)
	err = s.db.InList(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListJobKeys(ctx, db.ListJobKeysParams{
			TenantID: p.TenantID, Statuses: p.Statuses, JobTypes: p.JobTypes, AllTags: p.AllTags, AnyTags: p.AnyTags, Contained: p.Contained,
			SetName: p.SetName, CreatedBy: p.CreatedBy, BeforeCreatedAt: p.PlaceAt, BeforeID: p.PlaceID, CreatedFrom: p.CreatedFrom, CreatedTo: p.CreatedTo,
			NextFrom: p.NextFrom, NextTo: p.NextTo, ScanRows: p.ScanRows, PageSize: p.PageSize,
		})
		if err != nil {
			return fmt.Errorf("list the ids of jobs: %w", err)
		}
		var last *Position
		for _, r := range rows {
			if r.Fits && len(keys) == f.Limit {
				next = last
				return nil
			}
			last = &Position{CreatedAt: r.CreatedAt.UTC(), ID: r.ID}
			if r.Fits {
				keys = append(keys, *last)
			}
			if r.Number == scanRows {
				next = last
			}
		}
		return nil
	})
	return keys, next, err
}

// PauseAll is Pause for a piece of jobs, until somebody resumes them.
func (s *Store) PauseAll(ctx context.Context, who tenant.Actor, ids []uuid.UUID, reason string) (map[uuid.UUID]error, error) {
	return s.changeAll(ctx, who, ids, func(tx *postgres.Tx, jobs []Job, refused map[uuid.UUID]error) error {
		next := make([]resumption, 0, len(jobs))
		for _, j := range jobs {
			if j.Status == Inactive {
				refused[j.ID] = errPauseInactive()
				continue
			}
			next = append(next, resumption{id: j.ID, next: j.NextExecutionAt})
		}
		return setStatuses(ctx, tx, db.SetJobStatusesParams{TenantID: who.TenantID, Status: string(Paused), StatusReason: reason, StatusBy: who.Subject}, next)
	})
}

// ResumeAll is Resume for a piece of jobs.
func (s *Store) ResumeAll(ctx context.Context, who tenant.Actor, ids []uuid.UUID, missed MisfirePolicy) (map[uuid.UUID]error, error) {
	return s.changeAll(ctx, who, ids, func(tx *postgres.Tx, jobs []Job, refused map[uuid.UUID]error) error {
		var resumed []resumption
		var open []uuid.UUID
		for _, j := range jobs {
			switch r, decided, err := j.resumption(missed, tx.At); {
			case err != nil:
				refused[j.ID] = err
			case !decided:
				open = append(open, j.ID)
			case j.Status != Active:
				resumed = append(resumed, r)
			}
		}
		scheduled, err := reschedule(ctx, tx, who, open, jobs, refused)
		if err != nil {
			return err
		}
		return setStatuses(ctx, tx, db.SetJobStatusesParams{TenantID: who.TenantID, Status: string(Active), StatusBy: who.Subject}, append(resumed, scheduled...))
	})
}

// StopAll is Stop for a piece of jobs.
func (s *Store) StopAll(ctx context.Context, who tenant.Actor, ids []uuid.UUID, reason string) (map[uuid.UUID]error, error) {
	reason = cmp.Or(reason, "stopped")
	return s.changeAll(ctx, who, ids, func(tx *postgres.Tx, jobs []Job, _ map[uuid.UUID]error) error {
		if err := endRuns(ctx, tx, who, idsOf(jobs), reason); err != nil {
			return err
		}
		var stopped []resumption
		for _, j := range jobs {
			if j.Status != Inactive || j.Parked() {
				stopped = append(stopped, resumption{id: j.ID})
			}
		}
		return setStatuses(ctx, tx, db.SetJobStatusesParams{TenantID: who.TenantID, Status: string(Inactive), StatusReason: reason, StatusBy: who.Subject}, stopped)
	})
}

// DeleteAll is Delete for a piece of jobs.
func (s *Store) DeleteAll(ctx context.Context, who tenant.Actor, ids []uuid.UUID, reason string) (map[uuid.UUID]error, error) {
	return s.changeAll(ctx, who, ids, func(tx *postgres.Tx, jobs []Job, _ map[uuid.UUID]error) error {
		return remove(ctx, tx, who, idsOf(jobs), reason)
	})
}

// pieceChange decides and writes, by the database's clock. The jobs hold only what
// LockJobStates reads.
type pieceChange func(tx *postgres.Tx, jobs []Job, refused map[uuid.UUID]error) error

// changeAll changes the jobs of a piece. One whose change the database refuses is
// refused alone: the piece is divided until it is.
func (s *Store) changeAll(ctx context.Context, who tenant.Actor, ids []uuid.UUID, fn pieceChange) (refused map[uuid.UUID]error, err error) {
	refused, err = s.changeAtOnce(ctx, who, ids, fn)
	switch {
	case err == nil || !postgres.Refused(err):
		return refused, err
	case len(ids) == 1:
		return map[uuid.UUID]error{ids[0]: err}, nil
	}
	refused = make(map[uuid.UUID]error)
	for _, half := range [][]uuid.UUID{ids[:len(ids)/2], ids[len(ids)/2:]} {
		of, err := s.changeAll(ctx, who, half, fn)
		if err != nil {
			return nil, err
		}
		maps.Copy(refused, of)
	}
	return refused, nil
}

func (s *Store) changeAtOnce(ctx context.Context, who tenant.Actor, ids []uuid.UUID, fn pieceChange) (refused map[uuid.UUID]error, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.LockJobStates(ctx, db.LockJobStatesParams{TenantID: who.TenantID, Ids: ids})
		if err != nil {
			return fmt.Errorf("lock jobs: %w", err)
		}
		refused = make(map[uuid.UUID]error)
		for _, id := range ids {
			refused[id] = NotFound()
		}
		jobs := make([]Job, len(rows))
		for i, r := range rows {
			jobs[i] = Job{ID: r.ID, TenantID: who.TenantID, Status: Status(r.Status), NextExecutionAt: r.NextExecutionAt, ExecutionCount: r.ExecutionCount}
			jobs[i].Misfire.Policy, jobs[i].MaxExecutions = MisfirePolicy(r.MisfirePolicy), columns.OrZero(r.MaxExecutions)
			delete(refused, r.ID)
		}
		return fn(tx, jobs, refused)
	})
	return refused, err
}

// setStatuses writes what becomes of locked jobs.
func setStatuses(ctx context.Context, tx *postgres.Tx, p db.SetJobStatusesParams, jobs []resumption) error {
	if len(jobs) == 0 {
		return nil
	}
	p.Now = tx.At
	for _, j := range jobs {
		next := columns.Never
		if j.next != nil {
			next = *j.next
		}
		p.Ids, p.NextAt, p.ResumePolicies = append(p.Ids, j.id), append(p.NextAt, next), append(p.ResumePolicies, string(j.policy))
	}
	if err := tx.SetJobStatuses(ctx, p); err != nil {
		return fmt.Errorf("set the status of jobs: %w", err)
	}
	return nil
}

// reschedule decides when the jobs that are open go on by their schedules.
func reschedule(ctx context.Context, tx *postgres.Tx, who tenant.Actor, open []uuid.UUID, jobs []Job, refused map[uuid.UUID]error) ([]resumption, error) {
	if len(open) == 0 {
		return nil, nil
	}
	rows, err := tx.ListJobSchedules(ctx, db.ListJobSchedulesParams{TenantID: who.TenantID, Ids: open})
	if err != nil {
		return nil, fmt.Errorf("read the schedules of jobs: %w", err)
	}
	state := make(map[uuid.UUID]Job, len(jobs))
	for _, j := range jobs {
		state[j.ID] = j
	}
	stopped, named := make([]Job, len(rows)), []uuid.UUID(nil)
	for i, r := range rows {
		stopped[i] = state[r.ID]
		stopped[i].AnchorAt = r.AnchorAt.UTC()
		if err := stopped[i].Read(&r); err != nil {
			return nil, fmt.Errorf("read job %s: %w", r.ID, err)
		}
		for _, c := range stopped[i].Calendars {
			named = append(named, c.ID)
		}
	}
	// An edit of one of them waits for the jobs' locks and comes after.
	contents, err := calendar.Load(ctx, tx, who.TenantID, named)
	if err != nil {
		return nil, err
	}
	var resumed []resumption
	for _, j := range stopped {
		calendars, err := allOf(contents, j.Calendars)
		var next *time.Time
		if err == nil {
			next, err = j.resumes(calendars, tx.At)
		}
		switch {
		case err == nil:
			resumed = append(resumed, resumption{id: j.ID, next: next})
		case fault.KindOf(err) == fault.Internal:
			return nil, err
		default:
			refused[j.ID] = err
		}
	}
	return resumed, nil
}

// resumption is how a job goes on.
type resumption struct {
	id     uuid.UUID
	next   *time.Time
	policy MisfirePolicy // of the times that a pause held back; empty: there are none
}

// resumption is how the job goes on from where it was; it is not decided where the
// schedule decides it, see resumes. An active job goes on as it does, above all with
// what an earlier resume said of missed times.
func (j Job) resumption(missed MisfirePolicy, now time.Time) (r resumption, decided bool, err error) {
	switch {
	case j.Status == Active:
		return resumption{id: j.ID, next: j.NextExecutionAt}, true, nil
	case j.Exhausted():
		return r, false, fault.New(fault.Conflict, fault.CodeConflict,
			"the job has had as many executions of its schedule as maxExecutions allows: raise that with PUT, which also resumes the job")
	case (j.Status == Paused || j.Parked()) && j.NextExecutionAt != nil && !j.NextExecutionAt.After(now):
		return resumption{id: j.ID, next: j.NextExecutionAt, policy: cmp.Or(missed, j.Misfire.Policy)}, true, nil
	default:
		return r, false, nil
	}
}

// resumes is when the schedule of a job fires after now.
func (j Job) resumes(calendars []schedule.Calendar, now time.Time) (*time.Time, error) {
	next, err := bound(j.Spec, calendars, j, now)
	if err == nil && next == nil && j.Scheduled() {
		return nil, fault.New(fault.Conflict, fault.CodeConflict,
			"the schedule has no time left: change it with PUT, which also resumes the job")
	}
	return next, err
}

func errPauseInactive() error {
	return fault.New(fault.Conflict, fault.CodeConflict, "an inactive job cannot be paused: nothing of its schedule is due; resume it first")
}

// endRuns cancels everything of jobs that the caller holds locked, and their backfills.
func endRuns(ctx context.Context, tx *postgres.Tx, who tenant.Actor, ids []uuid.UUID, reason string) error {
	if _, err := tx.CancelBackfillsByJobs(ctx, db.CancelBackfillsByJobsParams{TenantID: who.TenantID, JobIds: ids, Now: tx.At}); err != nil {
		return fmt.Errorf("cancel the backfills of jobs: %w", err)
	}
	return dispatch.CancelOfTenant(ctx, tx.Queries, dispatch.Cancellation{Tenant: who.TenantID, At: tx.At, Reason: reason, By: who.Subject}, ids...)
}

// remove deletes jobs that the caller holds locked, and cancels everything of theirs.
func remove(ctx context.Context, tx *postgres.Tx, who tenant.Actor, ids []uuid.UUID, reason string) error {
	if err := tx.DeleteJobs(ctx, db.DeleteJobsParams{TenantID: who.TenantID, Ids: ids, Now: tx.At}); err != nil {
		return fmt.Errorf("delete jobs: %w", err)
	}
	return dispatch.CancelOfTenant(ctx, tx.Queries, dispatch.Cancellation{
		Tenant: who.TenantID, At: tx.At, Reason: cmp.Or(reason, "the job was deleted"), By: who.Subject,
	}, ids...)
}

func idsOf(jobs []Job) []uuid.UUID {
	ids := make([]uuid.UUID, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	return ids
}
