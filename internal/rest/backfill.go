package rest

import (
	"context"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/backfill"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
)

// CreateBackfill is POST /jobs/{id}/backfills.
func (s *server) CreateBackfill(ctx context.Context, request api.CreateBackfillRequestObject) (api.CreateBackfillResponseObject, error) {
	c, body := callOf(ctx), request.Body
	if err := s.checkOverrides(ctx, request.ID, body.Parameters); err != nil {
		return nil, err
	}
	asked := backfill.Request{From: body.From, To: body.To, RatePerMinute: orZero(body.RatePerMinute), DailyShare: orZero(body.DailyShare), Parameters: body.Parameters}
	if orZero(body.DryRun) {
		plan, err := s.Backfills.Preview(ctx, c.who.Actor, request.ID, asked)
		if err != nil {
			return nil, err
		}
		return api.CreateBackfill200JSONResponse(viewPlan(plan)), nil
	}
	key := keyOf(c, request.Params.IdempotencyKey, "POST /jobs/"+request.ID.String()+"/backfills")
	made, replayed, err := s.Backfills.Create(ctx, c.who.Actor, request.ID, asked, key)
	if err != nil {
		return nil, err
	}
	s.callPromoters(ctx)
	location := base + "/jobs/" + made.JobID.String() + "/backfills/" + made.ID.String()
	return api.CreateBackfill202JSONResponse{
		Body:    viewBackfill(made),
		Headers: api.CreateBackfill202ResponseHeaders{Location: &location, IdempotentReplayed: replay(replayed)},
	}, nil
}

// ListBackfills is GET /jobs/{id}/backfills.
func (s *server) ListBackfills(ctx context.Context, request api.ListBackfillsRequestObject) (api.ListBackfillsResponseObject, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	var after *backfill.Position
	if page.after != nil {
		after = &backfill.Position{CreatedAt: page.after.At, ID: page.after.ID}
	}
	list, err := s.Backfills.List(ctx, c.who.Actor, request.ID, page.limit+1, after, orZero(request.Params.Outcomes))
	if err != nil {
		return nil, err
	}
	list, next := cut(s, page, list, func(b backfill.Backfill) cursor.Place { return cursor.Place{At: b.CreatedAt, ID: b.ID} })
	answer := api.ListBackfills200JSONResponse{Items: make([]api.BackfillSummary, len(list)), NextCursor: next, HasMore: next != nil}
	for i, one := range list {
		answer.Items[i] = viewSummary(one)
	}
	return answer, nil
}

// GetBackfill is GET /jobs/{id}/backfills/{backfillId}.
func (s *server) GetBackfill(ctx context.Context, request api.GetBackfillRequestObject) (api.GetBackfillResponseObject, error) {
	found, err := s.Backfills.Get(ctx, callOf(ctx).who.Actor, request.ID, request.BackfillID)
	if err != nil {
		return nil, err
	}
	return api.GetBackfill200JSONResponse(viewBackfill(found)), nil
}

// CancelBackfill is POST /jobs/{id}/backfills/{backfillId}/cancel.
func (s *server) CancelBackfill(ctx context.Context, request api.CancelBackfillRequestObject) (api.CancelBackfillResponseObject, error) {
	cancelled, err := s.Backfills.Cancel(ctx, callOf(ctx).who.Actor, request.ID, request.BackfillID, orZero(orZero(request.Body).Reason))
	if err != nil {
		return nil, err
	}
	return api.CancelBackfill200JSONResponse(viewBackfill(cancelled)), nil
}

func viewPlan(p backfill.Plan) api.BackfillPlan {
	view := api.BackfillPlan{Total: p.Total}
	if p.Total > 0 {
		view.FirstAt, view.LastAt = new(p.First), new(p.Last)
	}
	return view
}

func viewSummary(b backfill.Backfill) api.BackfillSummary {
	view := api.BackfillSummary{
		ID: b.ID, TenantID: b.TenantID, JobID: b.JobID, JobVersion: b.JobVersion, From: b.From, To: b.To, RatePerMinute: b.RatePerMinute, DailyShare: b.DailyShare,
		Parameters: rawOrNull(b.Parameters), Status: api.BackfillStatus(b.Status), Total: b.Total, Created: b.Created, Progress: b.Progress(),
		CreatedBy: b.RequestedBy, HeldBy: textOrNull(b.HeldBy), CreatedAt: b.CreatedAt, FinishedAt: b.FinishedAt,
	}
	if b.Outcomes != nil {
		outcomes := viewOutcomes(b.Outcomes)
		view.Outcomes = &outcomes
	}
	return view
}

func viewOutcomes(n map[execution.Status]int) api.BackfillOutcomes {
	return api.BackfillOutcomes{
		Pending: n[execution.Pending], Running: n[execution.Running], Retrying: n[execution.Retrying],
		Completed: n[execution.Completed], Failed: n[execution.Failed], Cancelled: n[execution.Cancelled],
	}
}

func viewBackfill(b backfill.Backfill) api.Backfill {
	v := viewSummary(b)
	return api.Backfill{
		ID: v.ID, TenantID: v.TenantID, JobID: v.JobID, JobVersion: v.JobVersion, From: v.From, To: v.To, RatePerMinute: v.RatePerMinute, DailyShare: v.DailyShare,
		Parameters: v.Parameters, Status: v.Status, Total: v.Total, Created: v.Created, Progress: v.Progress,
		CreatedBy: v.CreatedBy, HeldBy: v.HeldBy, CreatedAt: v.CreatedAt, FinishedAt: v.FinishedAt,
		Outcomes: viewOutcomes(b.Outcomes),
	}
}
