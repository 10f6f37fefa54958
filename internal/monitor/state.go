package monitor

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// Outcomes of runs.
const (
	runRunning   = "running"
	runCompleted = "completed"
	runFailed    = "failed"
	runMissed    = "missed"    // it did not start in time
	runAbandoned = "abandoned" // another began, and its end was not told
	runUnknown   = "unknown"   // its ping may have been lost by our fault
	runLogged    = "logged"    // a log outside of a run
)

// Reasons of failures.
const (
	notStarted = "not_started"
	tooSlow    = "too_slow"
	tooFast    = "too_fast"
	tooOften   = "too_often"
	failed     = "failed"
	outage     = "outage" // of ours; it fails nobody
)

// Types of the events that monitors make.
const (
	eventDown      = "monitor.down"
	eventRecovered = "monitor.recovered"
)

// State is what a monitor's pings and deadlines have made of it.
type State struct {
	Status     string    `json:"-"` // statusNew, statusOK or statusDown; a column of its own
	ExpectedAt time.Time `json:"-"` // when the next run should start; zero: it is not known
	// EarliestAt is the time before which a start is too often; zero: none is.
	EarliestAt time.Time `json:"earliestAt,omitzero"`
	Run        *Run      `json:"run,omitempty"` // the last one, while it goes on
	Runs       int64     `json:"runs,omitempty"`
	LastPingAt time.Time `json:"lastPingAt,omitzero"`
	LastEndAt  time.Time `json:"lastEndAt,omitzero"`
	LastRunID  string    `json:"lastRunId,omitempty"` // of the last run that ended and had one
	LastBare   Signal    `json:"lastBare,omitempty"`  // of the last end, where it had no start
	Failures   int64     `json:"failures,omitempty"`  // in a row
	Successes  int64     `json:"successes,omitempty"` // in a row
	Since      time.Time `json:"since,omitzero"`      // when the first of the failures was found
	Reason     string    `json:"reason,omitempty"`    // of the failure that took it down
}

// Run is one that goes on.
type Run struct {
	N         int64     `json:"n"`
	ID        string    `json:"id,omitempty"` // by which the caller pairs pings
	StartedAt time.Time `json:"startedAt"`
	AliveAt   time.Time `json:"aliveAt"`
	Reason    string    `json:"reason,omitempty"` // what is wrong with it already
}

// Record is what is stored of a run. A record with the same N adds its log to what is stored.
type Record struct {
	N                                  int64
	At, ExpectedAt, StartedAt, EndedAt time.Time // zero: none
	Outcome, Reason                    string
	Exit                               int // -1: none was told
	RunID, Log                         string
}

// ErrBroken is the cause where what is stored of a monitor cannot be read.
var ErrBroken = errors.New("what is stored of it is broken")

// Refused reports whether an error is one monitor's own: those beside it may be tried without it.
func Refused(err error) bool { return errors.Is(err, ErrBroken) || postgres.Refused(err) }

// Effects are what a ping or a deadline changes beside the state.
type Effects struct {
	Records []Record
	Events  []notification.Event
}

// Machine decides about one monitor.
type Machine struct {
	m        *Monitor
	schedule *schedule.Schedule // nil: an interval
	out      Effects
}

// Machine makes one. Its decisions change the monitor's state.
func (m *Monitor) Machine() (*Machine, error) {
	made := &Machine{m: m}
	if m.Cron == "" {
		return made, nil
	}
	compiled, err := schedule.Compile(m.definition())
	if err != nil {
		return nil, fmt.Errorf("read the schedule of monitor %s: %w: %w", m.ID, ErrBroken, err)
	}
	made.schedule = compiled
	return made, nil
}

// DownSince is when the first of the failures was found that took it down; zero: it is not.
func (s *State) DownSince() time.Time {
	if s.Status != statusDown {
		return time.Time{}
	}
	return s.Since
}

// Take answers what was decided since the last Take.
func (j *Machine) Take() (out Effects) {
	out, j.out = j.out, Effects{}
	return out
}

// Deadline is when watch has to look at it; zero: never.
func (j *Machine) Deadline() time.Time {
	s := &j.m.State
	switch {
	case j.m.Paused:
		return time.Time{}
	case s.Run != nil && s.Run.Reason != tooSlow:
		return j.completionDeadline()
	case s.ExpectedAt.IsZero():
		return time.Time{}
	}
	return s.ExpectedAt.Add(j.m.StartGrace)
}

func (j *Machine) completionDeadline() time.Time {
	run := j.m.State.Run
	at := run.StartedAt.Add(j.m.MaxRuntime + j.m.CompletionGrace)
	if alive := run.AliveAt.Add(j.m.CompletionGrace); j.m.ExtendOnLog && alive.After(at) {
		return alive
	}
	return at
}

// next is the first time after another at which the schedule has a run; zero: there is none.
func (j *Machine) next(after time.Time) time.Time {
	if j.schedule == nil {
		return after.Add(j.m.Interval)
	}
	at, ok := j.schedule.Next(after)
	if !ok {
		return time.Time{}
	}
	return at.UTC()
}

// tolerance is how much before its expected time a run may start and still be that one.
func (j *Machine) tolerance(expected time.Time) time.Duration {
	if expected.IsZero() {
		return 0
	}
	return min(j.m.StartGrace, j.period(expected)/2)
}

// earliest is the time before which a run is too early to be that of an expected time; zero
// where none is expected.
func (j *Machine) earliest(expected time.Time) time.Time {
	if expected.IsZero() {
		return expected
	}
	return expected.Add(-j.tolerance(expected))
}

func (j *Machine) period(expected time.Time) time.Duration {
	if j.schedule == nil {
		return j.m.Interval
	}
	if following := j.next(expected); !following.IsZero() {
		return following.Sub(expected)
	}
	return MaxInterval
}

// fail counts a failure, and takes the monitor down with the one that is too many.
func (j *Machine) fail(at time.Time, reason string) {
	s := &j.m.State
	if s.Successes = 0; s.Failures == 0 {
		s.Since = at
	}
	s.Failures++
	if s.Status != statusDown && s.Failures >= int64(max(1, j.m.FailureThreshold)) {
		s.Status, s.Reason = statusDown, reason
		j.tell(eventDown, at, reason)
	}
}

// succeed counts a run that was as promised, and ends a failure with the last one that it takes.
func (j *Machine) succeed(at time.Time) {
	s := &j.m.State
	s.Successes++
	switch {
	case s.Status != statusDown:
		s.Failures, s.Since = 0, time.Time{}
	case s.Successes >= int64(max(1, j.m.RecoveryThreshold)):
		s.Status = statusOK
		j.tell(eventRecovered, at, s.Reason)
		s.Failures, s.Since, s.Reason = 0, time.Time{}, ""
	}
}

func (j *Machine) tell(kind string, at time.Time, reason string) {
	s, since := &j.m.State, j.m.State.Since
	e := notification.Event{
		ID: uuid.NewSHA1(j.m.ID, []byte(kind+"|"+at.UTC().Format(time.RFC3339Nano))), Type: kind, At: at, MonitorID: &j.m.ID, MonitorName: j.m.Name,
		Failures: s.Failures, FailingSince: &since, Reason: reason,
	}
	if expected := s.ExpectedAt; reason == notStarted && kind == eventDown {
		e.ScheduledAt = &expected
	}
	j.out.Events = append(j.out.Events, e)
}

func (j *Machine) record(r Record) { j.out.Records = append(j.out.Records, r) }

func readState(raw json.RawMessage) (s State, err error) {
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("read the state of a monitor: %w: %w", ErrBroken, err)
	}
	return s, nil
}

func asFault(err error, found **fault.Error) bool { return errors.As(err, found) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
