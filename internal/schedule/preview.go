package schedule

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/schedule/cron"
)

// Occurrence is one line of a preview.
type Occurrence struct {
	// Slot is the scheduled time that the rule names, in the schedule's zone, whose
	// offset it carries.
	Slot time.Time
	// At is Slot with its jitter, in the same zone: the scheduled time that Next
	// answers.
	At time.Time
	// Wall is the local time that the expression names, in the form
	// 2006-01-02T15:04:05. It differs from Slot's where a clock change moved
	// the slot.
	Wall string
	// Change is "moved" where the local time does not exist and the slot was
	// moved, "repeated" where it is the second pass of a local time, else "".
	Change string
	// Dropped says why nothing runs: "gap" (the local time does not exist),
	// "overlap" (the other pass of it runs), "calendar", or "" when it runs.
	Dropped string
}

const maxPreview = 1000

// Preview lists the next count (at most 1000) occurrences after after that run,
// and between them those that do not, at most count of these: from there on
// calendars are passed over range by range.
func (s *Schedule) Preview(after time.Time, count int) []Occurrence {
	if s.rule == nil {
		return nil
	}
	count = min(count, maxPreview)
	from := max(micro(after), s.start-1, -1)
	if slot, ok := s.slotStillToCome(from); ok {
		from = slot - 1
	}
	rule := widest(s.rule)
	var list []Occurrence
	runs := 0
	for range maxDrops {
		slot, ok := rule.slot(from)
		if !ok || slot >= s.end || runs >= count {
			break
		}
		o, free := s.occurrence(slot)
		from = slot
		switch {
		case o.Dropped == "":
			runs++
			list = append(list, o)
		case len(list)-runs < count:
			list = append(list, o)
		case o.Dropped == "calendar":
			from = free - 1
		}
	}
	return list
}

// widest is the rule with every slot that any policy for clock changes gives.
func widest(r rule) rule {
	if c, ok := r.(*clockRule); ok {
		return &clockRule{expr: c.expr, zone: c.zone, gap: gapShift, overlap: overlapBoth}
	}
	return r
}

// occurrence describes a slot of the widest rule, and says when the calendars
// are free again if they dropped it.
func (s *Schedule) occurrence(slot int64) (Occurrence, int64) {
	o := Occurrence{Slot: s.local(slot), At: s.local(slot)}
	wall := floorDiv(slot, second) + s.zone.at(floorDiv(slot, second)).offset
	if c, ok := s.rule.(*clockRule); ok {
		wall = c.classify(&o, slot/second)
	}
	o.Wall = wallText(wall)
	free := s.free(slot)
	switch {
	case o.Dropped != "":
	case free != slot:
		o.Dropped = "calendar"
	default:
		o.At = s.local(s.at(slot))
	}
	return o, free
}

func (s *Schedule) local(at int64) time.Time { return moment(at).In(s.zone.location) }

// classify says what a clock change does to a due second, and answers the wall
// second that the expression names.
func (c *clockRule) classify(o *Occurrence, due int64) (wall int64) {
	p := c.zone.at(due)
	again := due < p.from+p.repeat()
	if again {
		o.Change = "repeated"
	}
	if c.expr.EveryHour() {
		return due + p.offset
	}
	if !c.expr.Match(due + p.offset) {
		o.Change = "moved"
		if c.gap == gapSkip {
			o.Change, o.Dropped = "", "gap"
		}
		return due + p.before
	}
	if again && c.overlap == overlapFirst || due >= p.to-p.repeated() && c.overlap == overlapLast {
		o.Dropped = "overlap"
	}
	return due + p.offset
}

func wallText(wall int64) string { return time.Unix(wall, 0).UTC().Format("2006-01-02T15:04:05") }

// Warning is something that is allowed and probably not meant.
type Warning struct {
	// Code is stable, for programs; docs/reference/cron.md lists them.
	Code string
	// Message is for a person.
	Message string
}

// Lint looks at the schedule from now on and warns of what is allowed and
// probably not meant. Most schedules get no warning.
func (s *Schedule) Lint(now time.Time) []Warning {
	if s.rule == nil {
		return nil
	}
	if _, ok := s.Next(now); !ok {
		return []Warning{{"NEVER_FIRES", "never fires after " + now.UTC().Format(time.RFC3339)}}
	}
	var l lint
	l.ends(s, micro(now))
	if c, ok := s.rule.(*clockRule); ok {
		l.fields(c.expr)
		l.months(c.expr, now.UTC().Year())
		l.clockChanges(s, c, max(now.Unix(), floorDiv(s.start, second)))
	}
	l.jitter(s, micro(now))
	l.calendars(s, micro(now))
	return l
}

type lint []Warning

func (l *lint) add(code, format string, args ...any) {
	*l = append(*l, Warning{code, fmt.Sprintf(format, args...)})
}

// ends warns of a schedule that stops one day, though it looks as if it went
// on. A one-off is meant to.
func (l *lint) ends(s *Schedule, now int64) {
	if _, ok := s.rule.(once); ok {
		return
	}
	budget := 10 * maxDrops
	next := func(after int64) (int64, bool) { return s.slot(after, math.MaxInt64, &budget) }
	slot, ok := last(next, now, lastSecond*second)
	// Even the rarest expression fires every 40 years.
	if at := moment(slot); ok && budget > 0 && at.Year() < cron.LastYear-50 {
		l.add("ENDS", "never fires after %s", at.Format(time.RFC3339))
	}
}

func (l *lint) fields(e *cron.Expr) {
	if e.EitherDay() {
		l.add("EITHER_DAY", "day-of-month and day-of-week are both restricted: a day that matches either of them is due")
	}
	for _, field := range e.Uneven() {
		l.add("UNEVEN_STEP", "%s does not divide its range: the last gap is shorter than the others", field)
	}
	if fields := strings.Fields(e.String()); e.EverySecond() && (fields[1] != "*" || fields[2] != "*") {
		l.add("EVERY_SECOND", "the first field is the second: * fires 60 times in each matching minute; write 0 for once")
	}
}

// months warns of months that the expression names, or leaves open, and then
// has no day in. 28 years hold every month in each arrangement of weekdays.
func (l *lint) months(e *cron.Expr, year int) {
	const years = 28
	var never, rarely []string
	for month := 1; month <= 12; month++ {
		empty := 0
		for y := year; y < year+years; y++ {
			if days, named := e.DaysIn(y, month); named && days == 0 {
				empty++
			}
		}
		switch name := time.Month(month).String(); empty {
		case 0:
		case years:
			never = append(never, name)
		default:
			rarely = append(rarely, name)
		}
	}
	if never != nil {
		l.add("SKIPS_MONTHS", "fires 0 times in %s", strings.Join(never, ", "))
	}
	if rarely != nil {
		l.add("SKIPS_YEARS", "fires 0 times in some years in %s", strings.Join(rarely, ", "))
	}
}

// clockChanges warns of each change in the coming year that moves or drops a
// run, or makes one come twice, and shows the first such run.
func (l *lint) clockChanges(s *Schedule, c *clockRule, from int64) {
	if c.expr.EveryHour() {
		return
	}
	rule := widest(c)
	for until := from + 366*day; from < until; {
		p := c.zone.at(from)
		if p.to >= until {
			return
		}
		l.clockChange(s, rule, p)
		from = p.to
	}
}

// clockChange looks at the seconds around the end of a period.
func (l *lint) clockChange(s *Schedule, rule rule, p period) {
	width := max(p.after-p.offset, p.offset-p.after)
	for at := (p.to-p.repeated())*second - 1; ; {
		slot, ok := rule.slot(at)
		if !ok || slot >= min((p.to+width)*second, s.end) {
			return
		}
		o, _ := s.occurrence(slot)
		switch {
		case o.Change == "moved":
			l.add("CLOCK_CHANGE", "%s does not exist in %s: the run moves to %s", o.Wall, s.zone.location, wallText(floorDiv(slot, second)+p.after))
			return
		case o.Dropped == "gap":
			l.add("CLOCK_CHANGE", "%s does not exist in %s: nothing runs", o.Wall, s.zone.location)
			return
		case o.Dropped == "overlap":
			l.add("CLOCK_CHANGE", "%s comes twice in %s: only one of the two runs", o.Wall, s.zone.location)
			return
		case o.Change == "repeated":
			l.add("CLOCK_CHANGE", "%s comes twice in %s: it runs both times", o.Wall, s.zone.location)
			return
		}
		at = slot
	}
}

func (l *lint) jitter(s *Schedule, now int64) {
	slot, ok := s.rule.slot(now)
	if following, more := s.rule.slot(slot); s.jitter > 0 && ok && more && following-slot < s.jitter {
		l.add("JITTER_CAPPED", "jitterSeconds is longer than the %d s between runs, which it never exceeds", (following-slot)/second)
	}
}

// calendars warns when nothing at all is left of the next hundred slots.
func (l *lint) calendars(s *Schedule, now int64) {
	at := max(now, s.start-1)
	for range 100 {
		slot, ok := s.rule.slot(at)
		if !ok || s.free(slot) == slot {
			return
		}
		at = slot
	}
	if first, ok := s.next(now); ok {
		l.add("CALENDAR_DROPS", "the calendars drop everything before %s", moment(first).Format(time.RFC3339))
	}
}
