package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Parked is an execution that is over and whose end is not stored yet.
type Parked struct {
	Found
	JobType     string
	ScheduledAt time.Time
	Outcome     Outcome
	Deleting    bool // its tenant is being deleted: nothing is left to store
}

// Park parks attempts that a worker ended and whose outcome the database refuses; why
// is what it said of each. All of them are parked or none; an attempt without a verdict
// is no longer the worker's.
func (s *Store) Park(ctx context.Context, ended []Ended, why map[uuid.UUID]string) ([]Verdict, error) {
	var p db.ParkEndedExecutionsParams
	for _, e := range ended {
		outcome, err := json.Marshal(e.Outcome)
		if err != nil {
			return nil, fmt.Errorf("write the outcome of execution %s: %w", e.ID, err)
		}
		p.Ids, p.Attempts, p.LeaseTokens = append(p.Ids, e.ID), append(p.Attempts, int32(e.Attempt)), append(p.LeaseTokens, e.Token)
		p.Reasons, p.Outcomes = append(p.Reasons, reason(why[e.ID])), append(p.Outcomes, string(outcome))
	}
	rows, err := s.queries().ParkEndedExecutions(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("park executions: %w", postgres.Fault(err))
	}
	out := make([]Verdict, len(rows))
	for i, r := range rows {
		out[i] = Verdict{ID: r.ID, Status: "parked", Freed: freed(true, r.TenantID, r.ConcurrencyKey)}
	}
	return out, nil
}

// ListParked lists parked executions whose time has come, tenants in turns.
func (s *Store) ListParked(ctx context.Context, now time.Time, most int) ([]Parked, error) {
	rows, err := s.queries().ListParkedExecutions(ctx, db.ListParkedExecutionsParams{Now: postgres.At(now), BatchSize: int32(most)})
	if err != nil {
		return nil, fmt.Errorf("list parked executions: %w", postgres.Fault(err))
	}
	out := make([]Parked, len(rows))
	for i, r := range rows {
		out[i] = Parked{Found: Found{ID: r.ID, Tenant: r.TenantID, Job: r.JobID}, JobType: r.JobType, ScheduledAt: r.ScheduledAt, Deleting: r.Deleting}
		if err := json.Unmarshal([]byte(r.Outcome), &out[i].Outcome); err != nil {
			out[i].Outcome = Outcome{RetryMS: -1, ErrorType: "SYSTEM_ERROR", Message: "the run is finished, and its outcome cannot be read any more"}
		}
	}
	return out, nil
}

// StoreParked stores the end of a parked execution, and returns its status: none where
// it is no longer parked or another process holds it. The error is the driver's own.
func (s *Store) StoreParked(ctx context.Context, now time.Time, id uuid.UUID, o Outcome) (status string, err error) {
	verdicts, err := s.queries().StoreParkedExecution(ctx, db.StoreParkedExecutionParams{
		Now: postgres.At(now), ID: id, Succeeded: o.Succeeded, RetryMs: o.RetryMS, DurationUs: o.Took().Microseconds(), Result: o.Result,
		ErrorType: o.ErrorType, ErrorMessage: o.Message, ErrorStack: o.Stack, MemoryMb: o.MemoryMB, CpuMs: o.CPUMS,
	})
	if err != nil || len(verdicts) == 0 {
		return "", err
	}
	return verdicts[0], nil
}

// PutOffParked leaves a parked execution alone for as long as it is parked already.
func (s *Store) PutOffParked(ctx context.Context, now time.Time, id uuid.UUID, why string) error {
	err := s.queries().PutOffParkedExecution(ctx, db.PutOffParkedExecutionParams{ID: id, Reason: reason(why), Now: postgres.At(now)})
	if err != nil {
		return fmt.Errorf("put off parked execution %s: %w", id, postgres.Fault(err))
	}
	return nil
}

// DropParked deletes a parked execution of a tenant that is being deleted.
func (s *Store) DropParked(ctx context.Context, id uuid.UUID) error {
	if err := s.queries().DropParkedExecution(ctx, id); err != nil {
		return fmt.Errorf("drop parked execution %s: %w", id, postgres.Fault(err))
	}
	return nil
}

// CountParked counts parked executions.
func (s *Store) CountParked(ctx context.Context) (int, error) {
	n, err := s.queries().CountParkedExecutions(ctx)
	if err != nil {
		return 0, fmt.Errorf("count parked executions: %w", postgres.Fault(err))
	}
	return int(n), nil
}

func reason(why string) string {
	return "the run is over and its outcome could not be stored: " + why +
		". It is kept and tried again by itself; a request to cancel the execution has it tried at once"
}
