package derive

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
)

// never stands for a time that there is none of.
var never = columns.Never

// dueDeadlines lists jobs to check, at most deadlineRows.
func (s store) dueDeadlines(ctx context.Context, until time.Time) ([]wanted, error) {
	rows, err := db.New(s.db.Pool()).ListDueDeadlines(ctx, db.ListDueDeadlinesParams{Until: until, Most: deadlineRows})
	if err != nil {
		return nil, fmt.Errorf("list deadlines: %w", postgres.Fault(err))
	}
	all := make([]wanted, len(rows))
	for i, r := range rows {
		all[i] = wanted{job: r.JobID, since: r.Since}
	}
	return all, nil
}

// checkDeadlines tells what was not completed in time of some jobs, and moves them on, in one
// transaction. A job that a request is changing is left to the next pass.
func (s store) checkDeadlines(ctx context.Context, held lease.Lease, jobs []wanted, until time.Time) (r Report, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := held.Guard(ctx, tx); err != nil {
			return err
		}
		// The pass that reads what ended adds to the same messages.
		if _, err := tx.LockNotificationCursor(ctx); err != nil {
			return fmt.Errorf("wait for the other events: %w", err)
		}
		locked, err := lockDeadlines(ctx, tx, jobs)
		if err != nil || len(locked) == 0 {
			return err
		}
		checked, err := readDeadlines(ctx, tx, locked, until)
		if err != nil {
			return err
		}
		var happened []happening
		for i := range checked {
			happened = append(happened, checked[i].event()...)
		}
		if len(happened) > 0 {
			if r, err = tell(ctx, tx, happened); err != nil {
				return err
			}
		}
		return moveDeadlines(ctx, tx, locked, checked, until)
	})
	return r, err
}

// lockDeadlines locks those of the jobs that nobody else has locked.
func lockDeadlines(ctx context.Context, tx *postgres.Tx, jobs []wanted) (locked []wanted, err error) {
	ids, of := make([]uuid.UUID, len(jobs)), make(map[uuid.UUID]wanted, len(jobs))
	for i, one := range jobs {
		ids[i], of[one.job] = one.job, one
	}
	rows, err := tx.LockDeadlines(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("lock deadlines: %w", err)
	}
	for _, id := range rows {
		locked = append(locked, of[id])
	}
	return locked, nil
}

func readDeadlines(ctx context.Context, tx *postgres.Tx, jobs []wanted, until time.Time) ([]deadline, error) {
	p := db.CheckDeadlinesParams{Until: until, MostRecords: deadlineRecords}
	for _, one := range jobs {
		p.JobIds, p.Sinces = append(p.JobIds, one.job), append(p.Sinces, one.since)
	}
	rows, err := tx.CheckDeadlines(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("check deadlines: %w", err)
	}
	all := make([]deadline, len(rows))
	for i, r := range rows {
		all[i] = deadline{
			job: r.JobID, tenant: r.TenantID, name: r.Name, tags: r.Tags, watched: r.Watched, within: time.Duration(r.WithinSeconds) * time.Second,
			times: r.Times, first: r.FirstID, firstAt: r.FirstAt.UTC(), lastAt: r.LastAt.UTC(), status: r.FirstStatus, to: r.ToAt, next: r.NextAt,
		}
	}
	return all, nil
}

// moveDeadlines notes how far the jobs are checked and when they are next; those that have no
// deadline any more are forgotten.
func moveDeadlines(ctx context.Context, tx *postgres.Tx, locked []wanted, checked []deadline, until time.Time) error {
	var p db.MoveDeadlinesParams
	has := make(map[uuid.UUID]bool, len(checked))
	for i := range checked {
		l := &checked[i]
		has[l.job] = true
		p.JobIds, p.ToAts, p.CheckAts = append(p.JobIds, l.job), append(p.ToAts, l.to), append(p.CheckAts, l.again(until))
	}
	if err := tx.MoveDeadlines(ctx, p); err != nil {
		return fmt.Errorf("move deadlines: %w", err)
	}
	var gone []uuid.UUID
	for _, one := range locked {
		if !has[one.job] {
			gone = append(gone, one.job)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := tx.DeleteDeadlines(ctx, gone); err != nil {
		return fmt.Errorf("forget deadlines: %w", err)
	}
	return nil
}

// postponeDeadline leaves a job whose event the database refuses for a while. Scheduled
// times up to then are never told.
func (s store) postponeDeadline(ctx context.Context, held lease.Lease, one wanted, until time.Time) error {
	return s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := held.Guard(ctx, tx); err != nil {
			return err
		}
		p := db.MoveDeadlinesParams{JobIds: []uuid.UUID{one.job}, ToAts: []time.Time{until}, CheckAts: []time.Time{until.Add(refusedCheck)}}
		if err := tx.MoveDeadlines(ctx, p); err != nil {
			return fmt.Errorf("postpone a deadline: %w", err)
		}
		return nil
	})
}
