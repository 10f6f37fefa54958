package dispatch

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// RunsOf lists the executions that the database says a worker runs.
func (s *Store) RunsOf(ctx context.Context, worker uuid.UUID) ([]Run, error) {
	rows, err := s.queries().ListExecutionsOfWorker(ctx, db.ListExecutionsOfWorkerParams{WorkerID: &worker})
	if err != nil {
		return nil, fmt.Errorf("list the executions of a worker: %w", postgres.Fault(err))
	}
	out := make([]Run, len(rows))
	for i, r := range rows {
		out[i] = Run{ID: r.ID, Token: *r.LeaseToken, Cancelling: r.Cancelling}
	}
	return out, nil
}

// CancelledOf lists those of a worker's runs that somebody asked to end.
func (s *Store) CancelledOf(ctx context.Context, worker uuid.UUID) ([]Run, error) {
	rows, err := s.queries().ListCancelledRuns(ctx, &worker)
	if err != nil {
		return nil, fmt.Errorf("list cancelled executions: %w", postgres.Fault(err))
	}
	out := make([]Run, len(rows))
	for i, r := range rows {
		out[i] = Run{ID: r.ID, Token: *r.LeaseToken, Cancelling: true}
	}
	return out, nil
}

// Release gives executions back, and returns those that were still this worker's.
func (s *Store) Release(ctx context.Context, runs []Run) ([]Waiting, error) {
	p := db.ReleaseExecutionsParams{Ids: make([]uuid.UUID, len(runs)), LeaseTokens: make([]uuid.UUID, len(runs))}
	for i, r := range runs {
		p.Ids[i], p.LeaseTokens[i] = r.ID, r.Token
	}
	rows, err := s.queries().ReleaseExecutions(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("release executions: %w", postgres.Fault(err))
	}
	out := make([]Waiting, len(rows))
	for i, r := range rows {
		out[i] = Waiting{ID: r.ID, Priority: int(r.Priority)}
	}
	return out, nil
}
