package importer

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
)

// withQuestion reads an expression in which one of the days is a question mark: Amazon's
// of minute to year, or Quartz's of second to year, which may be absent.
func withQuestion(d dialect, text string) (string, error) {
	parts := strings.Fields(text)
	if d.wraps { // Quartz
		if len(parts) != 6 && len(parts) != 7 {
			return "", fmt.Errorf("%q has %d fields, not 6 or 7", text, len(parts))
		}
	} else {
		if len(parts) != 6 {
			return "", fmt.Errorf("%q has %d fields, not 6", text, len(parts))
		}
		parts = append([]string{"0"}, parts...)
	}
	kinds := []kind{second, minute, hour, dayOfMonth, month, d.dayOfWeek()}
	read := make([]values, len(kinds))
	for i, k := range kinds {
		var err error
		if read[i], err = d.read(k, parts[i]); err != nil {
			return "", err
		}
	}
	days, weekdays, err := exclusive(read[3], read[5])
	if err != nil {
		return "", err
	}
	ours := []string{read[0].String(), read[1].String(), read[2].String(), days, read[4].String(), weekdays}
	if len(parts) == 7 && parts[6] != "*" && parts[6] != "?" {
		ours = append(ours, parts[6]) // a list of four digits means the same
	}
	return strings.Join(ours, " "), nil
}

// rule is a schedule or a rule of EventBridge.
type rule struct {
	Name                       string `json:"Name"`
	GroupName                  string `json:"GroupName"`
	ScheduleExpression         string `json:"ScheduleExpression"`
	ScheduleExpressionTimezone string `json:"ScheduleExpressionTimezone"`
	StartDate                  string `json:"StartDate"`
	EndDate                    string `json:"EndDate"`
	State                      string `json:"State"`
	FlexibleTimeWindow         struct {
		MaximumWindowInMinutes int `json:"MaximumWindowInMinutes"`
	} `json:"FlexibleTimeWindow"`
	Target struct {
		Arn         string `json:"Arn"`
		Input       string `json:"Input"`
		RetryPolicy *struct {
			MaximumRetryAttempts int `json:"MaximumRetryAttempts"`
		} `json:"RetryPolicy"`
	} `json:"Target"`
}

// readEventBridge reads what the commands get-schedule, list-schedules and list-rules
// print: one object or a list. A line is the number of the schedule.
func readEventBridge(text, zone string, f *found) {
	var lists struct{ Schedules, Rules []rule }
	var all []rule
	if err := json.Unmarshal([]byte(text), &lists); err != nil {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			f.err = fmt.Errorf("it is no JSON of schedules: %w", err)
			return
		}
	}
	all = append(append(all, lists.Schedules...), lists.Rules...)
	if len(all) == 0 {
		var one rule
		if err := json.Unmarshal([]byte(text), &one); err != nil || one.ScheduleExpression == "" {
			f.err = errors.New("it has no schedule: want ScheduleExpression, Schedules or Rules")
			return
		}
		all = []rule{one}
	}
	for number, r := range all {
		if r.ScheduleExpression == "" { // a rule that waits for events
			f.left(number+1, "%s has no ScheduleExpression", r.Name)
			continue
		}
		e, err := r.entry(zone)
		if err != nil {
			f.left(number+1, "%s: %v", r.Name, err)
			continue
		}
		e.Line = number + 1
		if r.Target.Arn != "" {
			f.note(e.Line, "%s: the target %s is left out", r.Name, r.Target.Arn)
		}
		f.add(e)
	}
}

func (r rule) entry(zone string) (Entry, error) {
	e := Entry{
		Name: path.Join(r.GroupName, r.Name), Zone: zone, Input: r.Target.Input, Retries: -1, Suspended: r.State == "DISABLED",
		Jitter: time.Duration(r.FlexibleTimeWindow.MaximumWindowInMinutes) * time.Minute,
	}
	if r.ScheduleExpressionTimezone != "" {
		e.Zone = r.ScheduleExpressionTimezone
	}
	if p := r.Target.RetryPolicy; p != nil {
		e.Retries = p.MaximumRetryAttempts
	}
	var err error
	if e.Start, err = date(r.StartDate); err != nil {
		return e, err
	}
	if e.End, err = date(r.EndDate); err != nil {
		return e, err
	}
	return e, r.when(&e)
}

// when reads the expression: at(…), rate(…) or cron(…).
func (r rule) when(e *Entry) (err error) {
	function, body, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(r.ScheduleExpression), ")"), "(")
	switch function {
	case "cron":
		e.Cron, err = withQuestion(amazons, body)
		return err
	case "rate":
		e.Interval, err = rate(body)
		return err
	case "at":
		location, err := time.LoadLocation(e.Zone)
		if err != nil {
			return err
		}
		e.RunAt, err = time.ParseInLocation("2006-01-02T15:04:05", body, location)
		return err
	}
	return fmt.Errorf("%q is none of at(…), rate(…) and cron(…)", r.ScheduleExpression)
}

// rate reads "5 minutes".
func rate(text string) (time.Duration, error) {
	number, unit, _ := strings.Cut(strings.TrimSpace(text), " ")
	n, err := strconv.Atoi(number)
	length, known := map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}[strings.TrimSuffix(unit, "s")]
	if err != nil || !known || n < 1 || n > 1<<20 {
		return 0, fmt.Errorf("rate(%s) cannot be read", text)
	}
	return time.Duration(n) * length, nil
}

// date reads a moment as the command line of AWS prints it; empty is none.
func date(text string) (at time.Time, err error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999-07:00"} {
		if text == "" {
			return at, nil
		}
		if at, err = time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return at, fmt.Errorf("the date %q cannot be read", text)
}

// trigger is one of Quartz's job-scheduling-data.
type trigger struct {
	Name       string `xml:"name"`
	Group      string `xml:"group"`
	Job        string `xml:"job-name"`
	StartTime  string `xml:"start-time"`
	EndTime    string `xml:"end-time"`
	Misfire    string `xml:"misfire-instruction"`
	Expression string `xml:"cron-expression"`
	Zone       string `xml:"time-zone"`
	Interval   int64  `xml:"repeat-interval"` // milliseconds
	Count      string `xml:"repeat-count"`
}

// misfires are Quartz's words for late runs.
var misfires = map[string]string{
	"": "", "MISFIRE_INSTRUCTION_SMART_POLICY": "fire_once", "MISFIRE_INSTRUCTION_FIRE_ONCE_NOW": "fire_once", "MISFIRE_INSTRUCTION_DO_NOTHING": "skip",
	"MISFIRE_INSTRUCTION_IGNORE_MISFIRE_POLICY": "fire_all",
}

// readQuartz reads a job-scheduling-data file. A line is the number of the trigger.
func readQuartz(text, zone string, f *found) {
	var data struct {
		Triggers []struct {
			Cron   *trigger `xml:"cron"`
			Simple *trigger `xml:"simple"`
		} `xml:"schedule>trigger"`
	}
	if err := xml.Unmarshal([]byte(text), &data); err != nil {
		f.err = fmt.Errorf("it is no job-scheduling-data: %w", err)
		return
	}
	if len(data.Triggers) == 0 {
		f.err = errors.New("it has no schedule with triggers")
		return
	}
	for number, t := range data.Triggers {
		one := t.Cron
		if one == nil {
			one = t.Simple
		}
		if one == nil {
			f.left(number+1, "it is neither a cron nor a simple trigger")
			continue
		}
		e, err := one.entry(zone, t.Cron != nil)
		if err != nil {
			f.left(number+1, "%s: %v", one.Name, err)
			continue
		}
		e.Line = number + 1
		f.add(e)
	}
}

func (t trigger) entry(zone string, isCron bool) (e Entry, err error) {
	e = Entry{Name: path.Join(t.Group, t.Name), Zone: zone, Retries: -1}
	if t.Zone != "" {
		e.Zone = t.Zone
	}
	misfire, known := misfires[t.Misfire]
	if !known {
		return e, fmt.Errorf("%s has no counterpart here", t.Misfire)
	}
	e.Misfire = misfire
	if e.Start, err = date(t.StartTime); err != nil {
		return e, err
	}
	if e.End, err = date(t.EndTime); err != nil {
		return e, err
	}
	switch {
	case isCron:
		e.Cron, err = withQuestion(quartz, t.Expression)
		return e, err
	case t.Count != "" && t.Count != "-1" && t.Count != "REPEAT_INDEFINITELY":
		return e, fmt.Errorf("repeat-count %s has no counterpart; give the job maxExecutions", t.Count)
	case !e.Start.IsZero():
		return e, errors.New("a repetition that begins at a start-time has no counterpart: an interval counts from when the job is made")
	}
	e.Interval = time.Duration(t.Interval) * time.Millisecond
	return e, nil
}
