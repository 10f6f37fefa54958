// Package cron reads cron expressions and answers, on a wall clock without
// zones, which moment matches next.
//
// It owns the grammar and the calendar arithmetic, both as docs/reference/cron.md states
// them. It refuses what it would have to guess, naming the field, and it knows
// nothing of zones, clock changes, windows or jitter: package schedule, its
// only caller, adds those. An expression is compiled into bit sets, so that one
// step costs tens of nanoseconds and allocates nothing, and so that the cost
// does not depend on what a tenant wrote.
package cron

import (
	"math/bits"
	"strconv"
	"strings"
)

// Bounds of the year field, and the last year that any expression is searched
// in. The calendar repeats every 400 years, so what does not match by then
// never does.
const (
	minYear  = 1970
	maxYear  = 2099
	LastYear = 2499
)

const secondsPerDay = 86400

// Expr is a compiled expression, immutable. Times are wall seconds: the seconds
// from 1970-01-01 00:00:00 to a wall clock's reading, counted as if the clock
// never changed.
type Expr struct {
	second, minute, hour, month uint64 // bit n stands for the value n
	day                         dayRule
	year                        set  // bit n stands for minYear+n
	everyYear                   bool // no year field, or one that covers its range
	uneven                      []string
}

// EveryHour says whether the hour field covers all 24 hours, whichever way it
// is written. Clock changes treat such an expression differently.
func (e *Expr) EveryHour() bool { return e.hour == 1<<24-1 }

// EitherDay says whether both day fields are restricted, so that a day which
// matches one of them is enough.
func (e *Expr) EitherDay() bool { return !e.day.anyDay && !e.day.anyWeekday }

// EverySecond says whether all seconds of a matching minute match.
func (e *Expr) EverySecond() bool { return e.second == 1<<60-1 }

// Uneven lists the fields with a step from * that does not divide the field's
// range ("minute */7"), so that the last gap is shorter than the others.
func (e *Expr) Uneven() []string { return e.uneven }

// DaysIn is how many days of a month match, and whether the month field names
// the month at all. The year field is not asked.
func (e *Expr) DaysIn(year, month int) (days int, named bool) {
	if e.month&(1<<month) == 0 {
		return 0, false
	}
	return bits.OnesCount32(e.day.mask(year, month)), true
}

// Match says whether the expression matches a wall second.
func (e *Expr) Match(wall int64) bool {
	next, ok := e.Next(wall)
	return ok && next == wall
}

// Next is the first matching wall second at or after wall. It is false when
// there is none before the end of LastYear; the search visits each month of
// that span at most once.
func (e *Expr) Next(wall int64) (int64, bool) {
	day := dayOf(wall)
	year, month, date := civil(day)
	left := e.days(year, month) >> date << date // this date and later ones
	if left>>date&1 == 1 {
		if second, ok := e.time(wall - day*secondsPerDay); ok {
			return day*secondsPerDay + second, true
		}
		left &= left - 1
	}
	for left == 0 {
		var ok bool
		if year, month, ok = e.nextMonth(year, month); !ok {
			return 0, false
		}
		left = e.days(year, month)
	}
	first, _ := e.time(0)
	return days(year, month, bits.TrailingZeros32(left))*secondsPerDay + first, true
}

// days is the set of matching dates in a month of a year, both of which have
// to match themselves.
func (e *Expr) days(year, month int) uint32 {
	if !e.inYear(year) || e.month&(1<<month) == 0 {
		return 0
	}
	return e.day.mask(year, month)
}

func (e *Expr) inYear(year int) bool {
	return e.everyYear || (year >= minYear && year <= maxYear && e.year.has(year-minYear))
}

// nextMonth is the first month after the given one that the month field and
// the year field name.
func (e *Expr) nextMonth(year, month int) (int, int, bool) {
	if later := e.month >> (month + 1) << (month + 1); later != 0 && e.inYear(year) {
		return year, bits.TrailingZeros64(later), true
	}
	for year++; !e.inYear(year); year++ {
		if year > maxYear {
			return 0, 0, false
		}
	}
	return year, bits.TrailingZeros64(e.month), year <= LastYear
}

// time is the first matching second of a day at or after the given one.
func (e *Expr) time(second int64) (int64, bool) {
	h, m, s := int(second/3600), int(second/60%60), int(second%60)
	firstMinute, firstSecond := bits.TrailingZeros64(e.minute), bits.TrailingZeros64(e.second)
	if e.hour>>h&1 == 1 {
		if e.minute>>m&1 == 1 {
			if left := e.second >> s; left != 0 {
				return clock(h, m, s+bits.TrailingZeros64(left)), true
			}
		}
		if left := e.minute >> (m + 1); left != 0 {
			return clock(h, m+1+bits.TrailingZeros64(left), firstSecond), true
		}
	}
	if left := e.hour >> (h + 1); left != 0 {
		return clock(h+1+bits.TrailingZeros64(left), firstMinute, firstSecond), true
	}
	return 0, false
}

func clock(hour, minute, second int) int64 { return int64(hour*3600 + minute*60 + second) }

// String is the canonical form: six fields, seven where the year is
// restricted, each * or an ascending list without ranges, steps or names. Equal
// canonical forms mean equal schedules.
func (e *Expr) String() string {
	fields := []string{
		listed(set{e.second}, 0, e.second == 1<<60-1),
		listed(set{e.minute}, 0, e.minute == 1<<60-1),
		listed(set{e.hour}, 0, e.EveryHour()),
		e.day.dates(),
		listed(set{e.month}, 0, e.month == 1<<13-2),
		e.day.weekdays(),
	}
	if !e.everyYear {
		fields = append(fields, listed(e.year, minYear, false))
	}
	return strings.Join(fields, " ")
}

// listed writes a set as a list of its values, base added to each.
func listed(values set, base int, every bool) string {
	if every {
		return "*"
	}
	var items []string
	for v := range len(values) * 64 {
		if values.has(v) {
			items = append(items, strconv.Itoa(base+v))
		}
	}
	return strings.Join(items, ",")
}

// set holds small numbers, up to the 130 years.
type set [3]uint64

func (s *set) add(v int)      { s[v/64] |= 1 << (v % 64) }
func (s *set) has(v int) bool { return s[v/64]>>(v%64)&1 == 1 }
func (s *set) len() int {
	return bits.OnesCount64(s[0]) + bits.OnesCount64(s[1]) + bits.OnesCount64(s[2])
}
