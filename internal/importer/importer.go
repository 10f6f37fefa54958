// Package importer reads the schedules of other schedulers.
//
// It owns what their notations mean and how a job of ours says the same. A
// schedule that a job cannot say is refused by line, never approximated: a run at nearly
// the right time is a wrong run. It is pure; package schedctl calls it.
package importer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/scheduler-service/scheduler/internal/schedule"
)

// Entry is one schedule of another scheduler as a job of ours would have it.
type Entry struct {
	Line int    // where it begins in the file, from 1; in formats without lines its number
	Name string // at most 200 bytes
	// Exactly one of Cron, Interval and RunAt is set.
	Cron     string // six or seven fields
	Interval time.Duration
	RunAt    time.Time
	Zone     string // IANA name
	Start    time.Time
	End      time.Time
	Jitter   time.Duration
	// Grace, Misfire, Overlap and Timeout are empty where ours decide.
	Grace   time.Duration
	Misfire string
	Overlap string
	Timeout time.Duration
	// Retries is negative where ours decide.
	Retries int
	// Args is what it runs: a program with its arguments.
	Args  []string
	Env   map[string]string
	Input string // what it hands to its target, as text
	// Suspended: it does not run now.
	Suspended bool
}

// Note is about one line of a file.
type Note struct {
	Line int
	Text string
	// Left: the line was not imported. Otherwise it was, and Text says what of it was not.
	Left bool
}

// String is the note with its line.
func (n Note) String() string {
	if n.Left {
		return fmt.Sprintf("line %d: not imported: %s", n.Line, n.Text)
	}
	return fmt.Sprintf("line %d: %s", n.Line, n.Text)
}

// maxName is the longest name of a job, in bytes.
const maxName = 200

// formats read a text in a zone, which is that of schedules that name none.
var formats = map[string]func(text, zone string, f *found){
	"crontab":        readCrontab(false),
	"system-crontab": readCrontab(true),
	"kubernetes":     readCronJobs,
	"eventbridge":    readEventBridge,
	"systemd":        readTimer,
	"github":         readWorkflow,
	"quartz":         readQuartz,
}

// Formats are the names that Read knows, in alphabetical order.
func Formats() []string { return slices.Sorted(maps.Keys(formats)) }

// Read reads a file of one of Formats. Zone is the IANA name of the zone of schedules
// that name none; empty is UTC. Notes are in the order of their lines. The error is
// about the file as a whole.
func Read(format, text, zone string) (entries []Entry, notes []Note, err error) {
	read, known := formats[format]
	if !known {
		return nil, nil, fmt.Errorf("%q is not a format; use one of: %s", format, strings.Join(Formats(), ", "))
	}
	if zone == "" {
		zone = "UTC"
	}
	var f found
	read(strings.TrimPrefix(text, "\uFEFF"), zone, &f)
	if f.err != nil {
		return nil, nil, f.err
	}
	slices.SortStableFunc(f.notes, func(a, b Note) int { return a.Line - b.Line })
	return f.entries, f.notes, nil
}

// found is what a reader comes upon.
type found struct {
	entries []Entry
	notes   []Note
	err     error
}

func (f *found) note(line int, format string, args ...any) {
	f.notes = append(f.notes, Note{Line: line, Text: fmt.Sprintf(format, args...)})
}

func (f *found) left(line int, format string, args ...any) {
	f.notes = append(f.notes, Note{Line: line, Text: fmt.Sprintf(format, args...), Left: true})
}

// add takes an entry if our own rules take its schedule.
func (f *found) add(e Entry) {
	def := schedule.Definition{Cron: e.Cron, Interval: e.Interval, RunAt: e.RunAt, Zone: e.Zone, Start: e.Start, End: e.End, Jitter: e.Jitter}
	if _, err := schedule.Compile(def); err != nil {
		f.left(e.Line, "%v", err)
		return
	}
	e.Name = cut(e.Name)
	f.entries = append(f.entries, e)
}

// cut is a name that a job may have.
func cut(name string) string {
	name = strings.Join(strings.Fields(name), " ")
	if name == "" {
		return "imported"
	}
	for len(name) > maxName {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}
