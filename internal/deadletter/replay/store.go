package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Store keeps a tenant's replays. Each method acts for one tenant; the id of another tenant's
// replay is answered as one that does not exist.
type Store struct{ db *postgres.DB }

// NewStore makes a store.
func NewStore(db *postgres.DB) *Store { return &Store{db: db} }

func notFound() error {
	return fault.New(fault.NotFound, fault.CodeReplayNotFound, "there is no replay with this id")
}

// Create stores a replay of the dead letters that fit now; the pass begins with it within
// seconds. It is a Conflict where none fits, where a replay with the same filter is under way,
// and where too many are. It reports whether the answer is a remembered one.
func (s *Store) Create(ctx context.Context, who tenant.Actor, r Request, key idempotency.Key) (made Replay, replayed bool, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		store := idempotency.Store{Queries: tx.Queries}
		made, replayed, err = idempotency.Do(ctx, store, who.TenantID, key, func() (Replay, error) { return create(ctx, tx, who, r) })
		return err
	})
	return made, replayed, err
}

func create(ctx context.Context, tx *postgres.Tx, who tenant.Actor, r Request) (Replay, error) {
	selected, err := json.Marshal(r.Filter)
	if err != nil {
		return Replay{}, fmt.Errorf("write the filter: %w", err)
	}
	if err := checkRoom(ctx, tx, who, string(selected)); err != nil {
		return Replay{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Replay{}, fmt.Errorf("make a replay's id: %w", err)
	}
	from, to := r.Filter.Span()
	p := db.InsertDeadLetterReplayParams{
		ID: id, TenantID: who.TenantID, Selected: string(selected), JobID: r.Filter.JobID, ErrorTypes: r.Filter.ErrorTypes, Fingerprint: columns.OrNull(r.Filter.Fingerprint),
		FromAt: from, ToAt: to, RatePerMinute: int32(r.RatePerMinute), NoSecrets: who.NoSecrets, Status: string(Canary), RequestedBy: who.Subject, Now: tx.At,
	}
	if r.RatePerMinute == 0 {
		p.RatePerMinute = defaultRate
	}
	if r.NoCanary {
		p.Status = string(Running)
	}
	row, err := tx.InsertDeadLetterReplay(ctx, p)
	if err != nil {
		return Replay{}, fmt.Errorf("insert replay: %w", err)
	}
	if row.Total == 0 {
		return Replay{}, fault.New(fault.Conflict, fault.CodeConflict, "no dead letter fits the filter: there is nothing to replay")
	}
	return fromRow(row)
}

// checkRoom refuses one more than may be under way. The tenant's row stays locked, so that of two that
// are made at once the second counts the first.
func checkRoom(ctx context.Context, tx *postgres.Tx, who tenant.Actor, selected string) error {
	if _, err := tx.LockTenantBounds(ctx, who.TenantID); err != nil && fault.KindOf(postgres.Fault(err)) != fault.NotFound {
		return fmt.Errorf("lock the tenant: %w", err)
	}
	n, err := tx.CountActiveReplays(ctx, db.CountActiveReplaysParams{TenantID: who.TenantID, Selected: selected})
	switch {
	case err != nil:
		return fmt.Errorf("count the replays under way: %w", err)
	case n.Same > 0:
		return fault.New(fault.Conflict, fault.CodeConflict, "a replay with this filter is under way: wait for it, or cancel it")
	case n.Active >= maxActive:
		return fault.New(fault.Conflict, fault.CodeConflict, fmt.Sprintf("%d replays are under way: wait for one of them, or cancel it", n.Active))
	}
	return nil
}

// List reads a page of replays, newest first, from after a position on (nil: from the first).
func (s *Store) List(ctx context.Context, who tenant.Actor, limit int, after *Position) (list []Replay, err error) {
	p := db.ListDeadLetterReplaysParams{TenantID: who.TenantID, PageSize: int32(limit), BeforeCreatedAt: columns.Never, BeforeID: uuid.Max}
	if after != nil {
		p.BeforeCreatedAt, p.BeforeID = after.CreatedAt, after.ID
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListDeadLetterReplays(ctx, p)
		if err != nil {
			return fmt.Errorf("list replays: %w", err)
		}
		list = make([]Replay, len(rows))
		for i, row := range rows {
			if list[i], err = fromRow(row); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

// Get reads one replay.
func (s *Store) Get(ctx context.Context, who tenant.Actor, id uuid.UUID) (found Replay, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		found, err = get(ctx, tx, who, id)
		return err
	})
	return found, err
}

// Cancel ends a replay: nothing more is replayed; executions that it made go on. One that is
// cancelled stays as it is, and one that ended otherwise is a Conflict.
func (s *Store) Cancel(ctx context.Context, who tenant.Actor, id uuid.UUID) (found Replay, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if _, err := tx.CancelDeadLetterReplay(ctx, db.CancelDeadLetterReplayParams{TenantID: who.TenantID, ID: id, Now: tx.At}); err != nil {
			return fmt.Errorf("cancel replay: %w", err)
		}
		found, err = get(ctx, tx, who, id)
		if err == nil && found.Status != Cancelled {
			return fault.New(fault.Conflict, fault.CodeConflict, "this replay has ended: there is nothing left to cancel")
		}
		return err
	})
	return found, err
}

func get(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID) (Replay, error) {
	row, err := tx.GetDeadLetterReplay(ctx, db.GetDeadLetterReplayParams{TenantID: who.TenantID, ID: id})
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return Replay{}, notFound()
	}
	if err != nil {
		return Replay{}, fmt.Errorf("read replay: %w", err)
	}
	return fromRow(row)
}

// due are the replays whose next step is due, in turns of their tenants.
func (s *Store) due(ctx context.Context, now time.Time) ([]db.ListDueReplaysRow, error) {
	rows, err := db.New(s.db.Pool()).ListDueReplays(ctx, db.ListDueReplaysParams{Now: postgres.At(now), Most: dueMost})
	if err != nil {
		return nil, fmt.Errorf("list replays that are due: %w", postgres.Fault(err))
	}
	return rows, nil
}

// Rows stop here.
func fromRow(r db.DeadLetterReplay) (Replay, error) {
	made := Replay{
		ID: r.ID, RatePerMinute: int(r.RatePerMinute), Status: Status(r.Status), Reason: r.Reason, CanaryID: r.CanaryID, Total: int(r.Total),
		Replayed: int(r.Replayed), Refused: int(r.Refused), RequestedBy: r.RequestedBy, CreatedAt: r.CreatedAt.UTC(), FinishedAt: columns.UTC(r.FinishedAt),
	}
	if err := json.Unmarshal([]byte(r.Selected), &made.Filter); err != nil {
		return Replay{}, fmt.Errorf("read the filter of replay %s: %w", r.ID, err)
	}
	if err := json.Unmarshal(r.Faults, &made.Faults); err != nil {
		return Replay{}, fmt.Errorf("read the faults of replay %s: %w", r.ID, err)
	}
	return made, nil
}
