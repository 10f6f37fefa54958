// Package monitor is what crons that run elsewhere promise, and whether they keep it: when
// a run should start, how long it may take, and what their pings say.
//
// It owns the monitor, its validation, the store behind the API, and every decision about a
// ping or a deadline, as functions of times that they are given. It refuses to take pings,
// which is package intake's, and to find out who is late, which is package watch's.
package monitor

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

const (
	// most is how many a tenant may have.
	most = 10_000
	// keptRuns is how many runs of a monitor are kept; the table's places are as many.
	keptRuns = 1000
	// maxLog is how many characters of what pings of one run say are kept, the last ones.
	maxLog = 10_000
	// MaxGrace bounds the graces and the runtimes, MaxInterval the time between two runs. From
	// below the contract bounds them by 10 and 30 seconds, and package watch counts on that.
	MaxGrace    = 30 * 24 * time.Hour
	MaxInterval = 366 * 24 * time.Hour
)

// Statuses of a monitor, as it is shown.
const (
	statusNew     = "new" // it has never pinged, so nobody knows what it does
	statusOK      = "ok"
	statusLate    = "late" // a run should have started; its grace goes on
	statusRunning = "running"
	statusDown    = "down"
	statusPaused  = "paused"
)

// Spec is all that a tenant may set.
type Spec struct {
	Name              string
	Tags              []string
	Cron              string // this and Zone, or Interval
	Zone              string
	Interval          time.Duration
	StartGrace        time.Duration // how late a run may start
	CompletionGrace   time.Duration // how much longer than MaxRuntime it may take
	MaxRuntime        time.Duration // how long it should take at most; 0: CompletionGrace alone
	MinRuntime        time.Duration // a shorter one failed; 0: none is too short
	AlertTooOften     bool
	ExtendOnLog       bool // it may take longer while it says something
	FailureThreshold  int
	RecoveryThreshold int
}

// Monitor is a stored one.
type Monitor struct {
	Spec

	ID        uuid.UUID
	TenantID  uuid.UUID
	Version   int
	Paused    bool
	PingKey   string
	CreatedBy string
	CreatedAt time.Time
	UpdatedAt time.Time
	// DeadlineAt is when watch looks at it, as it was stored; zero: never.
	DeadlineAt time.Time
	State      State
}

// Status is what it is at a time.
func (m *Monitor) Status(now time.Time) string {
	switch s := &m.State; {
	case m.Paused:
		return statusPaused
	case s.Status != statusOK:
		return s.Status
	case s.Run != nil:
		return statusRunning
	case !s.ExpectedAt.IsZero() && s.ExpectedAt.Before(now):
		return statusLate
	}
	return statusOK
}

// Validate lists everything that is wrong with a spec beyond the bounds of the contract.
func Validate(s Spec, now time.Time) []fault.Field {
	var fields []fault.Field
	wrong := func(path, rule, message string) {
		fields = append(fields, fault.Field{Path: path, Rule: rule, Message: message})
	}
	if strings.TrimSpace(s.Name) == "" || !storable(s.Name) {
		wrong("name", "pattern", "must not be blank, and without U+0000")
	}
	for i, tag := range s.Tags {
		if !storable(tag) {
			wrong(fmt.Sprintf("tags[%d]", i), "pattern", "contains what cannot be stored: U+0000, or no UTF-8")
		}
	}
	switch {
	case (s.Cron == "") == (s.Interval == 0):
		wrong("cronExpression", "one-of", "or intervalSeconds has to be given, and not both")
	case s.Cron != "":
		var found *fault.Error
		if err := schedule.Validate(s.definition(), now); asFault(err, &found) {
			fields = append(fields, found.Fields...)
		}
	}
	if s.MinRuntime > 0 && s.MinRuntime >= s.MaxRuntime+s.CompletionGrace {
		wrong("minRuntimeSeconds", "order", "must be less than maxRuntimeSeconds and completionGraceSeconds together")
	}
	return fields
}

func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

func (s *Spec) definition() schedule.Definition {
	return schedule.Definition{Cron: s.Cron, Zone: s.Zone}
}

// Log is what is kept of a text that a ping brought: the end of it, without what cannot be
// stored.
func Log(text []byte) string {
	clean := strings.ReplaceAll(strings.ToValidUTF8(string(text), "\uFFFD"), "\x00", "\uFFFD")
	if extra := utf8.RuneCountInString(clean) - maxLog; extra > 0 {
		clean = string([]rune(clean)[extra:])
	}
	return clean
}

// NotFound is the answer for a monitor that is not there, or is not the caller's.
func NotFound() error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "there is no monitor with this id")
}

// NoSuchKey is the answer to a ping whose key is none of ours, or is no longer.
func NoSuchKey() error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "there is no monitor with this ping key")
}
