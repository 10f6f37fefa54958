package promoter_test

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
)

// The oracle of the simulated year. It knows an expression as sets, made
// together with its text and not by reading it; it writes down every wall time
// that those name and asks the standard library which times show it; and it
// says in words of its own what becomes of times that a pass finds due. It
// shares no line with packages schedule, job and promoter.

// dial is a cron expression as what it means.
type dial struct {
	text                   string
	seconds, minutes, hour []int
	onDay                  func(day time.Time) bool
}

// ask is a job of the year: what is stored, and what it means.
type ask struct {
	spec   job.Spec
	dial   *dial // nil: an interval or a one-off
	stored job.Job
}

// outcome is what a row says about a scheduled time, or a range of them.
type outcome struct {
	At     time.Time
	Status execution.Status
	Count  int64 // of a row that did not run
	Until  time.Time
}

// moment is a pass of some promoter at a time; drained says that all runs
// ended after it.
type moment struct {
	at      time.Time
	drained bool
}

// offset is how many seconds east of UTC a zone's clock is at a Unix second.
func offset(zone *time.Location, second int64) int64 {
	_, east := time.Unix(second, 0).In(zone).Zone()
	return int64(east)
}

// resolve gives the times that stand for a wall time, which is written as
// if it were one of UTC.
func (a *ask) resolve(zone *time.Location, wall int64) []int64 {
	// No zone is further than 14 hours from UTC, and none changes its clock
	// twice within four days: these two are all that may apply.
	const around = 26 * 3600
	before, after := offset(zone, wall-around), offset(zone, wall+around)
	var shown []int64
	for _, east := range slices.Compact([]int64{before, after}) {
		if at := wall - east; offset(zone, at) == east {
			shown = append(shown, at)
		}
	}
	slices.Sort(shown)
	switch {
	case len(a.dial.hour) == 24:
		return shown // the real times whose wall clock matches
	case len(shown) == 0 && a.spec.DSTGap == "shift":
		return []int64{wall - before} // as many seconds later as the clock moved
	case len(shown) == 2 && a.spec.DSTOverlap == "first":
		return shown[:1]
	case len(shown) == 2 && a.spec.DSTOverlap == "last":
		return shown[1:]
	}
	return shown
}

// slots lists what the rule gives between two times, in µs.
func (a *ask) slots(from, until time.Time) []int64 {
	var list []int64
	switch {
	case a.spec.RunAt != nil:
		return []int64{a.spec.RunAt.UnixMicro()}
	case a.spec.Interval != 0:
		step := time.Duration(a.spec.Interval)
		for at := a.stored.AnchorAt.Add(step); !at.After(until); at = at.Add(step) {
			list = append(list, at.UnixMicro())
		}
		return list
	}
	zone, err := time.LoadLocation(a.spec.Timezone)
	if err != nil {
		panic(err)
	}
	const day = 24 * time.Hour
	if s := a.spec.StartDate; s != nil && s.After(from) {
		from = *s
	}
	if e := a.spec.EndDate; e != nil && e.Before(until) {
		until = *e
	}
	for date := from.Truncate(day).Add(-2 * day); date.Before(until.Add(2 * day)); date = date.Add(day) {
		if !a.dial.onDay(date) {
			continue
		}
		for _, h := range a.dial.hour {
			for _, m := range a.dial.minutes {
				for _, s := range a.dial.seconds {
					for _, at := range a.resolve(zone, date.Unix()+int64(h*3600+m*60+s)) {
						list = append(list, at*1e6)
					}
				}
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// times lists when the job is due after a time: slots, window, spread.
func (a *ask) times(after, until time.Time) []time.Time {
	slots := a.slots(after, until)
	var list []time.Time
	for i, slot := range slots {
		at := time.UnixMicro(slot).UTC()
		if a.spec.StartDate != nil && at.Before(*a.spec.StartDate) || a.spec.EndDate != nil && !at.Before(*a.spec.EndDate) {
			continue
		}
		if room := time.Duration(a.spec.JitterSeconds) * time.Second; room > 0 {
			if i+1 < len(slots) {
				room = min(room, time.Duration(slots[i+1]-slot)*time.Microsecond)
			}
			at = at.Add(time.Duration(a.spread(slot)%uint64(room/time.Millisecond)) * time.Millisecond)
		}
		if at.After(after) {
			list = append(list, at)
		}
	}
	return list
}

// spread is the hash by which a slot's time is moved.
func (a *ask) spread(slot int64) uint64 {
	splitmix := func(v uint64) uint64 {
		v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
		v = (v ^ v>>27) * 0x94d049bb133111eb
		return v ^ v>>31
	}
	key := fnv.New64a()
	fmt.Fprint(key, a.stored.ID)
	return splitmix(splitmix(key.Sum64()) ^ splitmix(uint64(slot)))
}

// fate is what becomes of a job in the year.
type fate struct {
	Rows   []outcome
	Status job.Status
	Count  int64
	Last   time.Time
	Next   time.Time

	started []int // rows of runs that are not over
	holding int   // of those, how many did not have to wait for a place
}

// fate goes through the passes of the year with the job's times.
func (a *ask) fate(due []time.Time, year []moment) *fate {
	f := &fate{Status: job.Active}
	for _, m := range year {
		n := 0
		for n < len(due) && !due[n].After(m.at) {
			n++
		}
		if n > 0 && f.Status == job.Active {
			f.promote(a.spec, due[:n], m.at)
		}
		due = due[n:]
		if len(due) == 0 || a.spec.MaxExecutions > 0 && f.Count >= a.spec.MaxExecutions {
			f.Status = job.Inactive
		}
		if m.drained {
			f.started, f.holding = nil, 0
		}
	}
	if f.Status == job.Active {
		f.Next = due[0]
	}
	slices.SortFunc(f.Rows, func(a, b outcome) int { return a.At.Compare(b.At) })
	return f
}

// promote is a pass that finds times due.
func (f *fate) promote(spec job.Spec, due []time.Time, now time.Time) {
	timely := slices.IndexFunc(due, func(at time.Time) bool {
		return !at.Add(time.Duration(spec.Misfire.GraceSeconds) * time.Second).Before(now)
	})
	if timely < 0 {
		timely = len(due)
	}
	first := map[job.MisfirePolicy]int{job.MisfireSkip: timely, job.FireOnce: max(timely-1, 0), job.FireAll: 0}[spec.Misfire.Policy]
	for len(due)-first > spec.Misfire.Limit {
		first++
	}
	if first > 0 {
		f.Rows = append(f.Rows, outcome{At: due[0], Status: execution.Missed, Count: int64(first), Until: due[first-1]})
	}
	earlier := len(f.started)
	for _, at := range due[first:] {
		if spec.MaxExecutions > 0 && f.Count >= spec.MaxExecutions {
			return
		}
		f.admit(spec, at, earlier)
	}
	if n := len(f.started); n > 1 && spec.Overlap == job.OverlapCancel { // with maxConcurrent 1
		f.started = f.started[n-1:]
	}
}

// admit decides about one time. Of the rows that are not over, the first
// ones, as many as earlier, were made by earlier passes.
func (f *fate) admit(spec job.Spec, at time.Time, earlier int) {
	waiting := len(f.started) - f.holding
	free := spec.Overlap == job.OverlapAllow || len(f.started) < spec.MaxConcurrent
	queue := map[job.Overlap]int{job.OverlapQueue1: 1, job.OverlapQueue: spec.OverlapQueueLimit}[spec.Overlap]
	switch {
	case free:
		f.holding++
	case spec.Overlap == job.OverlapCancel:
		for i, row := range f.started {
			if i < earlier {
				f.Rows[row].Status = execution.Cancelled
				continue
			}
			if f.Rows[row].Status != execution.Skipped {
				f.Rows[row] = outcome{At: f.Rows[row].At, Status: execution.Skipped, Count: 1, Until: f.Rows[row].At}
				f.Count--
			}
		}
	case waiting >= queue:
		f.Rows = append(f.Rows, outcome{At: at, Status: execution.Skipped, Count: 1, Until: at})
		return
	}
	f.started = append(f.started, len(f.Rows))
	f.Rows = append(f.Rows, outcome{At: at, Status: execution.Completed})
	f.Count, f.Last = f.Count+1, at
}

// difference compares a job's fate with what is stored, and is short.
func difference(want, got *fate) string {
	for i := range max(len(want.Rows), len(got.Rows)) {
		if i >= len(want.Rows) || i >= len(got.Rows) || want.Rows[i] != got.Rows[i] {
			around := func(f *fate) []outcome { return f.Rows[min(max(0, i-2), len(f.Rows)):min(i+3, len(f.Rows))] }
			return fmt.Sprintf("%d rows instead of %d, from row %d on (-oracle +database):\n%s", len(got.Rows), len(want.Rows), i, cmp.Diff(around(want), around(got)))
		}
	}
	type rest struct {
		Status     job.Status
		Count      int64
		Last, Next time.Time
	}
	return cmp.Diff(rest{want.Status, want.Count, want.Last, want.Next}, rest{got.Status, got.Count, got.Last, got.Next})
}
