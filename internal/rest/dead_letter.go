package rest

import (
	"context"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/deadletter"
	replays "github.com/scheduler-service/scheduler/internal/deadletter/replay"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
)

// ListDeadLetters is GET /dead-letters.
func (s *server) ListDeadLetters(ctx context.Context, request api.ListDeadLettersRequestObject) (api.ListDeadLettersResponseObject, error) {
	c := callOf(ctx)
	filter, err := deadLetterFilter(&request.Params)
	if err != nil {
		return nil, err
	}
	page, err := s.openPage(c, request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	var after *deadletter.Position
	if page.after != nil {
		after = &deadletter.Position{FailedAt: page.after.At, ID: page.after.ID}
	}
	list, err := s.DeadLetters.List(ctx, c.who.Actor, filter, page.limit+1, after)
	if err != nil {
		return nil, err
	}
	list, next := cut(s, page, list, func(l deadletter.Letter) cursor.Place { return cursor.Place{At: l.FailedAt, ID: l.ExecutionID} })
	answer := api.ListDeadLetters200JSONResponse{Items: make([]api.DeadLetter, len(list)), NextCursor: next, HasMore: next != nil}
	for i, one := range list {
		answer.Items[i] = viewDeadLetter(one)
	}
	return answer, nil
}

// ListDeadLetterGroups is GET /dead-letters/groups.
func (s *server) ListDeadLetterGroups(ctx context.Context, request api.ListDeadLetterGroupsRequestObject) (api.ListDeadLetterGroupsResponseObject, error) {
	filter, err := deadLetterFilter(&request.Params)
	if err != nil {
		return nil, err
	}
	limit := defaultLimit
	override(&limit, request.Params.Limit)
	groups, err := s.DeadLetters.Groups(ctx, callOf(ctx).who.Actor, filter, limit+1)
	if err != nil {
		return nil, err
	}
	answer := api.ListDeadLetterGroups200JSONResponse{Items: []api.DeadLetterGroup{}, HasMore: len(groups) > limit}
	for _, one := range groups[:min(len(groups), limit)] {
		answer.Items = append(answer.Items, viewDeadLetterGroup(one))
	}
	return answer, nil
}

// GetDeadLetter is GET /dead-letters/{id}.
func (s *server) GetDeadLetter(ctx context.Context, request api.GetDeadLetterRequestObject) (api.GetDeadLetterResponseObject, error) {
	found, err := s.DeadLetters.Get(ctx, callOf(ctx).who.Actor, request.ID)
	if err != nil {
		return nil, err
	}
	return api.GetDeadLetter200JSONResponse(viewDeadLetter(found)), nil
}

// ReplayDeadLetter is POST /dead-letters/{id}/replay.
func (s *server) ReplayDeadLetter(ctx context.Context, request api.ReplayDeadLetterRequestObject) (api.ReplayDeadLetterResponseObject, error) {
	c := callOf(ctx)
	key := keyOf(c, request.Params.IdempotencyKey, "POST /dead-letters/"+request.ID.String()+"/replay")
	made, replayed, err := s.Executions.Replay(ctx, c.who.Actor, request.ID, key)
	if err != nil {
		return nil, err
	}
	if !replayed {
		s.hint(ctx, dispatch.Waiting{ID: made.ID, Priority: made.Priority})
		s.Metrics.DeadLetters("replayed", 1)
	}
	location := base + "/executions/" + made.ID.String()
	return api.ReplayDeadLetter202JSONResponse{
		Body:    viewExecution(made),
		Headers: api.ReplayDeadLetter202ResponseHeaders{Location: &location, IdempotentReplayed: replay(replayed)},
	}, nil
}

// DiscardDeadLetter is DELETE /dead-letters/{id}.
func (s *server) DiscardDeadLetter(ctx context.Context, request api.DiscardDeadLetterRequestObject) (api.DiscardDeadLetterResponseObject, error) {
	if err := s.DeadLetters.Discard(ctx, callOf(ctx).who.Actor, request.ID); err != nil {
		return nil, err
	}
	s.Metrics.DeadLetters("discarded", 1)
	return api.DiscardDeadLetter204Response{}, nil
}

// DiscardDeadLetters is POST /dead-letters/discard.
func (s *server) DiscardDeadLetters(ctx context.Context, request api.DiscardDeadLettersRequestObject) (api.DiscardDeadLettersResponseObject, error) {
	filter, err := deadLetterFilter(&request.Body.Filter)
	if err != nil {
		return nil, below("filter", err)
	}
	discarded, more, err := s.DeadLetters.DiscardAll(ctx, callOf(ctx).who.Actor, filter)
	if err != nil {
		return nil, err
	}
	s.Metrics.DeadLetters("discarded", discarded)
	return api.DiscardDeadLetters200JSONResponse{DiscardedCount: discarded, HasMore: more}, nil
}

// CreateDeadLetterReplay is POST /dead-letter-replays.
func (s *server) CreateDeadLetterReplay(ctx context.Context, request api.CreateDeadLetterReplayRequestObject) (api.CreateDeadLetterReplayResponseObject, error) {
	c, body := callOf(ctx), request.Body
	filter, err := deadLetterFilter(&body.Filter)
	if err != nil {
		return nil, below("filter", err)
	}
	asked := replays.Request{Filter: filter, RatePerMinute: orZero(body.RatePerMinute), NoCanary: body.Canary != nil && !*body.Canary}
	made, replayed, err := s.Replays.Create(ctx, c.who.Actor, asked, keyOf(c, request.Params.IdempotencyKey, "POST /dead-letter-replays"))
	if err != nil {
		return nil, err
	}
	location := base + "/dead-letter-replays/" + made.ID.String()
	return api.CreateDeadLetterReplay202JSONResponse{
		Body:    viewReplay(made),
		Headers: api.CreateDeadLetterReplay202ResponseHeaders{Location: &location, IdempotentReplayed: replay(replayed)},
	}, nil
}

// ListDeadLetterReplays is GET /dead-letter-replays.
func (s *server) ListDeadLetterReplays(ctx context.Context, request api.ListDeadLetterReplaysRequestObject) (api.ListDeadLetterReplaysResponseObject, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	var after *replays.Position
	if page.after != nil {
		after = &replays.Position{CreatedAt: page.after.At, ID: page.after.ID}
	}
	list, err := s.Replays.List(ctx, c.who.Actor, page.limit+1, after)
	if err != nil {
		return nil, err
	}
	list, next := cut(s, page, list, func(r replays.Replay) cursor.Place { return cursor.Place{At: r.CreatedAt, ID: r.ID} })
	answer := api.ListDeadLetterReplays200JSONResponse{Items: make([]api.DeadLetterReplay, len(list)), NextCursor: next, HasMore: next != nil}
	for i, one := range list {
		answer.Items[i] = viewReplay(one)
	}
	return answer, nil
}

// GetDeadLetterReplay is GET /dead-letter-replays/{id}.
func (s *server) GetDeadLetterReplay(ctx context.Context, request api.GetDeadLetterReplayRequestObject) (api.GetDeadLetterReplayResponseObject, error) {
	found, err := s.Replays.Get(ctx, callOf(ctx).who.Actor, request.ID)
	if err != nil {
		return nil, err
	}
	return api.GetDeadLetterReplay200JSONResponse(viewReplay(found)), nil
}

// CancelDeadLetterReplay is POST /dead-letter-replays/{id}/cancel.
func (s *server) CancelDeadLetterReplay(ctx context.Context, request api.CancelDeadLetterReplayRequestObject) (api.CancelDeadLetterReplayResponseObject, error) {
	cancelled, err := s.Replays.Cancel(ctx, callOf(ctx).who.Actor, request.ID)
	if err != nil {
		return nil, err
	}
	return api.CancelDeadLetterReplay200JSONResponse(viewReplay(cancelled)), nil
}

func viewReplay(r replays.Replay) api.DeadLetterReplay {
	view := api.DeadLetterReplay{
		ID: r.ID, Filter: viewSelection(r.Filter), RatePerMinute: r.RatePerMinute, Status: api.DeadLetterReplayStatus(r.Status), Reason: textOrNull(r.Reason), CanaryExecutionID: r.CanaryID,
		Total: r.Total, ReplayedCount: r.Replayed, RefusedCount: r.Refused, Faults: make([]api.DeadLetterFault, len(r.Faults)),
		CreatedBy: r.RequestedBy, CreatedAt: r.CreatedAt, FinishedAt: r.FinishedAt,
	}
	for i, f := range r.Faults {
		view.Faults[i] = api.DeadLetterFault{ExecutionID: f.ExecutionID, Code: f.Code, Message: f.Message}
	}
	return view
}

// deadLetterFilter takes the conditions on dead letters from the parameters of a list or from
// the filter of a call, given by its address, by their names in the contract.
func deadLetterFilter(conditions any) (filter deadletter.Filter, err error) {
	if err := carry(&filter, conditions); err != nil {
		return filter, err
	}
	if fields := disordered("to", filter.From, filter.To); len(fields) > 0 {
		return filter, wrong(fields...)
	}
	return filter, nil
}

func viewDeadLetter(l deadletter.Letter) api.DeadLetter {
	return api.DeadLetter{
		ExecutionID: l.ExecutionID, JobID: l.JobID, JobName: l.JobName, ErrorType: api.ErrorType(l.ErrorType), ErrorMessage: l.Message,
		Fingerprint: l.Fingerprint, FailedAt: l.FailedAt, ScheduledAt: l.ScheduledAt,
	}
}

func viewDeadLetterGroup(g deadletter.Group) api.DeadLetterGroup {
	return api.DeadLetterGroup{
		Fingerprint: g.Fingerprint, Count: int(g.Count), FirstFailedAt: g.First, LastFailedAt: g.Last, ErrorType: api.ErrorType(g.ErrorType), ErrorMessage: g.Message,
		LastExecutionID: g.Newest, JobCount: int(g.Jobs), JobIds: append([]uuid.UUID{}, g.JobIDs...),
	}
}

// viewSelection leaves out the conditions that were not given.
func viewSelection(f deadletter.Filter) api.DeadLetterSelection {
	view := api.DeadLetterSelection{JobID: f.JobID, From: f.From, To: f.To}
	if f.Fingerprint != "" {
		view.Fingerprint = &f.Fingerprint
	}
	if len(f.ErrorTypes) > 0 {
		types := make([]api.ErrorType, len(f.ErrorTypes))
		for i, one := range f.ErrorTypes {
			types[i] = api.ErrorType(one)
		}
		view.ErrorType = &types
	}
	return view
}
