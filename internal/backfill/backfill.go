// Package backfill runs a job again for the scheduled times of a past range.
//
// It owns which scheduled times those are, the bounds of a request, what a tenant
// sees of a backfill, and the store that creates, reads and cancels one. It refuses
// to make the executions: package promoter does, batch by batch, at the requested
// rate.
package backfill

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

const (
	// MaxTimes is how many scheduled times one backfill may have.
	MaxTimes = 10_000
	// DefaultRate and MaxRate are executions a minute.
	DefaultRate = 60
	MaxRate     = 6000
	// defaultShare is how much of the executions that a tenant may have in a day a
	// backfill uses where nothing is said, in percent: the rest is the schedule's.
	defaultShare = 50
	// MaxRunning is how many backfills of one job may run at once.
	MaxRunning = 10
)

// Status is where a backfill stands.
type Status string

// The states.
const (
	Running   Status = "running"   // executions are still to be made, or not finished
	Completed Status = "completed" // every scheduled time's execution is finished
	Cancelled Status = "cancelled" // somebody cancelled it, or its job was deleted
)

// Request is what somebody asks for.
type Request struct {
	From          time.Time // the first scheduled time that counts
	To            time.Time // the first scheduled time that does not, at most now
	RatePerMinute int       // 1 to MaxRate; 0 means DefaultRate
	// DailyShare is how much of maxExecutionsPerDay may be used when it makes an
	// execution, 1 to 100 percent; 0 means half.
	DailyShare int
	// Parameters override parts of the job's config, as for a trigger; nil when
	// none. The caller has checked them.
	Parameters json.RawMessage

	kept partition.Term // how far back it may begin, of the store
}

// Plan is what a request would make.
type Plan struct {
	Total       int       // scheduled times
	First, Last time.Time // the earliest and the latest of them; zero when there are none
}

// Backfill is a stored request and what became of it.
type Backfill struct {
	ID            uuid.UUID
	TenantID      uuid.UUID
	JobID         uuid.UUID
	JobVersion    int // of which every execution runs
	From, To      time.Time
	RatePerMinute int
	DailyShare    int
	Parameters    json.RawMessage
	Status        Status
	Total         int // scheduled times
	Created       int // executions made so far
	Active        int // of these, how many are not finished
	// HeldBy is why a running one makes nothing now: a limit, a month that is not
	// in the history, or what the database said; empty: nothing holds it.
	HeldBy      string
	RequestedBy string
	CreatedAt   time.Time
	FinishedAt  *time.Time
	// Outcomes counts the executions by status. It is nil in lists, where they are not counted.
	Outcomes map[execution.Status]int
}

// Progress is the percentage of scheduled times whose execution is finished.
func (b Backfill) Progress() int {
	if b.Total == 0 {
		return 0
	}
	return min(max(0, 100*(b.Created-b.Active)/b.Total), 100)
}

// Anchor is the time from which a backfill counts a job's interval: the job's own
// anchor, or, for a range that begins before it, as many whole intervals earlier as
// reach the range. So the scheduled times before the job was created are those that
// it would have had.
func Anchor(policy job.Policy, anchor, from time.Time) time.Time {
	step := time.Duration(policy.Interval)
	if step <= 0 || from.After(anchor) {
		return anchor
	}
	// One for the division's remainder, one for the slot before the range whose
	// jitter moves it into the range.
	return anchor.Add(-(anchor.Sub(from)/step + 2) * step)
}

// settled is the request in UTC and whole microseconds, which is how the
// database keeps time, with its rate and the bound of the store.
func (r Request) settled(kept partition.Term) Request {
	r.kept = kept
	r.From, r.To = r.From.UTC().Truncate(time.Microsecond), r.To.UTC().Truncate(time.Microsecond)
	if r.RatePerMinute == 0 {
		r.RatePerMinute = DefaultRate
	}
	if r.DailyShare == 0 {
		r.DailyShare = defaultShare
	}
	return r
}

// check reports everything that is wrong with a settled request by itself.
func (r Request) check(now time.Time) error {
	var fields []fault.Field
	add := func(path, rule, format string, args ...any) {
		fields = append(fields, fault.Field{Path: path, Rule: rule, Message: fmt.Sprintf(format, args...)})
	}
	if oldest := r.kept.Before(now); r.From.Before(oldest) {
		add("from", "retention", "is more than %s ago; the earliest time possible is %s now", r.kept, oldest.Format(time.RFC3339))
	}
	if r.To.After(now) {
		add("to", "past", "has not passed yet; a backfill ends now at the latest")
	}
	if !r.From.Before(r.To) {
		add("to", "order", "must lie after from")
	}
	if r.RatePerMinute < 1 || r.RatePerMinute > MaxRate {
		add("ratePerMinute", "bounds", "is %d; it must be between 1 and %d", r.RatePerMinute, MaxRate)
	}
	if r.DailyShare < 1 || r.DailyShare > 100 {
		add("dailyShare", "bounds", "is %d; it must be between 1 and 100", r.DailyShare)
	}
	return wrong(fields)
}

// plan counts the scheduled times of a settled request. A range without any is a plan
// of none, which a dry run may show and Create refuses.
func (r Request) plan(s *schedule.Schedule) (Plan, error) {
	found := s.Between(r.From.Add(-time.Microsecond), r.To.Add(-time.Microsecond), 1)
	switch {
	case found.Capped:
		return Plan{}, tooMany(fmt.Sprintf("more than %d", MaxTimes))
	case found.Count > MaxTimes:
		return Plan{}, tooMany(fmt.Sprint(found.Count))
	case found.Count == 0:
		return Plan{}, nil
	}
	p := Plan{Total: found.Count, First: found.First, Last: found.Times[0]}
	if found.Count == 1 {
		p.First = p.Last
	}
	return p, nil
}

// days are scheduled times of the plan, the first of each day of UTC.
func (p Plan) days(s *schedule.Schedule) (first []time.Time) {
	for at, ok := p.First, p.Total > 0; ok && !at.After(p.Last); {
		first = append(first, at)
		utc := at.UTC()
		at, ok = s.Next(time.Date(utc.Year(), utc.Month(), utc.Day()+1, 0, 0, 0, 0, time.UTC).Add(-time.Microsecond))
	}
	return first
}

// detached refuses a range if one of its days is not in the history. It names each table
// once.
func detached(days []partition.Missing) error {
	var fields []fault.Field
	told := ""
	for _, m := range days {
		if m.Detached == told {
			continue
		}
		told = m.Detached
		fields = append(fields, fault.Field{
			Path: "from", Rule: "detached",
			Message: fmt.Sprintf("the executions of %s were taken out of the history (table %s): ask for a range without its days, or have the operator attach the table again", m, m.Detached),
		})
	}
	return wrong(fields)
}

func tooMany(count string) error {
	return wrong([]fault.Field{{
		Path: "from", Rule: "maximum",
		Message: fmt.Sprintf("the job has %s scheduled times between from and to; one backfill may have %d: choose a shorter range", count, MaxTimes),
	}})
}

func none() error {
	return wrong([]fault.Field{{Path: "from", Rule: "never", Message: "the job has no scheduled time between from and to; a dry run shows which ones a range has"}})
}

func noSchedule() error {
	return wrong([]fault.Field{{Path: "id", Rule: "schedule", Message: "this job has no schedule, so it has no scheduled times; trigger it instead"}})
}

func wrong(fields []fault.Field) error {
	if len(fields) == 0 {
		return nil
	}
	return fault.Wrong(fault.CodeValidationFailed, fields...)
}
