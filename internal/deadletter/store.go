package deadletter

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Store is a tenant's view of its dead letters. Each method acts for one tenant; the id of
// another tenant's execution is answered as one that does not exist.
type Store struct{ db *postgres.DB }

// NewStore makes a store.
func NewStore(db *postgres.DB) *Store { return &Store{db: db} }

// NotFound is the answer for a dead letter that is not there, or is not the caller's.
func NotFound() error {
	return fault.New(fault.NotFound, fault.CodeDeadLetterNotFound, "there is no dead letter of an execution with this id: it may have been replayed or discarded")
}

// List reads a page of dead letters, those that failed last first, from after a position on
// (nil: from the first).
func (s *Store) List(ctx context.Context, who tenant.Actor, f Filter, limit int, after *Position) (list []Letter, err error) {
	from, to := f.Span()
	p := db.ListDeadLettersParams{
		TenantID: who.TenantID, BeforeAt: columns.Never, BeforeID: uuid.Max, FromAt: from, ToAt: to,
		Fingerprint: columns.OrNull(f.Fingerprint), JobID: f.JobID, ErrorTypes: f.ErrorTypes, PageSize: int32(limit),
	}
	if after != nil {
		p.BeforeAt, p.BeforeID = after.FailedAt, after.ID
	}
	err = s.db.InList(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListDeadLetters(ctx, p)
		if err != nil {
			return fmt.Errorf("list dead letters: %w", err)
		}
		list = make([]Letter, len(rows))
		for i, r := range rows {
			list[i] = fromRow(db.GetDeadLetterRow(r))
		}
		return nil
	})
	return list, err
}

// Groups lists groups of dead letters, the largest first, up to so many.
func (s *Store) Groups(ctx context.Context, who tenant.Actor, f Filter, limit int) (groups []Group, err error) {
	from, to := f.Span()
	err = s.db.InSnapshot(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListDeadLetterGroups(ctx, db.ListDeadLetterGroupsParams{
			TenantID: who.TenantID, FromAt: from, ToAt: to, Fingerprint: columns.OrNull(f.Fingerprint), JobID: f.JobID, ErrorTypes: f.ErrorTypes, PageSize: int32(limit),
		})
		if err != nil {
			return fmt.Errorf("list groups of dead letters: %w", err)
		}
		groups = make([]Group, len(rows))
		for i, r := range rows {
			groups[i] = Group{
				Fingerprint: r.Fingerprint, Count: r.Letters, First: r.FirstAt.UTC(), Last: r.LastAt.UTC(), Jobs: r.Jobs, JobIDs: r.JobIds,
				Newest: r.ExecutionID, ErrorType: r.ErrorType, Message: r.ErrorMessage,
			}
		}
		return nil
	})
	return groups, err
}

// Get reads one dead letter.
func (s *Store) Get(ctx context.Context, who tenant.Actor, id uuid.UUID) (l Letter, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.GetDeadLetter(ctx, db.GetDeadLetterParams{TenantID: who.TenantID, ID: id})
		if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
			return NotFound()
		}
		if err != nil {
			return fmt.Errorf("read dead letter: %w", err)
		}
		l = fromRow(row)
		return nil
	})
	return l, err
}

// Take removes a dead letter because its execution is repeated, in the transaction that
// repeats it, and says whether there was one.
func Take(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID) (found bool, err error) {
	n, err := tx.DeleteDeadLetter(ctx, db.DeleteDeadLetterParams{TenantID: who.TenantID, ID: id})
	if err != nil {
		return false, fmt.Errorf("take dead letter: %w", err)
	}
	return n > 0, nil
}

// Discard removes one dead letter; its execution stays in the history.
func (s *Store) Discard(ctx context.Context, who tenant.Actor, id uuid.UUID) error {
	return s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if found, err := Take(ctx, tx, who, id); err != nil || !found {
			return cmp.Or(err, NotFound())
		}
		return record(ctx, tx, who, id.String(), 1)
	})
}

// DiscardAll removes what fits, the oldest first, DiscardMost at most, and says how many it
// removed and whether there may be more.
func (s *Store) DiscardAll(ctx context.Context, who tenant.Actor, f Filter) (discarded int, more bool, err error) {
	selected, err := json.Marshal(f)
	if err != nil {
		return 0, false, fmt.Errorf("write the filter: %w", err)
	}
	from, to := f.Span()
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		n, err := tx.DiscardDeadLetters(ctx, db.DiscardDeadLettersParams{
			TenantID: who.TenantID, FromAt: from, ToAt: to, Fingerprint: columns.OrNull(f.Fingerprint), JobID: f.JobID, ErrorTypes: f.ErrorTypes, Most: DiscardMost,
		})
		if err != nil {
			return fmt.Errorf("discard dead letters: %w", err)
		}
		if discarded, more = int(n), n == DiscardMost; n == 0 {
			return nil
		}
		return record(ctx, tx, who, string(selected), discarded)
	})
	return discarded, more, err
}

// record has the audit log say what was discarded, in one entry.
func record(ctx context.Context, tx *postgres.Tx, who tenant.Actor, selected string, discarded int) error {
	id, err := tx.InsertDeadLetterDiscard(ctx, db.InsertDeadLetterDiscardParams{TenantID: who.TenantID, Selected: selected, Discarded: int32(discarded)})
	if err == nil {
		err = tx.DeleteDeadLetterDiscard(ctx, db.DeleteDeadLetterDiscardParams{TenantID: who.TenantID, ID: id})
	}
	if err != nil {
		return fmt.Errorf("record what was discarded: %w", err)
	}
	return nil
}

// Span is the range of time that the filter selects.
func (f Filter) Span() (from, to time.Time) {
	from, to = time.Unix(0, 0).UTC(), columns.Never
	if f.From != nil {
		from = *f.From
	}
	if f.To != nil {
		to = *f.To
	}
	return from, to
}

// Rows stop here.
func fromRow(r db.GetDeadLetterRow) Letter {
	return Letter{
		ExecutionID: r.ExecutionID, JobID: r.JobID, JobName: r.JobName, ErrorType: r.ErrorType, Message: r.ErrorMessage,
		Fingerprint: r.Fingerprint, FailedAt: r.FailedAt.UTC(), ScheduledAt: r.ScheduledAt.UTC(),
	}
}
