package collect

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/deadletter"
	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// store is the door to the database; it sees all tenants.
type store struct{ db *postgres.DB }

func (s store) queries() *db.Queries { return db.New(s.db.Pool()) }

// advance makes the dead letters of one interval, up to the present at most.
func (s store) advance(ctx context.Context, held lease.Lease, present time.Time) (made int, more bool, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := held.Guard(ctx, tx); err != nil {
			return err
		}
		from, err := tx.LockDeadLetterCursor(ctx)
		if err != nil {
			return fmt.Errorf("find how far failures are read: %w", err)
		}
		if !present.After(from) {
			return nil
		}
		to, err := tx.FindFailedIntervalEnd(ctx, db.FindFailedIntervalEndParams{FromAt: from, ToAt: present, Rows: intervalRows})
		if err != nil {
			return fmt.Errorf("find the end of an interval: %w", err)
		}
		if made, err = collect(ctx, tx, from, to); err != nil {
			return err
		}
		more = to.Before(present)
		if err := tx.MoveDeadLetterCursor(ctx, to); err != nil {
			return fmt.Errorf("note how far failures are read: %w", err)
		}
		return nil
	})
	return made, more, err
}

// collect stores the dead letters of what failed after one time and up to another.
func collect(ctx context.Context, tx *postgres.Tx, from, to time.Time) (made int, err error) {
	rows, err := tx.ListFailedExecutions(ctx, db.ListFailedExecutionsParams{FromAt: from, ToAt: to})
	if err != nil {
		return 0, fmt.Errorf("list what failed: %w", err)
	}
	var p db.InsertDeadLettersParams
	for _, r := range rows {
		p.Ids, p.Owners, p.JobIds = append(p.Ids, r.ID), append(p.Owners, r.TenantID), append(p.JobIds, r.JobID)
		p.ErrorTypes, p.ErrorMessages = append(p.ErrorTypes, r.ErrorType), append(p.ErrorMessages, r.ErrorMessage)
		p.Fingerprints = append(p.Fingerprints, deadletter.Fingerprint(r.ErrorType, r.ErrorMessage))
		p.FailedAts, p.ScheduledAts = append(p.FailedAts, r.CompletedAt), append(p.ScheduledAts, r.ScheduledAt)
	}
	if len(rows) == 0 {
		return 0, nil
	}
	n, err := tx.InsertDeadLetters(ctx, p)
	if err != nil {
		return 0, fmt.Errorf("insert dead letters: %w", err)
	}
	return int(n), nil
}

// mend removes dead letters whose retry was committed while they were made, and so found
// nothing to remove.
func (s store) mend(ctx context.Context) error {
	return s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if _, err := tx.DeleteRetriedDeadLetters(ctx, tx.At.Add(-raced)); err != nil {
			return fmt.Errorf("remove dead letters that were retried: %w", err)
		}
		return nil
	})
}

// count counts the dead letters by tenant, and keeps their sum.
func (s store) count(ctx context.Context) (map[uuid.UUID]int, error) {
	rows, err := s.queries().CountDeadLetters(ctx)
	if err != nil {
		return nil, fmt.Errorf("count dead letters: %w", postgres.Fault(err))
	}
	counts, sum := make(map[uuid.UUID]int, len(rows)), int64(0)
	for _, r := range rows {
		counts[r.TenantID] = int(r.Letters)
		sum += r.Letters
	}
	if err := s.queries().SetGauges(ctx, db.SetGaugesParams{Names: []string{fleet.GaugeDeadLetters}, Values: []int64{sum}}); err != nil {
		return nil, fmt.Errorf("keep the number of dead letters: %w", postgres.Fault(err))
	}
	return counts, nil
}

// trim drops so many of the oldest dead letters of a tenant.
func (s store) trim(ctx context.Context, tenant uuid.UUID, most int) (int, error) {
	n, err := s.queries().TrimDeadLetters(ctx, db.TrimDeadLettersParams{TenantID: tenant, Most: int32(most)})
	if err != nil {
		return 0, fmt.Errorf("drop the oldest dead letters: %w", postgres.Fault(err))
	}
	return int(n), nil
}
