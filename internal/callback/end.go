package callback

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/hint"
	"github.com/scheduler-service/scheduler/internal/job/definition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/divide"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// Config is what a Desk is made of.
type Config struct {
	DB      *postgres.DB // acting as postgres.Engine
	Hints   *hint.Sender
	Metrics *telemetry.Metrics
	Log     *slog.Logger
	// TenantMaxRunning is how many executions a tenant may run at once where it has no
	// limit of its own; 0: any number. The same in every process.
	TenantMaxRunning func() int
	// Keys are those of the tokens; nil where no tokens come.
	Keys *keyring.Ring
	// CallWorkers tells workers that something is in the pool without a hint; nil: it is
	// found by their polls alone.
	CallWorkers func(ctx context.Context)
	// Finished is told of executions that a report ended; nil: nobody is.
	Finished func(tenant, execution uuid.UUID)
}

// Desk writes what is told about attempts. Any number of goroutines may use it.
type Desk struct {
	c        Config
	dispatch *dispatch.Store
	secrets  *secret.Resolver
}

// New makes a desk.
func New(c Config) *Desk {
	if c.CallWorkers == nil {
		c.CallWorkers = func(context.Context) {}
	}
	return &Desk{c: c, dispatch: dispatch.NewStore(c.DB, dispatch.Config{TenantMaxRunning: c.TenantMaxRunning}), secrets: secret.NewResolver(c.DB, c.Keys)}
}

// Open reads a token; see the function.
func (d *Desk) Open(token string) (Attempt, error) { return Open(d.c.Keys, token) }

// messageBytes is how much of the message of a progress is kept.
const messageBytes = 200

// Heartbeat writes a sign of life, how far the attempt is, from 0 to 100, and with what it is
// busy, without the secrets of its job; a negative progress and an empty message change nothing. The error is a Conflict where
// the attempt has ended, and NotFound where its execution is gone.
func (d *Desk) Heartbeat(ctx context.Context, a Attempt, progress int, message string) error {
	if message != "" {
		mask, _, err := d.Mask(ctx, a)
		switch {
		case fault.KindOf(err) == fault.NotFound: // the progress itself says nothing secret
			message = omitted
		case err != nil:
			return err
		default:
			message = mask.Text(message)
		}
	}
	message = strings.ToValidUTF8(message[:min(len(message), messageBytes)], "")
	alive, err := d.dispatch.Heartbeat(ctx, time.Time{}, a.Tenant, a.Fence, progress, message)
	if err != nil || alive {
		return err
	}
	state, err := d.state(ctx, a, "")
	if err != nil || state.Running {
		return err
	}
	return late(a, state)
}

// Complete writes the end of an attempt, without the secrets of its job, once: the same report again changes nothing and
// gets the same answer. It returns the status of the execution: completed, failed,
// cancelled, or retrying where another attempt follows. Errors are those of Heartbeat.
func (d *Desk) Complete(ctx context.Context, a Attempt, r Report) (status string, err error) {
	state, err := d.state(ctx, a, string(r.Result))
	if err != nil {
		return "", err
	}
	masked, err := d.masked(ctx, a, state, r)
	if err != nil {
		return "", err
	}
	if !same(masked, r) {
		r = masked
		if state, err = d.state(ctx, a, string(r.Result)); err != nil { // it compares results
			return "", err
		}
	}
	return d.complete(ctx, a, state, r)
}

// Fail ends an attempt for a reason of our own, in which nothing is secret. It returns what
// Complete does.
func (d *Desk) Fail(ctx context.Context, a Attempt, why Failure) (status string, err error) {
	state, err := d.state(ctx, a, "")
	if err != nil {
		return "", err
	}
	return d.complete(ctx, a, state, Report{Err: &why})
}

func (d *Desk) complete(ctx context.Context, a Attempt, state dispatch.AttemptState, r Report) (status string, err error) {
	if state.Running {
		outcome, err := d.outcome(ctx, a, state, r)
		if err != nil {
			return "", err
		}
		batch := []dispatch.Ended{{ID: a.ID, Attempt: a.Attempt, Token: a.Token, Outcome: outcome}}
		ended, err := d.dispatch.EndAwaited(ctx, time.Time{}, batch)
		if err != nil {
			return "", err
		}
		if len(ended) == 1 {
			d.announce(ctx, ended, map[uuid.UUID]int{a.ID: state.Priority}, batch)
			d.finished(a.Tenant, ended[0])
			return ended[0].Status, nil
		}
		if state, err = d.state(ctx, a, string(r.Result)); err != nil { // somebody else was quicker
			return "", err
		}
	}
	if !repeats(state, r) {
		return "", late(a, state)
	}
	return state.Status, nil
}

func (d *Desk) state(ctx context.Context, a Attempt, result string) (dispatch.AttemptState, error) {
	state, found, err := d.dispatch.Attempt(ctx, a.Tenant, a.Fence, execution.ScheduledTimeOf(a.ID), result)
	if err == nil && !found {
		err = NotFound()
	}
	return state, err
}

// NotFound is the answer to a token that is none of ours, and to one whose execution is gone.
func NotFound() error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "there is no attempt with this callback token")
}

// outcome is what a report means for its job.
func (d *Desk) outcome(ctx context.Context, a Attempt, state dispatch.AttemptState, r Report) (dispatch.Outcome, error) {
	if r.Err == nil {
		return dispatch.Outcome{Succeeded: true, RetryMS: -1, Result: string(r.Result)}, nil
	}
	key := definition.Key{Job: state.Job, Version: state.Version}
	found, err := definition.Read(ctx, d.c.DB, []definition.Key{key})
	if err != nil {
		return dispatch.Outcome{}, err
	}
	return failed(found[key], a.Attempt, state.MaxAttempts, state.Elapsed, *r.Err), nil
}

// failed is the outcome of an attempt that failed, under its job's rules. A definition that
// does not exist or cannot be read has none: nothing is repeated.
func failed(by definition.Definition, attempt, maxAttempts int, elapsed time.Duration, f Failure) dispatch.Outcome {
	out := dispatch.Outcome{RetryMS: -1, ErrorType: f.Type, Message: f.Message}
	if delay, again := by.Retry.Next(attempt, maxAttempts, f.Type, f.Retry, rand.Float64()); again {
		out.RetryMS = min(delay, 24*time.Hour).Milliseconds()
	}
	if why, exceeded := by.Limit.Exceeded(elapsed, time.Duration(out.RetryMS)*time.Millisecond, f.Type, f.Message); exceeded {
		return dispatch.Outcome{RetryMS: -1, ErrorType: "TIMEOUT", Message: why}
	}
	return out
}

// repeats tells whether an attempt ended with just this report.
func repeats(state dispatch.AttemptState, r Report) bool {
	if r.Err == nil {
		return state.Latest && state.Status == "completed" && state.SameResult
	}
	return (!state.Latest || state.Status == "failed") && state.ErrorType == r.Err.Type && state.ErrorMessage == r.Err.Message
}

// late is the answer to a report about an attempt that has ended.
func late(a Attempt, state dispatch.AttemptState) error {
	how := "the execution is " + state.Status
	if state.ErrorType != "" {
		how += fmt.Sprintf(" (%s: %.200s)", state.ErrorType, state.ErrorMessage)
	}
	if !state.Latest {
		how = "its execution has gone on without it, and is " + state.Status
	}
	return fault.New(fault.Conflict, fault.CodeAttemptEnded, fmt.Sprintf("attempt %d has ended: %s; nothing was changed", a.Attempt, how))
}

// rounds is how often one pass repeats a statement that comes back full.
const rounds = 20

// EndOverdue ends waits for a callback that nobody reported in time and those whose end
// somebody asked for, and returns how many. It takes 10,000 at most; the next pass goes
// on. A zero now means the database's clock. Any number of processes may do so at once.
func (d *Desk) EndOverdue(ctx context.Context, now time.Time) (ended int, err error) {
	for range rounds {
		if n, err := d.dispatch.ProlongAwaited(ctx, now); err != nil || n < dispatch.AwaitBatch {
			if err != nil {
				return 0, err
			}
			break
		}
	}
	for range rounds {
		overdue, err := d.dispatch.ListOverdue(ctx, now)
		if err != nil || len(overdue) == 0 {
			return ended, err
		}
		n, err := d.endAll(ctx, now, overdue)
		ended += n
		if err != nil || len(overdue) < dispatch.AwaitBatch {
			return ended, err
		}
	}
	return ended, nil
}

// endAll ends some waits. One whose end the database refuses holds up none of the others.
func (d *Desk) endAll(ctx context.Context, now time.Time, overdue []dispatch.Overdue) (ended int, err error) {
	keys, priorities, tenants := make([]definition.Key, len(overdue)), make(map[uuid.UUID]int, len(overdue)), make(map[uuid.UUID]uuid.UUID, len(overdue))
	for i, o := range overdue {
		keys[i], priorities[o.ID] = definition.Key{Job: o.Job, Version: o.Version}, o.Priority
		tenants[o.ID] = o.Tenant
	}
	found, err := definition.Read(ctx, d.c.DB, keys)
	if err != nil {
		return 0, err
	}
	batch := make([]dispatch.Ended, len(overdue))
	for i, o := range overdue {
		batch[i] = dispatch.Ended{ID: o.ID, Attempt: o.Attempt, Token: o.Token, Outcome: failed(found[keys[i]], o.Attempt, o.MaxAttempts, o.Elapsed, why(o))}
	}
	err = divide.Items[dispatch.Ended]{
		Send: func(some []dispatch.Ended) error {
			verdicts, err := d.dispatch.EndAwaited(ctx, now, some)
			if err == nil {
				ended += len(verdicts)
				d.announce(ctx, verdicts, priorities, some)
			}
			for _, v := range verdicts {
				d.finished(tenants[v.ID], v)
			}
			return err
		},
		Alone: func(one dispatch.Ended, refused error) error {
			d.c.Log.ErrorContext(ctx, "the end of an execution that awaited a callback is refused; it is tried again in a minute", "execution_id", one.ID, "error", refused)
			return d.dispatch.PutOffAwaited(ctx, now, one.ID)
		},
	}.All(batch)
	return ended, err
}

// finished tells of an execution, unless another attempt follows or its end is not stored.
func (d *Desk) finished(tenant uuid.UUID, v dispatch.Verdict) {
	if d.c.Finished != nil && v.Status != "retrying" && v.Status != "parked" {
		d.c.Finished(tenant, v.ID)
	}
}

// why says why a wait ends without a report.
func why(o dispatch.Overdue) Failure {
	switch {
	case o.Cancelling:
		never := false
		return Failure{Type: "SYSTEM_ERROR", Message: "cancelled", Retry: &never}
	case o.TimedOut:
		return Failure{Type: "TIMEOUT", Message: fmt.Sprintf("timed out after %s: no callback reported the end", o.Timeout)}
	default:
		return Failure{Type: "TIMEOUT", Message: fmt.Sprintf("no heartbeat came for %s", o.Heartbeat)}
	}
}

// announce counts what ended, hints what may start now, and calls workers for what is tried again.
// A hint or call that is not sent costs time and nothing else.
func (d *Desk) announce(ctx context.Context, verdicts []dispatch.Verdict, priorities map[uuid.UUID]int, batch []dispatch.Ended) {
	took := make(map[uuid.UUID]time.Duration, len(batch))
	for _, e := range batch {
		took[e.ID] = e.Outcome.Took()
	}
	var freed []dispatch.Freed
	var next []dispatch.Waiting
	repeats := false
	for _, v := range verdicts {
		if v.Status == "retrying" {
			repeats = true
		} else {
			d.c.Metrics.ExecutionFinished(v.JobType, v.Status, took[v.ID])
		}
		if len(v.Next) > 0 {
			d.c.Hints.SendLane(ctx, queue.LaneFor(priorities[v.ID]), v.Next)
		}
		freed = append(freed, v.Freed)
	}
	if repeats {
		d.c.CallWorkers(ctx)
	}
	next, err := d.dispatch.Next(ctx, time.Time{}, freed, false)
	if err != nil {
		d.c.Log.DebugContext(ctx, "who is next is not known; a poll finds it", "error", err)
		return
	}
	d.c.Hints.Send(ctx, next)
}
