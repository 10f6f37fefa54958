package rest

import (
	"context"
	"io"
	"net/url"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
	"github.com/scheduler-service/scheduler/internal/schedule/ics"
)

// CreateCalendar is POST /calendars.
func (s *server) CreateCalendar(ctx context.Context, request api.CreateCalendarRequestObject) (api.CreateCalendarResponseObject, error) {
	spec, fields := newCalendar(*request.Body)
	if len(fields) > 0 {
		return nil, wrong(fields...)
	}
	c := callOf(ctx)
	made, replayed, err := s.Calendars.Create(ctx, c.who.Actor, spec, keyOf(c, request.Params.IdempotencyKey, "POST /calendars"))
	if err != nil {
		return nil, err
	}
	return api.CreateCalendar201JSONResponse{
		Body:    viewCalendar(made),
		Headers: api.CreateCalendar201ResponseHeaders{ETag: etag(made.Version), Location: calendarPath(made), IdempotentReplayed: replay(replayed)},
	}, nil
}

// ImportCalendar is POST /calendars/import.
func (s *server) ImportCalendar(ctx context.Context, request api.ImportCalendarRequestObject) (api.ImportCalendarResponseObject, error) {
	c, p := callOf(ctx), request.Params
	spec := calendar.Spec{Name: p.Name, Timezone: "UTC"}
	override(&spec.Timezone, p.Timezone)
	if fields := calendar.Validate(spec); len(fields) > 0 {
		return nil, wrong(fields...)
	}
	if err := s.readFile(&spec, request.Body); err != nil {
		return nil, err
	}
	asked := url.Values{"name": {spec.Name}, "timezone": {spec.Timezone}} // the body alone is not the request
	made, replayed, err := s.Calendars.Create(ctx, c.who.Actor, spec, keyOf(c, p.IdempotencyKey, "POST /calendars/import?"+asked.Encode()))
	if err != nil {
		return nil, err
	}
	return api.ImportCalendar201JSONResponse{
		Body:    viewCalendar(made),
		Headers: api.ImportCalendar201ResponseHeaders{ETag: etag(made.Version), Location: calendarPath(made), IdempotentReplayed: replay(replayed)},
	}, nil
}

// ImportCalendarAgain is PUT /calendars/{id}/import.
func (s *server) ImportCalendarAgain(ctx context.Context, request api.ImportCalendarAgainRequestObject) (api.ImportCalendarAgainResponseObject, error) {
	who, wanted := callOf(ctx).who.Actor, versionOf(request.Params.IfMatch)
	found, err := s.Calendars.Get(ctx, who, request.ID)
	if err != nil {
		return nil, err
	}
	if wanted == 0 {
		wanted = found.Version // nothing but the days is to change
	}
	if err := s.readFile(&found.Spec, request.Body); err != nil {
		return nil, err
	}
	updated, err := s.Calendars.Update(ctx, who, request.ID, found.Spec, wanted)
	if err != nil {
		return nil, err
	}
	return api.ImportCalendarAgain200JSONResponse{Body: viewCalendar(updated), Headers: api.ImportCalendarAgain200ResponseHeaders{ETag: etag(updated.Version)}}, nil
}

// readFile makes the days of a calendar those of an iCalendar file.
func (s *server) readFile(spec *calendar.Spec, file io.Reader) error {
	days, err := ics.Parse(file, spec.Timezone, s.Clock())
	fields, err := fieldsOf(err)
	if err != nil {
		return err
	}
	for i := range fields {
		fields[i].Path = "body"
	}
	if spec.Days = days; len(fields) == 0 {
		fields = append(inFile(calendar.Validate(*spec)), empty(len(days))...)
	}
	if len(fields) > 0 {
		return wrong(fields...)
	}
	return nil
}

// inFile says of each day that is wrong which event it was.
func inFile(fields []fault.Field) []fault.Field {
	for i, f := range fields {
		fields[i] = fault.Field{Path: "body", Rule: f.Rule, Message: f.Path + " (the events, counted from 0): " + f.Message}
	}
	return fields
}

// empty refuses a file that names no day: it is hardly what was meant.
func empty(days int) []fault.Field {
	if days > 0 {
		return nil
	}
	return []fault.Field{{Path: "body", Rule: "icalendar", Message: "has no event (VEVENT) that is not cancelled"}}
}

// ListCalendars is GET /calendars.
func (s *server) ListCalendars(ctx context.Context, request api.ListCalendarsRequestObject) (api.ListCalendarsResponseObject, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	var after *calendar.Position
	if page.after != nil {
		after = &calendar.Position{CreatedAt: page.after.At, ID: page.after.ID}
	}
	list, err := s.Calendars.List(ctx, c.who.Actor, page.limit+1, after)
	if err != nil {
		return nil, err
	}
	list, next := cut(s, page, list, func(c calendar.Calendar) cursor.Place { return cursor.Place{At: c.CreatedAt, ID: c.ID} })
	answer := api.ListCalendars200JSONResponse{Items: make([]api.CalendarSummary, len(list)), NextCursor: next, HasMore: next != nil}
	for i, one := range list {
		answer.Items[i] = api.CalendarSummary{
			ID: one.ID, TenantID: one.TenantID, Version: one.Version, Name: one.Name, Description: one.Description, Timezone: one.Timezone,
			DayCount: one.DayCount, CreatedAt: one.CreatedAt, UpdatedAt: one.UpdatedAt,
		}
	}
	return answer, nil
}

// GetCalendar is GET /calendars/{id}.
func (s *server) GetCalendar(ctx context.Context, request api.GetCalendarRequestObject) (api.GetCalendarResponseObject, error) {
	found, err := s.Calendars.Get(ctx, callOf(ctx).who.Actor, request.ID)
	if err != nil {
		return nil, err
	}
	return api.GetCalendar200JSONResponse{Body: viewCalendar(found), Headers: api.GetCalendar200ResponseHeaders{ETag: etag(found.Version)}}, nil
}

// UpdateCalendar is PUT /calendars/{id}.
func (s *server) UpdateCalendar(ctx context.Context, request api.UpdateCalendarRequestObject) (api.UpdateCalendarResponseObject, error) {
	err := sentBackAsIs(ctx, func() (api.Calendar, error) {
		found, err := s.Calendars.Get(ctx, callOf(ctx).who.Actor, request.ID)
		return viewCalendar(found), err
	})
	if err != nil {
		return nil, err
	}
	spec, fields := newCalendar(*request.Body)
	if len(fields) > 0 {
		return nil, wrong(fields...)
	}
	updated, err := s.Calendars.Update(ctx, callOf(ctx).who.Actor, request.ID, spec, wantedVersion(ctx, request.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	return api.UpdateCalendar200JSONResponse{Body: viewCalendar(updated), Headers: api.UpdateCalendar200ResponseHeaders{ETag: etag(updated.Version)}}, nil
}

// DeleteCalendar is DELETE /calendars/{id}.
func (s *server) DeleteCalendar(ctx context.Context, request api.DeleteCalendarRequestObject) (api.DeleteCalendarResponseObject, error) {
	if err := s.Calendars.Delete(ctx, callOf(ctx).who.Actor, request.ID, versionOf(request.Params.IfMatch)); err != nil {
		return nil, err
	}
	return api.DeleteCalendar204Response{}, nil
}

// newCalendar translates the contract's calendar into the domain's, with
// defaults, and lists everything that the domain finds wrong.
func newCalendar(body api.CalendarSpec) (calendar.Spec, []fault.Field) {
	spec := calendar.Spec{Name: body.Name, Description: orZero(body.Description), Timezone: "UTC"}
	override(&spec.Timezone, body.Timezone)
	days := make([]calendar.Day, len(body.Days))
	for i, d := range body.Days {
		days[i] = calendar.Day{Start: d.Start, End: orZero(d.End), Yearly: orZero(d.Yearly), Name: orZero(d.Name)}
	}
	ranges, fields := calendar.ReadDays(days)
	if len(fields) == 0 {
		spec.Days = ranges
	}
	return spec, append(fields, calendar.Validate(spec)...)
}

func viewCalendar(c calendar.Calendar) api.Calendar {
	view := api.Calendar{
		ID: c.ID, TenantID: c.TenantID, Version: c.Version, Name: c.Name, Description: c.Description, Timezone: c.Timezone,
		Days: make([]api.CalendarDay, len(c.Days)), CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt,
	}
	for i, r := range c.Days {
		day := calendar.WriteDay(r)
		view.Days[i] = api.CalendarDay{Start: day.Start, End: &day.End, Yearly: &day.Yearly}
		if day.Name != "" {
			view.Days[i].Name = &day.Name
		}
	}
	return view
}

func calendarPath(c calendar.Calendar) *string {
	path := base + "/calendars/" + c.ID.String()
	return &path
}
