package execution

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/job/keytemplate"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Store is a tenant's view of its executions. Each method acts for one
// tenant; the id of another tenant's execution is answered as one that does
// not exist.
type Store struct {
	db *postgres.DB
	c  Config
}

// Config holds the limits of tenants that have none of their own.
type Config struct {
	// TenantMaxRunning is how many executions a tenant may run at once (0: any
	// number), to say what others wait for. It is the workers who keep to it. nil: any
	// number.
	TenantMaxRunning func() int
	Backlog          func() tenant.Backlog // on what may wait; nil: any number
	Spans            partition.Spans       // of the newest partitions, where lists begin
}

// NewStore makes a store.
func NewStore(db *postgres.DB, c Config) *Store {
	if c.TenantMaxRunning == nil {
		c.TenantMaxRunning = func() int { return 0 }
	}
	if c.Backlog == nil {
		c.Backlog = func() tenant.Backlog { return tenant.Backlog{} }
	}
	return &Store{db: db, c: c}
}

// NotFound is the answer for an execution that is not there, or is not the
// caller's.
func NotFound() error {
	return fault.New(fault.NotFound, fault.CodeExecutionNotFound, "there is no execution with this id")
}

// Get reads one execution, active or over, and says what it waits for.
func (s *Store) Get(ctx context.Context, who tenant.Actor, id uuid.UUID) (e Execution, err error) {
	err = s.db.InSnapshot(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if e, err = get(ctx, tx, who, id); err != nil {
			return err
		}
		one := []Execution{e}
		err = s.explain(ctx, tx, who.TenantID, one)
		e = one[0]
		return err
	})
	return e, err
}

func get(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID) (Execution, error) {
	at := ScheduledTimeOf(id)
	row, err := tx.GetExecution(ctx, db.GetExecutionParams{
		TenantID: who.TenantID, ID: id, FromAt: at, ToAt: at.Add(time.Millisecond),
	})
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return Execution{}, NotFound()
	}
	if err != nil {
		return Execution{}, fmt.Errorf("read execution: %w", err)
	}
	return fromRow(row)
}

// Trigger makes an execution of a job now, whatever its schedule says, with
// parameters that override parts of its config. It reports whether the answer
// is a remembered one. The caller hints it to the workers once it returned.
func (s *Store) Trigger(ctx context.Context, who tenant.Actor, jobID uuid.UUID, parameters json.RawMessage, key idempotency.Key) (e Execution, replayed bool, err error) {
	begin, last := s.db.InTenantLed, true
	if key.Value != "" {
		begin, last = s.db.InTenant, false
	}
	err = begin(ctx, who.TenantID, func(tx *postgres.Tx) error {
		store := idempotency.Store{Queries: tx.Queries}
		e, replayed, err = idempotency.Do(ctx, store, who.TenantID, key, func() (Execution, error) {
			return s.request(ctx, tx, who, demand{job: jobID, trigger: Manual, parameters: parameters, last: last})
		})
		return err
	})
	return e, replayed, err
}

// demand is what somebody asked to be run.
type demand struct {
	job        uuid.UUID
	trigger    Trigger
	parameters json.RawMessage
	// before is the configuration that the parameters were given for; nil where
	// they are new.
	before json.RawMessage
	// retryOf is the execution that is repeated; nil where there is none.
	retryOf *uuid.UUID
	// last says that nothing follows in the transaction, which is committed.
	last bool
}

func (s *Store) request(ctx context.Context, tx *postgres.Tx, who tenant.Actor, d demand) (Execution, error) {
	if fields := secret.Inline(d.parameters); len(fields) > 0 {
		return Execution{}, fault.Wrong(fault.CodeValidationFailed, fields...)
	}
	found, err := s.lock(ctx, tx, who, d.job)
	if err != nil {
		return Execution{}, err
	}
	j := found.job
	if err := secret.MayPass(who, d.before, j.Config, d.parameters); err != nil {
		return Execution{}, err
	}
	admission, err := admit(found.active, j)
	if err != nil {
		return Execution{}, err
	}
	if err := s.c.Backlog().Judge(ctx, tx, found.bounds); err != nil {
		return Execution{}, err
	}
	if err := count(ctx, tx, who, found.bounds.MaxExecutionsPerDay); err != nil {
		return Execution{}, err
	}
	seed := make([]byte, 16)
	_, _ = rand.Read(seed) // it never fails; see its documentation
	id := RequestedID(who.TenantID, d.job, tx.At, seed)
	key := keyOf(d.job, j, d.parameters)
	send := tx.Together
	if d.last {
		send = tx.CommitWith
	}
	err = send(ctx, func(q *db.Queries) error {
		err := q.InsertRequestedExecution(ctx, db.InsertRequestedExecutionParams{
			ID: id, TenantID: who.TenantID, JobID: d.job, JobVersion: j.Version, ScheduledAt: tx.At,
			TriggerType: string(d.trigger), TriggeredBy: who.Subject, JobType: j.JobType, Priority: j.Priority, Parameters: d.parameters,
			MaxAttempts: j.MaxAttempts, TimeoutMs: j.TimeoutSeconds * 1000, Now: tx.At, SweepAt: tx.At.Add(dispatch.HintPatience),
			Generation:       j.Generation,
			ConcurrencyLimit: gate(admission, j.MaxConcurrent), ConcurrencyKey: key, Pooled: !admission.Gated && key == nil,
		})
		if err == nil && d.retryOf != nil {
			err = q.InsertExecutionRetry(ctx, db.InsertExecutionRetryParams{
				ExecutionID: id, TenantID: who.TenantID, JobID: d.job, RetryOf: *d.retryOf, CreatedAt: tx.At,
			})
		}
		return err
	})
	if err != nil {
		return Execution{}, fmt.Errorf("insert execution: %w", err)
	}
	return Execution{
		ID: id, TenantID: who.TenantID, JobID: d.job, JobVersion: int(j.Version), JobName: j.Name, JobType: j.JobType, Trigger: d.trigger,
		TriggeredBy: who.Subject, Priority: int(j.Priority), Parameters: d.parameters, Status: Pending, ScheduledAt: tx.At,
		MaxAttempts: int(j.MaxAttempts), AvailableAt: &tx.At, CreatedAt: tx.At, RetryOf: d.retryOf,
	}, nil
}

// locked is what decides whether a job runs now.
type locked struct {
	job    db.LockJobToRunRow // its row stays locked
	active db.CountActiveOfJobRow
	bounds *tenant.Asked
}

// lock locks a job, notes that it runs now and then counts what is active of it, in one
// round trip: nobody else admits meanwhile.
func (s *Store) lock(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID) (l locked, err error) {
	err = tx.Together(ctx, func(q *db.Queries) (err error) {
		rows := q.LockJobToRun(ctx, []db.LockJobToRunParams{{TenantID: who.TenantID, ID: id}})
		counts := q.CountActiveOfJob(ctx, []db.CountActiveOfJobParams{{TenantID: who.TenantID, JobID: id}})
		l.bounds = s.c.Backlog().Ask(ctx, q, who.TenantID, id)
		rows.QueryRow(func(_ int, row db.LockJobToRunRow, failed error) { l.job, err = row, failed })
		switch {
		case fault.KindOf(postgres.Fault(err)) == fault.NotFound:
			return job.NotFound()
		case err != nil:
			return fmt.Errorf("read job: %w", err)
		}
		counts.QueryRow(func(_ int, row db.CountActiveOfJobRow, failed error) { l.active, err = row, failed })
		if err != nil {
			return fmt.Errorf("count active executions: %w", err)
		}
		l.bounds.Read()
		return nil
	})
	return l, err
}

// count adds a run to those of the day (UTC), where the tenant has a bound on
// them, and refuses the one beyond it. A refusal undoes the count.
func count(ctx context.Context, tx *postgres.Tx, who tenant.Actor, bound *int32) error {
	if bound == nil {
		return nil
	}
	day := tx.At.Truncate(24 * time.Hour)
	made, err := tx.CountExecutions(ctx, db.CountExecutionsParams{TenantID: who.TenantID, At: tx.At, Added: 1})
	if err != nil {
		return fmt.Errorf("count executions: %w", err)
	}
	if made <= *bound {
		return nil
	}
	return fault.Exceeded(fault.Limit{Name: "maxExecutionsPerDay", Value: int64(*bound), Reset: day.Add(24 * time.Hour)},
		fmt.Sprintf("this tenant has used up its %d executions of the day", *bound), tx.At)
}

// admit decides whether a triggered run has its place, waits for one, or must
// be refused.
func admit(active db.CountActiveOfJobRow, j db.LockJobToRunRow) (job.Admission, error) {
	places := job.Places{Taken: int(active.Taken), Waiting: int(active.Waiting)}
	policy := job.Policy{Overlap: job.Overlap(j.OverlapPolicy), MaxConcurrent: int(j.MaxConcurrent)}
	a := policy.AdmitTrigger(places)
	if !a.Run {
		return a, fault.New(fault.Conflict, fault.CodeJobAlreadyRunning, a.Reason+": wait for them, or raise maxConcurrent")
	}
	return a, nil
}

// keyOf is the concurrency key of a run; nil when no limit applies.
func keyOf(id uuid.UUID, j db.LockJobToRunRow, parameters json.RawMessage) *string {
	run := keytemplate.Run{JobID: id, JobName: j.Name, JobType: j.JobType, Config: j.Config, Parameters: parameters}
	if key := (job.Policy{ConcurrencyKey: j.ConcurrencyKey}).KeyOf(run); key != "" {
		return &key
	}
	return nil
}

// gate is the limit that a run waits for; zero when it has its place.
func gate(a job.Admission, limit int32) int16 {
	if !a.Gated {
		return 0
	}
	return int16(limit)
}
