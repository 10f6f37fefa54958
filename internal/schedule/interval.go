package schedule

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/fault"
)

// Bounds of an interval.
const (
	minInterval = time.Second
	maxInterval = 366 * 24 * time.Hour
)

// every is the rule of an interval: anchor + k·step for k ≥ 1, in µs.
type every struct{ anchor, step int64 }

func (e every) slot(after int64) (int64, bool) {
	k := int64(1)
	if after >= e.anchor {
		k = (after-e.anchor)/e.step + 1
	}
	slot := e.anchor + k*e.step
	return slot, slot <= lastSecond*second
}

func (e every) count(low, high int64) int64 {
	return max(0, e.steps(min(high, lastSecond*second))-e.steps(low))
}

// steps is how many slots there are up to a scheduled time.
func (e every) steps(at int64) int64 { return max(0, at-e.anchor) / e.step }

// once is the rule of a one-off: its scheduled time in µs.
type once int64

func (o once) slot(after int64) (int64, bool) { return int64(o), after < int64(o) }

func (o once) count(low, high int64) int64 {
	if low < int64(o) && int64(o) <= high {
		return 1
	}
	return 0
}

func (c *complaints) every(def Definition) rule {
	if message := intervalMessage(def.Interval); message != "" {
		c.add("interval", "range", "%s", message)
		return nil
	}
	e := every{step: def.Interval.Microseconds()}
	if !def.Anchor.IsZero() {
		e.anchor = micro(def.Anchor)
	}
	return e
}

func intervalMessage(d time.Duration) string {
	switch {
	case d < minInterval:
		return "is shorter than the smallest interval, 1 s"
	case d > maxInterval:
		return "is longer than the largest interval, 366 days"
	case d%time.Millisecond != 0:
		return "must be whole milliseconds"
	}
	return ""
}

// isoDuration takes ISO 8601 durations of weeks, days, hours, minutes and
// seconds apart. Go has no parser for them, and those there are take years and
// months as averages.
var isoDuration = regexp.MustCompile(`^P(?:(\d{1,4})W)?(?:(\d{1,4})D)?(T(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,9})(?:[.,](\d{1,3}))?S)?)?$`)

// ParseInterval reads an ISO 8601 duration ("PT30S", "P1D", "P1W") or a Go
// duration ("30s", "1h30m") of 1 s to 366 days in whole milliseconds. Years and
// months are refused: their length varies, and cron says them better. A day is
// 24 hours. The error is a *fault.Error naming the field interval.
func ParseInterval(text string) (time.Duration, error) {
	d, ok := parseISO(text)
	if !ok {
		var err error
		if d, err = time.ParseDuration(text); err != nil || len(text) > 64 {
			return 0, wrongInterval("is not a duration; write an ISO 8601 duration such as PT30S or P1D, without years and months, or one such as 30s or 1h30m")
		}
	}
	if message := intervalMessage(d); message != "" {
		return 0, wrongInterval(message)
	}
	return d, nil
}

func parseISO(text string) (time.Duration, bool) {
	parts := isoDuration.FindStringSubmatch(text)
	if parts == nil || text == "P" || strings.HasSuffix(text, "T") {
		return 0, false
	}
	units := map[int]time.Duration{1: 7 * 24 * time.Hour, 2: 24 * time.Hour, 4: time.Hour, 5: time.Minute, 6: time.Second}
	var sum time.Duration
	for i, unit := range units {
		n, _ := strconv.Atoi(parts[i]) // digits, few enough for 64 bits, or nothing
		sum += time.Duration(n) * unit
	}
	n, _ := strconv.Atoi((parts[7] + "000")[:3])
	return sum + time.Duration(n)*time.Millisecond, true
}

func wrongInterval(message string) error {
	return fault.Wrong(fault.CodeValidationFailed,
		fault.Field{Path: "interval", Rule: "duration", Message: message})
}
