package tenant

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Backlog is how many executions may wait, of a tenant and of one job, where the
// tenant has no limits of its own; 0: any number. Executions that are being cancelled do not
// count.
type Backlog struct{ Max, MaxPerJob int }

// The limits by their names in the contract.
const (
	maxWaiting       = "maxWaiting"
	maxWaitingPerJob = "maxWaitingPerJob"
)

// exactUpTo is the limit up to which a request counts what waits by itself. Above
// it, the number is the one that a promoter counted last.
const exactUpTo = 1000

// retryAfter is when a caller may ask again for what a full backlog refused.
const retryAfter = 5 * time.Second

// Admit refuses an execution that would have to wait where as many wait as may.
func (b Backlog) Admit(ctx context.Context, tx *postgres.Tx, id, job uuid.UUID) (err error) {
	asked := b.Ask(ctx, tx.Queries, id, job)
	asked.Read()
	return b.Judge(ctx, tx, asked)
}

// Asked is what was asked of a tenant and a job, and the answer.
type Asked struct {
	// MaxExecutionsPerDay is how many executions the tenant may have in a day; nil:
	// any number.
	MaxExecutionsPerDay *int32

	tenant, job uuid.UUID
	results     *db.GetExecutionBoundsBatchResults
	row         db.GetExecutionBoundsRow
	err         error
}

// Ask asks for what Judge judges by, in a round trip with others or of its own.
func (Backlog) Ask(ctx context.Context, q *db.Queries, id, job uuid.UUID) *Asked {
	return &Asked{tenant: id, job: job, results: q.GetExecutionBounds(ctx, []db.GetExecutionBoundsParams{{TenantID: id, JobID: job}})}
}

// Read reads the answer.
func (a *Asked) Read() {
	a.results.QueryRow(func(_ int, row db.GetExecutionBoundsRow, err error) { a.row, a.err = row, err })
	a.MaxExecutionsPerDay = a.row.MaxExecutionsPerDay
}

// Judge is Admit by an answer that was read.
func (b Backlog) Judge(ctx context.Context, tx *postgres.Tx, asked *Asked) error {
	id, job, row := asked.tenant, asked.job, asked.row
	if err := asked.err; err != nil && fault.KindOf(postgres.Fault(err)) != fault.NotFound {
		return fmt.Errorf("read the bounds on executions: %w", err)
	}
	of := limit{false, b.Max, row.MaxWaiting != nil, row.Waiting}
	ofJob := limit{true, b.MaxPerJob, row.MaxWaitingPerJob != nil, row.WaitingOfJob}
	if of.own {
		of.most = int(*row.MaxWaiting)
	}
	if ofJob.own {
		ofJob.most = int(*row.MaxWaitingPerJob)
	}
	if of.exact() || ofJob.exact() {
		n, err := tx.CountSomeWaiting(ctx, db.CountSomeWaitingParams{
			TenantID: id, JobID: job, Most: int32(min(of.most, exactUpTo)), MostOfJob: int32(min(ofJob.most, exactUpTo)),
		})
		if err != nil {
			return fmt.Errorf("count what waits: %w", err)
		}
		of.waiting, ofJob.waiting = max(of.waiting, n.OfTenant), max(ofJob.waiting, n.OfJob)
		if of.exact() {
			of.waiting = n.OfTenant
		}
		if ofJob.exact() {
			ofJob.waiting = n.OfJob
		}
	}
	for _, l := range []limit{ofJob, of} {
		if l.most > 0 && l.waiting >= int64(l.most) {
			name, why := b.Full(l.ofJob, int64(l.most), l.own)
			e := fault.Exceeded(fault.Limit{Name: name, Value: int64(l.most)}, why, tx.At)
			e.Kind, e.RetryAfter = fault.TooMany, retryAfter
			return e
		}
	}
	return nil
}

// limit is one of the two, and how many wait.
type limit struct {
	ofJob   bool
	most    int
	own     bool // the tenant has it of its own
	waiting int64
}

func (l limit) exact() bool { return l.most > 0 && l.most <= exactUpTo }

// Full is the name of a limit that is met, and the sentence about it: its value,
// who set it and when there is room again.
func (Backlog) Full(ofJob bool, most int64, own bool) (name, why string) {
	name, of := maxWaiting, "this tenant"
	if ofJob {
		name, of = maxWaitingPerJob, "this job"
	}
	by := "the default of this installation"
	if own {
		by = "set for this tenant by the platform's administrator"
	}
	return name, fmt.Sprintf("%d executions of %s may wait (%s, %s) and as many do: there is room again as soon as some of them start or are cancelled", most, of, name, by)
}
