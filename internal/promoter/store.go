package promoter

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// store is the promoter's and the sweeper's door to the database. Its queries
// see all tenants; they are a short, named list in package arch.
type store struct{ db *postgres.DB }

// never is how the statements write "no further instant".
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// promote claims what is due, lets decide say what becomes of it, and writes
// that: three round trips for up to batchSize jobs.
func (s *store) promote(ctx context.Context, now, since time.Time,
	decide func(jobs []dueJob, at, database time.Time) (plan, error),
) (made plan, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		rows, err := tx.ClaimDueJobs(ctx, db.ClaimDueJobsParams{Now: postgres.At(now), Since: since, BatchSize: batchSize})
		if err != nil {
			return fmt.Errorf("claim due jobs: %w", err)
		}
		at := tx.At
		if !now.IsZero() {
			at = now
		}
		made, err = decide(dueJobs(rows), at, tx.At)
		if err != nil {
			return err
		}
		made.roundTrips = 3
		if len(rows) == 0 {
			made.next, err = tx.NextDue(ctx, since)
			if err != nil {
				return fmt.Errorf("find the next due job: %w", err)
			}
			made.next = made.next.UTC()
			made.roundTrips++
			return nil
		}
		return tx.CommitWith(ctx, func(q *db.Queries) error { return write(ctx, q, &made, now) })
	})
	if err != nil {
		return plan{}, fmt.Errorf("promote: %w", err)
	}
	return made, nil
}

func write(ctx context.Context, q *db.Queries, p *plan, now time.Time) error {
	if len(p.runs) > 0 {
		if err := q.InsertDueExecutions(ctx, insertDue(p.runs, now)); err != nil {
			return fmt.Errorf("insert executions: %w", err)
		}
	}
	if len(p.misses) > 0 {
		if err := q.InsertMissedExecutions(ctx, insertMissed(p.misses, now)); err != nil {
			return fmt.Errorf("record missed instants: %w", err)
		}
	}
	if err := q.AdvanceJobs(ctx, advanceJobs(p.advances)); err != nil {
		return fmt.Errorf("advance jobs: %w", err)
	}
	return nil
}

// lost is an execution that was taken from a worker.
type lost struct {
	waiting
	jobType    string
	verdict    string // pending, failed or cancelled
	workerLost bool   // otherwise its deadline passed
}

// waiting is an execution to hint.
type waiting struct {
	id       uuid.UUID
	priority int
}

func (s *store) reclaim(ctx context.Context, now time.Time) ([]lost, error) {
	rows, err := db.New(s.db.Pool()).ReclaimExecutions(ctx, db.ReclaimExecutionsParams{
		Now: postgres.At(now), MaxLost: maxLost, BatchSize: sweepBatch,
	})
	if err != nil {
		return nil, fmt.Errorf("reclaim executions: %w", postgres.Fault(err))
	}
	out := make([]lost, len(rows))
	for i, r := range rows {
		out[i] = lost{waiting: waiting{r.ID, int(r.Priority)}, jobType: r.JobType, verdict: r.Verdict, workerLost: r.WorkerLost}
	}
	return out, nil
}

func (s *store) redispatch(ctx context.Context, now time.Time) ([]waiting, error) {
	rows, err := db.New(s.db.Pool()).RedispatchExecutions(ctx, db.RedispatchExecutionsParams{Now: postgres.At(now), BatchSize: sweepBatch})
	if err != nil {
		return nil, fmt.Errorf("redispatch executions: %w", postgres.Fault(err))
	}
	out := make([]waiting, len(rows))
	for i, r := range rows {
		out[i] = waiting{r.ID, int(r.Priority)}
	}
	return out, nil
}

func (s *store) expedite(ctx context.Context, now time.Time) (int, error) {
	n, err := db.New(s.db.Pool()).ExpediteExecutions(ctx, postgres.At(now))
	if err != nil {
		return 0, fmt.Errorf("expedite executions: %w", postgres.Fault(err))
	}
	return int(n), nil
}

// gauge takes the numbers about the whole service and keeps them where every
// process may read them.
func (s *store) gauge(ctx context.Context) error {
	q := db.New(s.db.Pool())
	count, err := q.CountActiveExecutions(ctx)
	if err != nil {
		return fmt.Errorf("count active executions: %w", postgres.Fault(err))
	}
	err = q.SetGauges(ctx, db.SetGaugesParams{
		Names:  []string{fleet.GaugeRunning, fleet.GaugeWaiting},
		Values: []int64{count.Running, count.Waiting},
	})
	if err != nil {
		return fmt.Errorf("keep the gauges: %w", postgres.Fault(err))
	}
	return nil
}

func (s *store) queries() *db.Queries { return db.New(s.db.Pool()) }

func (s *store) forgetKeys(ctx context.Context) error {
	if _, err := s.queries().DeleteExpiredIdempotencyKeys(ctx); err != nil {
		return fmt.Errorf("delete expired idempotency keys: %w", postgres.Fault(err))
	}
	return nil
}
