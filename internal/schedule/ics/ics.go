// Package ics reads the days of a calendar from an iCalendar file (RFC 5545).
//
// It owns the part of the format that names days and times to leave out: events,
// their names, their repetitions and the exceptions to those. It refuses the rest by
// line, because an event that is read wrongly is a run at the wrong time. Package rest calls it for an upload; what it gives is stored as a plain
// schedule.Calendar, and nothing reads the file again.
package ics

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// Bounds of a file.
const (
	maxBytes  = 1 << 20
	maxLine   = 8 << 10 // one line, continuations included
	maxEvents = 1000    // as many as a calendar takes
)

// Parse reads a file into the ranges of a calendar whose zone is the IANA name
// zone; empty is UTC. Times without a zone are taken to be in it, others are
// converted to it; a zone may have its Windows name. At most 1 MiB, 1000 events and
// 1000 ranges; cancelled events are left out.
//
// An event of each year stays one yearly range. Other repetitions are written out, from
// two years before now to their end, or to ten years after now.
//
// The error is a *fault.Error naming the field ics and the line, for what is
// malformed and for all that is not supported: repetitions by the hour, periods as
// RDATE, EXRULE, zones that the file alone defines.
func Parse(r io.Reader, zone string, now time.Time) ([]schedule.DateRange, error) {
	location, err := load(zone)
	if err != nil {
		return nil, wrong(0, err)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read calendar: %w", err)
	}
	if len(text) > maxBytes {
		return nil, wrong(0, fmt.Errorf("is longer than %d bytes", maxBytes))
	}
	p := parser{zone: location, now: now}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxBytes)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if rest, folded := cutFold(line); folded && p.number > 0 {
			p.line += rest
		} else if err := p.flush(); err != nil {
			return nil, wrong(p.number, err)
		} else {
			p.line, p.number = line, number
		}
		if len(p.line) > maxLine {
			return nil, wrong(p.number, fmt.Errorf("is longer than %d bytes", maxLine))
		}
	}
	if err := p.flush(); err != nil {
		return nil, wrong(p.number, err)
	}
	if len(p.open) > 0 || !p.seen {
		return nil, wrong(p.number, errors.New("the file ends too early; it has to end with END:VCALENDAR"))
	}
	return p.all()
}

// all are the ranges of the events, once all are known: one may replace an occurrence
// of another.
func (p *parser) all() ([]schedule.DateRange, error) {
	x := &expansion{zone: p.zone, now: p.now, instead: map[string][]moment{}}
	for _, e := range p.events {
		if e.instead != nil {
			x.instead[e.uid] = append(x.instead[e.uid], *e.instead)
		}
	}
	var ranges []schedule.DateRange
	for _, e := range p.events {
		if e.cancelled {
			continue
		}
		some, err := e.finish(x)
		if err != nil {
			return nil, wrong(e.line, err)
		}
		if ranges = append(ranges, some...); len(ranges) > maxEvents {
			return nil, wrong(e.line, fmt.Errorf("the events up to here give more than %d days", maxEvents))
		}
	}
	return ranges, nil
}

// cutFold undoes the folding of long lines.
func cutFold(line string) (string, bool) {
	if line != "" && (line[0] == ' ' || line[0] == '\t') {
		return line[1:], true
	}
	return line, false
}

func wrong(line int, err error) error {
	message := err.Error()
	if line > 0 {
		message = fmt.Sprintf("line %d: %v", line, err)
	}
	return fault.Wrong(fault.CodeValidationFailed,
		fault.Field{Path: "ics", Rule: "icalendar", Message: message})
}

// load finds a zone under the rules of package schedule.
func load(zone string) (*time.Location, error) {
	location, err := schedule.Location(zone)
	if err != nil {
		return nil, fmt.Errorf("zone %.64q is not a known zone; an IANA name such as Europe/London is", zone)
	}
	return location, nil
}

// parser holds the logical line being gathered, the components that are open
// and the event being read.
type parser struct {
	zone   *time.Location
	line   string
	number int
	open   []string
	seen   bool
	now    time.Time
	event  event
	events []event
}

// flush handles the line gathered so far.
func (p *parser) flush() error {
	if p.line == "" {
		return nil
	}
	property, err := split(p.line)
	if err != nil {
		return err
	}
	switch property.name {
	case "BEGIN":
		return p.begin(strings.ToUpper(property.value))
	case "END":
		return p.end(strings.ToUpper(property.value))
	}
	switch p.inside() {
	case "":
		return errors.New("stands outside BEGIN:VCALENDAR")
	case "VEVENT":
		return p.event.set(property, p.zone, p.number)
	}
	return nil
}

func (p *parser) inside() string {
	if len(p.open) == 0 {
		return ""
	}
	return p.open[len(p.open)-1]
}

// begin opens a component. Only events count; zones and alarms are passed over
// with all that they contain.
func (p *parser) begin(name string) error {
	parent := p.inside()
	switch {
	case name == "VCALENDAR" && parent == "":
		p.seen = true
	case name == "VEVENT" && parent == "VCALENDAR":
		p.event = event{line: p.number}
	case name == "VTIMEZONE" && parent == "VCALENDAR",
		name == "VALARM" && parent == "VEVENT",
		parent == "VTIMEZONE" && (name == "STANDARD" || name == "DAYLIGHT"):
	default:
		return fmt.Errorf("%.40q is not supported here; events (VEVENT) in a VCALENDAR are", "BEGIN:"+name)
	}
	p.open = append(p.open, name)
	return nil
}

func (p *parser) end(name string) error {
	if name != p.inside() {
		return fmt.Errorf("%.40q does not end what is open", "END:"+name)
	}
	p.open = p.open[:len(p.open)-1]
	if name != "VEVENT" {
		return nil
	}
	if len(p.events) == maxEvents {
		return fmt.Errorf("has more than %d events", maxEvents)
	}
	p.events = append(p.events, p.event)
	return nil
}
