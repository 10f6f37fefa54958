package job

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Contents reads the calendars that a definition names, in its order. Ids that
// are not the tenant's are an Invalid fault that lists each.
func (s *Store) Contents(ctx context.Context, who tenant.Actor, named []Calendar) (sets []schedule.Calendar, err error) {
	if len(named) == 0 {
		return nil, nil
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		sets, err = contents(ctx, tx, who, named, calendar.Load)
		return err
	})
	return sets, err
}

// reading is one of calendar.Load and calendar.Hold.
type reading func(ctx context.Context, tx *postgres.Tx, tenant uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]schedule.Calendar, error)

func contents(ctx context.Context, tx *postgres.Tx, who tenant.Actor, named []Calendar, read reading) ([]schedule.Calendar, error) {
	ids := make([]uuid.UUID, len(named))
	for i, c := range named {
		ids[i] = c.ID
	}
	found, err := read(ctx, tx, who.TenantID, ids)
	if err != nil {
		return nil, err
	}
	return allOf(found, named)
}

// allOf is the contents of the named calendars, or a fault that lists each that is not
// there.
func allOf(found map[uuid.UUID]schedule.Calendar, named []Calendar) ([]schedule.Calendar, error) {
	var fields []fault.Field
	for i, c := range named {
		if _, ok := found[c.ID]; !ok {
			fields = append(fields, fault.Field{
				Path: fmt.Sprintf("calendars[%d].calendarId", i), Rule: "exists", Message: "there is no calendar with this id",
			})
		}
	}
	if len(fields) > 0 {
		return nil, fault.Wrong(fault.CodeValidationFailed, fields...)
	}
	return pick(found, named), nil
}

// pick is the contents of the named calendars, each in the job's mode.
func pick(found map[uuid.UUID]schedule.Calendar, named []Calendar) []schedule.Calendar {
	sets := make([]schedule.Calendar, len(named))
	for i, c := range named {
		sets[i] = found[c.ID]
		sets[i].Mode = c.Mode
	}
	return sets
}

// bound is when a job with this definition is due: its next time after now
// by its schedule and its calendars, nil when never; what is due already stays
// due. It refuses calendars that leave no time.
func bound(spec Spec, calendars []schedule.Calendar, state Job, now time.Time) (*time.Time, error) {
	if due := state.NextExecutionAt; due != nil && !due.After(now) {
		return due, nil
	}
	compiled, err := schedule.Compile(spec.Definition(state.ID.String(), state.AnchorAt, calendars))
	if err != nil {
		return nil, fmt.Errorf("compile the schedule: %w", err)
	}
	next, ok := compiled.Next(now)
	switch {
	case ok:
		return &next, nil
	case len(calendars) > 0 && spec.Scheduled():
		return nil, fault.Wrong(fault.CodeValidationFailed, fault.Field{
			Path: "calendars", Rule: "never", Message: "leave no time at which the job would run; change the schedule or the calendars",
		})
	default:
		return nil, nil
	}
}

// looked is among how many times the smallest distance is looked for.
const looked = 100

// SmallestDistance is the least time between two of the next 100 times of
// the schedule, jitter left out; zero for a schedule that has fewer than two.
func (s Policy) SmallestDistance(calendars []schedule.Calendar, now time.Time) (time.Duration, error) {
	s.JitterSeconds = 0
	compiled, err := schedule.Compile(s.Definition(uuid.Nil.String(), now, calendars))
	if err != nil {
		return 0, fmt.Errorf("compile the schedule: %w", err)
	}
	var least time.Duration
	last, ok := compiled.Next(now)
	for i := 1; ok && i < looked; i++ {
		var next time.Time
		if next, ok = compiled.Next(last); !ok {
			break
		}
		if distance := next.Sub(last); least == 0 || distance < least {
			least = distance
		}
		last = next
	}
	return least, nil
}

// An edit of a calendar locks the jobs that it moves and computes them in one
// transaction, and promoters pass over them meanwhile: hence bounds.
const (
	maxRescheduled = 1000      // jobs
	maxRanges      = 3_000_000 // days of the calendars of all of them; 0.5 µs each, from a measured run of 10 million
)

// Reschedule computes anew when the jobs that name a calendar are due, inside
// the transaction that changed it and holds it locked: the next time of each
// after now, while what is due already stays due. It refuses, as a Conflict, a
// change after which some job would never run again, and one that moves too many; and as
// Forbidden one that brings a job's times closer together than the tenant's
// smallest interval. A job whose times were as close before stays as it is.
func Reschedule(ctx context.Context, tx *postgres.Tx, who tenant.Actor, edit calendar.Edit) error {
	rows, err := tx.ListJobsByCalendar(ctx, db.ListJobsByCalendarParams{TenantID: who.TenantID, Reference: calendar.Reference(edit.ID)})
	if err != nil {
		return fmt.Errorf("lock the jobs of a calendar: %w", err)
	}
	if len(rows) > maxRescheduled {
		return fault.New(fault.Conflict, fault.CodeConflict, fmt.Sprintf(
			"more than %d jobs use this calendar, which is as many as one change can reschedule: make another calendar, and move the jobs to it", maxRescheduled))
	}
	jobs := make([]Job, len(rows))
	var ids []uuid.UUID
	for i, row := range rows {
		if jobs[i], err = fromRow(&row); err != nil {
			return err
		}
		for _, named := range jobs[i].Calendars {
			ids = append(ids, named.ID)
		}
	}
	// Without a lock on the others: an edit of one of them waits for these jobs
	// and then sees this change.
	found, err := calendar.Load(ctx, tx, who.TenantID, ids)
	if err != nil {
		return err
	}
	if n := rangesOf(jobs, found); n > maxRanges {
		return fault.New(fault.Conflict, fault.CodeConflict, fmt.Sprintf(
			"the calendars of the jobs that use this one have %d days together, counted for each job, of which one change can take %d into account: spread the jobs over several calendars",
			n, maxRanges))
	}
	p := db.RescheduleJobsParams{TenantID: who.TenantID, Now: tx.At}
	var barren []string
	for _, j := range jobs {
		if j.Status == Inactive {
			continue
		}
		next, err := bound(j.Spec, pick(found, j.Calendars), j, tx.At)
		if fault.KindOf(err) == fault.Invalid {
			barren = append(barren, fmt.Sprintf("%q (%s)", j.Name, j.ID))
			continue
		}
		if err != nil {
			return err
		}
		p.Ids, p.NextAt = append(p.Ids, j.ID), append(p.NextAt, orNever(next))
	}
	if len(barren) > 0 {
		return leavesNothing(barren)
	}
	if err := keepsDistance(ctx, tx, jobs, change{found: found, edit: edit, tenant: who.TenantID}); err != nil {
		return err
	}
	if err := tx.RescheduleJobs(ctx, p); err != nil {
		return fmt.Errorf("reschedule the jobs of a calendar: %w", err)
	}
	return nil
}

// rangesOf counts the days of the jobs' calendars, those of each job anew.
func rangesOf(jobs []Job, found map[uuid.UUID]schedule.Calendar) (n int) {
	for _, j := range jobs {
		for _, named := range j.Calendars {
			n += len(found[named.ID].Days)
		}
	}
	return n
}

// change is the calendars of some jobs after an edit of one of them.
type change struct {
	found  map[uuid.UUID]schedule.Calendar
	edit   calendar.Edit
	tenant uuid.UUID
}

// before is the calendars as they were.
func (c change) before() map[uuid.UUID]schedule.Calendar {
	was := maps.Clone(c.found)
	was[c.edit.ID] = c.edit.Before
	return was
}

// keepsDistance refuses an edit that brings times of a job closer together
// than the tenant's smallest interval, and than they were.
func keepsDistance(ctx context.Context, tx *postgres.Tx, jobs []Job, c change) error {
	row, err := tx.GetTenant(ctx, c.tenant)
	if err != nil {
		return fmt.Errorf("read the smallest interval: %w", err)
	}
	if row.MinIntervalSeconds == nil || *row.MinIntervalSeconds <= 1 {
		return nil // no schedule has less
	}
	least := time.Duration(*row.MinIntervalSeconds) * time.Second
	before := c.before()
	var nearer []string
	for _, j := range jobs {
		if j.Status == Inactive {
			continue
		}
		now, err := j.SmallestDistance(pick(c.found, j.Calendars), tx.At)
		if err != nil {
			return err
		}
		if now == 0 || now >= least {
			continue
		}
		was, err := j.SmallestDistance(pick(before, j.Calendars), tx.At)
		if err != nil {
			return err
		}
		if was == 0 || now < was {
			nearer = append(nearer, fmt.Sprintf("%q (%s)", j.Name, j.ID))
		}
	}
	if len(nearer) == 0 {
		return nil
	}
	return fault.Exceeded(fault.Limit{Name: "minIntervalSeconds", Value: int64(*row.MinIntervalSeconds)}, fmt.Sprintf(
		"with this calendar some times of these jobs would be less than %v apart: %s; change the days, or these jobs first", least, listed(nearer)), tx.At)
}

// leavesNothing names the first of the jobs that would never run again.
func leavesNothing(jobs []string) error {
	return fault.New(fault.Conflict, fault.CodeConflict, "these jobs would never run again: "+listed(jobs)+"; change the days, or these jobs first")
}

// listed names the first of some jobs and says how many more there are.
func listed(jobs []string) string {
	const shown = 5
	text := strings.Join(jobs[:min(shown, len(jobs))], ", ")
	if more := len(jobs) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// orNever writes "no next time" as the statement has it.
func orNever(next *time.Time) time.Time {
	if next == nil {
		return columns.Never
	}
	return *next
}
