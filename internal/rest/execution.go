package rest

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
	"github.com/scheduler-service/scheduler/internal/statistics"
)

// ListExecutions is GET /executions.
func (s *server) ListExecutions(ctx context.Context, request api.ListExecutionsRequestObject) (api.ListExecutionsResponseObject, error) {
	p := request.Params
	filter, err := executionFilter(&p)
	if err != nil {
		return nil, err
	}
	filter.OldestFirst = orZero(p.Sort) == "scheduledAt"
	answer, err := s.listExecutions(ctx, filter, list{p.Limit, p.Cursor, p.Include})
	if p.JobID != nil && fault.KindOf(err) == fault.NotFound {
		// A filter that nothing fits, not a path that leads nowhere.
		return api.ListExecutions200JSONResponse{Items: []api.Execution{}}, nil
	}
	if err != nil {
		return nil, err
	}
	return api.ListExecutions200JSONResponse(answer), nil
}

// ListJobExecutions is GET /jobs/{id}/executions.
func (s *server) ListJobExecutions(ctx context.Context, request api.ListJobExecutionsRequestObject) (api.ListJobExecutionsResponseObject, error) {
	p := request.Params
	filter, err := executionFilter(&p)
	if err != nil {
		return nil, err
	}
	filter.JobID, filter.OldestFirst = &request.ID, orZero(p.Sort) == "scheduledAt"
	answer, err := s.listExecutions(ctx, filter, list{p.Limit, p.Cursor, p.Include})
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

// ListRecentRuns is GET /recent-runs.
func (s *server) ListRecentRuns(ctx context.Context, request api.ListRecentRunsRequestObject) (api.ListRecentRunsResponseObject, error) {
	ids, limit := request.Params.JobID, maxRecent
	override(&limit, request.Params.Limit)
	found, err := s.Executions.Recent(ctx, callOf(ctx).who.Actor, ids, limit)
	if err != nil {
		return nil, err
	}
	answer := api.ListRecentRuns200JSONResponse{Items: make([]api.RecentRunsOfJob, len(ids))}
	for i, id := range ids {
		of := api.RecentRunsOfJob{JobID: id, Runs: make([]api.RecentRun, len(found[id]))}
		for k, e := range found[id] {
			of.Runs[k] = api.RecentRun{ID: e.ID, Status: api.ExecutionStatus(e.Status), ScheduledAt: e.ScheduledAt, DurationMs: viewDuration(e.DurationUS)}
		}
		answer.Items[i] = of
	}
	return answer, nil
}

// maxRecent is how many of a job's last executions a list of jobs shows.
const maxRecent = 30

// executionFilter takes the conditions on executions from the parameters of a list
// or from the filter of a bulk call, given by its address, by their names in the contract.
func executionFilter(conditions any) (filter execution.Filter, err error) {
	if err := carry(&filter, conditions); err != nil {
		return filter, err
	}
	fields := append(disordered("to", filter.From, filter.To), disordered("createdTo", filter.CreatedFrom, filter.CreatedTo)...)
	if len(fields) > 0 {
		return filter, wrong(fields...)
	}
	return filter, nil
}

// list is what the lists of executions have in common beside their conditions.
type list struct {
	limit   *api.Limit
	cursor  *api.Cursor
	include *[]api.ExecutionInclude
}

func (s *server) listExecutions(ctx context.Context, filter execution.Filter, of list) (api.ExecutionPage, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, of.limit, of.cursor)
	if err != nil {
		return api.ExecutionPage{}, err
	}
	filter.Limit, filter.WithResult = page.limit, slices.Contains(orZero(of.include), api.ExecutionIncludeResult)
	if page.after != nil {
		filter.After = &execution.Position{ScheduledAt: page.after.At, ID: page.after.ID}
	}
	found, after, err := s.Executions.List(ctx, c.who.Actor, filter)
	if err != nil {
		return api.ExecutionPage{}, err
	}
	next := s.onward(page, placeOf(after))
	answer := api.ExecutionPage{Items: make([]api.Execution, len(found)), NextCursor: next, HasMore: next != nil}
	for i, one := range found {
		answer.Items[i] = viewExecution(one)
	}
	if query, known := totalOf(filter, s.Clock()); known && page.after == nil && slices.Contains(orZero(of.include), api.ExecutionIncludeTotal) {
		counted, err := s.Monitor.Statistics(ctx, c.who.Actor, query)
		if err != nil {
			return api.ExecutionPage{}, err
		}
		answer.Total = new(sumOf(counted, filter.Statuses))
	}
	return answer, nil
}

// totalOf is the question to the statistics how many finished executions fit a filter,
// and whether they know.
func totalOf(f execution.Filter, now time.Time) (q statistics.Query, known bool) {
	q = statistics.Query{To: now, JobID: f.JobID, Group: statistics.ByStatus, Zone: time.UTC}
	override(&q.To, f.To)
	if f.From == nil || q.To.Sub(*f.From) > maxStats || len(f.JobTypes) > 1 || len(f.Triggers) > 1 || f.Others() {
		return q, false
	}
	q.From = *f.From
	if len(f.JobTypes) == 1 {
		q.JobType = f.JobTypes[0]
	}
	if len(f.Triggers) == 1 {
		q.Trigger = string(f.Triggers[0])
	}
	return q, true
}

// sumOf is how many of what was counted have one of the states; without states, all.
func sumOf(counted statistics.Statistics, states []execution.Status) (total int64) {
	if states == nil {
		return counted.Whole.Count
	}
	for _, group := range counted.Groups {
		if slices.Contains(states, execution.Status(group.Key)) {
			total += group.Count
		}
	}
	return total
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
		Status: api.ExecutionStatus(e.Status), Reason: textOrNull(e.Reason), CancelledBy: textOrNull(e.CancelledBy), Progress: e.Progress, ProgressMessage: textOrNull(e.Doing), ScheduledAt: e.ScheduledAt,
		StartedAt: e.StartedAt, CompletedAt: e.CompletedAt, DurationMs: viewDuration(e.DurationUS), Result: e.Result,
		RetryCount: e.Retries(), MaxAttempts: e.MaxAttempts, Attempts: make([]api.Attempt, len(e.Attempts)),
		NextAttemptAt: e.AvailableAt, CancelRequested: e.Cancelling,
		MissedUntil: e.MissedUntil, WorkerID: e.WorkerID,
		BackfillID: e.BackfillID, RetryOf: e.RetryOf, RetriedAs: e.RetriedAs, WaitingOn: viewWait(e.WaitingOn), CreatedAt: e.CreatedAt,
	}
	if e.Error != nil {
		view.ErrorType = new(api.ErrorType(e.Error.Type))
		view.ErrorMessage, view.ErrorStack = new(e.Error.Message), textOrNull(e.Error.Stack)
	}
	if e.MissedCount > 0 {
		view.MissedCount = new(e.MissedCount)
	}
	for i, attempt := range e.Attempts {
		view.Attempts[i] = viewAttempt(e.ID, attempt)
	}
	return view
}

func viewWait(w *execution.Wait) *api.WaitingOn {
	if w == nil {
		return nil
	}
	view := api.WaitingOn{
		Reason: api.WaitReason(w.Reason), Until: w.Until, Key: textOrNull(w.Key),
	}
	switch w.Reason {
	case execution.WaitJob, execution.WaitKey, execution.WaitType, execution.WaitTenant:
		view.Used, view.Limit = new(w.Used), new(w.Limit)
	}
	return &view
}

func viewAttempt(id uuid.UUID, a execution.Attempt) api.Attempt {
	view := api.Attempt{
		Number: a.Number, Status: api.AttemptStatus(a.Status), StartedAt: a.StartedAt, EndedAt: a.EndedAt,
		DurationMs: viewDuration(a.DurationUS), WorkerID: a.WorkerID,
		Logs: base + "/executions/" + id.String() + "/logs?attempt=" + strconv.Itoa(a.Number),
	}
	if a.Error != nil {
		view.ErrorType, view.ErrorMessage = new(api.ErrorType(a.Error.Type)), new(a.Error.Message)
		view.ErrorStack = textOrNull(a.Error.Stack)
	}
	return view
}

// viewDuration is a duration in milliseconds.
func viewDuration(us *int64) *float64 {
	if us == nil {
		return nil
	}
	return new(float64(*us) / 1000)
}

func rawOrNull(raw json.RawMessage) *json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	return &raw
}

// GetExecutionTimeline is GET /executions/{id}/timeline.
func (s *server) GetExecutionTimeline(ctx context.Context, request api.GetExecutionTimelineRequestObject) (api.GetExecutionTimelineResponseObject, error) {
	t, err := s.Executions.Timeline(ctx, callOf(ctx).who.Actor, request.ID)
	if err != nil {
		return nil, err
	}
	e, spent := t.Execution, func(kind execution.PhaseKind) float64 { return millis(t.Spent(kind)) }
	answer := api.GetExecutionTimeline200JSONResponse{
		ExecutionID: e.ID, Status: api.ExecutionStatus(e.Status), ScheduledAt: e.ScheduledAt, StartedAt: e.StartedAt,
		Summary: t.Summary(), Partial: t.Partial, WaitingOn: viewWait(e.WaitingOn), Phases: make([]api.TimelinePhase, len(t.Phases)),
		SpentMs: api.TimelineSpent{
			Promotion: spent(execution.PhasePromotion), Delay: spent(execution.PhaseDelay), Limit: spent(execution.PhaseLimit), Backlog: spent(execution.PhaseBacklog),
			Queue: spent(execution.PhaseQueue), Attempt: spent(execution.PhaseAttempt), Retry: spent(execution.PhaseRetry),
		},
	}
	if late, known := t.Late(); known {
		answer.LateMs = new(millis(late))
	}
	for i, p := range t.Phases {
		answer.Phases[i] = api.TimelinePhase{
			Kind: api.TimelinePhaseKind(p.Kind), StartedAt: p.From, EndedAt: p.To, DurationMs: millis(t.Length(p)),
			Limit: textOrNull(api.WaitReason(p.Limit)), Status: textOrNull(api.ExecutionStatus(p.Status)),
		}
		if p.Attempt > 0 {
			answer.Phases[i].Attempt = new(p.Attempt)
		}
	}
	return answer, nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
