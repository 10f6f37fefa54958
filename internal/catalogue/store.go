package catalogue

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/executor/parameters"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Store keeps what workers published.
type Store struct{ q *db.Queries }

// NewStore makes a store.
func NewStore(d *postgres.DB) *Store { return &Store{q: db.New(d.Pool())} }

// Publish makes the functions of a worker known. It refuses those that are out of
// bounds.
func (s *Store) Publish(ctx context.Context, functions []Function) error {
	rows, err := rowsOf(functions)
	if err != nil || len(rows) == 0 {
		return err
	}
	var p db.PublishWorkerFunctionsParams
	for _, r := range rows {
		p.Modules, p.Names = append(p.Modules, r.Module), append(p.Names, r.Name)
		p.Descriptions, p.Parameters = append(p.Descriptions, r.Description), append(p.Parameters, r.schema)
	}
	if err := s.q.PublishWorkerFunctions(ctx, p); err != nil {
		return fmt.Errorf("publish functions: %w", postgres.Fault(err))
	}
	return nil
}

// List reads the functions. A schema that this build cannot read takes any object.
func (s *Store) List(ctx context.Context) ([]Function, error) {
	rows, err := s.q.ListWorkerFunctions(ctx, maxFunctions)
	if err != nil {
		return nil, fmt.Errorf("list functions: %w", postgres.Fault(err))
	}
	functions := make([]Function, len(rows))
	for i, r := range rows {
		functions[i] = Function{Module: r.Module, Name: r.Name, Description: r.Description}
		var schema parameters.Schema
		if json.Unmarshal(r.Parameters, &schema) == nil {
			functions[i].Parameters = &schema
		}
	}
	return functions, nil
}
