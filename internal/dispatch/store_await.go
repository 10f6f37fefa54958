package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// AwaitBatch is how many attempts one statement takes whose wait for a callback ends.
const AwaitBatch = 500

// Fence names one attempt, so that a write of another one is refused.
type Fence struct {
	ID      uuid.UUID // of the execution
	Attempt int
	Token   uuid.UUID // of the lease that it ran under
}

// Awaiting is an attempt that awaits a callback.
type Awaiting struct {
	Fence
	// Timeout is how long the attempt may take.
	Timeout time.Duration
	// Heartbeat is how long the wait goes on without a sign of life; zero: up to the timeout.
	Heartbeat time.Duration
}

// Overdue is an attempt whose wait for a callback must end.
type Overdue struct {
	Fence
	Tenant, Job uuid.UUID
	Version     int
	JobType     string
	Priority    int
	MaxAttempts int
	Timeout     time.Duration
	Heartbeat   time.Duration
	Cancelling  bool          // somebody asked for its end
	TimedOut    bool          // otherwise no heartbeat came
	Elapsed     time.Duration // since the first attempt started
}

// Await writes that attempts await a callback: no worker runs them any more. It returns
// those that were still this worker's, with the tenants for which there is room now. Of
// the others the callback came first, or a sweep took them.
func (s *Store) Await(ctx context.Context, attempts []Awaiting) (map[uuid.UUID]Freed, error) {
	var p db.AwaitCallbacksParams
	for _, a := range attempts {
		p.Ids, p.Attempts, p.LeaseTokens = append(p.Ids, a.ID), append(p.Attempts, int32(a.Attempt)), append(p.LeaseTokens, a.Token)
		p.TimeoutsMs = append(p.TimeoutsMs, int32((a.Timeout + time.Millisecond - 1).Milliseconds()))
		p.HeartbeatsMs = append(p.HeartbeatsMs, int32(a.Heartbeat.Milliseconds()))
	}
	rows, err := s.queries().AwaitCallbacks(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("write that executions await a callback: %w", postgres.Fault(err))
	}
	out := make(map[uuid.UUID]Freed, len(rows))
	for _, r := range rows {
		out[r.ID] = freed(r.Backlogged, r.TenantID, nil)
	}
	return out, nil
}

// EndAwaited writes outcomes of attempts that await a callback, or whose callback came
// before their worker wrote that they await it. It measures how long they took. An
// outcome that has no verdict was refused by its fence. A zero now means the database's clock.
func (s *Store) EndAwaited(ctx context.Context, now time.Time, batch []Ended) (out []Verdict, err error) {
	var p db.ResumeAwaitedParams
	p.Now = postgres.At(now)
	for _, e := range batch {
		p.Ids, p.Attempts, p.LeaseTokens = append(p.Ids, e.ID), append(p.Attempts, int32(e.Attempt)), append(p.LeaseTokens, e.Token)
	}
	err = s.db.InTxLed(ctx, func(tx *postgres.Tx) error {
		held, err := tx.ResumeAwaited(ctx, p)
		if err != nil || len(held) == 0 {
			return err
		}
		took := make(map[uuid.UUID]int64, len(held))
		for _, h := range held {
			took[h.ID] = h.ElapsedUs
		}
		for i := range batch {
			batch[i].Outcome.DurationMS = float64(took[batch[i].ID]) / 1000
		}
		params := s.completeParams(batch)
		params.Now, params.LookUp = p.Now, true // a refusal would end the transaction
		rows, err := tx.CompleteExecutions(ctx, params)
		out = verdicts(rows)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("end executions that awaited a callback: %w", err)
	}
	return out, nil
}

// ProlongAwaited moves the ends of waits that a heartbeat prolonged, of a bounded number,
// and returns how many they were.
func (s *Store) ProlongAwaited(ctx context.Context, now time.Time) (int, error) {
	n, err := s.queries().ProlongAwaited(ctx, db.ProlongAwaitedParams{Now: postgres.At(now), BatchSize: AwaitBatch})
	if err != nil {
		return 0, fmt.Errorf("prolong waits for a callback: %w", postgres.Fault(err))
	}
	return int(n), nil
}

// ListOverdue lists up to AwaitBatch attempts whose wait for a callback must end.
func (s *Store) ListOverdue(ctx context.Context, now time.Time) ([]Overdue, error) {
	rows, err := s.queries().ListOverdueAwaited(ctx, db.ListOverdueAwaitedParams{Now: postgres.At(now), BatchSize: AwaitBatch})
	if err != nil {
		return nil, fmt.Errorf("list waits for a callback that are overdue: %w", postgres.Fault(err))
	}
	out := make([]Overdue, len(rows))
	for i, r := range rows {
		out[i] = Overdue{
			Fence: Fence{ID: r.ID, Attempt: int(r.Attempt), Token: *r.LeaseToken}, Tenant: r.TenantID, Job: r.JobID, Version: int(r.JobVersion),
			JobType: r.JobType, Priority: int(r.Priority), MaxAttempts: int(r.MaxAttempts), Timeout: time.Duration(r.TimeoutMs) * time.Millisecond,
			Heartbeat: time.Duration(r.HeartbeatMs) * time.Millisecond, Cancelling: r.Cancelling, TimedOut: r.TimedOut,
			Elapsed: time.Duration(r.ElapsedUs) * time.Microsecond,
		}
	}
	return out, nil
}

// PutOffAwaited leaves an attempt alone for a minute whose end the database refuses.
func (s *Store) PutOffAwaited(ctx context.Context, now time.Time, id uuid.UUID) error {
	if err := s.queries().PutOffAwaited(ctx, db.PutOffAwaitedParams{Now: postgres.At(now), ID: id}); err != nil {
		return fmt.Errorf("put off the end of execution %s: %w", id, postgres.Fault(err))
	}
	return nil
}

// Heartbeat writes a sign of life of an attempt, how far it is and with what it is busy, in at
// most 200 bytes; a negative progress and an empty message change nothing. It reports whether
// the attempt has not ended yet.
func (s *Store) Heartbeat(ctx context.Context, now time.Time, tenant uuid.UUID, f Fence, progress int, message string) (alive bool, err error) {
	_, err = s.queries().RecordHeartbeat(ctx, db.RecordHeartbeatParams{
		Now: postgres.At(now), TenantID: tenant, ID: f.ID, Attempt: int32(f.Attempt), LeaseToken: &f.Token, Progress: int32(progress), Message: message,
	})
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write a heartbeat: %w", postgres.Fault(err))
	}
	return true, nil
}

// AttemptState is where an attempt stands, or what is stored of it since it ended.
type AttemptState struct {
	Job         uuid.UUID
	Version     int
	Priority    int
	MaxAttempts int
	// Running says that the attempt has not ended; Latest, that no other attempt followed.
	Running, Latest bool
	Status          string          // of the execution
	Parameters      json.RawMessage // of its trigger; nil: none
	// The end of the attempt, where it has ended.
	ErrorType, ErrorMessage string
	SameResult              bool          // and its result is the given one
	Elapsed                 time.Duration // otherwise: since the first attempt started
}

// Attempt reads where an attempt stands. at is the scheduled time in its execution's id.
func (s *Store) Attempt(ctx context.Context, tenant uuid.UUID, f Fence, at time.Time, result string) (state AttemptState, found bool, err error) {
	r, err := s.queries().GetAttemptState(ctx, db.GetAttemptStateParams{TenantID: tenant, ID: f.ID, Result: result, FromAt: at, ToAt: at.Add(time.Millisecond)})
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return AttemptState{}, false, nil
	}
	if err != nil {
		return AttemptState{}, false, fmt.Errorf("read an attempt: %w", postgres.Fault(err))
	}
	latest := int(r.Attempt) == f.Attempt && r.LeaseToken != nil && *r.LeaseToken == f.Token
	state = AttemptState{
		Job: r.JobID, Version: int(r.JobVersion), Priority: int(r.Priority), MaxAttempts: int(r.MaxAttempts), Running: latest && r.Status == "running", Latest: latest, Status: r.Status, Parameters: r.Parameters,
		ErrorType: text(r.ErrorType), ErrorMessage: text(r.ErrorMessage), SameResult: r.SameResult,
		Elapsed: time.Duration(r.ElapsedUs) * time.Microsecond,
	}
	if !latest {
		return state, true, state.readAttempt(r.Attempts, f.Attempt)
	}
	return state, true, nil
}

// readAttempt takes over the error of an attempt that others followed.
func (a *AttemptState) readAttempt(attempts json.RawMessage, number int) error {
	var all []struct {
		Number int `json:"number"`
		Error  struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(attempts, &all); err != nil {
		return errors.Join(errors.New("the attempts of an execution cannot be read"), err)
	}
	for _, one := range all {
		if one.Number == number {
			a.ErrorType, a.ErrorMessage = one.Error.Type, one.Error.Message
		}
	}
	return nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
