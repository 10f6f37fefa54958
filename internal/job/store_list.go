package job

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Position is a place in a list of jobs: the last one of a page, by what the
// list is sorted by.
type Position struct {
	CreatedAt time.Time // where the list is sorted by it
	Key       string    // of another order, as Listed says it
	ID        uuid.UUID
}

// Listed is a job and its place in the list that it is of.
type Listed struct {
	Job
	Key string // empty where the list is sorted by createdAt
}

// Filter selects jobs; all that is given has to fit. Empty fields select all.
type Filter struct {
	Statuses                 []Status
	Types                    []string
	Tags                     []string
	AnyTag                   bool   // one of the tags is enough
	Text                     string // in name or description, whatever its case
	CreatedBy                string
	CreatedFrom, CreatedTo   *time.Time // from included, to excluded
	UpcomingFrom, UpcomingTo *time.Time // of active jobs

	// Sort is the contract's name of a field: createdAt, updatedAt, name,
	// nextExecutionAt or lastExecutionAt. Empty means createdAt.
	Sort       string
	Descending bool
	Limit      int       // how many at most
	After      *Position // the last one of the page before
}

// List reads a page of jobs. By createdAt it walks an index; by anything else
// it reads all of the tenant's jobs that fit, some 2 ms for a thousand.
func (s *Store) List(ctx context.Context, who tenant.Actor, f Filter) (jobs []Listed, err error) {
	p := listParams(who, f)
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := list(ctx, tx, f, p)
		if err != nil {
			return fmt.Errorf("list jobs: %w", err)
		}
		jobs = make([]Listed, len(rows))
		for i, row := range rows {
			jobs[i].Key = row.SortKey
			if jobs[i].Job, err = fromRow(row.ScheduledJob); err != nil {
				return err
			}
		}
		return nil
	})
	return jobs, err
}

func list(ctx context.Context, tx *postgres.Tx, f Filter, p db.ListJobsParams) ([]db.ListSortedJobsRow, error) {
	var plain []db.ScheduledJob
	var err error
	switch {
	case cmp.Or(f.Sort, "createdAt") != "createdAt":
		return tx.ListSortedJobs(ctx, sortedParams(f, p))
	case f.Descending:
		plain, err = tx.ListJobs(ctx, p)
	default:
		plain, err = tx.ListOldestJobs(ctx, oldestParams(f, p))
	}
	rows := make([]db.ListSortedJobsRow, len(plain))
	for i, row := range plain {
		rows[i].ScheduledJob = row
	}
	return rows, err
}

func listParams(who tenant.Actor, f Filter) db.ListJobsParams {
	p := db.ListJobsParams{
		TenantID: who.TenantID, PageSize: int32(f.Limit), BeforeCreatedAt: farFuture, BeforeID: uuid.Max,
		JobTypes: f.Types, AllTags: f.Tags, Contained: orNil(f.Text), CreatedBy: orNil(f.CreatedBy),
		CreatedFrom: beginning, CreatedTo: farFuture, NextFrom: f.UpcomingFrom, NextTo: f.UpcomingTo,
	}
	for _, status := range f.Statuses {
		p.Statuses = append(p.Statuses, string(status))
	}
	if f.AnyTag {
		p.AllTags, p.AnyTags = nil, f.Tags
	}
	if f.CreatedFrom != nil {
		p.CreatedFrom = *f.CreatedFrom
	}
	if f.CreatedTo != nil {
		p.CreatedTo = *f.CreatedTo
	}
	if f.After != nil {
		p.BeforeCreatedAt, p.BeforeID = f.After.CreatedAt, f.After.ID
	}
	return p
}

func oldestParams(f Filter, p db.ListJobsParams) db.ListOldestJobsParams {
	oldest := db.ListOldestJobsParams{
		TenantID: p.TenantID, AfterCreatedAt: beginning, CreatedFrom: p.CreatedFrom, CreatedTo: p.CreatedTo, Statuses: p.Statuses,
		JobTypes: p.JobTypes, AllTags: p.AllTags, AnyTags: p.AnyTags, Contained: p.Contained, CreatedBy: p.CreatedBy,
		NextFrom: p.NextFrom, NextTo: p.NextTo, PageSize: p.PageSize,
	}
	if f.After != nil {
		oldest.AfterCreatedAt, oldest.AfterID = f.After.CreatedAt, f.After.ID
	}
	return oldest
}

func sortedParams(f Filter, p db.ListJobsParams) db.ListSortedJobsParams {
	sorted := db.ListSortedJobsParams{
		SortBy: f.Sort, Descending: f.Descending, TenantID: p.TenantID, CreatedFrom: p.CreatedFrom, CreatedTo: p.CreatedTo,
		Statuses: p.Statuses, JobTypes: p.JobTypes, AllTags: p.AllTags, AnyTags: p.AnyTags, Contained: p.Contained,
		CreatedBy: p.CreatedBy, NextFrom: p.NextFrom, NextTo: p.NextTo, PageSize: p.PageSize,
	}
	if f.After != nil {
		sorted.AfterKey, sorted.AfterID = &f.After.Key, f.After.ID
	}
	return sorted
}

// beginning lies before every instant that is stored.
var beginning = time.Unix(0, 0).UTC()
