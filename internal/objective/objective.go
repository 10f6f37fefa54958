// Package objective is which share of a tenant's executions has to succeed, or to start on
// time, and how close to that they are.
//
// It owns objectives, their error budgets and their burn rates. It refuses to count: package
// count adds what ended to the counts that a status is computed from.
package objective

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
)

// Kind is what an objective asks of an execution.
type Kind string

// The kinds.
const (
	Success Kind = "success" // it completed; those that neither completed nor failed do not count
	OnTime  Kind = "onTime"  // a scheduled one started soon enough, and its scheduled time was not missed
)

// MaxObjectives is how many a tenant may have.
const MaxObjectives = 100

// A budget burns fast that would be used up in two days of thirty, and slowly that would be
// in five: rates of the last hour and of the last six hours that call for somebody.
const (
	FastBurn = 14.4
	SlowBurn = 6.0
)

// Spec is what somebody asks for: of one job, or of all jobs with a tag.
type Spec struct {
	Name       string
	Kind       Kind
	JobID      *uuid.UUID
	Tag        string
	Threshold  time.Duration // how late a start may be that is on time; 0 of Success
	Target     float64       // the share that has to be good
	WindowDays int
}

// Objective is a stored one with its status.
type Objective struct {
	Spec

	ID        uuid.UUID
	Version   int
	CreatedBy string
	CreatedAt time.Time
	UpdatedAt time.Time
	Status    Status
}

// Counts are executions that met an objective, and those that did not.
type Counts struct{ Good, Bad int64 }

// Status is how an objective stands. From and CountedTo say which executions Window counts:
// those that ended after the one and up to the other.
type Status struct {
	From, CountedTo        time.Time
	Window, Hour, SixHours Counts
}

// Share is the share of good ones; nil without any.
func (c Counts) Share() *float64 {
	if c.Good+c.Bad == 0 {
		return nil
	}
	share := float64(c.Good) / float64(c.Good+c.Bad)
	return &share
}

// BudgetLeft is the share of the error budget of a window that is left, negative where more
// was bad than may be; nil without any execution.
func (s Spec) BudgetLeft(c Counts) *float64 {
	rate := s.BurnRate(c)
	if rate == nil {
		return nil
	}
	left := 1 - *rate
	return &left
}

// BurnRate is how many times as many were bad as may be; nil without any execution.
func (s Spec) BurnRate(c Counts) *float64 {
	if c.Good+c.Bad == 0 {
		return nil
	}
	rate := float64(c.Bad) / (float64(c.Good+c.Bad) * (1 - s.Target))
	return &rate
}

// Validate lists what is wrong beyond the bounds of the contract.
func (s Spec) Validate() (faults []fault.Field) {
	if (s.JobID == nil) == (s.Tag == "") {
		faults = append(faults, fault.Field{Path: "jobId", Rule: "one-of", Message: "or tag has to be given, and not both"})
	}
	switch {
	case s.Kind == OnTime && s.Threshold == 0:
		faults = append(faults, fault.Field{Path: "thresholdMs", Rule: "required", Message: "has to be given where kind is onTime"})
	case s.Kind == Success && s.Threshold != 0:
		faults = append(faults, fault.Field{Path: "thresholdMs", Rule: "no-effect", Message: "has no meaning where kind is success"})
	}
	return faults
}

// stays lists what a change may not touch: what is counted is kept as counts alone, and could not be
// counted otherwise afterwards.
func (s Spec) stays(as Spec) (faults []fault.Field) {
	for _, one := range []struct {
		path  string
		other bool
	}{
		{"kind", s.Kind != as.Kind},
		{"jobId", (s.JobID == nil) != (as.JobID == nil) || s.JobID != nil && *s.JobID != *as.JobID},
		{"tag", s.Tag != as.Tag},
		{"thresholdMs", s.Threshold != as.Threshold},
	} {
		if one.other {
			faults = append(faults, fault.Field{Path: one.path, Rule: "readOnly", Message: "cannot be changed: create another objective"})
		}
	}
	return faults
}

func outdated(version int) error {
	return fault.New(fault.Conflict, fault.CodePreconditionFailed, fmt.Sprintf("somebody changed the objective meanwhile: it is at version %d", version))
}

// NotFound is the answer for an objective that is not there, or is not the caller's.
func NotFound() error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "there is no objective with this id")
}

func tooMany(now time.Time) error {
	return fault.Exceeded(fault.Limit{Name: "maxObjectives", Value: MaxObjectives},
		fmt.Sprintf("a tenant may have %d objectives: delete one that is not needed", MaxObjectives), now)
}
