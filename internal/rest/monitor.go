package rest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/breaker"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/forecast"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/statistics"
	"github.com/scheduler-service/scheduler/internal/version"
)

const (
	// defaultStats is the range of statistics that name none.
	defaultStats = 24 * time.Hour
	// maxStats bounds the range, and with it the roll-ups that are read.
	maxStats = 31 * 24 * time.Hour
	// maxFailures and maxNamed bound what an overview shows of failures, and of the jobs of a minute.
	maxFailures = 20
	maxNamed    = 3
)

// GetExecutionStats is GET /executions/stats.
func (s *server) GetExecutionStats(ctx context.Context, request api.GetExecutionStatsRequestObject) (api.GetExecutionStatsResponseObject, error) {
	p := request.Params
	query, err := s.statsQuery(p)
	if err != nil {
		return nil, err
	}
	answer, err := s.stats(ctx, query)
	if err != nil {
		return nil, err
	}
	return api.GetExecutionStats200JSONResponse(answer), nil
}

func (s *server) stats(ctx context.Context, query statistics.Query) (api.ExecutionStats, error) {
	found, err := s.Monitor.Statistics(ctx, callOf(ctx).who.Actor, query)
	if err != nil {
		return api.ExecutionStats{}, err
	}
	answer := api.ExecutionStats{
		From: query.From.UTC(), To: query.To.UTC(), GroupBy: textOrNull(string(query.Group)), Timezone: query.Zone.String(),
		Total: viewSummaryOf(found.Whole), Groups: make([]api.ExecutionGroup, len(found.Groups)), Truncated: found.Truncated,
	}
	for i, group := range found.Groups {
		v := viewSummaryOf(group)
		key := group.Key
		if query.Group == statistics.ByHour || query.Group == statistics.ByDay {
			key = group.At.In(query.Zone).Format(time.RFC3339)
		}
		answer.Groups[i] = api.ExecutionGroup{
			Key: key, JobName: textOrNull(group.Name), Count: v.Count, Completed: v.Completed, Failed: v.Failed, Cancelled: v.Cancelled, Skipped: v.Skipped, Missed: v.Missed,
			Retried: v.Retried, SuccessRate: v.SuccessRate, DurationMs: v.DurationMs,
		}
	}
	return answer, nil
}

func (s *server) statsQuery(p api.GetExecutionStatsParams) (statistics.Query, error) {
	query := statistics.Query{To: s.Clock(), JobID: p.JobID, JobType: string(orZero(p.JobType)), Trigger: string(orZero(p.TriggerType))}
	override(&query.To, p.To)
	query.From = query.To.Add(-defaultStats)
	override(&query.From, p.From)
	if p.GroupBy != nil {
		query.Group = statistics.Grouping(*p.GroupBy)
	}
	var fields []fault.Field
	var err error
	if query.Zone, err = schedule.Location(orZero(p.Timezone)); err != nil {
		fields = append(fields, fault.Field{Path: "timezone", Rule: "timezone", Message: err.Error()})
	}
	switch {
	case !query.From.Before(query.To):
		fields = append(fields, fault.Field{Path: "to", Rule: "order", Message: "must lie after from"})
	case query.To.After(monthAfter(query.From, query.Zone)):
		fields = append(fields, fault.Field{Path: "to", Rule: "range", Message: "must lie at most 31 days after from"})
	}
	if len(fields) > 0 {
		return query, wrong(fields...)
	}
	return query, nil
}

// monthAfter is 31 days after a time, an hour more where the zone's clock is set back
// meanwhile: a month of that clock fits. nil is UTC.
func monthAfter(from time.Time, zone *time.Location) time.Time {
	if zone == nil {
		zone = time.UTC
	}
	return clock.Later(from.Add(maxStats), from.In(zone).AddDate(0, 0, 31))
}

func viewSummaryOf(s statistics.Summary) api.ExecutionSummary {
	view := api.ExecutionSummary{
		Count: s.Count, Completed: s.Completed, Failed: s.Failed, Cancelled: s.Cancelled, Skipped: s.Skipped, Missed: s.Missed, Retried: s.Retried,
	}
	if rate, known := s.SuccessRate(); known {
		view.SuccessRate = new(rate)
	}
	if s.Timed > 0 {
		view.DurationMs = new(struct {
			Avg float64 `json:"avg"`
			P50 float64 `json:"p50"`
			P95 float64 `json:"p95"`
			P99 float64 `json:"p99"`
		}{s.AverageMS, s.P50MS, s.P95MS, s.P99MS})
	}
	return view
}

// GetStatus is GET /status.
func (s *server) GetStatus(ctx context.Context, _ api.GetStatusRequestObject) (api.GetStatusResponseObject, error) {
	answer, err := s.status(ctx)
	if err != nil {
		return nil, err
	}
	return api.GetStatus200JSONResponse(answer), nil
}

func (s *server) status(ctx context.Context) (api.Status, error) {
	who := callOf(ctx).who.Actor
	seen, err := s.Monitor.Overview(ctx, who)
	if err != nil {
		return api.Status{}, err
	}
	members, err := s.Monitor.Members(ctx, who)
	if err != nil {
		return api.Status{}, err
	}
	h := s.health.get(ctx, s.Vitals.Health)
	answer := api.Status{
		Status: string(statusOf(h)), Version: version.String(),
		StartedAt: s.started.UTC(), UptimeSeconds: s.running.Elapsed().Seconds(), Time: s.Clock().UTC(),
		PromotionLagSeconds: seen.Lag.Seconds(), ActiveWorkers: len(members),
	}
	answer.Jobs.Active, answer.Jobs.Paused, answer.Jobs.Inactive = seen.Active, seen.Paused, seen.Inactive
	answer.Jobs.Total = seen.Active + seen.Paused + seen.Inactive
	for _, lane := range seen.Backlogs {
		answer.Executions.Running += lane.Running
		answer.Executions.Waiting += lane.Waiting
		answer.Executions.Delayed += lane.Delayed
		answer.Executions.OldestWaitingSeconds = max(answer.Executions.OldestWaitingSeconds, lane.Oldest.Seconds())
	}
	return answer, nil
}

// GetOverview is GET /overview. A part that the caller may not read is left out.
func (s *server) GetOverview(ctx context.Context, _ api.GetOverviewRequestObject) (api.GetOverviewResponseObject, error) {
	who, now := callOf(ctx).who, s.Clock()
	status, err := s.status(ctx)
	if err != nil {
		return nil, err
	}
	answer := api.Overview{Status: status, Unavailable: []api.OverviewPart{}}
	if who.May("executions:read") {
		if err := s.addDay(ctx, &answer, now); err != nil {
			return nil, err
		}
	}
	if who.May("jobs:read") {
		query := forecast.Query{From: now, To: now.Truncate(time.Minute).Add(time.Hour), Unit: forecast.Minute, Zone: time.UTC, Named: maxNamed, Jobs: true}
		hour, err := s.upcoming(ctx, query)
		if missing(&answer, api.OverviewPartNextHour, err) {
			return nil, err
		}
		if err == nil {
			answer.NextHour = &hour
		}
	}
	return api.GetOverview200JSONResponse(answer), nil
}

// addDay adds what finished in the last 24 hours. Failures are looked for only if the statistics have some.
func (s *server) addDay(ctx context.Context, answer *api.Overview, now time.Time) error {
	query := statistics.Query{From: now.Add(-defaultStats), To: now, Group: statistics.ByHour, Zone: time.UTC}
	day, err := s.stats(ctx, query)
	if err != nil {
		if missing(answer, api.OverviewPartDay, err) {
			return err
		}
		missing(answer, api.OverviewPartFailures, err)
		return nil
	}
	answer.Day, answer.Failures = &day, &[]api.Execution{}
	if day.Total.Failed == 0 {
		return nil
	}
	limit := maxFailures
	page, err := s.listExecutions(ctx, execution.Filter{Statuses: []execution.Status{execution.Failed}, From: &query.From}, list{limit: &limit})
	if missing(answer, api.OverviewPartFailures, err) {
		return err
	}
	answer.Failures = nil
	if err == nil {
		answer.Failures = &page.Items
	}
	return nil
}

// missing names a part that could not be computed in time. It reports whether the error is another
// one, which fails the whole answer.
func missing(answer *api.Overview, part api.OverviewPart, err error) (fails bool) {
	if tooSlow(err) {
		answer.Unavailable = append(answer.Unavailable, part)
		return false
	}
	return err != nil
}

// tooSlow says that a part of an answer could not be computed in time.
func tooSlow(err error) bool {
	var known *fault.Error
	return errors.As(err, &known) && (known.Kind == fault.Unavailable || known.Code == fault.CodeStatsRangeTooLarge)
}

// ListQueues is GET /queues.
func (s *server) ListQueues(ctx context.Context, _ api.ListQueuesRequestObject) (api.ListQueuesResponseObject, error) {
	who := callOf(ctx).who
	lanes, err := s.Monitor.Backlogs(ctx, who.Actor)
	if err != nil {
		return nil, err
	}
	h := s.health.get(ctx, s.Vitals.Health)
	answer := api.ListQueues200JSONResponse{Backend: "redis", Lanes: make([]api.Lane, len(lanes))}
	if h.JobQueue.Details["backend"] == "postgres" {
		answer.Backend = "postgres"
	}
	hints := map[string]int64{}
	for i, lane := range lanes {
		answer.Lanes[i] = api.Lane{
			Name: api.LaneName(lane.Lane), Running: lane.Running, Waiting: lane.Waiting, Delayed: lane.Delayed, OldestWaitingSeconds: lane.Oldest.Seconds(),
		}
		if n, ok := h.JobQueue.Details[string(lane.Lane)+"Hints"].(int); ok {
			hints[string(lane.Lane)] = int64(n)
		}
	}
	if overseesAll(who) {
		answer.Service = new(struct {
			Hints   map[string]int64 `json:"hints"`
			Running *int64           `json:"running"`
			Waiting *int64           `json:"waiting"`
		}{hints, h.Running, h.QueueSize})
	}
	return answer, nil
}

// ListWorkers is GET /workers.
func (s *server) ListWorkers(ctx context.Context, _ api.ListWorkersRequestObject) (api.ListWorkersResponseObject, error) {
	who := callOf(ctx).who
	members, err := s.Monitor.Members(ctx, who.Actor)
	if err != nil {
		return nil, err
	}
	answer := api.ListWorkers200JSONResponse{Items: make([]api.Worker, len(members))}
	for i, m := range members {
		view := api.Worker{
			ID: m.ID, Slots: m.Slots, Running: m.Own, JobTypes: append([]string{}, m.Types...), StartedAt: m.StartedAt,
			HeartbeatAgeSeconds: m.HeartbeatAge.Seconds(),
		}
		if overseesAll(who) {
			view.Host, view.RunningOfAll = textOrNull(m.Host), new(m.Running)
		}
		answer.Items[i] = view
	}
	return answer, nil
}

// overseesAll says that somebody may see the numbers of all tenants.
func overseesAll(who identity.Principal) bool {
	return slices.Contains(who.Roles, identity.PlatformAdmin)
}

// ListCircuitBreakers is GET /circuit-breakers.
func (s *server) ListCircuitBreakers(ctx context.Context, request api.ListCircuitBreakersRequestObject) (api.ListCircuitBreakersResponseObject, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	var after *breaker.Position
	if page.after != nil {
		after = &breaker.Position{CreatedAt: page.after.At, ID: page.after.ID}
	}
	list, err := s.Breakers.List(ctx, c.who.Actor, page.limit+1, after)
	if err != nil {
		return nil, err
	}
	list, next := cut(s, page, list, func(one breaker.Breaker) cursor.Place { return cursor.Place{At: one.CreatedAt, ID: one.ID} })
	answer := api.ListCircuitBreakers200JSONResponse{Items: make([]api.CircuitBreaker, len(list)), NextCursor: next, HasMore: next != nil}
	for i, one := range list {
		answer.Items[i] = api.CircuitBreaker{
			ID: one.ID, Host: one.Host, State: api.CircuitBreakerState(one.State), Failures: one.Failures, FailingSince: one.FailingSince,
			FailedAt: one.FailedAt, Reason: one.Reason, OpenedAt: one.OpenedAt, RetryAt: one.RetryAt, CreatedAt: one.CreatedAt,
		}
	}
	return answer, nil
}

// CloseCircuitBreaker is DELETE /circuit-breakers/{circuitBreakerId}.
func (s *server) CloseCircuitBreaker(ctx context.Context, request api.CloseCircuitBreakerRequestObject) (api.CloseCircuitBreakerResponseObject, error) {
	if err := s.Breakers.Close(ctx, callOf(ctx).who.Actor, request.CircuitBreakerID); err != nil {
		return nil, err
	}
	return api.CloseCircuitBreaker204Response{}, nil
}
