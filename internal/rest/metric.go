package rest

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/statistics/collect"
)

const (
	defaultHistory = time.Hour
	historyLimit   = 120 // an hour of them
)

// GetMetrics is GET /metrics.
func (s *server) GetMetrics(ctx context.Context, request api.GetMetricsRequestObject) (api.GetMetricsResponseObject, error) {
	whose, err := scopeOf(ctx, request.Params.Scope != nil && *request.Params.Scope == "service")
	if err != nil {
		return nil, err
	}
	found, err := s.Numbers.Newest(ctx, whose)
	if err != nil {
		return nil, err
	}
	v, hour := viewCount(found.Numbers), found.LastHour
	answer := api.GetMetrics200JSONResponse{
		TakenAt: v.TakenAt, Jobs: v.Jobs, Executions: v.Executions, Waiting: v.Waiting, Running: v.Running,
		ActiveWorkers: v.ActiveWorkers, ErrorRate: hour.ErrorRate(), TimeoutRate: hour.TimeoutRate(), RetryRate: hour.RetryRate(),
	}
	if average := hour.AverageDuration(); average != nil {
		answer.DurationMs = new(struct {
			Avg float64 `json:"avg"`
		}{float64(average.Microseconds()) / 1000})
	}
	return answer, nil
}

// ListMetrics is GET /metrics/history.
func (s *server) ListMetrics(ctx context.Context, request api.ListMetricsRequestObject) (api.ListMetricsResponseObject, error) {
	p := request.Params
	whose, err := scopeOf(ctx, p.Scope != nil && *p.Scope == "service")
	if err != nil {
		return nil, err
	}
	to, limit := s.Clock(), historyLimit
	override(&to, p.To)
	override(&limit, p.Limit)
	from := to.Add(-defaultHistory)
	override(&from, p.From)
	if !from.Before(to) {
		return nil, wrong(fault.Field{Path: "to", Rule: "order", Message: "must lie after from"})
	}
	history, err := s.Numbers.History(ctx, whose, from, to, limit)
	if err != nil {
		return nil, err
	}
	answer := api.ListMetrics200JSONResponse{Items: make([]api.MetricsCount, len(history))}
	for i, one := range history {
		answer.Items[i] = viewCount(one)
	}
	return answer, nil
}

// scopeOf is whose numbers are asked for.
func scopeOf(ctx context.Context, ofAll bool) (uuid.UUID, error) {
	who := callOf(ctx).who
	switch {
	case !ofAll:
		return who.Actor.TenantID, nil
	case overseesAll(who):
		return collect.Service, nil
	default:
		return uuid.Nil, fault.New(fault.Forbidden, fault.CodeForbidden, "the numbers of the whole service are for platform administrators")
	}
}

func viewCount(n collect.Numbers) api.MetricsCount {
	view := api.MetricsCount{Waiting: n.Waiting, Running: n.Running, ActiveWorkers: n.Workers}
	if !n.TakenAt.IsZero() {
		view.TakenAt = new(n.TakenAt)
	}
	view.Jobs.Total, view.Jobs.Active, view.Jobs.Paused = n.Jobs.Total, n.Jobs.Active, n.Jobs.Paused
	e := n.Executions
	view.Executions.Total, view.Executions.Completed, view.Executions.Failed, view.Executions.Cancelled = e.Total(), e.Completed, e.Failed, e.Cancelled
	view.Executions.Skipped, view.Executions.TimedOut, view.Executions.Retried = e.Skipped, e.TimedOut, e.Retried
	return view
}
