package rest

import (
	"context"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
)

// BulkPauseJobs is POST /jobs/bulk/pause.
func (s *server) BulkPauseJobs(ctx context.Context, request api.BulkPauseJobsRequestObject) (api.BulkPauseJobsResponseObject, error) {
	result, err := s.onJobs(ctx, *request.Body, func(id uuid.UUID) (*uuid.UUID, error) {
		_, err := s.Jobs.Pause(ctx, callOf(ctx).who.Actor, id, orZero(request.Body.Reason), nil)
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	return api.BulkPauseJobs200JSONResponse(result), nil
}

// BulkResumeJobs is POST /jobs/bulk/resume.
func (s *server) BulkResumeJobs(ctx context.Context, request api.BulkResumeJobsRequestObject) (api.BulkResumeJobsResponseObject, error) {
	result, err := s.onJobs(ctx, *request.Body, func(id uuid.UUID) (*uuid.UUID, error) {
		_, err := s.Jobs.Resume(ctx, callOf(ctx).who.Actor, id, "")
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	return api.BulkResumeJobs200JSONResponse(result), nil
}

// BulkStopJobs is POST /jobs/bulk/stop.
func (s *server) BulkStopJobs(ctx context.Context, request api.BulkStopJobsRequestObject) (api.BulkStopJobsResponseObject, error) {
	result, err := s.onJobs(ctx, *request.Body, func(id uuid.UUID) (*uuid.UUID, error) {
		_, err := s.Jobs.Stop(ctx, callOf(ctx).who.Actor, id, orZero(request.Body.Reason))
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	return api.BulkStopJobs200JSONResponse(result), nil
}

// BulkTriggerJobs is POST /jobs/bulk/trigger.
func (s *server) BulkTriggerJobs(ctx context.Context, request api.BulkTriggerJobsRequestObject) (api.BulkTriggerJobsResponseObject, error) {
	result, err := s.onJobs(ctx, *request.Body, func(id uuid.UUID) (*uuid.UUID, error) {
		key := itemKey(request.Params.IdempotencyKey, "POST /jobs/bulk/trigger", id)
		made, replayed, err := s.Executions.Trigger(ctx, callOf(ctx).who.Actor, id, nil, key)
		return s.made(ctx, made, replayed, err)
	})
	if err != nil {
		return nil, err
	}
	return api.BulkTriggerJobs200JSONResponse(result), nil
}

// BulkCancelExecutions is POST /executions/bulk/cancel.
func (s *server) BulkCancelExecutions(ctx context.Context, request api.BulkCancelExecutionsRequestObject) (api.BulkCancelExecutionsResponseObject, error) {
	active := []execution.Status{execution.Pending, execution.Running, execution.Retrying}
	result, err := s.onExecutions(ctx, *request.Body, active, func(id uuid.UUID) (*uuid.UUID, error) {
		_, next, err := s.Executions.Cancel(ctx, callOf(ctx).who.Actor, id, orZero(request.Body.Reason))
		s.hint(ctx, next...)
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	return api.BulkCancelExecutions200JSONResponse(result), nil
}

// BulkRetryExecutions is POST /executions/bulk/retry.
func (s *server) BulkRetryExecutions(ctx context.Context, request api.BulkRetryExecutionsRequestObject) (api.BulkRetryExecutionsResponseObject, error) {
	result, err := s.onExecutions(ctx, *request.Body, []execution.Status{execution.Failed}, func(id uuid.UUID) (*uuid.UUID, error) {
		key := itemKey(request.Params.IdempotencyKey, "POST /executions/bulk/retry", id)
		made, replayed, err := s.Executions.Retry(ctx, callOf(ctx).who.Actor, id, key)
		return s.made(ctx, made, replayed, err)
	})
	if err != nil {
		return nil, err
	}
	return api.BulkRetryExecutions200JSONResponse(result), nil
}

// made hints an execution that was made, and gives its id.
func (s *server) made(ctx context.Context, e execution.Execution, replayed bool, err error) (*uuid.UUID, error) {
	if err != nil {
		return nil, err
	}
	if !replayed {
		s.hint(ctx, dispatch.Waiting{ID: e.ID, Priority: e.Priority})
	}
	return &e.ID, nil
}

func (s *server) onJobs(ctx context.Context, body api.JobBulk, act func(uuid.UUID) (*uuid.UUID, error)) (api.BulkResult, error) {
	who := callOf(ctx).who.Actor
	b := bulk{ids: orZero(body.Ids), dryRun: orZero(body.DryRun), limit: body.Limit, cursor: body.Cursor, act: act}
	b.look = func(id uuid.UUID) error { _, err := s.Jobs.Get(ctx, who, id); return err }
	if body.Filter != nil && isTagMatchAlone(*body.Filter) {
		return api.BulkResult{}, wrong(fault.Field{Path: "filter", Rule: "minProperties", Message: "has no condition: tagMatch is one only with tags"})
	}
	wanted := orZero(body.Filter)
	if err := choose(&b, body.Filter, orZero(body.All)); err != nil || b.filter == nil {
		return s.orRun(ctx, b, err)
	}
	selected, err := jobFilter(api.ListJobsParams{
		Status: wanted.Status, JobType: wanted.JobType, Tags: wanted.Tags, TagMatch: (*api.ListJobsParamsTagMatch)(wanted.TagMatch),
		Q: wanted.Q, CreatedBy: wanted.CreatedBy,
	})
	if err != nil {
		return api.BulkResult{}, below("filter", err)
	}
	b.find = func(p page) ([]target, *cursor.Place, error) {
		filter := selected
		filter.Limit = p.limit
		if p.after != nil {
			filter.After = &job.Position{CreatedAt: p.after.At, ID: p.after.ID}
		}
		jobs, next, err := s.Jobs.List(ctx, who, filter)
		targets := make([]target, len(jobs))
		for i, j := range jobs {
			targets[i] = target{id: j.ID, place: cursor.Place{At: j.CreatedAt, ID: j.ID}}
		}
		return targets, placeOfJob(next), err
	}
	return s.run(ctx, b)
}

// isTagMatchAlone finds the filter that looks like one and selects everything.
func isTagMatchAlone(f api.JobSelection) bool {
	match := f.TagMatch
	f.TagMatch = nil
	return match != nil && f == (api.JobSelection{})
}

// onExecutions acts on executions; statuses are those of a filter that names
// none.
func (s *server) onExecutions(ctx context.Context, body api.ExecutionBulk, statuses []execution.Status,
	act func(uuid.UUID) (*uuid.UUID, error),
) (api.BulkResult, error) {
	who := callOf(ctx).who.Actor
	b := bulk{ids: orZero(body.Ids), dryRun: orZero(body.DryRun), limit: body.Limit, cursor: body.Cursor, act: act}
	b.look = func(id uuid.UUID) error { _, err := s.Executions.Get(ctx, who, id); return err }
	wanted := orZero(body.Filter)
	if err := choose(&b, body.Filter, orZero(body.All)); err != nil || b.filter == nil {
		return s.orRun(ctx, b, err)
	}
	selected, err := executionFilter(api.ListExecutionsParams{
		JobID: wanted.JobID, Status: wanted.Status, TriggerType: wanted.TriggerType, JobType: wanted.JobType, ErrorType: wanted.ErrorType,
		TriggeredBy: wanted.TriggeredBy, From: wanted.From, To: wanted.To,
	})
	if err != nil {
		return api.BulkResult{}, below("filter", err)
	}
	if selected.Statuses == nil {
		selected.Statuses = statuses
	}
	b.find = func(p page) ([]target, *cursor.Place, error) {
		filter := selected
		filter.Limit = p.limit
		if p.after != nil {
			filter.After = &execution.Position{ScheduledAt: p.after.At, ID: p.after.ID}
		}
		list, next, err := s.Executions.List(ctx, who, filter)
		if fault.KindOf(err) == fault.NotFound { // of a job that is not there are none
			return nil, nil, nil
		}
		targets := make([]target, len(list))
		for i, e := range list {
			targets[i] = target{id: e.ID, place: cursor.Place{At: e.ScheduledAt, ID: e.ID}}
		}
		return targets, placeOf(next), err
	}
	return s.run(ctx, b)
}
