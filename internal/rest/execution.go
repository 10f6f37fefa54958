package rest

import (
	"context"
	"encoding/json"

	"github.com/oapi-codegen/nullable"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
)

// ListExecutions is GET /executions.
func (s *server) ListExecutions(ctx context.Context, request api.ListExecutionsRequestObject) (api.ListExecutionsResponseObject, error) {
	answer, err := s.listExecutions(ctx, request.Params)
	if request.Params.JobID != nil && fault.KindOf(err) == fault.NotFound {
		// A filter that nothing fits, not a path that leads nowhere.
		return api.ListExecutions200JSONResponse{Items: []api.Execution{}, NextCursor: nullable.NewNullNullable[string]()}, nil
	}
	if err != nil {
		return nil, err
	}
	return api.ListExecutions200JSONResponse(answer), nil
}

// ListJobExecutions is GET /jobs/{id}/executions.
func (s *server) ListJobExecutions(ctx context.Context, request api.ListJobExecutionsRequestObject) (api.ListJobExecutionsResponseObject, error) {
	p := request.Params
	all := api.ListExecutionsParams{
		JobID: &request.ID, Status: p.Status, TriggerType: p.TriggerType, JobType: p.JobType, ErrorType: p.ErrorType,
		TriggeredBy: p.TriggeredBy, From: p.From, To: p.To,
		CreatedFrom: p.CreatedFrom, CreatedTo: p.CreatedTo, Include: p.Include, Limit: p.Limit, Cursor: p.Cursor,
	}
	if p.Sort != nil {
		sort := api.ListExecutionsParamsSort(*p.Sort)
		all.Sort = &sort
	}
	answer, err := s.listExecutions(ctx, all)
	if err != nil {
		return nil, err
	}
	return api.ListJobExecutions200JSONResponse(answer), nil
}

// GetExecution is GET /executions/{id}.
func (s *server) GetExecution(ctx context.Context, request api.GetExecutionRequestObject) (api.GetExecutionResponseObject, error) {
	found, err := s.Executions.Get(ctx, callOf(ctx).who.Actor, request.ID)
	if err != nil {
		return nil, err
	}
	return api.GetExecution200JSONResponse(viewExecution(found)), nil
}

func executionFilter(p api.ListExecutionsParams) (execution.Filter, error) {
	filter := execution.Filter{
		JobID: p.JobID, TriggeredBy: orZero(p.TriggeredBy), From: p.From, To: p.To, CreatedFrom: p.CreatedFrom, CreatedTo: p.CreatedTo,
		OldestFirst: p.Sort != nil && *p.Sort == "scheduledAt", WithResult: p.Include != nil,
	}
	for _, status := range orZero(p.Status) {
		filter.Statuses = append(filter.Statuses, execution.Status(status))
	}
	for _, trigger := range orZero(p.TriggerType) {
		filter.Triggers = append(filter.Triggers, execution.Trigger(trigger))
	}
	for _, jobType := range orZero(p.JobType) {
		filter.JobTypes = append(filter.JobTypes, string(jobType))
	}
	for _, errorType := range orZero(p.ErrorType) {
		filter.ErrorTypes = append(filter.ErrorTypes, string(errorType))
	}
	fields := append(disordered("to", p.From, p.To), disordered("createdTo", p.CreatedFrom, p.CreatedTo)...)
	if len(fields) > 0 {
		return filter, wrong(fields...)
	}
	return filter, nil
}

func (s *server) listExecutions(ctx context.Context, p api.ListExecutionsParams) (api.ExecutionPage, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, p.Limit, p.Cursor)
	if err != nil {
		return api.ExecutionPage{}, err
	}
	filter, err := executionFilter(p)
	if err != nil {
		return api.ExecutionPage{}, err
	}
	filter.Limit = page.limit
	if page.after != nil {
		filter.After = &execution.Position{ScheduledAt: page.after.At, ID: page.after.ID}
	}
	list, after, err := s.Executions.List(ctx, c.who.Actor, filter)
	if err != nil {
		return api.ExecutionPage{}, err
	}
	next := s.onward(page, placeOf(after))
	answer := api.ExecutionPage{Items: make([]api.Execution, len(list)), NextCursor: orNull(next), HasMore: next != nil}
	for i, one := range list {
		answer.Items[i] = viewExecution(one)
	}
	return answer, nil
}

func placeOf(at *execution.Position) *cursor.Place {
	if at == nil {
		return nil
	}
	return &cursor.Place{At: at.ScheduledAt, ID: at.ID}
}

func viewExecution(e execution.Execution) api.Execution {
	view := api.Execution{
		ID: e.ID, TenantID: e.TenantID, JobID: e.JobID, JobVersion: e.JobVersion, JobName: e.JobName, JobType: api.JobType(e.JobType),
		TriggerType: api.TriggerType(e.Trigger), TriggeredBy: textOrNull(e.TriggeredBy), Parameters: rawOrNull(e.Parameters), Priority: e.Priority,
		Status: api.ExecutionStatus(e.Status), Reason: textOrNull(e.Reason), CancelledBy: textOrNull(e.CancelledBy), Progress: e.Progress, ScheduledAt: e.ScheduledAt,
		StartedAt: orNull(e.StartedAt), CompletedAt: orNull(e.CompletedAt), DurationMs: viewDuration(e.DurationUS), Result: e.Result,
		ErrorType: nullable.NewNullNullable[api.ErrorType](), ErrorMessage: textOrNull(""), ErrorStack: textOrNull(""),
		RetryCount: e.Retries(), MaxAttempts: e.MaxAttempts, Attempts: make([]api.Attempt, len(e.Attempts)),
		NextAttemptAt: orNull(e.AvailableAt), CancelRequested: e.Cancelling,
		MissedCount: nullable.NewNullNullable[int64](), MissedUntil: orNull(e.MissedUntil), WorkerID: orNull(e.WorkerID),
		BackfillID: orNull(e.BackfillID), RetryOf: orNull(e.RetryOf), RetriedAs: orNull(e.RetriedAs), WaitingOn: viewWait(e.WaitingOn), CreatedAt: e.CreatedAt,
	}
	if e.Error != nil {
		view.ErrorType = nullable.NewNullableWithValue(api.ErrorType(e.Error.Type))
		view.ErrorMessage, view.ErrorStack = nullable.NewNullableWithValue(e.Error.Message), textOrNull(e.Error.Stack)
	}
	if e.MissedCount > 0 {
		view.MissedCount = nullable.NewNullableWithValue(e.MissedCount)
	}
	for i, attempt := range e.Attempts {
		view.Attempts[i] = viewAttempt(attempt)
	}
	return view
}

func viewWait(w *execution.Wait) nullable.Nullable[api.WaitingOn] {
	if w == nil {
		return nullable.NewNullNullable[api.WaitingOn]()
	}
	view := api.WaitingOn{
		Reason: api.WaitReason(w.Reason), Until: orNull(w.Until), Key: textOrNull(w.Key),
		Used: nullable.NewNullNullable[int](), Limit: nullable.NewNullNullable[int](),
	}
	switch w.Reason {
	case execution.WaitJob, execution.WaitKey, execution.WaitType, execution.WaitTenant:
		view.Used, view.Limit = nullable.NewNullableWithValue(w.Used), nullable.NewNullableWithValue(w.Limit)
	}
	return nullable.NewNullableWithValue(view)
}

func viewAttempt(a execution.Attempt) api.Attempt {
	view := api.Attempt{
		Number: a.Number, Status: api.AttemptStatus(a.Status), StartedAt: orNull(a.StartedAt), EndedAt: orNull(a.EndedAt),
		DurationMs: viewDuration(a.DurationUS), WorkerID: orNull(a.WorkerID),
		ErrorType: nullable.NewNullNullable[api.ErrorType](), ErrorMessage: textOrNull(""), ErrorStack: textOrNull(""),
	}
	if a.Error != nil {
		view.ErrorType, view.ErrorMessage = nullable.NewNullableWithValue(api.ErrorType(a.Error.Type)), nullable.NewNullableWithValue(a.Error.Message)
		view.ErrorStack = textOrNull(a.Error.Stack)
	}
	return view
}

// viewDuration is a duration in milliseconds.
func viewDuration(us *int64) nullable.Nullable[float64] {
	if us == nil {
		return nullable.NewNullNullable[float64]()
	}
	return nullable.NewNullableWithValue(float64(*us) / 1000)
}

func rawOrNull(raw json.RawMessage) nullable.Nullable[json.RawMessage] {
	if len(raw) == 0 {
		return nullable.NewNullNullable[json.RawMessage]()
	}
	return nullable.NewNullableWithValue(raw)
}
