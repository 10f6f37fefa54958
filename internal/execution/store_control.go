package execution

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/deadletter"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Cancel cancels an execution that waits, or asks one that runs to end; its status
// says which. One that is cancelled already stays as it is; one that ended otherwise is a
// Conflict. One whose outcome is parked keeps its outcome, which is tried again at
// once. An empty reason is "cancelled on request"; a second request changes neither the
// reason nor who asked. It also returns executions that may start now, which the caller
// hints to the workers.
func (s *Store) Cancel(ctx context.Context, who tenant.Actor, id uuid.UUID, reason string) (e Execution, next []dispatch.Waiting, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		next, err = dispatch.Cancel(ctx, tx.Queries, id, dispatch.Cancellation{Tenant: who.TenantID, At: tx.At, Reason: cmp.Or(reason, "cancelled on request"), By: who.Subject})
		if err != nil {
			return err
		}
		e, err = get(ctx, tx, who, id)
		if err == nil && e.Status.Terminal() && e.Status != Cancelled {
			return stateFault(fault.CodeExecutionFinished, "the execution has finished: there is nothing left to cancel", e.Status)
		}
		return err
	})
	return e, next, err
}

// Retry makes a new execution of the same job and with the same parameters as
// a finished one; it runs the job's definition as it is now. One that is not
// over is a Conflict, and so is one of a deleted job. It reports whether the
// answer is a remembered one. The caller hints it to the workers once it
// returned.
func (s *Store) Retry(ctx context.Context, who tenant.Actor, id uuid.UUID, key idempotency.Key) (e Execution, replayed bool, err error) {
	return s.repeat(ctx, who, id, key, false)
}

// Replay is Retry of an execution that is a dead letter, which it is not any more
// afterwards; NotFound where it is none. Of two replays at once one finds none.
func (s *Store) Replay(ctx context.Context, who tenant.Actor, id uuid.UUID, key idempotency.Key) (e Execution, replayed bool, err error) {
	return s.repeat(ctx, who, id, key, true)
}

func (s *Store) repeat(ctx context.Context, who tenant.Actor, id uuid.UUID, key idempotency.Key, dead bool) (e Execution, replayed bool, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		store := idempotency.Store{Queries: tx.Queries}
		e, replayed, err = idempotency.Do(ctx, store, who.TenantID, key, func() (Execution, error) {
			return s.take(ctx, tx, who, id, dead)
		})
		return err
	})
	return e, replayed, err
}

// ReplayIn is Replay in a transaction of the caller, who undoes it if it fails.
func (s *Store) ReplayIn(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID) (Execution, error) {
	return s.take(ctx, tx, who, id, true)
}

// Read is Get in a transaction of the caller, without what the execution waits for.
func (s *Store) Read(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID) (Execution, error) {
	return get(ctx, tx, who, id)
}

// take removes the dead letter first, so that all who repeat one lock it before the job.
func (s *Store) take(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID, dead bool) (Execution, error) {
	if found, err := deadletter.Take(ctx, tx, who, id); err != nil || dead && !found {
		return Execution{}, cmp.Or(err, deadletter.NotFound())
	}
	return s.retry(ctx, tx, who, id)
}

func (s *Store) retry(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID) (Execution, error) {
	old, err := get(ctx, tx, who, id)
	if err != nil {
		return Execution{}, err
	}
	if !old.Status.Terminal() {
		message := "the execution is not over: cancel it first, or wait until its status is completed, failed or cancelled"
		if old.Cancelling {
			message = "the execution is asked to end and its worker has not ended it yet: wait until its status is cancelled, normally within a second, and ask again"
		}
		return Execution{}, stateFault(fault.CodeExecutionNotFinished, message, old.Status)
	}
	again := demand{job: old.JobID, trigger: Retry, parameters: old.Parameters, retryOf: &id}
	if who.NoSecrets && secret.Refers(old.Parameters) {
		if again.before, err = configOf(ctx, tx, who, old); err != nil {
			return Execution{}, err
		}
	}
	e, err := s.request(ctx, tx, who, again)
	if fault.KindOf(err) == fault.NotFound {
		return Execution{}, fault.New(fault.Conflict, fault.CodeConflict, "the job of this execution was deleted: there is nothing left to run")
	}
	return e, err
}

// configOf is the configuration that an execution runs with, as it is stored;
// nil where it is not there any more.
func configOf(ctx context.Context, tx *postgres.Tx, who tenant.Actor, e Execution) (json.RawMessage, error) {
	rows, err := tx.GetJobVersions(ctx, db.GetJobVersionsParams{TenantID: who.TenantID, JobID: e.JobID, Versions: []int32{int32(e.JobVersion)}})
	if err != nil {
		return nil, fmt.Errorf("read job version: %w", err)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	var spec job.Spec
	if err := json.Unmarshal(rows[0].Spec, &spec); err != nil {
		return nil, fmt.Errorf("read version %d of job %s: %w", e.JobVersion, e.JobID, err)
	}
	return spec.Config, nil
}

// stateFault is a Conflict with the state of an execution, under a code of its
// own.
func stateFault(code fault.Code, message string, status Status) error {
	f := &fault.Error{Kind: fault.Conflict, Code: code, Message: message}
	f.Fields = []fault.Field{{Path: "status", Rule: "state", Message: string(status)}}
	return f
}
