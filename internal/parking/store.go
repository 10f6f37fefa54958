package parking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Store tries parked executions of all tenants again, as postgres.Engine.
type Store struct {
	db       *postgres.DB
	dispatch *dispatch.Store
}

// NewStore makes a store.
func NewStore(db *postgres.DB) *Store {
	return &Store{db: db, dispatch: dispatch.NewStore(db, dispatch.Config{})}
}

// passBatch is how many parked executions one pass tries: each outcome may have
// a quarter of a megabyte.
const passBatch = 32

// Retry tries once to store the ends of parked executions whose time has come,
// one by one and in turns by tenant. An end that is refused again is first tried
// without the parts that may be to blame, and then put off. A zero now means the
// database's clock. Any number of processes may do so at once.
func (s *Store) Retry(ctx context.Context, now time.Time) (report Report, err error) {
	parked, err := s.dispatch.ListParked(ctx, now, passBatch)
	if err != nil {
		return report, err
	}
	var failed []error
	for _, p := range parked {
		failed = append(failed, s.retry(ctx, now, p, &report))
	}
	report.Parked, err = s.dispatch.CountParked(ctx)
	return report, errors.Join(append(failed, err)...)
}

// retry tries one. Its error is one that passes by itself.
func (s *Store) retry(ctx context.Context, now time.Time, p dispatch.Parked, report *Report) error {
	if p.Deleting {
		return s.dispatch.DropParked(ctx, p.ID)
	}
	status, err := s.store(ctx, now, p, p.Outcome)
	if err != nil && postgres.Refused(err) {
		status, err = s.store(ctx, now, p, p.Outcome.Bare(postgres.Why(err)))
	}
	switch {
	case err == nil && status != "":
		report.Stored = append(report.Stored, Stored{ID: p.ID, JobType: p.JobType, Status: status, Ran: p.Outcome.Took()})
		return nil
	case err == nil: // another process has it
		return nil
	case !postgres.Refused(err):
		return fmt.Errorf("store parked execution %s: %w", p.ID, postgres.Fault(err))
	}
	why := postgres.Why(err)
	report.Refused = append(report.Refused, Refused{ID: p.ID, Tenant: p.Tenant, Job: p.Job, Why: why})
	return s.dispatch.PutOffParked(ctx, now, p.ID, why)
}

// store stores one end, and makes the partition that it needs where there is
// none.
func (s *Store) store(ctx context.Context, now time.Time, p dispatch.Parked, o dispatch.Outcome) (status string, err error) {
	status, err = s.dispatch.StoreParked(ctx, now, p.ID, o)
	if !lacksPartition(err) {
		return status, err
	}
	if _, err := partition.Make(ctx, db.New(s.db.Pool()), []time.Time{p.ScheduledAt}); err != nil {
		return "", err
	}
	return s.dispatch.StoreParked(ctx, now, p.ID, o)
}

func lacksPartition(err error) bool {
	var f *fault.Error
	return errors.As(postgres.Fault(err), &f) && f.Code == postgres.NoPartition
}
