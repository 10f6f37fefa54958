package rest

import (
	"context"
	"time"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/objective"
)

// CreateObjective is POST /objectives.
func (s *server) CreateObjective(ctx context.Context, request api.CreateObjectiveRequestObject) (api.CreateObjectiveResponseObject, error) {
	spec, faults := newObjective(*request.Body)
	if len(faults) > 0 {
		return nil, wrong(faults...)
	}
	made, err := s.Objectives.Create(ctx, callOf(ctx).who.Actor, spec)
	if err != nil {
		return nil, err
	}
	location := base + "/objectives/" + made.ID.String()
	return api.CreateObjective201JSONResponse{Body: viewObjective(made), Headers: api.CreateObjective201ResponseHeaders{Location: &location}}, nil
}

// ListObjectives is GET /objectives.
func (s *server) ListObjectives(ctx context.Context, _ api.ListObjectivesRequestObject) (api.ListObjectivesResponseObject, error) {
	list, err := s.Objectives.List(ctx, callOf(ctx).who.Actor, time.Time{})
	if err != nil {
		return nil, err
	}
	answer := api.ListObjectives200JSONResponse{Items: make([]api.Objective, len(list))}
	for i, one := range list {
		answer.Items[i] = viewObjective(one)
	}
	return answer, nil
}

// GetObjective is GET /objectives/{id}.
func (s *server) GetObjective(ctx context.Context, request api.GetObjectiveRequestObject) (api.GetObjectiveResponseObject, error) {
	found, err := s.Objectives.Get(ctx, callOf(ctx).who.Actor, request.ID)
	if err != nil {
		return nil, err
	}
	return api.GetObjective200JSONResponse{Body: viewObjective(found), Headers: api.GetObjective200ResponseHeaders{ETag: etag(found.Version)}}, nil
}

// UpdateObjective is PUT /objectives/{id}.
func (s *server) UpdateObjective(ctx context.Context, request api.UpdateObjectiveRequestObject) (api.UpdateObjectiveResponseObject, error) {
	who := callOf(ctx).who.Actor
	err := sentBackAsIs(ctx, func() (api.Objective, error) {
		found, err := s.Objectives.Get(ctx, who, request.ID)
		return viewObjective(found), err
	})
	if err != nil {
		return nil, err
	}
	spec, faults := newObjective(*request.Body)
	if len(faults) > 0 {
		return nil, wrong(faults...)
	}
	updated, err := s.Objectives.Update(ctx, who, request.ID, spec, wantedVersion(ctx, request.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	return api.UpdateObjective200JSONResponse{Body: viewObjective(updated), Headers: api.UpdateObjective200ResponseHeaders{ETag: etag(updated.Version)}}, nil
}

// DeleteObjective is DELETE /objectives/{id}.
func (s *server) DeleteObjective(ctx context.Context, request api.DeleteObjectiveRequestObject) (api.DeleteObjectiveResponseObject, error) {
	if err := s.Objectives.Delete(ctx, callOf(ctx).who.Actor, request.ID); err != nil {
		return nil, err
	}
	return api.DeleteObjective204Response{}, nil
}

// newObjective translates the contract's objective into the domain's, with defaults, and lists what is
// wrong with it.
func newObjective(body api.ObjectiveSpec) (objective.Spec, []fault.Field) {
	spec := objective.Spec{
		Name: body.Name, Kind: objective.Kind(body.Kind), JobID: body.JobID, Tag: orZero(body.Tag), Target: body.Target,
		Threshold: time.Duration(orZero(body.ThresholdMs)) * time.Millisecond, WindowDays: 30,
	}
	if body.WindowDays != nil {
		spec.WindowDays = *body.WindowDays
	}
	return spec, spec.Validate()
}

func viewObjective(o objective.Objective) api.Objective {
	view := api.Objective{
		ID: o.ID, Version: o.Version, Name: o.Name, Kind: api.ObjectiveKind(o.Kind), JobID: o.JobID, Tag: textOrNull(o.Tag),
		Target: o.Target, WindowDays: o.WindowDays, CreatedBy: o.CreatedBy, CreatedAt: o.CreatedAt, UpdatedAt: o.UpdatedAt,
		WindowFrom: o.Status.From, CountedTo: o.Status.CountedTo, Good: o.Status.Window.Good, Bad: o.Status.Window.Bad,
		Share: o.Status.Window.Share(), BudgetLeft: o.BudgetLeft(o.Status.Window),
		BurnRate: o.BurnRate(o.Status.Window), BurnRateHour: o.BurnRate(o.Status.Hour), BurnRateSixHours: o.BurnRate(o.Status.SixHours),
	}
	if o.Threshold > 0 {
		view.ThresholdMs = new(int(o.Threshold.Milliseconds()))
	}
	return view
}
