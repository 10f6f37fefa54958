// Package schedule turns what a tenant wrote into the scheduled times of a job.
//
// It owns the meaning of cron expressions, intervals, one-offs, windows,
// calendars, clock changes and spread: every question "when" has its answer
// here, and docs/reference/cron.md is the page that says how. It is pure: it reads
// no clock, no table and no environment, and the same definition gives the same
// scheduled times in every process. It refuses what can never fire and what it
// would have to guess.
package schedule

import (
	"errors"
	"fmt"
	"math"
	"time"
	_ "time/tzdata" // the zones, for images that carry none

	"github.com/adhocore/gronx"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/fault/suggest"
	"github.com/scheduler-service/scheduler/internal/schedule/cron"
)

const (
	gapShift     Gap     = "shift"
	gapSkip      Gap     = "skip"
	overlapFirst Overlap = "first"
	overlapLast  Overlap = "last"
	overlapBoth  Overlap = "both"

	maxJitter = 24 * time.Hour
)

// Schedule is a compiled definition. It is immutable and safe for any number of
// goroutines.
type Schedule struct {
	rule       rule
	zone       *zone
	start, end int64 // the window of slots in µs, [start, end)
	jitter     int64 // µs, whole milliseconds
	seed       uint64
	calendars  []calendar
}

// rule gives slots in µs, without window, calendars and jitter: the first one
// strictly after a scheduled time, and how many lie in (low, high] without visiting
// each.
type rule interface {
	slot(after int64) (int64, bool)
	count(low, high int64) int64
}

// Compile checks a definition and makes it answer questions. It refuses what is
// malformed and an expression that matches no date at all (30 February); what
// has merely passed (a year that has passed) compiles, because stored jobs must.
//
// The error is a *fault.Error of kind Invalid that lists every wrong field by
// its JSON name. Its code is INVALID_CRON_EXPRESSION where the expression is
// wrong, else VALIDATION_FAILED.
func Compile(def Definition) (*Schedule, error) {
	var c complaints
	s := c.compile(def)
	if err := c.err(); err != nil {
		return nil, err
	}
	return s, nil
}

// Validate is Compile for a definition that is new at now: it also refuses a
// one-off or an end that has passed, an end that is not after the start, and a
// schedule with no scheduled time left after now.
func Validate(def Definition, now time.Time) error {
	var c complaints
	s := c.compile(def)
	if !def.RunAt.IsZero() && !def.RunAt.After(now) {
		c.add("runAt", "past", "%s has passed", def.RunAt.UTC().Format(time.RFC3339))
	}
	if !def.End.IsZero() {
		switch {
		case !def.Start.IsZero() && !def.End.After(def.Start):
			c.add("endDate", "order", "is not after startDate")
		case !def.End.After(now):
			c.add("endDate", "past", "%s has passed", def.End.UTC().Format(time.RFC3339))
		}
	}
	if len(c.fields) == 0 && s.rule != nil {
		c.mustFire(s, def, now)
	}
	return c.err()
}

// mustFire complains about a schedule without a scheduled time after now, and names
// the field to blame.
func (c *complaints) mustFire(s *Schedule, def Definition, now time.Time) {
	if _, ok := s.Next(now); ok {
		return
	}
	bare := *s
	bare.calendars = nil
	if _, ok := bare.Next(now); ok {
		c.add("calendars", "never", "drop every scheduled time, so the schedule would never fire")
		return
	}
	from := max(micro(now), s.start-1)
	_, left := s.rule.slot(from)
	switch {
	case def.Cron != "" && !left:
		c.badCron(fault.Field{Path: "cronExpression", Rule: "never", Message: neverAgain(s.rule.(*clockRule), from/second)})
	case !def.RunAt.IsZero():
		c.add("runAt", "window", "does not lie between startDate and endDate, so the schedule would never fire")
	default:
		c.add("endDate", "never", "comes before the first scheduled time, so the schedule would never fire")
	}
}

// neverAgain says why an expression has nothing left: its years have passed, or
// clock changes take each of its times.
func neverAgain(c *clockRule, from int64) string {
	if c.onClock(from, c.zone.at(from).offset) < farFuture {
		return "hour: each matching time falls into a clock change, where dstGap or dstOverlap drops it, so the expression would never fire"
	}
	return "year: nothing matches after " + moment(from*second).Format(time.RFC3339) + ", so the expression would never fire"
}

// complaints gathers what is wrong with a definition, in the order found.
type complaints struct {
	fields  []fault.Field
	cronBad bool
}

func (c *complaints) add(path, rule, format string, args ...any) {
	c.fields = append(c.fields, fault.Field{Path: path, Rule: rule, Message: fmt.Sprintf(format, args...)})
}

func (c *complaints) badCron(f fault.Field) {
	c.fields = append(c.fields, f)
	c.cronBad = true
}

func (c *complaints) err() error {
	switch {
	case len(c.fields) == 0:
		return nil
	case c.cronBad:
		return fault.Wrong(fault.CodeInvalidCronExpression, c.fields...)
	}
	return fault.Wrong(fault.CodeValidationFailed, c.fields...)
}

// compile does what it can of a definition; what it returns is complete only
// where nothing was added to c.
func (c *complaints) compile(def Definition) *Schedule {
	s := &Schedule{start: math.MinInt64 + 1, end: math.MaxInt64, seed: seedOf(def.Key)}
	var err error
	if s.zone, err = loadZone(def.Zone); err != nil {
		c.add("timezone", "zone", "%q %v", shorten(def.Zone), err)
	}
	c.oneRule(def)
	switch {
	case def.Cron != "":
		s.rule = c.cron(def, s.zone)
	case def.Interval != 0:
		s.rule = c.every(def)
	case !def.RunAt.IsZero():
		s.rule = once(micro(def.RunAt))
	}
	if c.known("startDate", def.Start) {
		s.start = micro(def.Start)
	}
	if c.known("endDate", def.End) {
		s.end = micro(def.End)
	}
	c.known("runAt", def.RunAt)
	if s.jitter = def.Jitter.Microseconds(); def.Jitter < 0 || def.Jitter > maxJitter || def.Jitter%time.Millisecond != 0 {
		c.add("jitterSeconds", "range", "must lie between 0 and %d, in whole milliseconds", maxJitter/time.Second)
	}
	s.calendars = c.compileCalendars(def.Calendars)
	return s
}

// known says whether a scheduled time is given, and complains when it lies outside
// the years that the engine knows.
func (c *complaints) known(path string, t time.Time) bool {
	if t.IsZero() {
		return false
	}
	if t.Unix() < 0 || t.Unix() > lastSecond {
		c.add(path, "range", "must lie between %d and %d", firstYear, cron.LastYear)
	}
	return true
}

// oneRule complains about each rule beyond the first.
func (c *complaints) oneRule(def Definition) {
	const message = "give only one of cronExpression, interval and runAt"
	if def.Interval != 0 && def.Cron != "" {
		c.add("interval", "conflict", message)
	}
	if !def.RunAt.IsZero() && (def.Cron != "" || def.Interval != 0) {
		c.add("runAt", "conflict", message)
	}
}

func (c *complaints) cron(def Definition, z *zone) rule {
	r := &clockRule{zone: z, gap: def.DSTGap, overlap: def.DSTOverlap}
	switch r.gap {
	case "":
		r.gap = gapShift
	case gapShift, gapSkip:
	default:
		c.add("dstGap", "enum", "%s", suggest.OneOf(string(r.gap), []string{string(gapShift), string(gapSkip)}))
	}
	switch r.overlap {
	case "":
		r.overlap = overlapFirst
	case overlapFirst, overlapLast, overlapBoth:
	default:
		c.add("dstOverlap", "enum", "%s", suggest.OneOf(string(r.overlap), []string{string(overlapFirst), string(overlapLast), string(overlapBoth)}))
	}
	expr, err := cron.Parse(def.Cron, def.Key)
	if err == nil {
		err = secondLock(expr.String())
	}
	var wrong *cron.Error
	if errors.As(err, &wrong) {
		for _, p := range wrong.Problems {
			c.badCron(fault.Field{Path: "cronExpression", Rule: p.Field, Message: p.Message})
		}
	}
	r.expr = expr
	return r
}

// secondLock has gronx, an independent parser, read the canonical form too.
// gronx does not decide what a tenant may write, because it lets a third of all
// wrong expressions pass, nor when a job is due, because around clock changes
// it loses ticks and can answer its own input; but a canonical form that it
// refuses would mean that our own parser let something odd through, and then
// no job may be made of it.
func secondLock(canonical string) error {
	if gronx.IsValid(canonical) {
		return nil
	}
	return &cron.Error{Problems: []cron.Problem{{
		Field: "expression", Message: "is read differently by two parsers; write it in another way",
	}}}
}

func shorten(text string) string {
	if len(text) > 64 {
		return text[:64] + "…"
	}
	return text
}
