package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// dayRule is the two day fields. Where both are restricted a day that matches
// either is due, as in every cron since the first one; where one is, it
// decides; where none is, every day is due.
type dayRule struct {
	anyDay, anyWeekday bool
	date               uint32    // bits 1 to 31
	last               bool      // L
	near               uint32    // nW: bits 1 to 31
	weekday            uint32    // bits 0 (Sunday) to 6
	lastWeekday        uint32    // nL
	nth                [6]uint32 // n#k: nth[k] holds the weekdays
}

// mask is the set of due dates in a month, as bits 1 to 31.
func (r *dayRule) mask(year, month int) uint32 {
	length := monthLength(year, month)
	all := uint32(1)<<(length+1) - 2
	if r.anyDay && r.anyWeekday {
		return all
	}
	first := weekday(days(year, month, 1))
	switch {
	case r.anyDay:
		return r.byWeekday(first, length) & all
	case r.anyWeekday:
		return r.byDate(first, length) & all
	}
	return (r.byDate(first, length) | r.byWeekday(first, length)) & all
}

// byDate is the day-of-month field in a month that begins on weekday first.
func (r *dayRule) byDate(first, length int) uint32 {
	due := r.date
	if r.last {
		due |= 1 << length
	}
	for left := r.near; left != 0; left &= left - 1 {
		if date := bits.TrailingZeros32(left); date <= length {
			due |= 1 << nearestWorkday(date, first, length)
		}
	}
	return due
}

// nearestWorkday is the Monday to Friday nearest to a date in the same month.
func nearestWorkday(date, first, length int) int {
	switch (first + date - 1) % 7 {
	case 6: // Saturday: the Friday before, or the Monday after where that is in the month before
		if date == 1 {
			return 3
		}
		return date - 1
	case 0: // Sunday: the Monday after, or the Friday before where that is in the month after
		if date == length {
			return date - 2
		}
		return date + 1
	}
	return date
}

// byWeekday is the day-of-week field in a month that begins on weekday first.
func (r *dayRule) byWeekday(first, length int) uint32 {
	const weekly = 1 | 1<<7 | 1<<14 | 1<<21 | 1<<28
	var due uint32
	for left := r.weekday; left != 0; left &= left - 1 {
		due |= weekly << firstDate(bits.TrailingZeros32(left), first)
	}
	for left := r.lastWeekday; left != 0; left &= left - 1 {
		date := firstDate(bits.TrailingZeros32(left), first)
		due |= 1 << (date + (length-date)/7*7)
	}
	for k, set := range r.nth {
		for left := set; left != 0; left &= left - 1 {
			// A date beyond the month's end falls to the caller's mask; the
			// largest, 7+28, is beyond 32 bits and vanishes in the shift.
			due |= 1 << (firstDate(bits.TrailingZeros32(left), first) + 7*(k-1))
		}
	}
	return due
}

// firstDate is the date of the first given weekday in a month that begins on
// weekday first.
func firstDate(weekday, first int) int { return 1 + (weekday-first+7)%7 }

func (r *dayRule) dates() string {
	if r.anyDay {
		return "*"
	}
	items := numbers(r.date, "%d")
	if r.last {
		items = append(items, "L")
	}
	return strings.Join(append(items, numbers(r.near, "%dW")...), ",")
}

func (r *dayRule) weekdays() string {
	if r.anyWeekday {
		return "*"
	}
	items := append(numbers(r.weekday, "%d"), numbers(r.lastWeekday, "%dL")...)
	for k, set := range r.nth {
		items = append(items, numbers(set, "%d#"+strconv.Itoa(k))...)
	}
	return strings.Join(items, ",")
}

func numbers(set uint32, format string) []string {
	var items []string
	for left := set; left != 0; left &= left - 1 {
		items = append(items, fmt.Sprintf(format, bits.TrailingZeros32(left)))
	}
	return items
}

// The three functions below are the proleptic Gregorian calendar in integers,
// after Howard Hinnant's "chrono-compatible low-level date algorithms": a year
// that begins in March makes the leap day the last one.

// days is the number of days from 1970-01-01 to a date.
func days(year, month, date int) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	return int64(365*year + floor(year, 4) - floor(year, 100) + floor(year, 400) +
		(153*(month-3)+2)/5 + date - 719469)
}

// civil is the date that lies a number of days after 1970-01-01.
func civil(day int64) (year, month, date int) {
	z := int(day) + 719468
	era := floor(z, 146097)
	inEra := z - era*146097
	yearOfEra := (inEra - inEra/1460 + inEra/36524 - inEra/146096) / 365
	inYear := inEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	shifted := (5*inYear + 2) / 153
	year, month, date = yearOfEra+era*400, shifted+3, inYear-(153*shifted+2)/5+1
	if month > 12 {
		return year + 1, month - 12, date
	}
	return year, month, date
}

func monthLength(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// weekday is 0 for Sunday; 1970-01-01 was a Thursday.
func weekday(day int64) int { return int((day%7 + 11) % 7) }

// floor divides and rounds down.
func floor(a, b int) int {
	if a < 0 {
		return (a - b + 1) / b
	}
	return a / b
}
