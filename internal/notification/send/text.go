package send

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/scheduler-service/scheduler/internal/notification"
)

// title is a message in one short line.
func title(events []notification.Event, count int) string {
	if count > 1 {
		return fmt.Sprintf("%d events of the scheduler", count)
	}
	e := &events[0]
	if does, ok := deeds[e.Type]; ok {
		return plain(nameOf(e), 100) + " " + does
	}
	return "Test of a notification"
}

// deeds say of each type what a job did.
var deeds = map[string]string{
	"job.failed":        "failed",
	"job.recovered":     "works again",
	"job.disabled":      "was disabled",
	"job.not_run_by":    "did not run in time",
	"execution.failed":  "failed",
	"execution.missed":  "missed scheduled times",
	"execution.skipped": "skipped a scheduled time",
	"execution.slow":    "is slow",
	"monitor.down":      "is down",
	"monitor.recovered": "works again",
}

// faults say of each reason what a monitor found.
var faults = map[string]string{
	"not_started": "did not start in time",
	"too_slow":    "did not end in time",
	"too_fast":    "ended sooner than it may",
	"too_often":   "started sooner than it may",
	"failed":      "failed",
}

// nameOf is the name of the job or the monitor that an event is about.
func nameOf(e *notification.Event) string {
	if e.MonitorName != "" {
		return e.MonitorName
	}
	return e.JobName
}

// sentence says what happened, in one line.
func sentence(e *notification.Event) string {
	name := plain(nameOf(e), 100)
	var text string
	switch e.Type {
	case "job.failed", "execution.failed":
		text = fmt.Sprintf("%s failed: %s %s", name, e.ErrorType, plain(e.ErrorMessage, 300))
		if e.Failures > 1 {
			text += fmt.Sprintf(" (%d in a row)", e.Failures)
		}
	case "job.recovered":
		text = fmt.Sprintf("%s works again after %d failed executions", name, e.Failures)
		if e.FailingSince != nil {
			text += " since " + moment(*e.FailingSince)
		}
	case "job.disabled":
		text = fmt.Sprintf("%s was disabled: %s", name, plain(e.Reason, 300))
	case "job.not_run_by":
		text = fmt.Sprintf("%s was not completed in time: %s", name, plain(e.Reason, 300))
		if e.ExpectedBy != nil {
			text += ", expected by " + moment(*e.ExpectedBy)
		}
	case "execution.missed":
		text = fmt.Sprintf("%s missed %d scheduled times: %s", name, e.MissedCount, plain(e.Reason, 300))
	case "execution.skipped":
		text = fmt.Sprintf("%s skipped a scheduled time: %s", name, plain(e.Reason, 300))
	case "execution.slow":
		text = fmt.Sprintf("%s took %v, usually %v", name, time.Duration(e.DurationMS)*time.Millisecond, time.Duration(e.UsualMS)*time.Millisecond)
	case "monitor.down":
		text = name + " " + faults[e.Reason]
		if e.Failures > 1 {
			text += fmt.Sprintf(" (%d in a row)", e.Failures)
		}
	case "monitor.recovered":
		text = fmt.Sprintf("%s works again after %d failures", name, e.Failures)
		if e.FailingSince != nil {
			text += " since " + moment(*e.FailingSince)
		}
	default:
		text = "this is a test: messages arrive"
	}
	if e.ScheduledAt != nil {
		text += ", scheduled for " + moment(*e.ScheduledAt)
	}
	return text
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// plain is a text of a tenant in one line: what breaks lines or steers a terminal is a
// space.
func plain(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, text)
	return cut(strings.TrimSpace(text), most)
}
