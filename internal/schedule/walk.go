package schedule

import "github.com/scheduler-service/scheduler/internal/schedule/cron"

// clockRule is a cron expression on a zone's wall clock, with what to do where
// that clock is changed.
//
// An expression whose hour field covers all hours is due at every real second
// at which the wall clock matches, so that "every 15 minutes" stays every 15
// minutes. Any other one names times of day, and those have to come once: a
// time that is skipped is due as many seconds later as the clock moved, a time
// that comes twice is due on one of the passes.
type clockRule struct {
	expr    *cron.Expr
	zone    *zone
	gap     Gap
	overlap Overlap
}

// next is the first due second at or after from. It goes from one period of
// constant offset to the next, but leaps over those in which the expression,
// read on any clock, is not due: each step either gets two days before a
// candidate or passes one clock change near it.
func (c *clockRule) next(from int64) (int64, bool) {
	from = max(from, 0)
	for from <= lastSecond {
		p := c.zone.at(from)
		due, end := c.inPeriod(p, from)
		if due < end {
			return due, due <= lastSecond
		}
		// Offsets differ by less than the margin, so beyond it no clock change
		// brings back a wall time that this search has passed, nor one that it
		// has not reached.
		if p.to-from >= shiftMargin {
			from = max(p.to, due-shiftMargin)
		} else {
			from = p.to
		}
	}
	return 0, false
}

// inPeriod is the first due second at or after from as if p went on for ever,
// farFuture if there is none, and where p really stops giving due seconds.
func (c *clockRule) inPeriod(p period, from int64) (due, end int64) {
	begin, end := c.bounds(p, from)
	due = c.onClock(begin, p.offset)
	if c.shifts() && from < p.from+p.gap() {
		// These seconds also stand for the wall times that the change skipped,
		// read on the clock as it was before.
		if moved := c.onClock(from, p.before); moved < p.from+p.gap() {
			due = min(due, moved)
		}
	}
	return due, end
}

// bounds cuts off the pass of a repeated wall time that is not due.
func (c *clockRule) bounds(p period, from int64) (begin, end int64) {
	begin, end = from, p.to
	if !c.expr.EveryHour() {
		switch c.overlap {
		case overlapFirst:
			begin = max(begin, p.from+p.repeat())
		case overlapLast:
			end -= p.repeated()
		}
	}
	return begin, end
}

// count is clockRule's rule. Only where a clock change skipped wall times it goes
// second by second, because these seconds stand for two readings of the clock.
func (c *clockRule) count(low, high int64) (n int64) {
	from, to := max(floorDiv(low, second)+1, 0), min(floorDiv(high, second), lastSecond)+1
	for from < to {
		p := c.zone.at(from)
		begin, end := c.bounds(p, from)
		plain := from
		if c.shifts() {
			plain = max(from, min(p.from+p.gap(), to))
			for due, ok := c.next(from); ok && due < plain; due, ok = c.next(due + 1) {
				n++
			}
		}
		// The expression is searched up to the end of the last year on the wall clock.
		n += c.expr.Count(max(begin, plain)+p.offset, min(min(end, to)+p.offset, lastSecond+1))
		from = max(p.to, plain)
	}
	return n
}

func (c *clockRule) shifts() bool { return c.gap == gapShift && !c.expr.EveryHour() }

// onClock is the first due second on a clock with a constant offset.
func (c *clockRule) onClock(from, offset int64) int64 {
	wall, ok := c.expr.Next(from + offset)
	if !ok {
		return farFuture
	}
	return wall - offset
}
