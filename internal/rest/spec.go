package rest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// newSpec translates the contract's definition of a job into the domain's, with
// defaults, and lists everything that the domain and the job type find wrong.
func (s *server) newSpec(ctx context.Context, body api.JobSpec) (job.Spec, []fault.Field, error) {
	spec := job.Spec{
		Name: body.Name, Description: orZero(body.Description), Tags: orZero(body.Tags),
		Type: string(body.JobType), Config: rawConfig(body.Config),
		Retry: newRetry(body.RetryConfig), DisableAfterFailures: orZero(orNil(body.DisableAfterFailures)),
		Policy: job.Policy{
			CronExpression: orEmpty(body.CronExpression), Timezone: orZero(body.Timezone),
			RunAt: orNil(body.RunAt), StartDate: orNil(body.StartDate), EndDate: orNil(body.EndDate),
			Timeout: orZero(body.Timeout), Priority: orZero(body.Priority),
			JitterSeconds: orZero(body.JitterSeconds), DSTGap: string(orZero(body.DstGap)), DSTOverlap: string(orZero(body.DstOverlap)),
			MaxExecutions: orZero(orNil(body.MaxExecutions)), MaxConcurrent: orZero(body.MaxConcurrent), ConcurrencyKey: orZero(orNil(body.ConcurrencyKey)),
			Overlap: job.Overlap(orZero(body.OverlapPolicy)), OverlapQueueLimit: orZero(body.OverlapQueueLimit),
			Misfire: job.Misfire{
				Policy: job.MisfirePolicy(orZero(body.MisfirePolicy)), Limit: orZero(body.MisfireLimit), GraceSeconds: orZero(body.MisfireGraceSeconds),
			},
		},
	}
	for _, named := range orZero(body.Calendars) {
		spec.Calendars = append(spec.Calendars, job.Calendar{ID: named.CalendarID, Mode: string(named.Mode)})
	}
	if spec.Timeout == 0 {
		spec.Timeout = int(s.DefaultTimeout / time.Second)
	}
	var fields []fault.Field
	if text := orEmpty(body.Interval); text != "" {
		interval, err := schedule.ParseInterval(text)
		if err != nil {
			more, err := fieldsOf(err)
			if err != nil {
				return job.Spec{}, nil, err
			}
			fields = append(fields, more...)
		}
		spec.Interval = job.Duration(interval)
	}
	spec = spec.WithDefaults()
	more, err := s.faultsOf(ctx, callOf(ctx).who.Actor, spec)
	return spec, append(fields, more...), err
}

// faultsOf lists everything that the domain and the job type find wrong with a
// definition that is new now.
func (s *server) faultsOf(ctx context.Context, who tenant.Actor, spec job.Spec) ([]fault.Field, error) {
	calendars, err := s.Jobs.Contents(ctx, who, spec.Calendars)
	fields, err := fieldsOf(err)
	if err != nil {
		return nil, err
	}
	more, err := fieldsOf(job.Validate(spec, calendars, s.Clock()))
	if err != nil {
		return nil, err
	}
	secrets, err := s.Jobs.CheckSecrets(ctx, who, spec.Config, fresh(ctx))
	if err != nil {
		return nil, err
	}
	return slices.Concat(fields, more, s.CheckConfig(spec.Type, spec.Config), secrets), nil
}

// storedFaultsOf is faultsOf for a definition that was stored once: which secrets
// it names, whoever reads it knows.
func (s *server) storedFaultsOf(ctx context.Context, spec job.Spec) ([]fault.Field, error) {
	who := callOf(ctx).who.Actor
	who.NoSecrets = false
	return s.faultsOf(ctx, who, spec)
}

// fresh tells whether a definition that a request holds is of no stored job.
func fresh(ctx context.Context) bool {
	operation := callOf(ctx).operation
	return operation != nil && slices.Contains([]string{"createJob", "validateJob", "internalCreateJob", "internalBatchCreateJobs"}, operation.ID)
}

// fieldsOf takes the fields out of an Invalid error; any other is handed back.
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

func newRetry(config *api.RetryConfig) job.Retry {
	retry := job.DefaultRetry()
	if config == nil {
		return retry
	}
	override(&retry.MaxRetries, config.MaxRetries)
	override(&retry.DelayMS, config.RetryDelayMs)
	override(&retry.Exponential, config.ExponentialBackoff)
	override(&retry.MaxDelayMS, config.MaxRetryDelayMs)
	override(&retry.Jitter, config.Jitter)
	if config.RetryOnErrorTypes != nil {
		retry.OnErrorTypes = []string{}
		for _, errorType := range *config.RetryOnErrorTypes {
			retry.OnErrorTypes = append(retry.OnErrorTypes, string(errorType))
		}
	}
	return retry
}

func viewJob(j job.Job) api.Job {
	tags := j.Tags
	if tags == nil {
		tags = []string{}
	}
	var cancelling *api.JobCancelling
	if j.Cancelling != nil {
		cancelling = &api.JobCancelling{RequestedAt: j.Cancelling.RequestedAt, Remaining: j.Cancelling.Remaining}
	}
	return api.Job{
		ID: j.ID, TenantID: j.TenantID, Version: j.Version, Cancelling: cancelling,
		Name: j.Name, Description: j.Description, Tags: tags,
		CronExpression: textOrNull(j.CronExpression), Interval: intervalOrNull(j.Interval), RunAt: orNull(j.RunAt),
		Timezone: j.Timezone, StartDate: orNull(j.StartDate), EndDate: orNull(j.EndDate),
		JobType: api.JobType(j.Type), Config: viewConfig(j.Config), RetryConfig: viewRetry(j.Retry), Timeout: j.Timeout, Priority: j.Priority,
		JitterSeconds: j.JitterSeconds, DstGap: api.DstGap(j.DSTGap), DstOverlap: api.DstOverlap(j.DSTOverlap), Calendars: viewNamed(j.Calendars),
		MaxExecutions: numberOrNull(j.MaxExecutions), MaxConcurrent: j.MaxConcurrent, ConcurrencyKey: textOrNull(j.ConcurrencyKey),
		OverlapPolicy: api.OverlapPolicy(j.Overlap), OverlapQueueLimit: j.OverlapQueueLimit,
		MisfirePolicy: api.MisfirePolicy(j.Misfire.Policy), MisfireLimit: j.Misfire.Limit, MisfireGraceSeconds: j.Misfire.GraceSeconds,
		DisableAfterFailures: numberOrNull(j.DisableAfterFailures),
		CreatedBy:            j.CreatedBy, CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt,
		Status: api.JobStatus(j.Status), StatusReason: textOrNull(j.StatusReason), StatusBy: textOrNull(j.StatusBy), StatusAt: j.StatusAt,
		PausedUntil: orNull(j.PausedUntil), NextExecutionAt: orNull(j.Upcoming()), LastExecutionAt: orNull(j.LastExecutionAt),
		ExecutionCount: j.ExecutionCount, ReconciledAt: orNull(j.AuditedAt), ReconciledDifference: orNull(j.AuditDifference),
	}
}

// definitionOf is a definition as the contract writes it, all fields given, with
// which the same definition could be sent again.
func definitionOf(s job.Spec) api.JobSpec {
	tags, calendars, retry := append([]string{}, s.Tags...), viewNamed(s.Calendars), viewRetry(s.Retry)
	gap, overlap := api.DstGap(s.DSTGap), api.DstOverlap(s.DSTOverlap)
	policy, misfire := api.OverlapPolicy(s.Overlap), api.MisfirePolicy(s.Misfire.Policy)
	return api.JobSpec{
		Name: s.Name, Description: &s.Description, Tags: &tags,
		CronExpression: given(textOrNull(s.CronExpression)), Interval: given(intervalOrNull(s.Interval)), RunAt: given(orNull(s.RunAt)),
		Timezone: &s.Timezone, StartDate: given(orNull(s.StartDate)), EndDate: given(orNull(s.EndDate)),
		JobType: api.JobType(s.Type), Config: viewConfig(s.Config), RetryConfig: &retry, Timeout: &s.Timeout, Priority: &s.Priority,
		JitterSeconds: &s.JitterSeconds, DstGap: &gap, DstOverlap: &overlap, Calendars: &calendars,
		MaxExecutions: given(numberOrNull(s.MaxExecutions)), MaxConcurrent: &s.MaxConcurrent, ConcurrencyKey: given(textOrNull(s.ConcurrencyKey)),
		OverlapPolicy: &policy, OverlapQueueLimit: &s.OverlapQueueLimit,
		MisfirePolicy: &misfire, MisfireLimit: &s.Misfire.Limit, MisfireGraceSeconds: &s.Misfire.GraceSeconds,
		DisableAfterFailures: given(numberOrNull(s.DisableAfterFailures)),
	}
}

// given leaves out what is null.
func given[T any](n nullable.Nullable[T]) nullable.Nullable[T] {
	if n.IsNull() {
		return nil
	}
	return n
}

func viewNamed(named []job.Calendar) []api.JobCalendar {
	view := make([]api.JobCalendar, len(named))
	for i, c := range named {
		view[i] = api.JobCalendar{CalendarID: c.ID, Mode: api.JobCalendarMode(c.Mode)}
	}
	return view
}

func viewRetry(r job.Retry) api.RetryConfig {
	types := make([]api.ErrorType, len(r.OnErrorTypes))
	for i, errorType := range r.OnErrorTypes {
		types[i] = api.ErrorType(errorType)
	}
	return api.RetryConfig{
		MaxRetries: &r.MaxRetries, RetryDelayMs: &r.DelayMS, ExponentialBackoff: &r.Exponential,
		MaxRetryDelayMs: &r.MaxDelayMS, RetryOnErrorTypes: &types, Jitter: &r.Jitter,
	}
}

func intervalOrNull(d job.Duration) nullable.Nullable[string] {
	if d == 0 {
		return nullable.NewNullNullable[string]()
	}
	return nullable.NewNullableWithValue(d.ISO())
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

func orNull[T any](p *T) nullable.Nullable[T] {
	if p == nil {
		return nullable.NewNullNullable[T]()
	}
	return nullable.NewNullableWithValue(*p)
}

// numberOrNull is null for zero, which is how the domain writes "no bound".
func numberOrNull[T int | int64](number T) nullable.Nullable[T] {
	if number == 0 {
		return nullable.NewNullNullable[T]()
	}
	return nullable.NewNullableWithValue(number)
}

func textOrNull(text string) nullable.Nullable[string] {
	if text == "" {
		return nullable.NewNullNullable[string]()
	}
	return nullable.NewNullableWithValue(text)
}

func orNil[T any](n nullable.Nullable[T]) *T {
	value, err := n.Get()
	if err != nil {
		return nil
	}
	return &value
}

func orEmpty(n nullable.Nullable[string]) string { return orZero(orNil(n)) }
