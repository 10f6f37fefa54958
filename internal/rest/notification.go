package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
)

// CreateNotification is POST /notifications.
func (s *server) CreateNotification(ctx context.Context, request api.CreateNotificationRequestObject) (api.CreateNotificationResponseObject, error) {
	spec := newNotification(*request.Body)
	if fields := s.checkNotification(spec, ""); len(fields) > 0 {
		return nil, wrong(fields...)
	}
	made, secret, err := s.Notifications.Create(ctx, callOf(ctx).who.Actor, spec)
	if err != nil {
		return nil, err
	}
	location := base + "/notifications/" + made.ID.String()
	return api.CreateNotification201JSONResponse{
		Body: viewNewNotification(made, secret), Headers: api.CreateNotification201ResponseHeaders{ETag: etag(made.Version), Location: &location},
	}, nil
}

// ListNotifications is GET /notifications.
func (s *server) ListNotifications(ctx context.Context, request api.ListNotificationsRequestObject) (api.ListNotificationsResponseObject, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	list, err := s.Notifications.List(ctx, c.who.Actor, page.limit+1, notificationsAfter(page))
	if err != nil {
		return nil, err
	}
	list, next := cut(s, page, list, func(n notification.Notification) cursor.Place { return cursor.Place{At: n.CreatedAt, ID: n.ID} })
	answer := api.ListNotifications200JSONResponse{Items: make([]api.Notification, len(list)), NextCursor: next, HasMore: next != nil}
	for i, one := range list {
		answer.Items[i] = viewNotification(one)
	}
	return answer, nil
}

func notificationsAfter(page page) *notification.Position {
	if page.after == nil {
		return nil
	}
	return &notification.Position{CreatedAt: page.after.At, ID: page.after.ID}
}

// GetNotification is GET /notifications/{id}.
func (s *server) GetNotification(ctx context.Context, request api.GetNotificationRequestObject) (api.GetNotificationResponseObject, error) {
	found, err := s.Notifications.Get(ctx, callOf(ctx).who.Actor, request.ID)
	if err != nil {
		return nil, err
	}
	return api.GetNotification200JSONResponse{Body: viewNotification(found), Headers: api.GetNotification200ResponseHeaders{ETag: etag(found.Version)}}, nil
}

// UpdateNotification is PUT /notifications/{id}.
func (s *server) UpdateNotification(ctx context.Context, request api.UpdateNotificationRequestObject) (api.UpdateNotificationResponseObject, error) {
	who := callOf(ctx).who.Actor
	found, err := s.Notifications.Get(ctx, who, request.ID)
	if err != nil {
		return nil, err
	}
	if err := sentBackAsIs(ctx, func() (api.Notification, error) { return viewNotification(found), nil }); err != nil {
		return nil, err
	}
	spec := newNotification(*request.Body)
	if fields := s.checkNotification(spec, found.URL); len(fields) > 0 {
		return nil, wrong(fields...)
	}
	updated, err := s.Notifications.Update(ctx, who, request.ID, spec, wantedVersion(ctx, request.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	return api.UpdateNotification200JSONResponse{Body: viewNotification(updated), Headers: api.UpdateNotification200ResponseHeaders{ETag: etag(updated.Version)}}, nil
}

// DeleteNotification is DELETE /notifications/{id}.
func (s *server) DeleteNotification(ctx context.Context, request api.DeleteNotificationRequestObject) (api.DeleteNotificationResponseObject, error) {
	if err := s.Notifications.Delete(ctx, callOf(ctx).who.Actor, request.ID, versionOf(request.Params.IfMatch)); err != nil {
		return nil, err
	}
	return api.DeleteNotification204Response{}, nil
}

// RotateNotificationSecret is POST /notifications/{id}/rotate-secret.
func (s *server) RotateNotificationSecret(ctx context.Context, request api.RotateNotificationSecretRequestObject) (api.RotateNotificationSecretResponseObject, error) {
	grace := time.Duration(orZero(orZero(request.Body).GraceSeconds)) * time.Second
	rotated, secret, err := s.Notifications.RotateSecret(ctx, callOf(ctx).who.Actor, request.ID, grace)
	if err != nil {
		return nil, err
	}
	return api.RotateNotificationSecret200JSONResponse(viewNewNotification(rotated, secret)), nil
}

// TestNotification is POST /notifications/{id}/test.
func (s *server) TestNotification(ctx context.Context, request api.TestNotificationRequestObject) (api.TestNotificationResponseObject, error) {
	made, err := s.Notifications.Test(ctx, callOf(ctx).who.Actor, request.ID)
	if err != nil {
		return nil, err
	}
	view, err := viewDelivery(made)
	return api.TestNotification202JSONResponse(view), err
}

// ListNotificationDeliveries is GET /notifications/{id}/deliveries.
func (s *server) ListNotificationDeliveries(ctx context.Context, request api.ListNotificationDeliveriesRequestObject) (api.ListNotificationDeliveriesResponseObject, error) {
	c := callOf(ctx)
	page, err := s.openPage(c, request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	list, err := s.Notifications.Deliveries(ctx, c.who.Actor, request.ID, string(orZero(request.Params.Status)), page.limit+1, notificationsAfter(page))
	if err != nil {
		return nil, err
	}
	list, next := cut(s, page, list, func(d notification.Delivery) cursor.Place { return cursor.Place{At: d.CreatedAt, ID: d.ID} })
	answer := api.ListNotificationDeliveries200JSONResponse{Items: make([]api.NotificationDelivery, len(list)), NextCursor: next, HasMore: next != nil}
	for i, one := range list {
		if answer.Items[i], err = viewDelivery(one); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// ResendNotificationDelivery is POST /notifications/{id}/deliveries/{deliveryId}/resend.
func (s *server) ResendNotificationDelivery(ctx context.Context, request api.ResendNotificationDeliveryRequestObject) (api.ResendNotificationDeliveryResponseObject, error) {
	again, err := s.Notifications.Resend(ctx, callOf(ctx).who.Actor, request.ID, request.DeliveryID)
	if err != nil {
		return nil, err
	}
	view, err := viewDelivery(again)
	return api.ResendNotificationDelivery202JSONResponse(view), err
}

// checkNotification lists everything that is wrong with a spec. A URL that hides its path is
// good where it is the stored one.
func (s *server) checkNotification(spec notification.Spec, stored string) []fault.Field {
	fields := notification.Validate(spec, s.CheckTarget)
	if notification.Hides(spec.URL) && spec.URL != stored {
		fields = append(fields, fault.Field{Path: "url", Rule: "masked", Message: "ends with ***, and nothing is stored under it: give the URL itself"})
	}
	return fields
}

// newNotification translates the contract's notification into the domain's, with defaults.
func newNotification(body api.NotificationSpec) notification.Spec {
	spec := notification.Spec{
		Name: body.Name, Kind: string(body.Kind), URL: orZero(body.URL), To: orZero(body.To), Events: make([]string, len(body.Events)),
		JobIDs: append([]uuid.UUID{}, orZero(body.JobIds)...), Tags: append([]string{}, orZero(body.Tags)...), Enabled: true,
	}
	override(&spec.Enabled, body.Enabled)
	spec.Group = time.Duration(orZero(body.GroupMinutes)) * time.Minute
	if q := body.QuietHours; q != nil {
		spec.Quiet = &notification.Quiet{From: q.From, To: q.To, Zone: q.Timezone}
	}
	for i, event := range body.Events {
		spec.Events[i] = string(event)
	}
	return spec
}

func viewNotification(n notification.Notification) api.Notification {
	view := api.Notification{
		ID: n.ID, TenantID: n.TenantID, Version: n.Version, Name: n.Name, Kind: api.NotificationKind(n.Kind), URL: n.URL, To: n.To, Events: make([]api.NotificationEventType, len(n.Events)),
		JobIds: n.JobIDs, Tags: n.Tags, Enabled: n.Enabled, DisabledReason: n.DisabledReason, FailingSince: n.FailingSince, PreviousSecretUntil: n.PreviousUntil,
		DroppedEvents: n.Dropped, CreatedBy: n.CreatedBy, CreatedAt: n.CreatedAt, UpdatedAt: n.UpdatedAt,
	}
	view.GroupMinutes = int(n.Group / time.Minute)
	if q := n.Quiet; q != nil {
		view.QuietHours = &api.QuietHours{From: q.From, To: q.To, Timezone: q.Zone}
	}
	for i, event := range n.Events {
		view.Events[i] = api.NotificationEventType(event)
	}
	return view
}

func viewNewNotification(n notification.Notification, secret string) api.NewNotification {
	v, shown := viewNotification(n), &secret
	if secret == "" {
		shown = nil
	}
	return api.NewNotification{
		ID: v.ID, TenantID: v.TenantID, Version: v.Version, Name: v.Name, Kind: v.Kind, URL: v.URL, To: v.To, QuietHours: v.QuietHours, GroupMinutes: v.GroupMinutes, Events: v.Events, JobIds: v.JobIds, Tags: v.Tags, Enabled: v.Enabled,
		DisabledReason: v.DisabledReason, FailingSince: v.FailingSince, PreviousSecretUntil: v.PreviousSecretUntil, DroppedEvents: v.DroppedEvents,
		CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt, Secret: shown,
	}
}

func viewDelivery(d notification.Delivery) (api.NotificationDelivery, error) {
	view := api.NotificationDelivery{
		ID: d.ID, NotificationID: d.NotificationID, Status: api.NotificationDeliveryStatus(d.Status), EventCount: d.Count, Attempts: d.Attempts, CreatedAt: d.CreatedAt,
		NextAttemptAt: d.NextAttemptAt, LastAttemptAt: d.AttemptedAt, FinishedAt: d.FinishedAt,
		ResponseStatus: d.ResponseStatus, ResponseExcerpt: d.Excerpt, Error: d.Error,
	}
	if err := json.Unmarshal(d.Events, &view.Events); err != nil {
		return view, fmt.Errorf("read the events of delivery %s: %w", d.ID, err)
	}
	return view, nil
}
