package ics

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/teambition/rrule-go"

	"github.com/scheduler-service/scheduler/internal/schedule"
)

const (
	// ahead and behind are for how many years after and before the import a
	// repetition without an end is written out: it has to be imported again before
	// then. Times before matter to backfills alone.
	ahead, behind = 10, 2
	// firstStart is the earliest year in which a repetition may begin.
	firstStart = 1900
	// maxExpanded bounds the repetitions of a file that are written out: the costliest
	// that we know takes 23 ms (see BenchmarkExpand).
	maxExpanded = 100
)

// expansion writes repetitions out, for a calendar's zone and a moment of import.
type expansion struct {
	zone     *time.Location
	now      time.Time
	expanded int
	// instead are the occurrences that other events replace, by UID.
	instead map[string][]moment
}

// sameEachYear says that the rule says no more than that the event is yearly: it is
// written out as FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=25 as often as not.
func (e *event) sameEachYear() bool {
	yearly := false
	for part := range strings.SplitSeq(e.rule, ";") {
		name, value, _ := strings.Cut(part, "=")
		switch {
		case name == "FREQ" && value == "YEARLY":
			yearly = true
		case name == "INTERVAL" && value == "1", name == "WKST":
		case name == "BYMONTH" && value == strconv.Itoa(int(e.start.wall.Month())):
		case name == "BYMONTHDAY" && value == strconv.Itoa(e.start.wall.Day()):
		default:
			return false
		}
	}
	return yearly
}

// expand writes an event's occurrences out.
func (x *expansion) expand(e *event) ([]schedule.DateRange, error) {
	if x.expanded++; x.expanded > maxExpanded {
		return nil, fmt.Errorf("has more than %d events that repeat otherwise than each year", maxExpanded)
	}
	starts := []time.Time{e.start.wall}
	if e.rule != "" {
		var err error
		if starts, err = x.occurrences(e); err != nil {
			return nil, fmt.Errorf("RRULE in line %d: %w", e.ruleLine, err)
		}
	}
	for _, d := range e.dates {
		if d.date != e.start.date {
			return nil, errors.New("DTSTART and RDATE have to be two dates or two times")
		}
		starts = append(starts, d.in(e.start.zone))
	}
	var ranges []schedule.DateRange
	oldest := onWall(x.now.In(x.zone)).AddDate(-behind, 0, 0)
	slices.SortFunc(starts, time.Time.Compare)
	for _, wall := range slices.CompactFunc(starts, time.Time.Equal) {
		if e.excepts(wall, e.except) || e.excepts(wall, x.instead[e.uid]) {
			continue
		}
		start := e.start
		start.wall = wall
		if r := e.at(start, x.zone, false); e.rule == "" || !r.Start.Before(oldest) {
			ranges = append(ranges, r)
		}
	}
	return ranges, nil
}

// excepts says that an occurrence is among the exceptions: at the same time, or, of an
// exception that is a date, on that day.
func (e *event) excepts(wall time.Time, exceptions []moment) bool {
	return slices.ContainsFunc(exceptions, func(m moment) bool {
		if m.date {
			return m.wall.Equal(wall.Truncate(24 * time.Hour))
		}
		return !e.start.date && m.in(e.start.zone).Equal(wall)
	})
}

// era is the years after which the calendar repeats itself, weekdays included.
const era = 400

// occurrences are the times at which the rule begins an occurrence, on the clock of
// the event's zone. The library looks for one up to the year 9999, which takes seconds
// where the rule fits no day; so it is asked for the last few centuries of those years,
// whose days fall on the same dates and weekdays.
func (x *expansion) occurrences(e *event) ([]time.Time, error) {
	if year := e.start.wall.Year(); year < firstStart {
		return nil, fmt.Errorf("begins in %d, before %d", year, firstStart)
	}
	option, err := rrule.StrToROption(e.rule)
	if err != nil {
		return nil, errors.New("is not a rule that can be read")
	}
	if err := supported(option); err != nil {
		return nil, err
	}
	later := (rrule.MAXYEAR - era/4 - e.start.wall.Year()) / era * era
	last := onWall(x.now.In(e.start.zone))
	if e.start.wall.After(last) {
		last = e.start.wall
	}
	last = last.AddDate(ahead, 0, 0)
	if until, ok, err := e.until(); err != nil {
		return nil, err
	} else if ok && until.Before(last) {
		last = until
	}
	option.Dtstart, option.Until = e.start.wall.AddDate(later, 0, 0), last.AddDate(later, 0, 0)
	rule, err := rrule.NewRRule(*option)
	if err != nil {
		return nil, errors.New("is not a rule that can be followed")
	}
	var starts []time.Time
	oldest := onWall(x.now).AddDate(-behind-1, 0, 0)
	for next, kept := rule.Iterator(), 0; ; {
		at, ok := next()
		if !ok {
			return starts, nil
		}
		if at = at.AddDate(-later, 0, 0); at.Before(oldest) {
			continue
		}
		if kept++; kept > maxEvents {
			return nil, fmt.Errorf("gives more than %d days until %s: end it earlier with UNTIL or COUNT", maxEvents, last.Format(time.DateOnly))
		}
		starts = append(starts, at)
	}
}

// until is the last moment of the rule's UNTIL, on the clock of the event's zone.
func (e *event) until() (last time.Time, ok bool, err error) {
	for part := range strings.SplitSeq(e.rule, ";") {
		value, is := strings.CutPrefix(part, "UNTIL=")
		if !is {
			continue
		}
		m, err := read(property{}, value, e.start.zone)
		if err != nil {
			return last, false, err
		}
		if last = m.in(e.start.zone); m.date {
			last = last.AddDate(0, 0, 1).Add(-time.Second)
		}
		return last, true, nil
	}
	return last, false, nil
}

// supported refuses rules by the hour, which make no days, and what is no part of the
// standard.
func supported(o *rrule.ROption) error {
	switch {
	case o.Freq > rrule.DAILY:
		return fmt.Errorf("FREQ=%s is not supported; DAILY, WEEKLY, MONTHLY and YEARLY are", o.Freq)
	case len(o.Byhour)+len(o.Byminute)+len(o.Bysecond) > 0:
		return errors.New("BYHOUR, BYMINUTE and BYSECOND are not supported")
	case len(o.Byeaster) > 0:
		return errors.New("BYEASTER is not supported")
	case o.Interval > 1000:
		return errors.New("INTERVAL is above 1000")
	case len(o.Bysetpos)+len(o.Bymonth)+len(o.Bymonthday)+len(o.Byyearday)+len(o.Byweekno)+len(o.Byweekday) > 400:
		return errors.New("has more than 400 conditions")
	}
	return nil
}

var periods = regexp.MustCompile(`^\+?P(?:(\d{1,4})W|(?:(\d{1,5})D)?(?:T(?:(\d{1,5})H)?(?:(\d{1,5})M)?(?:(\d{1,6})S)?)?)$`)

// duration reads a DURATION (RFC 5545, section 3.3.6).
func duration(text string) (sum time.Duration, err error) {
	found := periods.FindStringSubmatch(strings.ToUpper(text))
	for i, unit := range []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if found != nil && found[i+1] != "" {
			n, _ := strconv.Atoi(found[i+1]) // a few digits
			sum += time.Duration(n) * unit
		}
	}
	if sum <= 0 {
		return 0, fmt.Errorf("%.40q is not a duration above zero; P1D and PT1H30M are", text)
	}
	return sum, nil
}

//go:embed windows.txt
var windows string

// windowsZones are the IANA names of the zones that Windows knows by others.
var windowsZones = sync.OnceValue(func() map[string]string {
	zones := map[string]string{}
	for line := range strings.Lines(windows) {
		if name, zone, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			zones[strings.ToUpper(name)] = zone
		}
	}
	return zones
})

// loadAny finds a zone by its IANA name or by that of Windows.
func loadAny(id string) (*time.Location, error) {
	if zone, ok := windowsZones()[strings.ToUpper(id)]; ok {
		id = zone
	}
	return load(id)
}
