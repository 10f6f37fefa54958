package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
)

// sizes are how many rows one statement of each kind takes.
type sizes struct{ insert, claim, complete int }

const (
	lifecycles = 2                       // run side by side, each on a connection of its own
	sqlFor     = 1500 * time.Millisecond // each repetition
)

// sqlLimits measures the database by itself: whole lives of executions by the
// product's own statements, without queue, workers and jobs' rows. It has a
// database of its own, so that its rows are not the product's.
func sqlLimits(ctx context.Context, s *stack) ([]row, error) {
	url, err := s.prepare(ctx, "limits")
	if err != nil {
		return nil, err
	}
	limits, err := openStore(ctx, url, lifecycles)
	if err != nil {
		return nil, err
	}
	defer limits.db.Close()
	s.say("the database alone")
	var rows []row
	for _, one := range []sizes{
		{500, 500, 500},
		{500, 256, 256}, // those of promoter and worker
	} {
		var all []float64
		lived := 0
		from, err := s.read(ctx)
		if err != nil {
			return rows, err
		}
		for range s.Repeats {
			n, perSecond, err := limits.live(ctx, one)
			if err != nil {
				return rows, err
			}
			all, lived = append(all, perSecond), lived+n
		}
		to, err := s.read(ctx)
		if err != nil {
			return rows, err
		}
		s.sayCosts(from, to, float64(lived))
		rows = append(rows, row{
			wal:       (to.wal - from.wal) / float64(lived),
			what:      fmt.Sprintf(limitWord+"SQL alone, insert %d, claim %d, complete %d at a time", one.insert, one.claim, one.complete),
			perSecond: median(all, cmp.Compare), backlog: none, others: others(from, to),
		})
	}
	rows[0].key, rows[1].key = sqlLargeKey, sqlKey
	return rows, nil
}

// live is how many lives of executions the database carries, in all and a second.
func (s *store) live(ctx context.Context, n sizes) (total int, perSecond float64, err error) {
	worker := uuid.New()
	err = s.queries().InsertWorker(ctx, db.InsertWorkerParams{ID: worker, Host: "bench", Slots: 1, JobTypes: []string{"function"}, LeaseSeconds: 60})
	if err != nil {
		return 0, 0, err
	}
	for i := range tenants { // as the making of a tenant does
		if err := s.queries().EnsureRunningCount(ctx, uuid.UUID{byte(i)}); err != nil {
			return 0, 0, err
		}
	}
	var group sync.WaitGroup
	lived, failures := make([]int, lifecycles), make([]error, lifecycles)
	took := clock.Start()
	for i := range lifecycles {
		group.Go(func() {
			for took.Elapsed() < sqlFor && failures[i] == nil {
				failures[i] = s.live1(ctx, worker, n)
				lived[i] += n.insert
			}
		})
	}
	group.Wait()
	for _, n := range lived {
		total += n
	}
	return total, float64(total) / took.Elapsed().Seconds(), errors.Join(failures...)
}

// live1 inserts executions of as many jobs, claims and completes them.
func (s *store) live1(ctx context.Context, worker uuid.UUID, n sizes) error {
	ids, p := dueNow(n.insert)
	if err := s.queries().InsertDueExecutions(ctx, p); err != nil {
		return err
	}
	token, moves := uuid.New(), dispatch.NewStore(s.db, dispatch.Config{}) // one token for a claim, as the worker does
	for from := 0; from < len(ids); from += n.claim {
		to := min(from+n.claim, len(ids))
		if err := claimAll(ctx, moves, worker, token, ids[from:to]); err != nil {
			return err
		}
	}
	for from := 0; from < len(ids); from += n.complete {
		to := min(from+n.complete, len(ids))
		rows, err := moves.Complete(ctx, succeeded(ids[from:to], token))
		if err != nil || len(rows) != to-from {
			return errors.Join(err, expected("completed", len(rows), to-from))
		}
	}
	return nil
}

// maxClaims bounds how often claimAll asks.
const maxClaims = 1000

// claimAll claims until it has all: while one claim counts a tenant exactly, another starts
// nothing of that tenant. The token finds again what it has.
func claimAll(ctx context.Context, moves *dispatch.Store, worker, token uuid.UUID, ids []uuid.UUID) error {
	claimed := 0
	for range maxClaims {
		rows, _, _, err := moves.Claim(ctx, worker, token, ids)
		if err != nil || len(rows) == len(ids) {
			return err
		}
		claimed = len(rows)
	}
	return expected("claimed", claimed, len(ids))
}

func expected(what string, got, want int) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("%s %d executions of %d", what, got, want)
}

// dueNow are executions of n jobs at one time.
func dueNow(n int) ([]uuid.UUID, db.InsertDueExecutionsParams) {
	at := clock.Now()
	p := db.InsertDueExecutionsParams{FirstAt: at, LastAt: at}
	for i := range n {
		job := uuid.New()
		p.Ids = append(p.Ids, execution.ScheduledID(job, at))
		p.TenantIds = append(p.TenantIds, uuid.UUID{byte(i % tenants)})
		p.JobIds = append(p.JobIds, job)
		p.JobVersions = append(p.JobVersions, 1)
		p.ScheduledAt = append(p.ScheduledAt, at)
		p.JobTypes = append(p.JobTypes, "function")
		p.Priorities = append(p.Priorities, 0)
		p.MaxAttempts = append(p.MaxAttempts, 1)
		p.TimeoutsMs = append(p.TimeoutsMs, 300_000)
		p.ConcurrencyLimits = append(p.ConcurrencyLimits, 0)
		p.Generations = append(p.Generations, 0)
		p.ConcurrencyKeys = append(p.ConcurrencyKeys, "")
		p.Pooled = append(p.Pooled, false)
		p.AvailableAt = append(p.AvailableAt, at)
	}
	return p.Ids, p
}

// succeeded are the outcomes of no-op runs.
func succeeded(ids []uuid.UUID, token uuid.UUID) []dispatch.Ended {
	out := make([]dispatch.Ended, len(ids))
	for i, id := range ids {
		out[i] = dispatch.Ended{ID: id, Attempt: 1, Token: token, Outcome: dispatch.Outcome{Succeeded: true, RetryMS: -1}}
	}
	return out
}
