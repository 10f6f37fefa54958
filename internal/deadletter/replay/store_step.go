package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// step is what one step of a replay did.
type step struct {
	moved             bool // this process made it
	replayed, refused int
}

// refusal is why a dead letter was not replayed: the transaction is undone, and another one
// notes it.
type refusal struct {
	letter db.NextDeadLetterRow
	cause  error
}

func (r *refusal) Error() string {
	return "replay " + r.letter.ExecutionID.String() + ": " + r.cause.Error()
}
func (r *refusal) Unwrap() error { return r.cause }

// step makes one step of a replay, in one transaction with what it replays.
func (r *Replayer) step(ctx context.Context, of db.ListDueReplaysRow, now time.Time) (made step, err error) {
	var refused *refusal
	err = r.store.inStep(ctx, of, now, func(tx *postgres.Tx, row db.DeadLetterReplay, at time.Time) (err error) {
		made.moved = true
		made.replayed, refused, err = r.advance(ctx, tx, row, at)
		if refused != nil {
			return refused
		}
		return err
	})
	if refused == nil {
		return made, err
	}
	made.replayed = 0
	v, code, message := judge(refused.cause)
	if v == refuse {
		made.refused = 1
	}
	return made, r.store.inStep(ctx, of, now, func(tx *postgres.Tx, row db.DeadLetterReplay, at time.Time) error {
		return note(ctx, tx, row, at, refused.letter, v, code, message)
	})
}

// inStep runs fn with the row of a replay locked, unless somebody else has it, or it is not due
// any more.
func (s *Store) inStep(ctx context.Context, of db.ListDueReplaysRow, now time.Time, fn func(*postgres.Tx, db.DeadLetterReplay, time.Time) error) error {
	return s.db.InTenant(ctx, of.TenantID, func(tx *postgres.Tx) error {
		at := now
		if at.IsZero() {
			at = tx.At
		}
		row, err := tx.LockDueReplay(ctx, db.LockDueReplayParams{TenantID: of.TenantID, ID: of.ID, Now: at})
		if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock replay: %w", err)
		}
		return fn(tx, row, at)
	})
}

// advance asks for the canary, replays the next dead letter, or ends the replay.
func (r *Replayer) advance(ctx context.Context, tx *postgres.Tx, row db.DeadLetterReplay, at time.Time) (replayed int, refused *refusal, err error) {
	who := tenant.Actor{TenantID: row.TenantID, Subject: row.RequestedBy, NoSecrets: row.NoSecrets}
	p := stepOf(row, at)
	if Status(row.Status) == Canary && row.CanaryID != nil {
		goesOn, err := r.canary(ctx, tx, who, row, &p, at)
		if err != nil || !goesOn {
			return 0, nil, save(ctx, tx, p, err)
		}
	}
	letter, err := tx.NextDeadLetter(ctx, db.NextDeadLetterParams{
		TenantID: row.TenantID, AfterAt: row.AfterAt, AfterID: row.AfterID, FromAt: row.FromAt, ToAt: row.ToAt,
		Fingerprint: row.Fingerprint, JobID: row.JobID, ErrorTypes: row.ErrorTypes,
	})
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		p.Status, p.Finished = string(Completed), true
		return 0, nil, save(ctx, tx, p, nil)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("find the next dead letter: %w", err)
	}
	made, err := r.executions.ReplayIn(ctx, tx, who, letter.ExecutionID)
	if err != nil {
		return 0, &refusal{letter: letter, cause: err}, nil
	}
	p.AfterAt, p.AfterID, p.Replayed = letter.FailedAt, letter.ExecutionID, 1
	p.NextAt = next(row.NextAt, at, int(row.RatePerMinute))
	if p.Status == string(Canary) {
		p.CanaryID, p.NextAt = &made.ID, at.Add(canaryEvery)
	}
	return 1, nil, save(ctx, tx, p, nil)
}

// canary says whether the replay goes on: its canary completed.
func (r *Replayer) canary(ctx context.Context, tx *postgres.Tx, who tenant.Actor, row db.DeadLetterReplay, p *db.StepDeadLetterReplayParams, at time.Time) (goesOn bool, err error) {
	found, err := r.executions.Read(ctx, tx, who, *row.CanaryID)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		p.Status, p.Finished, p.Reason = string(Halted), true, "the canary is not in the history any more"
	case err != nil:
		return false, err
	case found.Status == execution.Completed:
		p.Status = string(Running)
		return true, nil
	case found.Status.Terminal():
		p.Status, p.Finished, p.Reason = string(Halted), true, "the canary ended "+string(found.Status)
	default:
		p.Reason, p.NextAt = "the canary has not ended", at.Add(canaryEvery)
	}
	return false, nil
}

// note notes that a dead letter was not replayed.
func note(ctx context.Context, tx *postgres.Tx, row db.DeadLetterReplay, at time.Time, letter db.NextDeadLetterRow, v verdict, code fault.Code, message string) error {
	p := stepOf(row, at)
	if v == hold {
		p.Reason, p.NextAt = message, at.Add(heldFor)
		return save(ctx, tx, p, nil)
	}
	p.AfterAt, p.AfterID, p.NextAt = letter.FailedAt, letter.ExecutionID, next(row.NextAt, at, int(row.RatePerMinute))
	if v == refuse {
		faults, err := json.Marshal([]Fault{{ExecutionID: letter.ExecutionID, Code: string(code), Message: message}})
		if err != nil {
			return fmt.Errorf("write a fault: %w", err)
		}
		p.Refused, p.Faults = 1, faults
	}
	return save(ctx, tx, p, nil)
}

// stepOf is a step that changes nothing.
func stepOf(row db.DeadLetterReplay, at time.Time) db.StepDeadLetterReplayParams {
	return db.StepDeadLetterReplayParams{
		TenantID: row.TenantID, ID: row.ID, Status: row.Status, AfterAt: row.AfterAt, AfterID: row.AfterID, Faults: []byte("[]"), NextAt: row.NextAt, Now: at,
	}
}

func save(ctx context.Context, tx *postgres.Tx, p db.StepDeadLetterReplayParams, err error) error {
	if err != nil {
		return err
	}
	if err := tx.StepDeadLetterReplay(ctx, p); err != nil {
		return fmt.Errorf("note the step of a replay: %w", err)
	}
	return nil
}
