package job

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
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

const (
	// scanRows is how many rows a page reads at most, whatever its filters leave.
	scanRows = 10_000
	// maxSorted is how many jobs an order other than createdAt sorts, some 20 ms of
	// PostgreSQL. An index for each order would cost each promotion a write.
	maxSorted = 10_000
)

// List reads a page of jobs, and where the next one begins; nil: nowhere. By
// createdAt it walks an index, over scanRows rows at most: where the filters
// leave few of them, a page is short, or empty, although there is more. By
// anything else it sorts all of the tenant's jobs that were created in the range,
// of which there may be maxSorted.
func (s *Store) List(ctx context.Context, who tenant.Actor, f Filter) (jobs []Listed, next *Position, err error) {
	p := listParams(who, f)
	err = s.db.InList(ctx, who.TenantID, func(tx *postgres.Tx) error {
		var rows []readRow
		if cmp.Or(f.Sort, "createdAt") != "createdAt" {
			rows, err = sorted(ctx, tx, f, p)
		} else {
			rows, err = listedJobs(ctx, tx, f, p)
		}
		if err != nil {
			return err
		}
		if tx.Cut() {
			rows[len(rows)-1].end = true
		}
		jobs, next, err = pageOf(rows, f.Limit)
		return err
	})
	return jobs, next, err
}

// readRow is a row that was read: of a page, or the last one before the bound.
type readRow struct {
	row  db.ScheduledJob
	key  string
	fits bool
	end  bool // no more rows were read
}

func (l readRow) position() *Position {
	return &Position{CreatedAt: l.row.CreatedAt.UTC(), Key: l.key, ID: l.row.ID}
}

// pageOf takes a page out of the rows that were read, and says where to go on.
func pageOf(rows []readRow, limit int) (jobs []Listed, next *Position, err error) {
	var last *Position
	for _, r := range rows {
		if r.fits && len(jobs) == limit {
			return jobs, last, nil
		}
		last = r.position()
		if r.fits {
			one := Listed{Key: r.key}
			if one.Job, err = fromRow(r.row); err != nil {
				return nil, nil, err
			}
			jobs = append(jobs, one)
		}
		if r.end {
			return jobs, last, nil
		}
	}
	return jobs, nil, nil
}

func listedJobs(ctx context.Context, tx *postgres.Tx, f Filter, p db.ListJobsParams) (rows []readRow, err error) {
	var found []db.ListJobsRow
	if f.Descending {
		found, err = tx.Paged().ListJobs(ctx, p)
	} else {
		var oldest []db.ListOldestJobsRow
		oldest, err = tx.Paged().ListOldestJobs(ctx, oldestParams(f, p))
		for _, r := range oldest {
			found = append(found, db.ListJobsRow(r))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	for _, r := range found {
		rows = append(rows, readRow{row: r.ScheduledJob, fits: r.Fits, end: r.Number == scanRows})
	}
	return rows, nil
}

func sorted(ctx context.Context, tx *postgres.Tx, f Filter, p db.ListJobsParams) (rows []readRow, err error) {
	count, err := tx.CountJobsToSort(ctx, db.CountJobsToSortParams{TenantID: p.TenantID, CreatedFrom: p.CreatedFrom, CreatedTo: p.CreatedTo, Most: maxSorted + 1})
	if err != nil {
		return nil, fmt.Errorf("count jobs: %w", err)
	}
	if count > maxSorted {
		return nil, fault.Wrong(fault.CodeValidationFailed, fault.Field{Path: "sort", Rule: "maximum", Message: fmt.Sprintf(
			"sorts at most %d jobs, a bound that is fixed, and there are more: narrow createdFrom and createdTo, or sort by createdAt", maxSorted)})
	}
	found, err := tx.Paged().ListSortedJobs(ctx, sortedParams(f, p))
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	for _, r := range found {
		rows = append(rows, readRow{row: r.ScheduledJob, key: r.SortKey, fits: true})
	}
	return rows, nil
}

func listParams(who tenant.Actor, f Filter) db.ListJobsParams {
	p := db.ListJobsParams{
		TenantID: who.TenantID, PageSize: int32(f.Limit) + 1, ScanRows: scanRows, BeforeCreatedAt: columns.Never, BeforeID: uuid.Max,
		JobTypes: f.Types, AllTags: f.Tags, Contained: columns.OrNull(f.Text), CreatedBy: columns.OrNull(f.CreatedBy),
		CreatedFrom: beginning, CreatedTo: columns.Never, NextFrom: f.UpcomingFrom, NextTo: f.UpcomingTo,
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
		NextFrom: p.NextFrom, NextTo: p.NextTo, PageSize: p.PageSize, ScanRows: p.ScanRows,
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

// beginning lies before every time that is stored.
var beginning = time.Unix(0, 0).UTC()
