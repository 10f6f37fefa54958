package execution

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Position is a place in a list of executions: the last one of a page.
type Position struct {
	ScheduledAt time.Time
	ID          uuid.UUID
}

// Filter selects executions; all that is given has to fit. Empty fields select
// all.
type Filter struct {
	JobID                  *uuid.UUID
	Statuses               []Status
	Triggers               []Trigger
	JobTypes               []string
	TriggeredBy            string
	From, To               *time.Time // scheduledAt, From included, To excluded
	CreatedFrom, CreatedTo *time.Time // the same of createdAt

	OldestFirst bool
	WithResult  bool      // Result is heavy, and nil without
	Limit       int       // how many at most
	After       *Position // the last one of the page before
}

// The range of a list that names no bounds of its own.
var (
	beginning = time.Unix(0, 0).UTC()
	farFuture = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
)

// List reads a page of executions by scheduledAt, with what each waits for. A job that does not exist is
// NotFound; a deleted one still has its history.
func (s *Store) List(ctx context.Context, who tenant.Actor, f Filter) (list []Execution, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if list, err = page(ctx, tx, who, f); err != nil {
			return err
		}
		return s.explain(ctx, tx, who.TenantID, list)
	})
	return list, err
}

func page(ctx context.Context, tx *postgres.Tx, who tenant.Actor, f Filter) ([]Execution, error) {
	if f.JobID != nil {
		known, err := tx.JobExists(ctx, db.JobExistsParams{TenantID: who.TenantID, ID: *f.JobID})
		if err != nil {
			return nil, fmt.Errorf("look for the job: %w", err)
		}
		if !known {
			return nil, job.NotFound()
		}
	}
	rows, err := read(ctx, tx, f, listParams(who, f))
	if err != nil {
		return nil, fmt.Errorf("list executions: %w", err)
	}
	list := make([]Execution, len(rows))
	for i, row := range rows {
		if list[i], err = fromRow(row); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// read asks the one of the queries whose index fits. Their parameters and rows
// differ by name only.
func read(ctx context.Context, tx *postgres.Tx, f Filter, p db.ListExecutionsByJobParams) ([]db.Execution, error) {
	rare := len(f.Statuses) > 0 && !slices.Contains(f.Statuses, Completed)
	switch {
	case f.JobID != nil && f.OldestFirst:
		rows, err := tx.ListOldestExecutionsByJob(ctx, db.ListOldestExecutionsByJobParams(p))
		return asExecutions(rows, func(r db.ListOldestExecutionsByJobRow) db.Execution { return db.Execution(r) }), err
	case f.JobID != nil && rare:
		rows, err := tx.ListUnsuccessfulExecutionsByJob(ctx, db.ListUnsuccessfulExecutionsByJobParams(p))
		return asExecutions(rows, func(r db.ListUnsuccessfulExecutionsByJobRow) db.Execution { return db.Execution(r) }), err
	case f.JobID != nil:
		rows, err := tx.ListExecutionsByJob(ctx, p)
		return asExecutions(rows, func(r db.ListExecutionsByJobRow) db.Execution { return db.Execution(r) }), err
	}
	all := db.ListExecutionsParams{
		WithResult: p.WithResult, TenantID: p.TenantID, FromAt: p.FromAt, ToAt: p.ToAt, PlaceAt: p.PlaceAt, PlaceID: p.PlaceID,
		Statuses: p.Statuses, Triggers: p.Triggers, JobTypes: p.JobTypes, TriggeredBy: p.TriggeredBy,
		CreatedFrom: p.CreatedFrom, CreatedTo: p.CreatedTo, PageSize: p.PageSize,
	}
	switch {
	case f.OldestFirst:
		rows, err := tx.ListOldestExecutions(ctx, db.ListOldestExecutionsParams(all))
		return asExecutions(rows, func(r db.ListOldestExecutionsRow) db.Execution { return db.Execution(r) }), err
	case rare:
		rows, err := tx.ListUnsuccessfulExecutions(ctx, db.ListUnsuccessfulExecutionsParams(all))
		return asExecutions(rows, func(r db.ListUnsuccessfulExecutionsRow) db.Execution { return db.Execution(r) }), err
	default:
		rows, err := tx.ListExecutions(ctx, all)
		return asExecutions(rows, func(r db.ListExecutionsRow) db.Execution { return db.Execution(r) }), err
	}
}

func asExecutions[R any](rows []R, as func(R) db.Execution) []db.Execution {
	all := make([]db.Execution, len(rows))
	for i, row := range rows {
		all[i] = as(row)
	}
	return all
}

func listParams(who tenant.Actor, f Filter) db.ListExecutionsByJobParams {
	p := db.ListExecutionsByJobParams{
		WithResult: f.WithResult, TenantID: who.TenantID, FromAt: beginning, ToAt: farFuture, PlaceAt: farFuture, PlaceID: uuid.Max,
		JobTypes: f.JobTypes, CreatedFrom: f.CreatedFrom, CreatedTo: f.CreatedTo, PageSize: int32(f.Limit),
	}
	if f.OldestFirst {
		p.PlaceAt, p.PlaceID = beginning, uuid.Nil
	}
	if f.JobID != nil {
		p.JobID = *f.JobID
	}
	if f.From != nil {
		p.FromAt = *f.From
	}
	if f.To != nil {
		p.ToAt = *f.To
	}
	if f.After != nil {
		// The place alone would do; as a bound it also leaves out the partitions
		// that earlier pages read.
		p.PlaceAt, p.PlaceID = f.After.ScheduledAt, f.After.ID
		if next := p.PlaceAt.Add(time.Microsecond); f.OldestFirst {
			p.FromAt = later(p.FromAt, p.PlaceAt)
		} else if next.Before(p.ToAt) {
			p.ToAt = next
		}
	}
	for _, s := range f.Statuses {
		p.Statuses = append(p.Statuses, string(s))
	}
	for _, t := range f.Triggers {
		p.Triggers = append(p.Triggers, string(t))
	}
	if f.TriggeredBy != "" {
		p.TriggeredBy = &f.TriggeredBy
	}
	return p
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
