package dispatch

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Complete writes outcomes. An outcome that has no verdict was refused by its fence:
// the execution is another attempt's.
func (s *Store) Complete(ctx context.Context, batch []Ended) ([]Verdict, error) {
	p := s.completeParams(batch)
	rows, err := s.queries().CompleteExecutions(ctx, p)
	if fault.KindOf(postgres.Fault(err)) == fault.Conflict { // one of them has its outcome already
		p.LookUp = true
		rows, err = s.queries().CompleteExecutions(ctx, p)
	}
	if err != nil {
		return nil, fmt.Errorf("complete executions: %w", postgres.Fault(err))
	}
	return verdicts(rows), nil
}

func verdicts(rows []db.CompleteExecutionsRow) []Verdict {
	out := make([]Verdict, len(rows))
	for i, r := range rows {
		out[i] = Verdict{ID: r.ID, Status: r.Verdict, JobType: r.JobType, Next: r.NextIds, Freed: freed(r.Backlogged, r.TenantID, r.ConcurrencyKey)}
	}
	return out
}

// completeParams takes one array for each column, all of one length.
func (s *Store) completeParams(batch []Ended) db.CompleteExecutionsParams {
	n := len(batch)
	p := db.CompleteExecutionsParams{
		Ids: make([]uuid.UUID, n), Attempts: make([]int32, n), LeaseTokens: make([]uuid.UUID, n), Succeeded: make([]bool, n),
		RetryMs: make([]int64, n), DurationsUs: make([]int64, n), Results: make([]string, n), ErrorTypes: make([]string, n),
		ErrorMessages: make([]string, n), ErrorStacks: make([]string, n), MemoryMb: make([]float32, n), CpuMs: make([]int64, n),
		LeftTypes: s.leftTypes,
	}
	for i, e := range batch {
		o := e.Outcome
		p.Ids[i], p.Attempts[i], p.LeaseTokens[i] = e.ID, int32(e.Attempt), e.Token
		p.Succeeded[i], p.RetryMs[i], p.DurationsUs[i] = o.Succeeded, o.RetryMS, o.Took().Microseconds()
		p.Results[i], p.MemoryMb[i], p.CpuMs[i] = o.Result, o.MemoryMB, o.CPUMS
		p.ErrorTypes[i], p.ErrorMessages[i], p.ErrorStacks[i] = o.ErrorType, o.Message, o.Stack
	}
	return p
}
