package dispatch

import (
	"context"
	"fmt"
	"time"

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

// Held is an execution whose attempt is not made yet, because its call is held back.
type Held struct {
	Run
	Host string // whose breaker holds it back
	For  time.Duration
}

// Hold gives executions back whose attempts were not made. It returns those that were still
// this worker's, with the tenants and keys for which there is room now.
func (s *Store) Hold(ctx context.Context, runs []Held) (map[uuid.UUID]Freed, error) {
	var p db.HoldExecutionsParams
	for _, r := range runs {
		p.Ids, p.LeaseTokens = append(p.Ids, r.ID), append(p.LeaseTokens, r.Token)
		p.Hosts, p.HoldsMs = append(p.Hosts, r.Host), append(p.HoldsMs, r.For.Milliseconds())
	}
	rows, err := s.queries().HoldExecutions(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("hold executions: %w", postgres.Fault(err))
	}
	out := make(map[uuid.UUID]Freed, len(rows))
	for _, r := range rows {
		out[r.ID] = freed(r.Backlogged, r.TenantID, r.ConcurrencyKey)
	}
	return out, nil
}

// letGoBatch is how many executions one statement lets go that were held back. A target
// that has just come back gets them from each worker at most once a second.
const letGoBatch = 200

// LetGo lets executions start that were held back by a tenant's breaker of a host, and
// says whether there may be more of them. A zero now means the database's clock.
func (s *Store) LetGo(ctx context.Context, now time.Time, tenant uuid.UUID, host string) (more bool, err error) {
	n, err := s.queries().LetHeldGo(ctx, db.LetHeldGoParams{Now: postgres.At(now), TenantID: tenant, Host: host, BatchSize: letGoBatch})
	if err != nil {
		return false, fmt.Errorf("let executions go that were held back: %w", postgres.Fault(err))
	}
	return n == letGoBatch, nil
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
