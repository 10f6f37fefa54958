package ics

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	ical "github.com/arran4/golang-ical"

	"github.com/scheduler-service/scheduler/internal/schedule"
)

// property is a line of a component: NAME;PARAM=VALUE;…:value.
type property struct {
	name   string
	params map[string]string
	value  string
}

// split takes a line apart.
func split(line string) (property, error) {
	read, err := ical.ParseProperty(ical.ContentLine(line))
	if err != nil || read == nil {
		return property{}, errors.New("is not a property; NAME:value is expected")
	}
	p := property{name: strings.ToUpper(read.IANAToken), params: map[string]string{}, value: read.Value}
	for name, values := range read.ICalParameters {
		p.params[strings.ToUpper(name)] = strings.Join(values, ",")
	}
	return p, nil
}

// event is a VEVENT being read.
type event struct {
	line       int
	uid, name  string
	start, end moment
	length     time.Duration // DURATION; zero: none is given
	rule       string        // RRULE; empty: none
	ruleLine   int
	dates      []moment // RDATE
	except     []moment // EXDATE
	instead    *moment  // RECURRENCE-ID: the occurrence that the event replaces
	cancelled  bool
}

// moment is a date or a time, on the clock of its own zone.
type moment struct {
	given bool
	wall  time.Time
	date  bool // a whole day
	zone  *time.Location
}

// in is what the clock of a zone shows at the moment; a date is that of every zone.
func (m moment) in(zone *time.Location) time.Time {
	if m.date || m.zone.String() == zone.String() {
		return m.wall
	}
	w := m.wall
	return onWall(time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), 0, m.zone).In(zone))
}

// onWall is what a clock shows, as if it were in UTC.
func onWall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// maxName bounds the name of a day, in characters.
const maxName = 200

// set takes in one property. Properties that do not bear on when the event is (its
// attendees, its place) are passed over; one that does and is not supported is
// refused.
func (e *event) set(p property, zone *time.Location, line int) (err error) {
	switch p.name {
	case "DTSTART", "DTEND":
		target := &e.start
		if p.name == "DTEND" {
			target = &e.end
		}
		if target.given {
			return fmt.Errorf("a second %s", p.name)
		}
		*target, err = read(p, p.value, zone)
	case "DURATION":
		e.length, err = duration(p.value)
	case "RRULE":
		if e.rule != "" {
			return errors.New("a second RRULE")
		}
		e.rule, e.ruleLine = strings.ToUpper(p.value), line
	case "RDATE":
		e.dates, err = list(e.dates, p, zone)
	case "EXDATE":
		e.except, err = list(e.except, p, zone)
	case "RECURRENCE-ID":
		if p.params["RANGE"] != "" {
			return errors.New("RANGE is not supported")
		}
		var at moment
		at, err = read(p, p.value, zone)
		e.instead = &at
	case "EXRULE":
		err = errors.New("EXRULE is not supported; EXDATE is")
	case "STATUS":
		e.cancelled = strings.EqualFold(p.value, "CANCELLED")
	case "UID":
		e.uid = p.value
	case "SUMMARY":
		e.name = nameOf(ical.FromText(p.value))
	}
	return err
}

// nameOf is a summary as the name of a day: one line, without what cannot be stored.
func nameOf(summary string) string {
	name := strings.Join(strings.Fields(strings.ToValidUTF8(strings.ReplaceAll(summary, "\x00", ""), "")), " ")
	if utf8.RuneCountInString(name) > maxName {
		name = string([]rune(name)[:maxName])
	}
	return name
}

// list reads the dates and times of an RDATE or an EXDATE.
func list(all []moment, p property, zone *time.Location) ([]moment, error) {
	for text := range strings.SplitSeq(p.value, ",") {
		m, err := read(p, text, zone)
		if err != nil {
			return nil, err
		}
		if all = append(all, m); len(all) > maxEvents {
			return nil, fmt.Errorf("has more than %d dates", maxEvents)
		}
	}
	return all, nil
}

// read reads a DATE or a DATE-TIME, the latter as local time, with a zone or in
// UTC.
func read(p property, text string, zone *time.Location) (moment, error) {
	m := moment{given: true, zone: zone}
	if day, err := time.Parse("20060102", text); err == nil {
		m.wall, m.date = day, true
		return m, nil
	}
	if p.params["VALUE"] == "DATE" {
		return m, fmt.Errorf("%.40q is not a date; YYYYMMDD is", text)
	}
	bare, utc := strings.CutSuffix(text, "Z")
	local, err := time.Parse("20060102T150405", bare)
	if err != nil {
		return m, fmt.Errorf("%.40q is not a date or a time; YYYYMMDD and YYYYMMDDTHHMMSS are", text)
	}
	m.wall = local
	switch id := p.params["TZID"]; {
	case utc:
		m.zone = time.UTC
	case id != "":
		m.zone, err = loadAny(id)
	}
	return m, err
}

// finish turns the event into ranges on the clock of the calendar's zone.
func (e *event) finish(x *expansion) ([]schedule.DateRange, error) {
	switch {
	case !e.start.given:
		return nil, errors.New("the event has no DTSTART")
	case e.end.given && e.length != 0:
		return nil, errors.New("the event has DTEND and DURATION; give one")
	case !e.end.given && e.length == 0 && !e.start.date:
		return nil, errors.New("the event has no DTEND or DURATION, and so no length")
	case e.end.given && e.end.date != e.start.date:
		return nil, errors.New("DTSTART and DTEND have to be two dates or two times")
	case e.start.date && e.length%(24*time.Hour) != 0:
		return nil, errors.New("the DURATION of an event of whole days has to be days")
	case e.end.given && !e.end.in(x.zone).After(e.start.in(x.zone)):
		return nil, errors.New("the event ends before it begins, on the calendar's clock")
	}
	if e.rule == "" && len(e.dates) == 0 {
		return []schedule.DateRange{e.at(e.start, x.zone, false)}, nil
	}
	if e.sameEachYear() && len(e.dates)+len(e.except) == 0 && (e.start.date || e.start.zone.String() == x.zone.String()) {
		return []schedule.DateRange{e.at(e.start, x.zone, true)}, nil
	}
	return x.expand(e)
}

// at is the range of the occurrence that begins at a moment.
func (e *event) at(start moment, zone *time.Location, yearly bool) schedule.DateRange {
	r := schedule.DateRange{Start: start.in(zone), Yearly: yearly, Name: e.name}
	switch {
	case e.end.given && e.start.wall.Equal(start.wall):
		r.End = e.end.in(zone)
	case e.end.given:
		end := start
		end.wall = start.wall.Add(e.end.in(e.start.zone).Sub(e.start.wall))
		r.End = end.in(zone)
	case e.length != 0:
		end := start
		end.wall = start.wall.Add(e.length)
		r.End = end.in(zone)
	}
	return r
}
