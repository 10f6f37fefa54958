package rest

import (
	"context"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
)

// StopJob is POST /jobs/{id}/stop.
func (s *server) StopJob(ctx context.Context, request api.StopJobRequestObject) (api.StopJobResponseObject, error) {
	stopped, err := s.Jobs.Stop(ctx, callOf(ctx).who.Actor, request.ID, orZero(orZero(request.Body).Reason))
	if err != nil {
		return nil, err
	}
	return api.StopJob200JSONResponse{Body: viewJob(stopped), Headers: api.StopJob200ResponseHeaders{ETag: etag(stopped.Version)}}, nil
}

// CancelExecution is POST /executions/{id}/cancel.
func (s *server) CancelExecution(ctx context.Context, request api.CancelExecutionRequestObject) (api.CancelExecutionResponseObject, error) {
	cancelled, next, err := s.Executions.Cancel(ctx, callOf(ctx).who.Actor, request.ID, orZero(orZero(request.Body).Reason))
	if err != nil {
		return nil, err
	}
	s.hint(ctx, next...)
	if cancelled.Status != execution.Cancelled {
		return api.CancelExecution202JSONResponse(viewExecution(cancelled)), nil
	}
	if s.Finished != nil {
		s.Finished(cancelled.TenantID, cancelled.ID)
	}
	return api.CancelExecution200JSONResponse(viewExecution(cancelled)), nil
}

// RetryExecution is POST /executions/{id}/retry.
func (s *server) RetryExecution(ctx context.Context, request api.RetryExecutionRequestObject) (api.RetryExecutionResponseObject, error) {
	c := callOf(ctx)
	key := keyOf(c, request.Params.IdempotencyKey, "POST /executions/"+request.ID.String()+"/retry")
	made, replayed, err := s.Executions.Retry(ctx, c.who.Actor, request.ID, key)
	if err != nil {
		return nil, err
	}
	if !replayed {
		s.Traces.Made(ctx, made.ID)
		s.hint(ctx, dispatch.Waiting{ID: made.ID, Priority: made.Priority})
	}
	location := base + "/executions/" + made.ID.String()
	return api.RetryExecution202JSONResponse{
		Body:    viewExecution(made),
		Headers: api.RetryExecution202ResponseHeaders{Location: &location, IdempotentReplayed: replay(replayed)},
	}, nil
}

// hint tells the workers of executions that wait, and does not wait long for
// Redis.
func (s *server) hint(ctx context.Context, waiting ...dispatch.Waiting) {
	hinting, cancel := context.WithTimeout(ctx, hintPatience)
	defer cancel()
	for _, one := range waiting {
		s.Hint(hinting, one.Priority, one.ID)
	}
}
