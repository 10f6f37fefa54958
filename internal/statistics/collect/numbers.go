// Package collect keeps the numbers of each tenant, and of the whole service, as
// they were, and the roll-ups that statistics are answered from.
//
// It owns what is counted, the pass that counts it, and reading the newest and
// the history. Outcomes are counted once, an interval after the other,
// into totals that only grow, so that a pass costs what happened since the last
// one and nothing more; rates are differences of two totals. It refuses to be
// what alerts run on: those are Prometheus', see package telemetry.
package collect

import (
	"time"

	"github.com/google/uuid"
)

// Service stands for the whole service where a tenant's id is asked for. No tenant
// has it: package identity refuses it in tokens.
var Service = uuid.Nil // an id that is never changed

// Numbers are those of one tenant, or of the service, at one time.
type Numbers struct {
	TakenAt time.Time // the beginning of the half minute in which they were taken
	Jobs    Jobs
	Waiting int64 // executions that wait, for their time, a place or a worker
	Running int64 // executions that run
	Workers int64 // that live; they are everybody's
	// Executions is what executions came to since the service began to count, up
	// to some 15 seconds before TakenAt.
	Executions Outcomes
}

// Jobs counts those that are not deleted; what is neither active nor paused is
// inactive.
type Jobs struct{ Total, Active, Paused int64 }

// Outcomes counts executions that are finished. It only grows, so the difference of two
// is what happened between them.
type Outcomes struct {
	Completed, Failed, Cancelled int64
	Skipped                      int64         // scheduled times that were skipped or missed, by record
	TimedOut                     int64         // of those that failed, how many by TIMEOUT
	Retried                      int64         // of those that completed or failed, how many took more than one attempt
	Timed                        int64         // of those that completed or failed, how many have a duration
	Duration                     time.Duration // of these, all together
}

// Total is how many executions are finished; what was skipped never was one.
func (o Outcomes) Total() int64 { return o.Completed + o.Failed + o.Cancelled }

// Since is what happened after an earlier count.
func (o Outcomes) Since(earlier Outcomes) Outcomes {
	return Outcomes{
		Completed: o.Completed - earlier.Completed, Failed: o.Failed - earlier.Failed, Cancelled: o.Cancelled - earlier.Cancelled,
		Skipped: o.Skipped - earlier.Skipped, TimedOut: o.TimedOut - earlier.TimedOut, Retried: o.Retried - earlier.Retried,
		Timed: o.Timed - earlier.Timed, Duration: o.Duration - earlier.Duration,
	}
}

// ErrorRate is the share of failed executions among those that completed or
// failed, from 0 to 1; nil when there are none.
func (o Outcomes) ErrorRate() *float64 { return o.share(o.Failed) }

// TimeoutRate is the share of those that failed by TIMEOUT, likewise.
func (o Outcomes) TimeoutRate() *float64 { return o.share(o.TimedOut) }

// RetryRate is the share of those that took more than one attempt, likewise.
func (o Outcomes) RetryRate() *float64 { return o.share(o.Retried) }

func (o Outcomes) share(part int64) *float64 {
	whole := o.Completed + o.Failed
	if whole <= 0 {
		return nil
	}
	share := float64(part) / float64(whole)
	return &share
}

// AverageDuration is how long the last attempt of an execution that completed or
// failed took, as package statistics count it; nil when there are
// none.
func (o Outcomes) AverageDuration() *time.Duration {
	if o.Timed <= 0 {
		return nil
	}
	average := o.Duration / time.Duration(o.Timed)
	return &average
}
