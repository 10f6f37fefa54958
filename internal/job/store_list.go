package job

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
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
	Key       string    // of another order; empty where it is createdAt
	ID        uuid.UUID
}

// Filter selects jobs; all that is given has to fit. Empty fields select all. The tags
// are the contract's names of the conditions.
type Filter struct {
	Statuses     []Status   `api:"status"`
	Types        []string   `api:"jobType"`
	Tags         []string   `api:"tags"`
	TagMatch     string     `api:"tagMatch"` // any: one of the tags is enough
	Text         string     `api:"q"`        // in name or description, in capitals or not
	Set          string     `api:"set"`
	CreatedBy    string     `api:"createdBy"`
	CreatedFrom  *time.Time `api:"createdFrom"`       // included
	CreatedTo    *time.Time `api:"createdTo"`         // excluded
	UpcomingFrom *time.Time `api:"nextExecutionFrom"` // the same of active jobs' next run
	UpcomingTo   *time.Time `api:"nextExecutionTo"`

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
	// PostgreSQL. An index for each order would cost each edit of a job a write.
	maxSorted = 10_000
)

// Page is a part of a list.
type Page struct {
	Jobs  []Job
	Next  *Position // where the next page begins; nil: nowhere
	Total *int      // how many jobs the tenant has, where the statement that read the page says it
}

// List reads a page of jobs. By createdAt it walks an index, over scanRows rows at
// most: where the filters leave few of them, a page is short, or empty, although there
// is more. By anything else it sorts all of the tenant's jobs that were created in the
// range, and refuses more than maxSorted of them.
func (s *Store) List(ctx context.Context, who tenant.Actor, f Filter) (page Page, err error) {
	p := listParams(who, f)
	in := s.db.InList
	if f.plain() {
		in = s.db.InNewest
	}
	err = in(ctx, who.TenantID, func(tx *postgres.Tx) error {
		var rows []readRow
		switch {
		case f.plain():
			rows, page.Total, err = newestJobs(ctx, tx, p)
		case cmp.Or(f.Sort, "createdAt") != "createdAt":
			rows, err = sorted(ctx, tx, f, p)
		default:
			rows, err = listedJobs(ctx, tx, p)
		}
		if err != nil {
			return err
		}
		if tx.Cut() {
			rows[len(rows)-1].end = true
		}
		page.Jobs, page.Next, err = pageOf(rows, f.Limit)
		return err
	})
	return page, err
}

// Count is how many jobs the tenant has, as the triggers of the table count them.
func (s *Store) Count(ctx context.Context, who tenant.Actor) (n int, err error) {
	err = s.db.InTenantEach(ctx, who.TenantID, func(tx *postgres.Tx) error {
		count, err := tx.CountJobs(ctx, who.TenantID)
		if err != nil {
			return fmt.Errorf("count jobs: %w", err)
		}
		n = int(count)
		return nil
	})
	return n, err
}

// readRow is a row that was read: of a page, or the last one before the bound.
type readRow struct {
	row  *db.ScheduledJob
	key  string
	fits bool
	end  bool // no more rows were read
}

// position is where a list goes on after a row; after none it does not.
func (l *readRow) position() *Position {
	if l == nil {
		return nil
	}
	return &Position{CreatedAt: l.row.CreatedAt.UTC(), Key: l.key, ID: l.row.ID}
}

// pageOf takes a page out of the rows that were read, and says where to go on.
func pageOf(rows []readRow, limit int) (jobs []Job, next *Position, err error) {
	jobs = make([]Job, 0, min(limit, len(rows)))
	var last *readRow
	for i := range rows {
		r := &rows[i]
		if r.fits && len(jobs) == limit {
			return jobs, last.position(), nil
		}
		last = r
		if r.fits {
			one, err := fromRow(r.row)
			if err != nil {
				return nil, nil, err
			}
			jobs = append(jobs, one)
		}
		if r.end {
			return jobs, last.position(), nil
		}
	}
	return jobs, nil, nil
}

// plain says that all jobs are listed, newest first.
func (f Filter) plain() bool {
	newest := cmp.Or(f.Sort, "createdAt") == "createdAt" && f.Descending
	f.Sort, f.Descending, f.Limit, f.After = "", false, 0, nil
	return newest && reflect.ValueOf(f).IsZero()
}

// newestJobs answers no total where there are no rows.
func newestJobs(ctx context.Context, tx *postgres.Tx, p db.ListJobsParams) (rows []readRow, total *int, err error) {
	found, err := tx.Paged().ListNewestJobs(ctx, db.ListNewestJobsParams{TenantID: p.TenantID, PlaceAt: p.PlaceAt, PlaceID: p.PlaceID, PageSize: p.PageSize})
	if err != nil {
		return nil, nil, fmt.Errorf("list jobs: %w", err)
	}
	rows = make([]readRow, len(found))
	for i := range found {
		rows[i] = readRow{row: &found[i].ScheduledJob, fits: true}
	}
	if len(found) > 0 { // each row says it
		total = new(int(found[0].Total))
	}
	return rows, total, nil
}

func listedJobs(ctx context.Context, tx *postgres.Tx, p db.ListJobsParams) (rows []readRow, err error) {
	found, err := tx.Paged().ListJobs(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	rows = make([]readRow, len(found))
	for i := range found {
		r := &found[i]
		rows[i] = readRow{row: &r.ScheduledJob, fits: r.Fits, end: r.Number == scanRows}
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
	rows = make([]readRow, len(found))
	for i := range found {
		r := &found[i]
		rows[i] = readRow{row: &r.ScheduledJob, key: r.SortKey, fits: true}
	}
	return rows, nil
}

func listParams(who tenant.Actor, f Filter) db.ListJobsParams {
	p := db.ListJobsParams{
		TenantID: who.TenantID, PageSize: int32(f.Limit) + 1, ScanRows: scanRows, OldestFirst: !f.Descending, PlaceAt: columns.Never, PlaceID: uuid.Max,
		JobTypes: f.Types, AllTags: f.Tags, Contained: columns.OrNull(f.Text), SetName: columns.OrNull(f.Set),
		CreatedBy:   columns.OrNull(f.CreatedBy),
		CreatedFrom: beginning, CreatedTo: columns.Never, NextFrom: f.UpcomingFrom, NextTo: f.UpcomingTo,
	}
	for _, status := range f.Statuses {
		p.Statuses = append(p.Statuses, string(status))
	}
	if f.TagMatch == "any" {
		p.AllTags, p.AnyTags = nil, f.Tags
	}
	if f.CreatedFrom != nil {
		p.CreatedFrom = *f.CreatedFrom
	}
	if f.CreatedTo != nil {
		p.CreatedTo = *f.CreatedTo
	}
	if p.OldestFirst {
		p.PlaceAt, p.PlaceID = beginning, uuid.Nil
	}
	if f.After != nil {
		p.PlaceAt, p.PlaceID = f.After.CreatedAt, f.After.ID
	}
	return p
}

func sortedParams(f Filter, p db.ListJobsParams) db.ListSortedJobsParams {
	sorted := db.ListSortedJobsParams{
		SortBy: f.Sort, Descending: f.Descending, TenantID: p.TenantID, CreatedFrom: p.CreatedFrom, CreatedTo: p.CreatedTo,
		Statuses: p.Statuses, JobTypes: p.JobTypes, AllTags: p.AllTags, AnyTags: p.AnyTags, Contained: p.Contained,
		SetName: p.SetName, CreatedBy: p.CreatedBy, NextFrom: p.NextFrom, NextTo: p.NextTo, PageSize: p.PageSize,
	}
	if f.After != nil {
		sorted.AfterKey, sorted.AfterID = &f.After.Key, f.After.ID
	}
	return sorted
}

// beginning lies before every time that is stored.
var beginning = time.Unix(0, 0).UTC()
