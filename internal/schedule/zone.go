package schedule

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scheduler-service/scheduler/internal/schedule/cron"
)

// Times inside this package are Unix seconds or microseconds. The engine
// knows those from 1970 to the end of cron.LastYear.
const (
	firstYear   = 1970
	day         = 24 * 60 * 60
	lastSecond  = 16725225600 - 1 // 2499-12-31T23:59:59Z; a test holds it to cron.LastYear
	farPast     = -1 << 42        // beyond any time, and still within 64 bits as µs
	farFuture   = 1 << 42
	shiftMargin = 2 * day // no clock was ever changed by more than 25 hours
)

// zone is a time zone with its clock changes laid out year by year. A year is
// worked out when it is first asked for, and kept.
type zone struct {
	location *time.Location
	fixed    bool // UTC: no change ever
	years    [cron.LastYear - firstYear + 1]atomic.Pointer[zoneYear]
}

// zoneYear lists the clock changes of a year in UTC, and of the two days before
// and after it.
type zoneYear struct {
	end    int64 // the first second of the next year
	offset int64 // seconds east of UTC before the first change
	shifts []shift
}

// shift is one clock change: from its time on the offset is another.
type shift struct{ at, offset int64 }

// period is an interval with one offset, and the clock changes at both its ends.
// The next period has the same offset where this one only ends with its year.
type period struct {
	offset       int64
	from, before int64 // where it begins, farPast if that is not near; the offset before it
	to, after    int64 // where it ends, exclusive; the offset after it
}

// gap is how many seconds of wall clock are skipped where the period begins.
func (p period) gap() int64 { return max(0, p.offset-p.before) }

// repeat is how many seconds at its beginning repeat wall times that were
// there before.
func (p period) repeat() int64 { return max(0, p.before-p.offset) }

// repeated is how many seconds at its end are repeated after it.
func (p period) repeated() int64 { return max(0, p.offset-p.after) }

// at is the period around a time.
func (z *zone) at(second int64) period {
	if z.fixed {
		return period{from: farPast, to: farFuture}
	}
	year := z.year(second)
	p := period{offset: year.offset, before: year.offset, from: farPast}
	for _, s := range year.shifts {
		if s.at > second {
			p.to, p.after = s.at, s.offset
			return p
		}
		p.from, p.before, p.offset = s.at, p.offset, s.offset
	}
	p.to, p.after = year.end, p.offset
	return p
}

func (z *zone) year(second int64) *zoneYear {
	number := time.Unix(min(max(second, 0), lastSecond), 0).UTC().Year()
	slot := &z.years[number-firstYear]
	if known := slot.Load(); known != nil {
		return known
	}
	fresh := z.survey(number)
	slot.Store(fresh) // two that meet here store equal values
	return fresh
}

// survey finds a year's clock changes by looking at the offset every second
// day and halving where it differs. time.Time.ZoneBounds would say it directly,
// but on 31 December of leap years it answers an end before the time asked
// about (Go 1.26, zones driven by a rule text), and a walk along it hangs. Two
// days are enough: since 1970 no zone changed its clock twice within six days,
// which a test holds against every zone there is.
func (z *zone) survey(number int) *zoneYear {
	const stride = 2 * day
	start := time.Date(number, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	year := &zoneYear{end: time.Date(number+1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()}
	low := start - shiftMargin
	offset := z.offset(low)
	year.offset = offset
	for low < year.end+shiftMargin {
		high := low + stride
		if next := z.offset(high); next != offset {
			year.shifts = append(year.shifts, shift{z.change(low, high), next})
			offset = next
		}
		low = high
	}
	return year
}

// change is the time in (low, high] at which the offset becomes high's.
func (z *zone) change(low, high int64) int64 {
	target := z.offset(high)
	for high-low > 1 {
		if middle := low + (high-low)/2; z.offset(middle) == target {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

func (z *zone) offset(second int64) int64 {
	_, offset := time.Unix(second, 0).In(z.location).Zone()
	return int64(offset)
}

// zones keeps what is loaded: reading a zone costs 20 µs and its changes more,
// and thousands of jobs share a few. It is no state that a caller could
// notice, being a pure function of the zone files, and it is bounded by them.
var zones sync.Map // name → *zone

// Location finds a zone by its IANA name; "" is UTC. A name that means another
// zone on another machine, or counts leap seconds, is none.
func Location(name string) (*time.Location, error) {
	z, err := loadZone(name)
	if err != nil {
		return nil, err
	}
	return z.location, nil
}

// loadZone is Location with what is kept of the zone.
func loadZone(name string) (*zone, error) {
	if name == "" {
		name = "UTC"
	}
	if known, ok := zones.Load(name); ok {
		return known.(*zone), nil
	}
	err := checkZoneName(name)
	if errors.Is(err, errUnknownZone) {
		return nil, unknownZone(name)
	}
	if err != nil {
		return nil, err
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return nil, unknownZone(name)
	}
	fresh := &zone{location: location, fixed: location == time.UTC}
	known, _ := zones.LoadOrStore(name, fresh)
	return known.(*zone), nil
}

var errUnknownZone = errors.New("is not a known zone; write an IANA name such as Europe/London, or UTC")

// checkZoneName lets only plain IANA names through to the zone files. The rest
// means something on one machine only (Local, localtime), is a second spelling
// of a zone (posix/, dots and double slashes, which would also unbound the
// cache) or counts leap seconds (right/).
func checkZoneName(name string) error {
	if strings.HasPrefix(name, "posix/") || strings.HasPrefix(name, "right/") {
		return errUnknownZone
	}
	switch name {
	case "Local":
		return errors.New("differs from machine to machine; write an IANA name such as Europe/London, or UTC")
	case "localtime", "posixrules", "Factory":
		return errUnknownZone
	}
	if len(name) > 64 {
		return errUnknownZone
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.Trim(part, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-_") != "" {
			return errUnknownZone
		}
	}
	return nil
}
