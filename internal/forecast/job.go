package forecast

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// planned is an active job, or a monitor that expects runs, and where its schedule is.
type planned struct {
	id      uuid.UUID
	name    string
	monitor bool
	policy  job.Policy
	anchor  time.Time
	next    time.Time // the first time that is not promoted yet
	runs    int64     // that its schedule made so far
}

// few is how many runs of a bucket are listed rather than counted by their range, which
// costs more where there are few.
const few = 4

// key seeds what a schedule draws; that of a monitor draws nothing.
func (p planned) key() string {
	if p.monitor {
		return ""
	}
	return p.id.String()
}

// book counts the runs of jobs and monitors. Those with the same times are computed once.
type book struct {
	*counter
	calendars map[uuid.UUID]schedule.Calendar
	known     map[string]timetable
	spent     func() bool // whether the time to compute is spent
}

// timetable is a schedule and its runs in the whole range of a query.
type timetable struct {
	schedule *schedule.Schedule
	runs     []runs
}

// count adds the runs of a job or monitor. It is false where the time was over before they were
// known, and then adds none.
func (b *book) count(one planned) (bool, error) {
	sets := make([]schedule.Calendar, len(one.policy.Calendars))
	for i, named := range one.policy.Calendars {
		sets[i] = b.calendars[named.ID]
		sets[i].Mode = named.Mode
	}
	text := times(one)
	table, known := b.known[text]
	if !known {
		compiled, err := schedule.Compile(one.policy.Definition(one.key(), one.anchor, sets))
		if err != nil {
			return false, fmt.Errorf("compile the schedule of %s: %w", one.id, err)
		}
		table.schedule = compiled
		var complete bool
		if table.runs, complete = b.runsOf(compiled, b.query.From); !complete {
			return false, nil
		}
		if text != "" {
			b.known[text] = table
		}
	}
	all := table.runs
	if first, ok := table.schedule.Next(b.query.From.Add(-time.Microsecond)); ok && first.Before(one.next) {
		// Times before the next one were promoted already, or never will be.
		var complete bool
		if all, complete = b.runsOf(table.schedule, one.next); !complete {
			return false, nil
		}
	}
	b.add(one, all, b.left(one, table.schedule))
	return true, nil
}

// left is how many runs a job may still make from the beginning of the query on; below
// zero: any number.
func (b *book) left(one planned, compiled *schedule.Schedule) int64 {
	if one.policy.MaxExecutions == 0 {
		return -1
	}
	before := compiled.Between(one.next.Add(-time.Microsecond), b.query.From.Add(-time.Microsecond), 0).Count
	return max(0, one.policy.MaxExecutions-one.runs-int64(before))
}

// runsOf counts the runs of a schedule from a time on, bucket by bucket that has one.
// The cost grows with these buckets and not with the runs.
func (b *book) runsOf(compiled *schedule.Schedule, from time.Time) (all []runs, complete bool) {
	limit := few
	next, ok := compiled.Next(from.Add(-time.Microsecond))
	for ok && next.Before(b.query.To) {
		if b.spent() {
			return nil, false
		}
		bucket := b.bucketAt(next)
		found := compiled.Between(next.Add(-time.Microsecond), b.endOf(bucket).Add(-time.Microsecond), limit)
		all = append(all, runs{bucket: bucket, count: int64(found.Count), first: next})
		if found.Count > few {
			limit = 0
		} else {
			limit = few
		}
		next, ok = found.Next, !found.Next.IsZero()
	}
	return all, true
}

// times is a text that jobs share which are due at the same times, also under other ids;
// empty where the id decides: it seeds jitter and the H of expressions.
func times(one planned) string {
	p := one.policy
	if p.JitterSeconds > 0 || strings.ContainsAny(p.CronExpression, "Hh") {
		return ""
	}
	anchor := time.Time{}
	if p.Interval != 0 {
		anchor = one.anchor
	}
	return fmt.Sprint(p.CronExpression, "|", p.Timezone, "|", int64(p.Interval), "|", anchor.UnixMicro(), "|", micro(p.RunAt), "|", micro(p.StartDate), "|", micro(p.EndDate),
		"|", p.DSTGap, "|", p.DSTOverlap, "|", p.Calendars)
}

func micro(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMicro()
}
