package execution

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Position is a place in a list of executions: the last one of a page.
type Position struct {
	ScheduledAt time.Time
	ID          uuid.UUID
}

// Filter selects executions; all that is given has to fit. Empty fields select
// all. The tags are the contract's names of the conditions.
type Filter struct {
	JobID       *uuid.UUID `api:"jobId"`
	Statuses    []Status   `api:"status"`
	Triggers    []Trigger  `api:"triggerType"`
	JobTypes    []string   `api:"jobType"`
	ErrorTypes  []string   `api:"errorType"` // of failed ones
	TriggeredBy string     `api:"triggeredBy"`
	From        *time.Time `api:"from"` // scheduledAt, From included, To excluded
	To          *time.Time `api:"to"`
	CreatedFrom *time.Time `api:"createdFrom"` // the same of createdAt
	CreatedTo   *time.Time `api:"createdTo"`

	OldestFirst bool
	WithResult  bool      // Result is heavy, and nil without
	Limit       int       // how many at most
	After       *Position // the last one of the page before
}

// plain says that all executions of the range are listed, newest first.
func (f Filter) plain() bool {
	f.From, f.To = nil, nil
	return !f.conditions() && !f.OldestFirst
}

// conditions says whether anything is asked beside the page and its order.
func (f Filter) conditions() bool {
	f.OldestFirst, f.WithResult, f.Limit, f.After = false, false, 0, nil
	return !reflect.ValueOf(f).IsZero()
}

// Others says whether it has conditions beside those that a count of finished executions
// knows: the job, a range of scheduled times, statuses, triggers and job types.
func (f Filter) Others() bool {
	f.JobID, f.From, f.To, f.Statuses, f.Triggers, f.JobTypes = nil, nil, nil, nil, nil, nil
	return f.conditions()
}

// unfinished says that only executions are listed that are not finished.
func (f Filter) unfinished() bool {
	return len(f.Statuses) > 0 && !slices.ContainsFunc(f.Statuses, Status.Terminal)
}

// The range of a list that names no bounds of its own.
var (
	beginning = time.Unix(0, 0).UTC()
)

const (
	// scanRows is how many rows a page reads at most, whatever its filters leave:
	// some 20 ms of PostgreSQL.
	scanRows = 10_000
	// windowPartitions is how many partitions a transaction of a list touches, and so
	// locks, beside those of the time to come: a lock for each table and each of its
	// indexes, of which a server with all defaults has 6,400 for 100 connections.
	windowPartitions = 4
	// maxWindows is how many windows a page goes through in search of a row.
	maxWindows = 8
)

// List reads a page of executions by scheduledAt, with what each waits for, and
// where the next page begins; nil: nowhere. A page reads scanRows rows and
// maxWindows windows at most: where the filters leave few of them, it is short,
// or empty, although there is more. A job that does not exist is NotFound; a
// deleted one still has its history.
func (s *Store) List(ctx context.Context, who tenant.Actor, f Filter) (list []Execution, next *Position, err error) {
	if f.ErrorTypes != nil && f.Statuses == nil {
		f.Statuses = []Status{Failed} // which have an index of their own
	}
	now := clock.Now() // chooses windows; one that is wrong costs a window more
	c := &scan{filter: f, span: s.c.Spans.Now(), params: listParams(who, f), left: scanRows, now: now}
	for windows := 0; windows < maxWindows && !c.done; windows++ {
		// Each window in a transaction of its own, which gives back its locks.
		in := s.db.InList
		if c.recent = windows == 0 && f.plain() && now.Before(c.params.ToAt); c.recent {
			in = s.db.InNewest
		}
		err = in(ctx, who.TenantID, func(tx *postgres.Tx) error {
			if windows == 0 {
				if err := jobExists(ctx, tx, who, f.JobID); err != nil {
					return err
				}
				if err := c.skipFinished(ctx, tx); err != nil {
					return err
				}
			}
			before := len(c.list)
			if err := c.window(ctx, tx); err != nil {
				return err
			}
			return s.explain(ctx, tx, who.TenantID, c.list[before:])
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return c.list, c.next, nil
}

// recentMonths is how far back Recent looks: each month costs each job a step into an index.
const recentMonths = 3

// Recent reads the last executions of each of some jobs, newest first: id, status, scheduled time and
// duration.
func (s *Store) Recent(ctx context.Context, who tenant.Actor, jobs []uuid.UUID, most int) (found map[uuid.UUID][]Execution, err error) {
	found = make(map[uuid.UUID][]Execution, len(jobs))
	now := clock.Now()
	err = s.db.InList(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListRecentRuns(ctx, db.ListRecentRunsParams{
			TenantID: who.TenantID, JobIds: jobs, FromAt: now.AddDate(0, -recentMonths, 0), ToAt: now.Add(time.Hour), Most: int32(most),
		})
		if err != nil {
			return fmt.Errorf("list the last executions of jobs: %w", err)
		}
		for _, r := range rows {
			found[r.JobID] = append(found[r.JobID], Execution{ID: r.ID, JobID: r.JobID, Status: Status(r.Status), ScheduledAt: r.ScheduledAt.UTC(), DurationUS: r.DurationUs})
		}
		return nil
	})
	return found, err
}

func jobExists(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id *uuid.UUID) error {
	if id == nil {
		return nil
	}
	known, err := tx.JobExists(ctx, db.JobExistsParams{TenantID: who.TenantID, ID: *id})
	if err != nil {
		return fmt.Errorf("look for the job: %w", err)
	}
	if !known {
		return job.NotFound()
	}
	return nil
}

// scan walks a list through windows of time.
type scan struct {
	filter  Filter
	params  db.ListExecutionsParams // of what is left: FromAt and ToAt
	left    int32                   // rows that may be read still
	windows []span                  // to come; nil: not known yet
	now     time.Time
	span    partition.Span // of the newest partitions
	recent  bool           // this window is the newest there is, and all of it is listed

	list []Execution
	next *Position // where the next page begins
	done bool
}

// skipFinished begins a list of unfinished executions at the oldest one, because
// there are no windows to look through before it.
func (c *scan) skipFinished(ctx context.Context, tx *postgres.Tx) error {
	if !c.params.Unfinished {
		return nil
	}
	oldest, err := tx.OldestUnfinished(ctx, c.params.TenantID)
	if err != nil {
		return fmt.Errorf("find the oldest unfinished execution: %w", err)
	}
	c.params.FromAt = clock.Earlier(clock.Later(c.params.FromAt, oldest.UTC()), c.params.ToAt)
	return nil
}

// span is a range of scheduledAt, to excluded.
type span struct{ from, to time.Time }

// window reads the next window.
func (c *scan) window(ctx context.Context, tx *postgres.Tx) error {
	at, err := c.turn(ctx, tx)
	if err != nil {
		return err
	}
	p := c.params
	p.FromAt, p.ToAt, p.ScanRows, p.PageSize = at.from, at.to, c.left, int32(c.filter.Limit-len(c.list))+1
	rows, err := c.read(ctx, tx, p)
	if err != nil {
		return fmt.Errorf("list executions: %w", err)
	}
	c.list = slices.Grow(c.list, min(len(rows), c.filter.Limit-len(c.list)))
	for i := range rows {
		row := &rows[i]
		if !row.Fits {
			continue
		}
		if len(c.list) == c.filter.Limit {
			c.next, c.done = &Position{ScheduledAt: c.list[len(c.list)-1].ScheduledAt, ID: c.list[len(c.list)-1].ID}, true
			return nil
		}
		one, err := fromListed(row)
		if err != nil {
			return err
		}
		c.list = append(c.list, one)
	}
	if tx.Cut() {
		last := rows[len(rows)-1]
		c.next, c.done = &Position{ScheduledAt: last.ScheduledAt.UTC(), ID: last.ID}, true
		return nil
	}
	c.ended(at, rows)
	return nil
}

// read asks the statement that reads fewest rows. The newest page leaves out the partitions that
// are made ahead and hold nothing: each of them costs the statement as much as one with rows.
// Nothing is stored whose scheduled time is a span ahead.
func (c *scan) read(ctx context.Context, tx *postgres.Tx, p db.ListExecutionsParams) (rows []db.ListExecutionsRow, err error) {
	if !c.recent {
		return tx.Paged().ListExecutions(ctx, p)
	}
	found, err := tx.PagedSince(c.span.Since(c.now)).ListNewestExecutions(ctx, db.ListNewestExecutionsParams{
		WithResult: p.WithResult, TenantID: p.TenantID, FromAt: p.FromAt, ToAt: clock.Earlier(p.ToAt, c.span.Until(c.now)),
		PlaceAt: p.PlaceAt, PlaceID: p.PlaceID, PageSize: p.PageSize,
	})
	rows = make([]db.ListExecutionsRow, len(found))
	for i := range found {
		rows[i] = db.ListExecutionsRow(found[i])
	}
	return rows, err
}

// ended says where to go on after a window that did not fill the page.
func (c *scan) ended(at span, rows []db.ListExecutionsRow) {
	c.next = &Position{ScheduledAt: at.from, ID: uuid.Nil}
	more := c.params.FromAt.Before(at.from)
	if c.filter.OldestFirst {
		c.next = &Position{ScheduledAt: at.to.Add(-time.Microsecond), ID: uuid.Max}
		more = at.to.Before(c.params.ToAt)
	}
	if len(rows) > 0 {
		last := rows[len(rows)-1]
		if c.left -= int32(last.Number); c.left <= 0 {
			c.next, c.done = &Position{ScheduledAt: last.ScheduledAt.UTC(), ID: last.ID}, true
			return
		}
	}
	if !more {
		c.next, c.done = nil, true
	}
}

// turn is the window to read now. The newest is known without a look: what else
// there is, only where that one does not fill the page.
func (c *scan) turn(ctx context.Context, tx *postgres.Tx) (span, error) {
	all := span{c.params.FromAt, c.params.ToAt}
	if c.windows == nil && c.next == nil && !c.filter.OldestFirst {
		return c.newest(all), nil
	}
	if c.windows == nil {
		starts, err := tx.ListPartitionStarts(ctx)
		if err != nil {
			return span{}, fmt.Errorf("list the partitions of the history: %w", err)
		}
		if c.next != nil {
			all.to = c.next.ScheduledAt
		}
		c.windows = divide(all, starts, c.filter.OldestFirst)
	}
	first := c.windows[0]
	c.windows = c.windows[1:]
	return first, nil
}

// newest is the last part of a range: from the partition before the last one that may
// hold something, on.
func (c *scan) newest(all span) span {
	last := all.to.Add(-time.Microsecond)
	if c.now.Before(last) {
		last = c.now
	}
	return span{clock.Later(all.from, c.span.Since(last)), all.to}
}

// divide cuts a range where partitions begin, into windows of a few each, in
// the order in which they are read.
func divide(all span, starts []time.Time, oldestFirst bool) (windows []span) {
	var cuts []time.Time
	for _, at := range starts {
		if at.After(all.from) && at.Before(all.to) {
			cuts = append(cuts, at.UTC())
		}
	}
	rest := all
	if oldestFirst {
		for i := windowPartitions - 1; i < len(cuts); i += windowPartitions {
			windows = append(windows, span{rest.from, cuts[i]})
			rest.from = cuts[i]
		}
		return append(windows, rest)
	}
	for i := len(cuts) - windowPartitions; i >= 0; i -= windowPartitions {
		windows = append(windows, span{cuts[i], rest.to})
		rest.to = cuts[i]
	}
	return append(windows, rest)
}

func listParams(who tenant.Actor, f Filter) db.ListExecutionsParams {
	p := db.ListExecutionsParams{
		WithResult: f.WithResult, TenantID: who.TenantID, FromAt: beginning, ToAt: columns.Never, PlaceAt: columns.Never, PlaceID: uuid.Max,
		JobID: f.JobID, JobTypes: f.JobTypes, ErrorTypes: f.ErrorTypes, TriggeredBy: columns.OrNull(f.TriggeredBy), CreatedFrom: f.CreatedFrom, CreatedTo: f.CreatedTo,
		OldestFirst: f.OldestFirst, Unsuccessful: len(f.Statuses) > 0 && !slices.Contains(f.Statuses, Completed),
		Unfinished: f.unfinished(),
	}
	if f.OldestFirst {
		p.PlaceAt, p.PlaceID = beginning, uuid.Nil
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
			p.FromAt = clock.Later(p.FromAt, p.PlaceAt)
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
	return p
}
