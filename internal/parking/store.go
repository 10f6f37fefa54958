package parking

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Store is the way of executions into and out of the parked status. It acts for
// all tenants, as postgres.Engine.
type Store struct{ db *postgres.DB }

// NewStore makes a store.
func NewStore(db *postgres.DB) *Store { return &Store{db: db} }

// Park parks attempts that a worker ended and answers those that were still its
// own. All of them are parked or none.
func (s *Store) Park(ctx context.Context, ended []Ended) ([]Freed, error) {
	var p db.ParkEndedExecutionsParams
	for _, e := range ended {
		outcome, err := json.Marshal(e.Outcome)
		if err != nil {
			return nil, fmt.Errorf("write the outcome of execution %s: %w", e.ID, err)
		}
		p.Ids, p.Attempts, p.LeaseTokens = append(p.Ids, e.ID), append(p.Attempts, int32(e.Attempt)), append(p.LeaseTokens, e.Token)
		p.Reasons, p.Outcomes = append(p.Reasons, reason(e.Why)), append(p.Outcomes, string(outcome))
	}
	rows, err := db.New(s.db.Pool()).ParkEndedExecutions(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("park executions: %w", postgres.Fault(err))
	}
	out := make([]Freed, len(rows))
	for i, r := range rows {
		out[i] = freed(db.ParkLostExecutionsRow(r))
	}
	return out, nil
}

// ParkLost parks an execution that lost its worker or passed its deadline; why is
// what the database said. It answers what it gave back, and nothing where somebody
// was quicker.
func (s *Store) ParkLost(ctx context.Context, now time.Time, id uuid.UUID, why string) ([]Freed, error) {
	rows, err := db.New(s.db.Pool()).ParkLostExecutions(ctx, db.ParkLostExecutionsParams{
		Now: postgres.At(now), Ids: []uuid.UUID{id}, Reasons: []string{reason(why)}, MaxLost: MaxLost,
	})
	if err != nil {
		return nil, fmt.Errorf("park a lost execution: %w", postgres.Fault(err))
	}
	out := make([]Freed, len(rows))
	for i, r := range rows {
		out[i] = freed(r)
	}
	return out, nil
}

func freed(r db.ParkLostExecutionsRow) Freed {
	f := Freed{ID: r.ID, Tenant: r.TenantID}
	if r.ConcurrencyKey != nil {
		f.Key = *r.ConcurrencyKey
	}
	return f
}

// passBatch is how many parked executions one pass tries: each outcome may have
// a quarter of a megabyte.
const passBatch = 32

// Retry tries once to store the ends of parked executions whose time has come,
// one by one and in turns by tenant. An end that is refused again is first tried
// without the parts that may be to blame, and then put off. A zero now means the
// database's clock. Any number of processes may do so at once.
func (s *Store) Retry(ctx context.Context, now time.Time) (report Report, err error) {
	q := db.New(s.db.Pool())
	rows, err := q.ListParkedExecutions(ctx, db.ListParkedExecutionsParams{Now: postgres.At(now), BatchSize: passBatch})
	if err != nil {
		return report, fmt.Errorf("list parked executions: %w", postgres.Fault(err))
	}
	var failed []error
	for _, r := range rows {
		failed = append(failed, s.retry(ctx, q, now, r, &report))
	}
	parked, err := q.CountParkedExecutions(ctx)
	if err != nil {
		failed = append(failed, fmt.Errorf("count parked executions: %w", postgres.Fault(err)))
	}
	report.Parked = int(parked)
	return report, errors.Join(failed...)
}

// retry tries one. Its error is one that passes by itself.
func (s *Store) retry(ctx context.Context, q *db.Queries, now time.Time, r db.ListParkedExecutionsRow, report *Report) error {
	if r.Forgotten {
		return postgres.Fault(q.DropParkedExecution(ctx, r.ID))
	}
	var o Outcome
	if err := json.Unmarshal([]byte(r.Outcome), &o); err != nil {
		o = Outcome{RetryMS: -1, ErrorType: "SYSTEM_ERROR", Message: "the run has finished, and its outcome cannot be read any more"}
	}
	status, err := store(ctx, q, now, r, o)
	if err != nil && postgres.Refused(err) {
		status, err = store(ctx, q, now, r, o.Bare(postgres.Why(err)))
	}
	switch {
	case err == nil && status != "":
		report.Stored = append(report.Stored, Stored{ID: r.ID, JobType: r.JobType, Status: status, Ran: o.took()})
		return nil
	case err == nil: // another process has it
		return nil
	case !postgres.Refused(err):
		return fmt.Errorf("store parked execution %s: %w", r.ID, postgres.Fault(err))
	}
	why := postgres.Why(err)
	report.Refused = append(report.Refused, Refused{ID: r.ID, Tenant: r.TenantID, Job: r.JobID, Why: why})
	err = q.PutOffParkedExecution(ctx, db.PutOffParkedExecutionParams{ID: r.ID, Reason: reason(why), Now: postgres.At(now)})
	if err != nil {
		return fmt.Errorf("put off parked execution %s: %w", r.ID, postgres.Fault(err))
	}
	return nil
}

// store stores one end, and makes the partition that it needs where there is
// none. It answers the status that the execution came to, and none where it is
// not parked any more or another process holds it.
func store(ctx context.Context, q *db.Queries, now time.Time, r db.ListParkedExecutionsRow, o Outcome) (status string, err error) {
	p := db.StoreParkedExecutionParams{
		Now: postgres.At(now), ID: r.ID, Succeeded: o.Succeeded, RetryMs: o.RetryMS, DurationUs: o.took().Microseconds(), Result: o.Result,
		ErrorType: o.ErrorType, ErrorMessage: o.Message, ErrorStack: o.Stack, MemoryMb: o.MemoryMB, CpuMs: o.CPUMS,
	}
	verdicts, err := q.StoreParkedExecution(ctx, p)
	if lacksPartition(err) {
		if _, err := partition.Make(ctx, q, []time.Time{r.ScheduledAt}); err != nil {
			return "", err
		}
		verdicts, err = q.StoreParkedExecution(ctx, p)
	}
	if err != nil || len(verdicts) == 0 {
		return "", err
	}
	return verdicts[0], nil
}

func lacksPartition(err error) bool {
	var f *fault.Error
	return errors.As(postgres.Fault(err), &f) && f.Code == postgres.NoPartition
}
