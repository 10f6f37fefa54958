package ics

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/schedule"
)

// property is a line of a component: NAME;PARAM=VALUE;…:value.
type property struct {
	name   string
	params map[string]string
	value  string
}

// split takes a line apart. Parameters may be quoted and then contain : and ;.
func split(line string) (property, error) {
	p := property{params: map[string]string{}}
	quoted := false
	colon := strings.IndexFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ':' && !quoted
	})
	if colon < 0 {
		return p, errors.New("has no colon; NAME:value is expected")
	}
	p.value = line[colon+1:]
	for i, part := range splitQuoted(line[:colon]) {
		if i == 0 {
			p.name = strings.ToUpper(part)
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		p.params[strings.ToUpper(name)] = strings.Trim(value, `"`)
	}
	return p, nil
}

// splitQuoted splits at semicolons outside quotes.
func splitQuoted(text string) []string {
	quoted := false
	return strings.FieldsFunc(text, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ';' && !quoted
	})
}

// event is a VEVENT being read.
type event struct {
	line       int
	start, end moment
	yearly     bool
	cancelled  bool
}

// moment is a DTSTART or DTEND on the calendar's wall clock.
type moment struct {
	given   bool
	wall    time.Time
	date    bool // a whole day
	foreign bool // converted from another zone
}

// set takes in one property. Properties that do not bear on when the event is (its
// summary, its attendees) are passed over; one that does and is not supported is
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
		*target, err = read(p, zone)
	case "RRULE":
		e.yearly, err = true, e.repeat(p.value)
	case "RDATE", "EXDATE", "EXRULE", "RECURRENCE-ID", "DURATION":
		err = fmt.Errorf("%s is not supported; give each event its DTSTART and DTEND", p.name)
	case "STATUS":
		e.cancelled = strings.EqualFold(p.value, "CANCELLED")
	}
	return err
}

// repeat admits a yearly rule that says no more than the start does. It is
// written out as FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=25 as often as not.
func (e *event) repeat(rule string) error {
	if !e.start.given {
		return errors.New("RRULE stands before DTSTART; the order that calendars write is the other one")
	}
	for part := range strings.SplitSeq(strings.ToUpper(rule), ";") {
		name, value, _ := strings.Cut(part, "=")
		switch want := e.start.wall; {
		case name == "FREQ" && value == "YEARLY", name == "INTERVAL" && value == "1", name == "WKST":
		case name == "BYMONTH" && value == strconv.Itoa(int(want.Month())):
		case name == "BYMONTHDAY" && value == strconv.Itoa(want.Day()):
		default:
			return fmt.Errorf("%.40q is not supported; FREQ=YEARLY on the day of DTSTART is", part)
		}
	}
	if !strings.Contains(strings.ToUpper(rule), "FREQ=YEARLY") {
		return errors.New("RRULE has no FREQ; FREQ=YEARLY is supported")
	}
	return nil
}

// read reads a DATE or a DATE-TIME, the latter as local time, with a zone or in
// UTC.
func read(p property, zone *time.Location) (moment, error) {
	m := moment{given: true}
	if day, err := time.Parse("20060102", p.value); err == nil {
		m.wall, m.date = day, true
		return m, nil
	}
	if p.params["VALUE"] == "DATE" {
		return m, fmt.Errorf("%.40q is not a date; YYYYMMDD is", p.value)
	}
	text, utc := strings.CutSuffix(p.value, "Z")
	local, err := time.Parse("20060102T150405", text)
	if err != nil {
		return m, fmt.Errorf("%.40q is not a date or a time; YYYYMMDD and YYYYMMDDTHHMMSS are", p.value)
	}
	m.wall = local
	from := zone
	switch id := p.params["TZID"]; {
	case utc:
		from = time.UTC
	case id != "":
		if from, err = load(id); err != nil {
			return m, err
		}
	}
	if from.String() != zone.String() {
		m.foreign = true
		there := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, from)
		m.wall = onWall(there.In(zone))
	}
	return m, nil
}

// onWall is what a clock shows, as if it were in UTC.
func onWall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// finish turns the event into a range.
func (e *event) finish() (schedule.DateRange, error) {
	r := schedule.DateRange{Start: e.start.wall, End: e.end.wall, Yearly: e.yearly}
	switch {
	case !e.start.given:
		return r, errors.New("the event has no DTSTART")
	case !e.end.given && !e.start.date:
		return r, errors.New("the event has no DTEND, and so no length")
	case e.end.given && e.end.date != e.start.date:
		return r, errors.New("DTSTART and DTEND have to be two dates or two times")
	case e.end.given && !e.end.wall.After(e.start.wall):
		return r, errors.New("the event ends before it begins, on the calendar's clock")
	case e.yearly && (e.start.foreign || e.end.foreign):
		return r, errors.New("a yearly event has to be in the calendar's zone, or it would move with the clocks")
	}
	return r, nil
}
