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
	who, reason := callOf(ctx).who.Actor, orZero(request.Body.Reason)
	result, err := s.onJobs(ctx, *request.Body, bulk{
		set: func(ids []uuid.UUID) (map[uuid.UUID]error, error) { return s.Jobs.PauseAll(ctx, who, ids, reason) },
	})
	if err != nil {
		return nil, err
	}
	return api.BulkPauseJobs200JSONResponse(result), nil
}

// BulkResumeJobs is POST /jobs/bulk/resume.
func (s *server) BulkResumeJobs(ctx context.Context, request api.BulkResumeJobsRequestObject) (api.BulkResumeJobsResponseObject, error) {
	who, missed := callOf(ctx).who.Actor, job.MisfirePolicy(orZero(request.Body.MisfirePolicy))
	request.Body.MisfirePolicy = nil
	result, err := s.onJobs(ctx, *request.Body, bulk{
		set: func(ids []uuid.UUID) (map[uuid.UUID]error, error) { return s.Jobs.ResumeAll(ctx, who, ids, missed) },
	})
	if err != nil {
		return nil, err
	}
	s.callPromoters(ctx) // some of them may be due
	return api.BulkResumeJobs200JSONResponse(result), nil
}

// BulkStopJobs is POST /jobs/bulk/stop.
func (s *server) BulkStopJobs(ctx context.Context, request api.BulkStopJobsRequestObject) (api.BulkStopJobsResponseObject, error) {
	who, reason := callOf(ctx).who.Actor, orZero(request.Body.Reason)
	result, err := s.onJobs(ctx, *request.Body, bulk{
		set: func(ids []uuid.UUID) (map[uuid.UUID]error, error) { return s.Jobs.StopAll(ctx, who, ids, reason) },
	})
	if err != nil {
		return nil, err
	}
	return api.BulkStopJobs200JSONResponse(result), nil
}

// BulkDeleteJobs is POST /jobs/bulk/delete.
func (s *server) BulkDeleteJobs(ctx context.Context, request api.BulkDeleteJobsRequestObject) (api.BulkDeleteJobsResponseObject, error) {
	who, reason := callOf(ctx).who.Actor, orZero(request.Body.Reason)
	result, err := s.onJobs(ctx, *request.Body, bulk{
		set: func(ids []uuid.UUID) (map[uuid.UUID]error, error) { return s.Jobs.DeleteAll(ctx, who, ids, reason) },
	})
	if err != nil {
		return nil, err
	}
	return api.BulkDeleteJobs200JSONResponse(result), nil
}

// BulkTriggerJobs is POST /jobs/bulk/trigger.
func (s *server) BulkTriggerJobs(ctx context.Context, request api.BulkTriggerJobsRequestObject) (api.BulkTriggerJobsResponseObject, error) {
	result, err := s.onJobs(ctx, *request.Body, bulk{act: func(id uuid.UUID) (*uuid.UUID, error) {
		key := itemKey(request.Params.IdempotencyKey, "POST /jobs/bulk/trigger", id)
		made, replayed, err := s.Executions.Trigger(ctx, callOf(ctx).who.Actor, id, nil, key)
		return s.made(ctx, made, replayed, err)
	}})
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
		s.Traces.Made(ctx, e.ID)
		s.hint(ctx, dispatch.Waiting{ID: e.ID, Priority: e.Priority})
	}
	return &e.ID, nil
}

// onJobs is a call on jobs; b says what it does to them.
func (s *server) onJobs(ctx context.Context, body api.JobBulk, b bulk) (api.BulkResult, error) {
	who := callOf(ctx).who.Actor
	if body.MisfirePolicy != nil {
		return api.BulkResult{}, wrong(fault.Field{Path: "misfirePolicy", Rule: "unexpected", Message: "only applies to resume"})
	}
	b.ids, b.dryRun, b.limit, b.cursor = orZero(body.Ids), orZero(body.DryRun), body.Limit, body.Cursor
	b.look = func(id uuid.UUID) error { _, err := s.Jobs.Get(ctx, who, id); return err }
	if body.Filter != nil && isTagMatchAlone(*body.Filter) {
		return api.BulkResult{}, wrong(fault.Field{Path: "filter", Rule: "minProperties", Message: "has no condition: tagMatch is one only with tags"})
	}
	wanted := orZero(body.Filter)
	if err := choose(&b, body.Filter, orZero(body.All)); err != nil || b.filter == nil {
		return s.orRun(ctx, b, err)
	}
	selected, err := jobFilter(&wanted)
	if err != nil {
		return api.BulkResult{}, below("filter", err)
	}
	b.find = func(p page) ([]target, *cursor.Place, error) {
		filter := selected
		filter.Limit = p.limit
		if p.after != nil {
			filter.After = &job.Position{CreatedAt: p.after.At, ID: p.after.ID}
		}
		keys, next, err := s.Jobs.Keys(ctx, who, filter)
		targets := make([]target, len(keys))
		for i, j := range keys {
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
	selected, err := executionFilter(&wanted)
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
