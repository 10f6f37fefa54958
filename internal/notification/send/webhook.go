package send

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/signature"
	"github.com/scheduler-service/scheduler/internal/version"
)

// group is the type of a message with several events.
const group = "notification.group"

// payload is the body of a webhook, in the form that Standard Webhooks recommends.
type payload struct {
	Type           string    `json:"type"`
	Timestamp      time.Time `json:"timestamp"`
	TenantID       uuid.UUID `json:"tenantId"`
	NotificationID uuid.UUID `json:"notificationId"`
	Data           any       `json:"data"` // an event, or of several a grouped
}

type grouped struct {
	Count  int                  `json:"count"`
	Events []notification.Event `json:"events"` // the first of them
}

// toWebhook makes the request of a webhook, signed with each secret that is good.
func toWebhook(ctx context.Context, l letter, events []notification.Event, opened secrets) (*http.Request, error) {
	body := payload{Type: events[0].Type, Timestamp: l.createdAt.UTC(), TenantID: l.tenant, NotificationID: l.notification, Data: events[0]}
	if l.count > 1 {
		body.Type, body.Data = group, grouped{Count: l.count, Events: events}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := post(ctx, l.url, raw)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(opened.signing))
	for i, secret := range opened.signing {
		texts[i] = secret.Reveal()
	}
	keys, err := signature.ParseKeys(texts...)
	if err != nil || len(texts) == 0 {
		return nil, errors.New("there is no secret to sign it with")
	}
	keys.Sign(req.Header, l.delivery.String(), l.claimedAt, raw)
	return req, nil
}

// post is a request with JSON. Its errors do not name the URL, which may be secret.
func post(ctx context.Context, url string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("its URL cannot be called")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "scheduler-service/"+version.String())
	return req, nil
}
