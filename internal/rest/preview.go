package rest

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/forecast"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/monitor/past"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/statistics"
)

const (
	defaultPreview = 10 // occurrences of a preview where the caller does not say
	shownNext      = 5  // occurrences that a validation shows
	defaultNamed   = 5  // jobs of a bucket of runs to come
	// stampede is how many of a tenant's jobs may be due at one time before
	// a preview of one of them warns.
	stampede = 50
)

// ValidateJob is POST /jobs/validate.
func (s *server) ValidateJob(ctx context.Context, request api.ValidateJobRequestObject) (api.ValidateJobResponseObject, error) {
	spec, err := s.validSpec(ctx, *request.Body)
	if err != nil {
		return nil, err
	}
	seen, err := s.foresee(ctx, job.Job{Spec: spec, AnchorAt: s.Clock(), Status: job.Active}, nil, shownNext)
	if err != nil {
		return nil, err
	}
	return api.ValidateJob200JSONResponse{Warnings: seen.Warnings, Occurrences: seen.Occurrences}, nil
}

// ValidateStoredJob is POST /jobs/{id}/validate.
func (s *server) ValidateStoredJob(ctx context.Context, request api.ValidateStoredJobRequestObject) (api.ValidateStoredJobResponseObject, error) {
	who := callOf(ctx).who.Actor
	found, err := s.Jobs.Get(ctx, who, request.ID)
	if err != nil {
		return nil, err
	}
	spec := found.Spec
	if request.Body != nil {
		if err := sentBackAsIs(ctx, func() (api.Job, error) { return viewJob(found), nil }); err != nil {
			return nil, err
		}
		if spec, err = s.validSpec(ctx, *request.Body); err != nil {
			return nil, err
		}
		if err := secret.MayUse(who, found.Config, spec.Config); err != nil {
			return nil, err
		}
	} else if fields, err := s.storedFaultsOf(ctx, spec); err != nil {
		return nil, err
	} else if len(fields) > 0 {
		return nil, wrong(fields...)
	}
	seen, err := s.foresee(ctx, found.Edited(spec, who.Subject, s.Clock()), nil, shownNext)
	if err != nil {
		return nil, err
	}
	return api.ValidateStoredJob200JSONResponse{Warnings: seen.Warnings, Occurrences: seen.Occurrences}, nil
}

// PreviewSchedule is GET /jobs/{id}/schedule.
func (s *server) PreviewSchedule(ctx context.Context, request api.PreviewScheduleRequestObject) (api.PreviewScheduleResponseObject, error) {
	found, err := s.Jobs.Get(ctx, callOf(ctx).who.Actor, request.ID)
	if err != nil {
		return nil, err
	}
	count := defaultPreview
	override(&count, request.Params.Count)
	seen, err := s.foresee(ctx, found, request.Params.From, count)
	if err != nil {
		return nil, err
	}
	return api.PreviewSchedule200JSONResponse(seen), nil
}

// foresee shows when a job runs from a time on (nil: from now), and what to
// warn of. A job that is not stored has no id.
func (s *server) foresee(ctx context.Context, j job.Job, from *time.Time, count int) (api.SchedulePreview, error) {
	calendars, err := s.Jobs.Contents(ctx, callOf(ctx).who.Actor, j.Calendars)
	if err != nil {
		return api.SchedulePreview{}, err
	}
	key := ""
	if j.ID != uuid.Nil {
		key = j.ID.String()
	}
	compiled, err := schedule.Compile(j.Definition(key, j.AnchorAt, calendars))
	if err != nil {
		return api.SchedulePreview{}, fmt.Errorf("compile a valid schedule: %w", err)
	}
	now := s.Clock()
	after := now
	if from != nil {
		after = from.Add(-time.Microsecond) // the time itself is among them
	}
	seen := api.SchedulePreview{Timezone: j.Timezone, Occurrences: []api.Occurrence{}}
	for _, o := range compiled.Preview(after, count) {
		seen.Occurrences = append(seen.Occurrences, viewOccurrence(o))
	}
	seen.Warnings, err = s.warnings(ctx, j, compiled, now)
	return seen, err
}

// warnings are those of the schedule, and those of the job in its tenant.
func (s *server) warnings(ctx context.Context, j job.Job, compiled *schedule.Schedule, now time.Time) ([]api.ScheduleWarning, error) {
	list := []api.ScheduleWarning{}
	add := func(code, format string, args ...any) {
		list = append(list, api.ScheduleWarning{Code: code, Message: fmt.Sprintf(format, args...)})
	}
	for _, w := range compiled.Lint(now) {
		add(w.Code, "%s", w.Message)
	}
	if j.Status != job.Active {
		add("NOT_ACTIVE", "the job is %s: none of this runs before it is resumed", j.Status)
	}
	if left := j.MaxExecutions - j.ExecutionCount; j.MaxExecutions > 0 && left < defaultPreview {
		add("LAST_RUNS", "maxExecutions leaves %d more executions, then the job becomes inactive", max(0, left))
	}
	j.Contradictions(add)
	next, ok := compiled.Next(now)
	if !ok {
		return list, nil
	}
	n, err := s.Jobs.CountDueAt(ctx, callOf(ctx).who.Actor, next)
	if n >= stampede {
		add("STAMPEDE", "%d of this tenant's jobs are due at %s: spread them with jitterSeconds, or with H in the expression", n, next.Format(time.RFC3339Nano))
	}
	return list, err
}

// ListUpcomingRuns is GET /upcoming-runs.
func (s *server) ListUpcomingRuns(ctx context.Context, request api.ListUpcomingRunsRequestObject) (api.ListUpcomingRunsResponseObject, error) {
	query, err := s.forecastQuery(request.Params)
	if err != nil {
		return nil, err
	}
	if err := s.readable(ctx, &query); err != nil {
		return nil, err
	}
	answer, err := s.upcoming(ctx, query)
	if err != nil {
		return nil, err
	}
	return api.ListUpcomingRuns200JSONResponse(answer), nil
}

// readable leaves monitors out of a forecast for a caller who may not read them. Monitors alone are refused then.
func (*server) readable(ctx context.Context, query *forecast.Query) error {
	if callOf(ctx).who.May("monitors:read") {
		return nil
	}
	if query.Monitors = false; !query.Jobs {
		return fault.New(fault.Forbidden, fault.CodeForbidden, "runs of monitors need the permission monitors:read, which your token or key does not have")
	}
	return nil
}

func (s *server) upcoming(ctx context.Context, query forecast.Query) (api.UpcomingRuns, error) {
	seen, err := s.Forecasts.Count(ctx, callOf(ctx).who.Actor, query)
	if err != nil {
		return api.UpcomingRuns{}, err
	}
	answer := api.UpcomingRuns{
		From: query.From.UTC(), To: query.To.UTC(), Bucket: api.UpcomingBucketUnit(query.Unit), Timezone: query.Zone.String(), Total: seen.Total, Jobs: seen.Jobs, Monitors: seen.Monitors,
		Truncated: seen.Truncated, CompleteUntil: seen.CompleteUntil.UTC(), Buckets: make([]api.UpcomingBucket, len(seen.Buckets)),
	}
	for i, b := range seen.Buckets {
		view := api.UpcomingBucket{StartAt: b.At.In(query.Zone), Count: b.Runs, JobCount: b.Jobs, Jobs: make([]api.UpcomingJob, len(b.Named)), MonitorCount: b.Monitors, Monitors: make([]api.UpcomingMonitor, len(b.Watched))}
		for k, one := range b.Watched {
			view.Monitors[k] = api.UpcomingMonitor{Kind: api.UpcomingKindMonitor, MonitorID: one.ID, MonitorName: one.Name, Count: one.Runs, FirstAt: one.First}
		}
		for k, one := range b.Named {
			view.Jobs[k] = api.UpcomingJob{Kind: api.UpcomingKindJob, JobID: one.ID, JobName: one.Name, Count: one.Runs, FirstAt: one.First}
		}
		answer.Buckets[i] = view
	}
	return answer, nil
}

func (s *server) forecastQuery(p api.ListUpcomingRunsParams) (forecast.Query, error) {
	query := forecast.Query{From: s.Clock(), Unit: forecast.Minute, Named: defaultNamed}
	if p.From != nil {
		query.From = clock.Later(query.From, *p.From)
	}
	query.To = query.From.Add(time.Hour)
	override(&query.To, p.To)
	override(&query.Named, p.Named)
	query.Jobs, query.Monitors = p.Kind == nil || *p.Kind == api.UpcomingKindJob, p.Kind == nil || *p.Kind == api.UpcomingKindMonitor
	if p.Bucket != nil {
		query.Unit = forecast.Unit(*p.Bucket)
	}
	var fields []fault.Field
	var err error
	if query.Zone, err = schedule.Location(orZero(p.Timezone)); err != nil {
		fields = append(fields, fault.Field{Path: "timezone", Rule: "timezone", Message: err.Error()})
	}
	switch length := query.To.Sub(query.From); {
	case length <= 0:
		fields = append(fields, fault.Field{Path: "to", Rule: "order", Message: "must lie after from, and in the future"})
	case query.To.After(monthAfter(query.From, query.Zone)):
		fields = append(fields, fault.Field{Path: "to", Rule: "range", Message: "must lie at most 31 days after from"})
	case query.Unit == forecast.Minute && length > 24*time.Hour:
		fields = append(fields, fault.Field{Path: "bucket", Rule: "range", Message: "minute is for at most one day: use hour or day"})
	}
	if len(fields) > 0 {
		return query, wrong(fields...)
	}
	return query, nil
}

// runCalendar is a run calendar that is being made: for what, and which parts it has.
type runCalendar struct {
	span                     statistics.Query
	coming                   forecast.Query
	executions, told, future bool
	answer                   api.RunCalendar
}

// GetRunCalendar is GET /run-calendar. A part that the caller may not read is left out.
func (s *server) GetRunCalendar(ctx context.Context, request api.GetRunCalendarRequestObject) (api.GetRunCalendarResponseObject, error) {
	c, err := s.runCalendar(ctx, request.Params)
	if err != nil {
		return nil, err
	}
	for _, part := range []struct {
		name   api.RunCalendarPart
		wanted bool
		add    func(context.Context, *runCalendar) error
	}{
		{api.RunCalendarPartExecutions, c.executions, s.addExecutions},
		{api.RunCalendarPartMonitorRuns, c.told, s.addMonitorRuns},
		{api.RunCalendarPartUpcoming, c.future, s.addUpcoming},
	} {
		if !part.wanted {
			continue
		}
		err := part.add(ctx, c)
		switch {
		case tooSlow(err):
			c.answer.Unavailable = append(c.answer.Unavailable, part.name)
		case err != nil:
			return nil, err
		}
	}
	return api.GetRunCalendar200JSONResponse(c.answer), nil
}

// runCalendar checks what was asked, and finds which parts there are: those whose time is in the
// range, whose kind is wanted, and that the caller may read.
func (s *server) runCalendar(ctx context.Context, p api.GetRunCalendarParams) (*runCalendar, error) {
	who, now := callOf(ctx).who, s.Clock()
	span, err := s.statsQuery(api.GetExecutionStatsParams{From: &p.From, To: &p.To, Timezone: p.Timezone})
	if err != nil {
		return nil, err
	}
	c := runCalendar{span: span, answer: api.RunCalendar{Unavailable: []api.RunCalendarPart{}}}
	c.span.Group, c.coming.Unit = statistics.ByHour, forecast.Hour
	if orZero(p.Bucket) == api.GetRunCalendarParamsBucketDay {
		c.span.Group, c.coming.Unit = statistics.ByDay, forecast.Day
	}
	c.coming.From, c.coming.To, c.coming.Zone, c.coming.Named = now, p.To, span.Zone, defaultNamed
	if p.From.After(now) {
		c.coming.From = p.From
	}
	override(&c.coming.Named, p.Named)
	c.coming.Jobs, c.coming.Monitors = orZero(p.Kind) != api.UpcomingKindMonitor, orZero(p.Kind) != api.UpcomingKindJob
	if err := s.readable(ctx, &c.coming); err != nil {
		return nil, err
	}
	begun := p.From.Before(now)
	c.executions, c.told, c.future = begun && c.coming.Jobs && who.May("executions:read"), begun && c.coming.Monitors, p.To.After(now)
	return &c, nil
}

func (s *server) addExecutions(ctx context.Context, c *runCalendar) error {
	seen, err := s.stats(ctx, c.span)
	if err == nil {
		c.answer.Executions = &seen
	}
	return err
}

func (s *server) addMonitorRuns(ctx context.Context, c *runCalendar) error {
	seen, err := s.monitorRuns(ctx, past.Query{From: c.span.From, To: c.span.To, Zone: c.span.Zone, Daily: c.span.Group == statistics.ByDay})
	if err == nil {
		c.answer.MonitorRuns = &seen
	}
	return err
}

func (s *server) addUpcoming(ctx context.Context, c *runCalendar) error {
	seen, err := s.upcoming(ctx, c.coming)
	if err == nil {
		c.answer.Upcoming = &seen
	}
	return err
}

func viewOccurrence(o schedule.Occurrence) api.Occurrence {
	view := api.Occurrence{
		NominalAt: o.Slot, LocalTime: o.Wall, JitterSeconds: o.At.Sub(o.Slot).Seconds(),
	}
	if o.Change != "" {
		view.ClockChange = new(api.ClockChange(o.Change))
	}
	if o.Dropped != "" {
		view.DropReason = new(api.DropReason(o.Dropped))
	} else {
		view.ScheduledAt = new(o.At)
	}
	return view
}
