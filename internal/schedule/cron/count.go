package cron

import "math/bits"

// Count is how many wall seconds in [from, to) match. It multiplies days by the
// times in a day, so it costs as much as there are months between the two,
// however many seconds match.
func (e *Expr) Count(from, to int64) int64 {
	if from >= to {
		return 0
	}
	first, last := dayOf(from), dayOf(to)
	before, until := e.timesBefore(from-first*secondsPerDay), e.timesBefore(to-last*secondsPerDay)
	if first == last {
		return e.daysBetween(first, first+1) * (until - before)
	}
	perDay := e.timesBefore(secondsPerDay)
	return e.daysBetween(first, first+1)*(perDay-before) +
		e.daysBetween(first+1, last)*perDay +
		e.daysBetween(last, last+1)*until
}

// timesBefore is how many seconds of a matching day lie before the given one.
func (e *Expr) timesBefore(second int64) int64 {
	h, m, s := second/3600, second/60%60, second%60
	n := below(e.hour, h) * size(e.minute) * size(e.second)
	if e.hour>>h&1 == 1 {
		n += below(e.minute, m) * size(e.second)
		if e.minute>>m&1 == 1 {
			n += below(e.second, s)
		}
	}
	return n
}

// daysBetween is how many matching days lie in [first, last), counted from
// 1970-01-01.
func (e *Expr) daysBetween(first, last int64) (n int64) {
	for first < last {
		year, month, date := civil(first)
		days := e.days(year, month) >> date << date
		rest := int64(monthLength(year, month) - date + 1)
		if left := last - first; left < rest {
			days &= 1<<(int64(date)+left) - 1
			rest = left
		}
		n += int64(bits.OnesCount32(days))
		first += rest
	}
	return n
}

// dayOf is the day of a wall second, rounded towards the past.
func dayOf(wall int64) int64 {
	day := wall / secondsPerDay
	if wall < day*secondsPerDay {
		day--
	}
	return day
}

func size(set uint64) int64 { return int64(bits.OnesCount64(set)) }

// below is how many members of a set are smaller than v.
func below(set uint64, v int64) int64 { return size(set & (1<<v - 1)) }
