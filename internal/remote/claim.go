package remote

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/parameters"
	remotes "github.com/scheduler-service/scheduler/internal/executor/remote"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job/definition"
	"github.com/scheduler-service/scheduler/internal/output"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/trace"
)

// Config is what a Desk is made of.
type Config struct {
	DB        *postgres.DB   // acting as postgres.Engine
	Keys      *keyring.Ring  // of the tokens of attempts; nil: nobody claims
	Callbacks *callback.Desk // ends attempts that cannot be handed out
	Metrics   *telemetry.Metrics
	Log       *slog.Logger
	// TenantMaxRunning is how many executions a tenant may run at once where it has no
	// limit of its own; 0: any number. The same in every process.
	TenantMaxRunning func() int
	Traces           *trace.Tracer // nil: nobody keeps traces
}

// Assignment is an execution that a claim hands out.
type Assignment struct {
	dispatch.Claimed
	JobName    string
	Function   string
	Parameters json.RawMessage // the job's, with those of the trigger set over them; nil: none
	CallToken  string          // opens the attempt for reports
	Traced     string          // the traceparent of what the worker does; empty: there is no trace
}

// Desk hands executions out. Any number of goroutines may use it.
type Desk struct {
	c        Config
	dispatch *dispatch.Store
	engine   engine
	secrets  *secret.Resolver
	output   *output.Writer
	queue    *queue
}

// NewDesk makes a desk.
func NewDesk(c Config) *Desk {
	return &Desk{
		c: c, dispatch: dispatch.NewStore(c.DB, dispatch.Config{TenantMaxRunning: c.TenantMaxRunning}), engine: engine{c.DB},
		secrets: secret.NewResolver(c.DB, c.Keys), output: output.NewWriter(c.DB, c.Metrics, c.Log), queue: newQueue(),
	}
}

// Request is what a worker asks for.
type Request struct {
	Worker uuid.UUID
	ID     uuid.UUID // of the claim, see dispatch.RemoteClaim; Nil: none
	Most   int
	// Patience is how long to wait for the first execution.
	Patience time.Duration
}

// Claim claims executions for a tenant's worker, and waits up to Patience for the
// first of them; it holds no connection meanwhile. It also ends when stop is closed. The claim
// counts as a sign of life of the worker. The error is Gone where the worker does not live, and
// TooMany where as many claims wait as may.
func (d *Desk) Claim(ctx context.Context, tenant uuid.UUID, r Request, stop <-chan struct{}) ([]Assignment, error) {
	if d.c.Keys.Current() == "" {
		return nil, noKeys()
	}
	member, err := d.engine.renew(ctx, tenant, r.Worker, -1)
	if err != nil {
		return nil, err
	}
	r.Most = min(r.Most, member.Slots)
	if r.Patience <= 0 {
		return d.take(ctx, tenant, member, r)
	}
	w, refused := d.queue.enter(tenant, member.Functions)
	if refused != nil {
		if got, err := d.take(ctx, tenant, member, r); err != nil || len(got) > 0 {
			return got, err
		}
		return nil, refused
	}
	defer d.queue.leave(w)
	waited, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	for {
		if got, err := d.take(ctx, tenant, member, r); err != nil || len(got) > 0 {
			return got, err
		}
		select {
		case <-w.called:
		case <-stop:
			return nil, nil
		case <-waited.Done():
			return nil, nil
		}
	}
}

// Standing is where an attempt stands, as the contract names it.
type Standing string

// Where an attempt stands.
const (
	Running    Standing = "running"
	Cancelling Standing = "cancelling" // somebody asked for its end
	Ended      Standing = "ended"
)

// Heartbeat prolongs a worker's lease and its attempts, which it names by their tokens, and says
// where each of them stands. A token that is none of the tenant's counts as one of an attempt that
// has ended. The error is Gone where the worker does not live: its attempts are prolonged all the same.
func (d *Desk) Heartbeat(ctx context.Context, tenant, worker uuid.UUID, tokens []string) ([]Standing, error) {
	if d.c.Keys.Current() == "" {
		return nil, noKeys()
	}
	attempts, opened := make([]dispatch.Fence, len(tokens)), make([]dispatch.Fence, 0, len(tokens))
	for i, token := range tokens {
		if a, err := callback.Open(d.c.Keys, token); err == nil && a.Tenant == tenant {
			attempts[i] = a.Fence
			opened = append(opened, a.Fence)
		}
	}
	cancelling, err := d.dispatch.Heartbeats(ctx, time.Time{}, tenant, opened)
	if err != nil {
		return nil, err
	}
	out := make([]Standing, len(tokens))
	for i, attempt := range attempts {
		switch asked, alive := cancelling[attempt]; {
		case !alive:
			out[i] = Ended
		case asked:
			out[i] = Cancelling
		default:
			out[i] = Running
		}
	}
	_, err = d.engine.renew(ctx, tenant, worker, len(cancelling))
	return out, err
}

// take claims what there is now.
func (d *Desk) take(ctx context.Context, tenant uuid.UUID, w Worker, r Request) ([]Assignment, error) {
	won, repeated, err := d.dispatch.ClaimRemote(ctx, dispatch.RemoteClaim{
		Tenant: tenant, Worker: w.ID, Token: uuid.New(), Functions: w.Functions, Most: r.Most, Heartbeat: w.Lease, ID: r.ID,
	})
	if err != nil || len(won) == 0 {
		return nil, err
	}
	keys := make([]definition.Key, len(won))
	for i, c := range won {
		keys[i] = definition.Key{Job: c.Job, Version: c.Version}
	}
	definitions, err := definition.Read(ctx, d.engine.db, keys)
	if err != nil {
		return nil, err // their heartbeats do not come, or the worker repeats the claim
	}
	var out []Assignment
	shorter := map[dispatch.Fence]time.Duration{}
	for i, c := range won {
		def, given := definitions[keys[i]], c.Timeout
		if left := def.Limit.Left(c.ClaimedAt.Sub(c.StartedAt)); left < c.Timeout {
			c.Timeout = max(left, 0)
		}
		a, failure := d.assign(ctx, c, def)
		if failure == nil {
			if out = append(out, a); c.Timeout < given && !repeated {
				shorter[dispatch.Fence{ID: c.ID, Attempt: c.Attempt, Token: c.Token}] = c.Timeout
			}
			continue
		}
		attempt := callback.Attempt{Tenant: c.Tenant, Fence: dispatch.Fence{ID: c.ID, Attempt: c.Attempt, Token: c.Token}}
		if _, err := d.c.Callbacks.Fail(ctx, attempt, *failure); err != nil {
			d.c.Log.WarnContext(ctx, "an attempt that cannot be handed out did not end; it ends when no heartbeat comes", "error", err, "execution_id", c.ID)
		}
	}
	if err := d.dispatch.Shorten(ctx, shorter); err != nil { // their workers are told all the same
		d.c.Log.WarnContext(ctx, "attempts keep the timeout of their jobs, although their executions have less time left", "error", err)
	}
	return out, nil
}

// traced is the traceparent for what a worker does of an attempt: below a span of its claim.
func (d *Desk) traced(ctx context.Context, c dispatch.Claimed) string {
	if d.c.Traces == nil {
		return ""
	}
	ctx, span := d.c.Traces.Execution(ctx, c.ID, "claim by a tenant's worker", clock.Now(),
		slog.String("scheduler.execution_id", c.ID.String()), slog.String("scheduler.job_id", c.Job.String()), slog.String("scheduler.tenant_id", c.Tenant.String()),
		slog.String("scheduler.job_type", c.JobType), slog.String("scheduler.trigger", c.Trigger), slog.Int("scheduler.attempt", c.Attempt))
	span.End()
	return trace.Parent(ctx)
}

// assign is what a worker gets of an execution, or why it cannot.
func (d *Desk) assign(ctx context.Context, c dispatch.Claimed, def definition.Definition) (Assignment, *callback.Failure) {
	never := false
	unreadable := &callback.Failure{Type: string(executor.ValidationError), Message: "the definition of this job version cannot be read", Retry: &never}
	switch {
	case def.Err != nil || def.Type != remotes.Type:
		return Assignment{}, unreadable
	case c.Timeout <= 0: // of the job's executionTimeout nothing is left
		return Assignment{}, &callback.Failure{Type: string(executor.Timeout), Message: "no attempt was made"}
	}
	ready, err := d.secrets.Resolve(ctx, secret.Input{
		Version: secret.Version{Tenant: c.Tenant, Job: c.Job, Number: c.Version}, Config: def.Config, Parameters: c.Parameters,
		Sealed: def.Sealed, Execution: c.ID, Attempt: c.Attempt, ScheduledAt: c.ScheduledAt,
	})
	if err != nil {
		return Assignment{}, unresolved(err)
	}
	var settings remotes.Settings
	if json.Unmarshal(ready.Config, &settings) != nil {
		return Assignment{}, unreadable
	}
	merged, err := parameters.Merge(settings.Parameters, ready.Parameters)
	if err != nil {
		return Assignment{}, &callback.Failure{Type: string(executor.ValidationError), Message: "parameters: must be an object", Retry: &never}
	}
	token, err := callback.Token(d.c.Keys, callback.Attempt{Tenant: c.Tenant, Fence: dispatch.Fence{ID: c.ID, Attempt: c.Attempt, Token: c.Token}})
	if err != nil {
		return Assignment{}, &callback.Failure{Type: string(executor.SystemError), Message: "the token of this attempt could not be sealed"}
	}
	return Assignment{Claimed: c, JobName: def.Name, Function: settings.Function, Parameters: merged, CallToken: token, Traced: d.traced(ctx, c)}, nil
}

// unresolved is how an attempt ends that did not get its secrets. One that is not there is the
// job's fault, and no retry brings it; all else may pass.
func unresolved(err error) *callback.Failure {
	f := &callback.Failure{Type: string(executor.SystemError), Message: "the secrets of this job could not be read"}
	var known *fault.Error
	if errors.As(err, &known) && known.Kind == fault.NotFound {
		never := false
		f.Type, f.Message, f.Retry = string(executor.ValidationError), known.Message, &never
	}
	return f
}
