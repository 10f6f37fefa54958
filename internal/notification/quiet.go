package notification

import (
	"time"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// Quiet is a time of each day in which nothing is told: what happens is held and told
// together at its end.
type Quiet struct {
	From string `json:"from"` // on the clock of the zone, such as 22:00
	To   string `json:"to"`   // before From: on the next day
	Zone string `json:"timezone"`
}

// Until is the end of the quiet time that t lies in, and t itself outside.
func (q *Quiet) Until(t time.Time) time.Time {
	if q == nil || len(q.validate()) > 0 {
		return t
	}
	where, _ := schedule.Location(q.Zone)
	local, from, to, days := t.In(where), minuteOf(q.From), minuteOf(q.To), 0
	minute := local.Hour()*60 + local.Minute()
	switch {
	case from < to && from <= minute && minute < to, from > to && minute < to:
	case from > to && minute >= from:
		days = 1
	default:
		return t
	}
	end := time.Date(local.Year(), local.Month(), local.Day()+days, to/60, to%60, 0, 0, where).UTC()
	if !end.After(t) {
		return t // the clock was put back or forward over the end
	}
	return end
}

// minuteOf is the minute of the day that a text such as 22:00 names, and -1 for another
// text.
func minuteOf(text string) int {
	at, err := time.Parse("15:04", text)
	if err != nil || len(text) != len("15:04") {
		return -1
	}
	return at.Hour()*60 + at.Minute()
}

func (q *Quiet) validate() (fields []fault.Field) {
	for path, text := range map[string]string{"quietHours.from": q.From, "quietHours.to": q.To} {
		if minuteOf(text) < 0 {
			fields = append(fields, fault.Field{Path: path, Rule: "pattern", Message: "must be a time of the day such as 22:00"})
		}
	}
	if q.From == q.To {
		fields = append(fields, fault.Field{Path: "quietHours.to", Rule: "order", Message: "is the same as from: that would be the whole day or none of it"})
	}
	if _, err := schedule.Location(q.Zone); err != nil {
		fields = append(fields, fault.Field{Path: "quietHours.timezone", Rule: "zone", Message: "must be the IANA name of a zone, such as Europe/Berlin"})
	}
	return fields
}
