// Package calendar is a tenant's named set of dates and ranges, which jobs
// exclude (holidays, freezes) or are bound to (business days).
//
// It owns the set, its forms (as a person writes a day, as the database keeps
// it), its validation and its store. It refuses to decide when a job is due:
// package schedule does, with the set as a value; and what an edit does to the
// jobs, which package job does inside the edit's transaction.
package calendar

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// The bounds of a calendar, as the contract states them; those of its days are
// package schedule's.
const (
	maxName        = 200
	maxDescription = 2000
)

// Spec is all that a tenant may set.
type Spec struct {
	Name        string `json:"name"` // unique within the tenant
	Description string `json:"description"`
	Timezone    string `json:"timezone"` // IANA name; on its clock the days are
	// Days are half-open ranges of wall-clock time in whole seconds, in the
	// order in which they were given; at most 1000.
	Days []schedule.DateRange `json:"days"`
}

// Calendar is a stored set.
type Calendar struct {
	Spec

	ID        uuid.UUID `json:"id"`
	TenantID  uuid.UUID `json:"tenantId"`
	Version   int       `json:"version"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	// DayCount is how many days it has; a list names only this, not the days.
	DayCount int `json:"dayCount"`
}

// Validate lists everything that is wrong with a calendar, under the
// contract's names.
func Validate(s Spec) []fault.Field {
	var fields []fault.Field
	add := func(path, rule, message string) {
		fields = append(fields, fault.Field{Path: path, Rule: rule, Message: message})
	}
	if n := utf8.RuneCountInString(s.Name); n > maxName || strings.TrimSpace(s.Name) == "" {
		add("name", "bounds", "must have 1 to 200 characters, not all of them blank")
	}
	if utf8.RuneCountInString(s.Description) > maxDescription {
		add("description", "bounds", "must have at most 2000 characters")
	}
	for path, text := range map[string]string{"name": s.Name, "description": s.Description} {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			add(path, "pattern", "contains what cannot be stored: U+0000, or no UTF-8")
		}
	}
	for i, d := range s.Days {
		if strings.ContainsRune(d.Name, 0) || !utf8.ValidString(d.Name) || utf8.RuneCountInString(d.Name) > maxName {
			add(fmt.Sprintf("days[%d].name", i), "pattern", "must have at most 200 characters, and no U+0000")
		}
	}
	_, err := schedule.Compile(schedule.Definition{Calendars: []schedule.Calendar{{Zone: s.Timezone, Days: s.Days}}})
	var wrong *fault.Error
	if errors.As(err, &wrong) {
		for _, f := range wrong.Fields {
			f.Path = strings.TrimPrefix(f.Path, "calendars[0].")
			if f.Path == "zone" {
				f.Path = "timezone"
			}
			fields = append(fields, f)
		}
	}
	return fields
}
