package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// makeNotification makes a webhook with a delivery.
func (b *bundle) makeNotification(t *testing.T, owner tenant.Actor) (id, delivery uuid.UUID) {
	t.Helper()
	if err := tenant.NewStore(b.db, true).Admit(t.Context(), owner.TenantID); err != nil {
		t.Fatal(err)
	}
	list, err := b.deps.Notifications.List(t.Context(), owner, 100, nil)
	for i := range list {
		if err == nil && len(list) > 90 { // a tenant may have 100
			err = b.deps.Notifications.Delete(t.Context(), owner, list[i].ID, 0)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	made, _, err := b.deps.Notifications.Create(t.Context(), owner, notification.Spec{
		Name: uuid.NewString(), Kind: notification.Webhook, URL: "https://example.com/", Events: []string{"job.failed"}, JobIDs: []uuid.UUID{}, Tags: []string{}, Enabled: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	test, err := b.deps.Notifications.Test(t.Context(), owner, made.ID)
	if err != nil {
		t.Fatal(err)
	}
	return made.ID, test.ID
}

const hook = `{"name":"on call","kind":"webhook","url":"https://example.com/hook","events":["job.failed","job.recovered"],"tags":["billing"]}`

// The secret of a webhook is shown when it is made and when it is replaced, and nowhere
// else; two are good while one replaces the other.
func TestTheSecretOfANotificationIsShownOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	made := read[api.NewNotification](t, b.do(t, request{method: "POST", path: base + "/notifications", token: token, body: hook}), http.StatusCreated)
	if made.Secret == nil || !strings.HasPrefix(*made.Secret, "whsec_") {
		t.Fatalf("made, it is %+v", made)
	}
	secret := *made.Secret
	path := base + "/notifications/" + made.ID.String()
	for _, where := range []string{"", "/deliveries"} {
		if got := b.do(t, request{method: "GET", path: path + where, token: token}); strings.Contains(got.body, secret) || got.status != http.StatusOK {
			t.Errorf("%s shows %d %s", where, got.status, got.body)
		}
	}
	rotated := read[api.NewNotification](t, b.do(t, request{method: "POST", path: path + "/rotate-secret", token: token, body: `{"graceSeconds":60}`}), http.StatusOK)
	if next := rotated.Secret; next == nil || *next == secret || *next == "" || rotated.Version != 2 || rotated.PreviousSecretUntil == nil {
		t.Errorf("rotated, it is %+v", rotated)
	}
	var stored, good int
	if err := b.engine.Pool().QueryRow(t.Context(), "SELECT count(*), count(*) FILTER (WHERE valid_until IS NULL) FROM notification_secrets").Scan(&stored, &good); err != nil {
		t.Fatal(err)
	}
	if stored != 2 || good != 1 {
		t.Errorf("%d secrets are stored, %d without an end", stored, good)
	}
	b.do(t, request{method: "POST", path: path + "/rotate-secret", token: token})
	if err := b.engine.Pool().QueryRow(t.Context(), "SELECT count(*) FROM notification_secrets").Scan(&stored); err != nil || stored != 2 {
		t.Errorf("%d secrets are stored after another rotation: %v", stored, err)
	}
	audit := b.do(t, request{method: "GET", path: base + "/audit?objectType=notification", token: b.token(t, b.ours, identity.Admin)})
	if audit.status != http.StatusOK || strings.Contains(audit.body, secret) || strings.Count(audit.body, `"objectType":"notification"`) != 3 {
		t.Errorf("the audit log has %s", audit.body)
	}
}

// The URL of a chat is secret: it is shown without its path, and a PUT of what was shown
// keeps it.
func TestTheURLOfAChatIsHidden(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	body := `{"name":"chat","kind":"slack","url":"https://hooks.example.com/services/open-sesame","events":["job.failed"]}`
	answer := b.do(t, request{method: "POST", path: base + "/notifications", token: token, body: body})
	made := read[api.NewNotification](t, answer, http.StatusCreated)
	if strings.Contains(answer.body, "sesame") || made.URL != "https://hooks.example.com/***" || made.Secret != nil {
		t.Fatalf("it is shown as %s", answer.body)
	}
	path := base + "/notifications/" + made.ID.String()
	sealed := func() (text string) {
		if err := b.engine.Pool().QueryRow(t.Context(), "SELECT string_agg(encode(sealed, 'hex'), ',') FROM notification_secrets").Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := sealed()
	shown := b.do(t, request{method: "GET", path: path, token: token}).body
	read[api.Notification](t, b.do(t, request{method: "PUT", path: path, token: token, body: strings.Replace(shown, `"enabled":true`, `"enabled":false`, 1)}), http.StatusOK)
	if sealed() != before {
		t.Error("the URL was not kept")
	}
	read[api.Notification](t, b.do(t, request{method: "PUT", path: path, token: token, body: strings.Replace(body, "open", "shut", 1)}), http.StatusOK)
	if after := sealed(); after == before || strings.Contains(after, ",") {
		t.Error("the URL was not replaced")
	}
	e := refused(t, b.do(t, request{method: "POST", path: base + "/notifications", token: token, body: strings.Replace(body, "services/open-sesame", "***", 1)}), http.StatusBadRequest, "VALIDATION_FAILED")
	if e.Error.Details[0].Rule != "masked" {
		t.Errorf("a URL that hides its path is answered %+v", e.Error)
	}
}

func TestNotificationsThatAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	for name, body := range map[string]string{
		"url":    strings.Replace(hook, "https", "http", 1),
		"name":   strings.Replace(hook, "on call", " ", 1),
		"kind":   strings.Replace(hook, `"webhook"`, `"pigeon"`, 1),
		"events": strings.Replace(hook, "job.recovered", "job.exploded", 1),
	} {
		e := refused(t, b.do(t, request{method: "POST", path: base + "/notifications", token: token, body: body}), http.StatusBadRequest, "VALIDATION_FAILED")
		if !strings.HasPrefix(e.Error.Details[0].Field, name) {
			t.Errorf("%s: %+v", name, e.Error)
		}
	}
	made := read[api.NewNotification](t, b.do(t, request{method: "POST", path: base + "/notifications", token: token, body: hook}), http.StatusCreated)
	refused(t, b.do(t, request{method: "POST", path: base + "/notifications", token: token, body: hook}), http.StatusConflict, "CONFLICT")
	path := base + "/notifications/" + made.ID.String()
	refused(t, b.do(t, request{method: "PUT", path: path, token: token, body: strings.Replace(hook, `"webhook"`, `"slack"`, 1)}), http.StatusBadRequest, "VALIDATION_FAILED")
	refused(t, b.do(t, request{method: "PUT", path: path, token: token, body: hook, header: map[string]string{"If-Match": `"7"`}}), http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	disabled := read[api.Notification](t, b.do(t, request{method: "PUT", path: path, token: token, body: strings.Replace(hook, "{", `{"enabled":false,`, 1)}), http.StatusOK)
	if disabled.Enabled {
		t.Error("it is enabled still")
	}
	refused(t, b.do(t, request{method: "POST", path: path + "/test", token: token}), http.StatusConflict, "CONFLICT")
	for n := 1; n < 100; n++ {
		read[api.NewNotification](t, b.do(t, request{method: "POST", path: base + "/notifications", token: token, body: strings.Replace(hook, "on call", fmt.Sprint("n", n), 1)}), http.StatusCreated)
	}
	e := refused(t, b.do(t, request{method: "POST", path: base + "/notifications", token: token, body: strings.Replace(hook, "on call", "one more", 1)}), http.StatusForbidden, "QUOTA_EXCEEDED")
	if e.Error.Limit == nil || e.Error.Limit.Name != "maxNotifications" {
		t.Errorf("the limit is %+v", e.Error.Limit)
	}
}
