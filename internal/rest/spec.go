package rest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// newSpec translates the contract's definition of a job into the domain's, with
// defaults, and lists everything that the domain and the job type find wrong.
func (s *server) newSpec(ctx context.Context, body api.JobSpec) (job.Spec, []fault.Field, error) {
	spec, fields, err := s.draftOf(body)
	if err != nil {
		return spec, nil, err
	}
	more, err := s.faultsOf(ctx, callOf(ctx).who.Actor, spec, fresh(ctx))
	return spec, append(fields, more...), err
}

// draftOf is newSpec as far as the definition alone shows what is wrong.
func (s *server) draftOf(body api.JobSpec) (job.Spec, []fault.Field, error) {
	spec := job.Spec{Retry: job.DefaultRetry()}
	fields, err := fieldsOf(carry(&spec, &body))
	if err != nil {
		return job.Spec{}, nil, err
	}
	if spec.Timeout == 0 {
		spec.Timeout = int(s.DefaultTimeout / time.Second)
	}
	fields = append(fields, triggerFaults(spec, body)...)
	return spec.WithDefaults(), fields, nil
}

// triggerFaults holds a definition to exactly one answer to when the job runs.
func triggerFaults(spec job.Spec, body api.JobSpec) []fault.Field {
	scheduled, manual := spec.Scheduled() || orZero(body.Interval) != "", body.Trigger != nil
	switch {
	case scheduled && manual:
		return []fault.Field{{Path: "trigger", Rule: "conflict", Message: "must be null or left out beside cronExpression, interval or runAt"}}
	case !scheduled && !manual:
		return []fault.Field{{Path: "trigger", Rule: "required", Message: `is missing: give exactly one of cronExpression, interval and runAt, or "trigger": "manual"`}}
	}
	return nil
}

// faultsOf lists everything that the domain and the job type find wrong with a
// definition. fresh says that it is of a new job, of which nothing is stored.
func (s *server) faultsOf(ctx context.Context, who tenant.Actor, spec job.Spec, fresh bool) ([]fault.Field, error) {
	calendars, err := s.Jobs.Contents(ctx, who, spec.Calendars)
	fields, err := fieldsOf(err)
	if err != nil {
		return nil, err
	}
	more, err := fieldsOf(job.Validate(spec, calendars, s.Clock()))
	if err != nil {
		return nil, err
	}
	secrets, err := s.Jobs.CheckSecrets(ctx, who, spec.Config, fresh)
	if err != nil {
		return nil, err
	}
	wrong := s.CheckConfig(spec.Type, spec.Config)
	if len(wrong) == 0 {
		if wrong, err = s.CheckUse(ctx, who, spec.Type, spec.Config); err != nil {
			return nil, err
		}
	}
	return slices.Concat(fields, more, wrong, s.hostFaults(ctx, spec), secrets), nil
}

// storedFaultsOf is faultsOf for a definition that was stored once: its readers
// know already which secrets it names.
func (s *server) storedFaultsOf(ctx context.Context, spec job.Spec) ([]fault.Field, error) {
	who := callOf(ctx).who.Actor
	who.NoSecrets = false
	return s.faultsOf(ctx, who, spec, fresh(ctx))
}

// fresh tells whether a definition that a request holds is of no stored job.
func fresh(ctx context.Context) bool {
	operation := callOf(ctx).operation
	return operation != nil && operation.New
}

// fieldsOf takes the fields out of an Invalid error; it returns any other.
func fieldsOf(err error) ([]fault.Field, error) {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind == fault.Invalid {
		return f.Fields, nil
	}
	return nil, err
}

// rawConfig is a config as it was sent; nil where none was.
func rawConfig(config api.JobConfig) json.RawMessage {
	raw, err := config.MarshalJSON()
	if err != nil || string(raw) == "null" {
		return nil
	}
	return raw
}

// viewConfig is a stored config, which is what the executor of the job type
// admitted, so that nothing reads it anew.
func viewConfig(raw json.RawMessage) (config api.JobConfig) {
	_ = config.UnmarshalJSON(raw) // copies
	return config
}

func viewJob(j job.Job) (view api.Job) {
	showJob(&view, &j)
	return view
}

// showJob fills what is shown of a job.
func showJob(view *api.Job, j *job.Job) {
	mustCarry(view, &j.Spec)
	if !j.Scheduled() {
		view.Trigger = new(api.JobTriggerManual)
	}
	if j.Cancelling != nil {
		view.Cancelling = &api.JobCancelling{RequestedAt: j.Cancelling.RequestedAt, Remaining: j.Cancelling.Remaining}
	}
	view.ID, view.TenantID, view.Version, view.Set = j.ID, j.TenantID, j.Version, textOrNull(j.Set)
	view.CreatedBy, view.CreatedAt, view.UpdatedAt = j.CreatedBy, j.CreatedAt, j.UpdatedAt
	view.Status, view.StatusReason, view.StatusBy, view.StatusAt = api.JobStatus(j.Status), textOrNull(j.StatusReason), textOrNull(j.StatusBy), j.StatusAt
	view.PausedUntil, view.NextExecutionAt, view.LastExecutionAt = j.PausedUntil, j.Upcoming(), j.LastExecutionAt
	view.ExecutionCount, view.ReconciledAt, view.ReconciledDifference = j.ExecutionCount, j.AuditedAt, j.AuditDifference
}

// definitionOf is a definition as the contract writes it, all fields given that are
// not null, with which the same definition could be sent again.
func definitionOf(s job.Spec) (definition api.JobSpec) {
	var view api.Job // knows which fields have no value; in a JobSpec all may be absent
	mustCarry(&view, &s)
	mustCarry(&definition, &view)
	if !s.Scheduled() {
		definition.Trigger = new(api.JobSpecTriggerManual)
	}
	return definition
}

// The contract's optional and nullable values against the domain's zero values
// and pointers.

func override[T any](into, with *T) {
	if with != nil {
		*into = *with
	}
}

func orZero[T any](p *T) T {
	var value T
	override(&value, p)
	return value
}

// numberOrNull is null for zero, which is how the domain writes "no bound".
func numberOrNull[T int | int64](number T) *T {
	if number == 0 {
		return nil
	}
	return new(number)
}

func textOrNull[T ~string](text T) *T {
	if text == "" {
		return nil
	}
	return new(text)
}
