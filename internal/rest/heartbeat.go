package rest

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/monitor"
	"github.com/scheduler-service/scheduler/internal/monitor/past"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
)

// CreateMonitor is POST /monitors.
func (s *server) CreateMonitor(ctx context.Context, request api.CreateMonitorRequestObject) (api.CreateMonitorResponseObject, error) {
	spec, fields := s.newMonitor(*request.Body)
	if len(fields) > 0 {
		return nil, wrong(fields...)
	}
	made, err := s.Monitors.Create(ctx, callOf(ctx).who.Actor, spec)
	if err != nil {
		return nil, err
	}
	location := base + "/monitors/" + made.ID.String()
	return api.CreateMonitor201JSONResponse{
		Body: s.viewMonitor(ctx, made), Headers: api.CreateMonitor201ResponseHeaders{ETag: etag(made.Version), Location: &location},
	}, nil
}

// ListMonitors is GET /monitors.
func (s *server) ListMonitors(ctx context.Context, request api.ListMonitorsRequestObject) (api.ListMonitorsResponseObject, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	var after *monitor.Position
	if page.after != nil {
		after = &monitor.Position{CreatedAt: page.after.At, ID: page.after.ID}
	}
	filter := monitor.Filter{Tag: orZero(request.Params.Tag), Status: string(orZero(request.Params.Status))}
	list, err := s.Monitors.List(ctx, c.who.Actor, filter, page.limit+1, after)
	if err != nil {
		return nil, err
	}
	list, next := cut(s, page, list, func(m monitor.Monitor) cursor.Place { return cursor.Place{At: m.CreatedAt, ID: m.ID} })
	answer := api.ListMonitors200JSONResponse{Items: make([]api.Monitor, len(list)), NextCursor: next, HasMore: next != nil}
	for i, one := range list {
		answer.Items[i] = s.viewMonitor(ctx, one)
	}
	return answer, nil
}

// GetMonitor is GET /monitors/{id}.
func (s *server) GetMonitor(ctx context.Context, request api.GetMonitorRequestObject) (api.GetMonitorResponseObject, error) {
	found, err := s.Monitors.Get(ctx, callOf(ctx).who.Actor, request.ID)
	if err != nil {
		return nil, err
	}
	return api.GetMonitor200JSONResponse{Body: s.viewMonitor(ctx, found), Headers: api.GetMonitor200ResponseHeaders{ETag: etag(found.Version)}}, nil
}

// UpdateMonitor is PUT /monitors/{id}.
func (s *server) UpdateMonitor(ctx context.Context, request api.UpdateMonitorRequestObject) (api.UpdateMonitorResponseObject, error) {
	who := callOf(ctx).who.Actor
	err := sentBackAsIs(ctx, func() (api.Monitor, error) {
		found, err := s.Monitors.Get(ctx, who, request.ID)
		return s.viewMonitor(ctx, found), err
	})
	if err != nil {
		return nil, err
	}
	spec, fields := s.newMonitor(*request.Body)
	if len(fields) > 0 {
		return nil, wrong(fields...)
	}
	updated, err := s.Monitors.Update(ctx, who, request.ID, spec, wantedVersion(ctx, request.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	return api.UpdateMonitor200JSONResponse{Body: s.viewMonitor(ctx, updated), Headers: api.UpdateMonitor200ResponseHeaders{ETag: etag(updated.Version)}}, nil
}

// DeleteMonitor is DELETE /monitors/{id}.
func (s *server) DeleteMonitor(ctx context.Context, request api.DeleteMonitorRequestObject) (api.DeleteMonitorResponseObject, error) {
	if err := s.Monitors.Delete(ctx, callOf(ctx).who.Actor, request.ID, versionOf(request.Params.IfMatch)); err != nil {
		return nil, err
	}
	return api.DeleteMonitor204Response{}, nil
}

// PauseMonitor is POST /monitors/{id}/pause.
func (s *server) PauseMonitor(ctx context.Context, request api.PauseMonitorRequestObject) (api.PauseMonitorResponseObject, error) {
	m, err := s.Monitors.Pause(ctx, callOf(ctx).who.Actor, request.ID, true)
	if err != nil {
		return nil, err
	}
	return api.PauseMonitor200JSONResponse{Body: s.viewMonitor(ctx, m), Headers: api.PauseMonitor200ResponseHeaders{ETag: etag(m.Version)}}, nil
}

// ResumeMonitor is POST /monitors/{id}/resume.
func (s *server) ResumeMonitor(ctx context.Context, request api.ResumeMonitorRequestObject) (api.ResumeMonitorResponseObject, error) {
	m, err := s.Monitors.Pause(ctx, callOf(ctx).who.Actor, request.ID, false)
	if err != nil {
		return nil, err
	}
	return api.ResumeMonitor200JSONResponse{Body: s.viewMonitor(ctx, m), Headers: api.ResumeMonitor200ResponseHeaders{ETag: etag(m.Version)}}, nil
}

// RotateMonitorKey is POST /monitors/{id}/rotate-key.
func (s *server) RotateMonitorKey(ctx context.Context, request api.RotateMonitorKeyRequestObject) (api.RotateMonitorKeyResponseObject, error) {
	m, err := s.Monitors.RotateKey(ctx, callOf(ctx).who.Actor, request.ID)
	if err != nil {
		return nil, err
	}
	return api.RotateMonitorKey200JSONResponse{Body: s.viewMonitor(ctx, m), Headers: api.RotateMonitorKey200ResponseHeaders{ETag: etag(m.Version)}}, nil
}

// CountMonitorRuns is GET /monitor-runs.
func (s *server) CountMonitorRuns(ctx context.Context, request api.CountMonitorRunsRequestObject) (api.CountMonitorRunsResponseObject, error) {
	p := request.Params
	span, err := s.statsQuery(api.GetExecutionStatsParams{From: p.From, To: p.To, Timezone: p.Timezone})
	if err != nil {
		return nil, err
	}
	answer, err := s.monitorRuns(ctx, past.Query{From: span.From, To: span.To, Zone: span.Zone, Daily: orZero(p.Bucket) == api.CountMonitorRunsParamsBucketDay})
	if err != nil {
		return nil, err
	}
	return api.CountMonitorRuns200JSONResponse(answer), nil
}

func (s *server) monitorRuns(ctx context.Context, query past.Query) (api.MonitorRunCounts, error) {
	seen, err := s.PastRuns.Count(ctx, callOf(ctx).who.Actor, query)
	if err != nil {
		return api.MonitorRunCounts{}, err
	}
	answer := api.MonitorRunCounts{
		From: query.From.UTC(), To: query.To.UTC(), Timezone: query.Zone.String(), Truncated: seen.Truncated, CompleteFrom: seen.CompleteFrom.UTC(),
		Buckets: make([]api.MonitorRunBucket, len(seen.Buckets)),
	}
	for i, b := range seen.Buckets {
		answer.Buckets[i] = api.MonitorRunBucket{StartAt: b.At.In(query.Zone), Count: b.Runs, Failed: b.Failed}
	}
	return answer, nil
}

// ListMonitorRuns is GET /monitors/{id}/runs. A cursor holds the number of a run where others
// hold an id.
func (s *server) ListMonitorRuns(ctx context.Context, request api.ListMonitorRunsRequestObject) (api.ListMonitorRunsResponseObject, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	var before int64
	if page.after != nil {
		before = int64(binary.BigEndian.Uint64(page.after.ID[8:]))
	}
	list, err := s.Monitors.Runs(ctx, c.who.Actor, request.ID, page.limit+1, before)
	if err != nil {
		return nil, err
	}
	list, next := cut(s, page, list, func(r monitor.StoredRun) cursor.Place {
		var id uuid.UUID
		binary.BigEndian.PutUint64(id[8:], uint64(r.N))
		return cursor.Place{At: r.At, ID: id}
	})
	answer := api.ListMonitorRuns200JSONResponse{Items: make([]api.MonitorRun, len(list)), NextCursor: next, HasMore: next != nil}
	for i, one := range list {
		answer.Items[i] = viewMonitorRun(one)
	}
	return answer, nil
}

// newMonitor translates the contract's monitor into the domain's, with defaults, and lists
// everything that the domain finds wrong.
func (s *server) newMonitor(body api.MonitorSpec) (monitor.Spec, []fault.Field) {
	seconds := func(n *int, otherwise int) time.Duration {
		override(&otherwise, n)
		return time.Duration(otherwise) * time.Second
	}
	spec := monitor.Spec{
		Name: body.Name, Tags: orZero(body.Tags), Zone: "UTC", StartGrace: seconds(body.StartGraceSeconds, 300), CompletionGrace: seconds(body.CompletionGraceSeconds, 3600),
		MaxRuntime: seconds(body.MaxRuntimeSeconds, 0), MinRuntime: seconds(body.MinRuntimeSeconds, 0),
		AlertTooOften: orZero(body.AlertTooOften), ExtendOnLog: orZero(body.ExtendOnLog), FailureThreshold: 1, RecoveryThreshold: 1,
	}
	override(&spec.Zone, body.Timezone)
	override(&spec.FailureThreshold, body.FailureThreshold)
	override(&spec.RecoveryThreshold, body.RecoveryThreshold)
	override(&spec.Cron, body.CronExpression)
	spec.Interval = time.Duration(orZero(body.IntervalSeconds)) * time.Second
	return spec, monitor.Validate(spec, s.Clock())
}

func (s *server) viewMonitor(ctx context.Context, m monitor.Monitor) api.Monitor {
	var url *string
	state := &m.State
	if callOf(ctx).who.May("monitors:write") {
		url = new(s.PublicURL + "/ping/" + m.PingKey)
	}
	inSeconds := func(d time.Duration) int { return int(d / time.Second) }
	view := api.Monitor{
		ID: m.ID, TenantID: m.TenantID, Version: m.Version, Name: m.Name, Tags: append([]string{}, m.Tags...), CronExpression: textOrNull(m.Cron), Timezone: m.Zone,
		StartGraceSeconds: inSeconds(m.StartGrace), CompletionGraceSeconds: inSeconds(m.CompletionGrace),
		MaxRuntimeSeconds: inSeconds(m.MaxRuntime), MinRuntimeSeconds: inSeconds(m.MinRuntime), AlertTooOften: m.AlertTooOften, ExtendOnLog: m.ExtendOnLog,
		FailureThreshold: m.FailureThreshold, RecoveryThreshold: m.RecoveryThreshold, Paused: m.Paused, Status: api.MonitorStatus(m.Status(s.Clock())), PingURL: url,
		ExpectedAt: timeOrNull(state.ExpectedAt), DeadlineAt: timeOrNull(m.DeadlineAt), LastPingAt: timeOrNull(state.LastPingAt),
		Failures:  state.Failures,
		CreatedBy: m.CreatedBy, CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt,
	}
	if m.Interval > 0 {
		view.IntervalSeconds = new(inSeconds(m.Interval))
	}
	if state.Run != nil {
		view.RunningSince = timeOrNull(state.Run.StartedAt)
	}
	if !state.DownSince().IsZero() {
		view.DownSince, view.Reason = timeOrNull(state.DownSince()), new(api.MonitorFailure(state.Reason))
	}
	return view
}

func timeOrNull(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return new(at.UTC())
}

func viewMonitorRun(r monitor.StoredRun) api.MonitorRun {
	view := api.MonitorRun{
		MonitorID: r.MonitorID, Number: r.N, At: r.At, ExpectedAt: r.ExpectedAt, StartedAt: r.StartedAt, EndedAt: r.EndedAt,
		Outcome: api.MonitorRunOutcome(r.Outcome), Reason: textOrNull(r.Reason), ExitCode: r.Exit, RunID: textOrNull(r.RunID), Log: r.Log,
	}
	if r.StartedAt != nil && r.EndedAt != nil {
		view.DurationMs = new(r.EndedAt.Sub(*r.StartedAt).Milliseconds())
	}
	return view
}
