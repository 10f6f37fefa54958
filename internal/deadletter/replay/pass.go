package replay

import (
	"context"
	"errors"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

const (
	// soon is the distance of two passes while a replay is under way.
	soon = time.Second
	// budget is how long a pass goes on, and dueMost how many replays it lists at once.
	budget  = 500 * time.Millisecond
	dueMost = 100
	// late is how much of a replay's rate is made up for after a pass that came late: an outage
	// of ours is not followed by a burst.
	late = time.Second
	// canaryEvery is how often a pass asks what became of a canary.
	canaryEvery = 2 * time.Second
	// heldFor is how long a replay waits that meets a limit.
	heldFor = 10 * time.Second
)

// Replayer advances replays. Any number of processes may: the row of a replay is locked while
// one makes its step.
type Replayer struct {
	store      *Store
	executions *execution.Store
	metrics    *telemetry.Metrics
	call       func(context.Context)
}

// New makes one that acts as postgres.Engine; call tells workers that something waits.
func New(db *postgres.DB, executions *execution.Store, metrics *telemetry.Metrics, call func(context.Context)) *Replayer {
	return &Replayer{store: NewStore(db), executions: executions, metrics: metrics, call: call}
}

// Report is what a pass did.
type Report struct {
	Replayed, Refused int
	Active            bool // a replay was due
}

// Pass makes the steps of all replays that are due at now, in turns of their tenants, one dead
// letter a step, until its budget is met. A zero now means the database's clock. A replay whose step
// fails keeps none of the others.
func (r *Replayer) Pass(ctx context.Context, now time.Time) (report Report, err error) {
	begin := clock.Start()
	var failed []error
	for len(failed) == 0 && begin.Elapsed() < budget {
		due, err := r.store.due(ctx, now)
		if err != nil || len(due) == 0 {
			failed = append(failed, err)
			break
		}
		report.Active = true
		moved := false
		for _, one := range due {
			if begin.Elapsed() >= budget {
				break
			}
			made, err := r.step(ctx, one, now)
			failed = append(failed, err)
			report.Replayed, report.Refused, moved = report.Replayed+made.replayed, report.Refused+made.refused, moved || made.moved
		}
		if failed = compact(failed); !moved {
			break // other processes make these steps
		}
	}
	r.metrics.DeadLetters("replayed", report.Replayed)
	if report.Replayed > 0 {
		r.call(ctx)
	}
	return report, errors.Join(failed...)
}

func compact(all []error) (failed []error) {
	for _, err := range all {
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// verdict is what becomes of a replay whose dead letter was not replayed.
type verdict int

const (
	refuse verdict = iota // the dead letter stays, the replay goes on with the next
	hold                  // it is tried again later
	pass                  // somebody else replayed or discarded it
)

// judge says which, and what the tenant is told. A limit, a job that runs as often as it may
// and a database that is away pass by themselves; everything else stays.
func judge(err error) (v verdict, code fault.Code, message string) {
	var f *fault.Error
	if !errors.As(postgres.Fault(err), &f) || f.Kind == fault.Internal {
		return refuse, fault.CodeInternalError, "something went wrong on our side"
	}
	switch {
	case f.Code == fault.CodeDeadLetterNotFound:
		return pass, "", ""
	case f.Kind == fault.Unavailable:
		return hold, f.Code, "something of the service is away"
	case f.Kind == fault.TooMany, f.Code == fault.CodeJobAlreadyRunning:
		return hold, f.Code, f.Message
	case f.Code == "":
		return refuse, fault.CodeConflict, f.Message
	}
	return refuse, f.Code, f.Message
}

// next is when the step after one that was due is due: by the rate, and made up for at most late.
func next(due, now time.Time, perMinute int) time.Time {
	return clock.Later(due, now.Add(-late)).Add(time.Minute / time.Duration(perMinute))
}

// Passes is what a process that replays does again and again, once maintenance has found
// that a step is due.
func (r *Replayer) Passes() []loop.Pass {
	return []loop.Pass{{Name: "replay-dead-letters", Every: loop.Uncalled, Do: func(ctx context.Context, turn *loop.Turn) error {
		report, err := r.Pass(ctx, time.Time{})
		if report.Active && err == nil {
			turn.Again(soon)
		}
		return err
	}}}
}
