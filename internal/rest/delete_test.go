package rest_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// A deletion with If-Match deletes only what its caller knows.
func TestDeletionsHonourIfMatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token, platform := b.token(t, b.ours, identity.Admin), b.token(t, b.ours, identity.PlatformAdmin)
	b.makeSecret(t, b.ours, "key", "0123456789")
	other, err := b.deps.Tenants.Create(t.Context(), uuid.New(), tenant.Spec{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	for path, token := range map[string]string{
		base + "/jobs/" + b.makeJob(t, b.ours).ID.String():                                              token,
		base + "/calendars/" + b.makeCalendar(t, b.ours, calendar.Day{Start: "2026-12-25"}).ID.String(): token,
		base + "/secrets/key":                  token,
		base + "/tenants/" + other.ID.String(): platform,
	} {
		remove := func(match string) answer {
			return b.do(t, request{method: "DELETE", path: path, token: token, header: map[string]string{"If-Match": match}})
		}
		etag := b.do(t, request{method: "GET", path: path, token: token}).header.Get("ETag")
		if etag == "" {
			t.Errorf("%s has no ETag", path)
		}
		for _, match := range []string{`"2"`, `W/` + etag, `"x"`} {
			refused(t, remove(match), http.StatusPreconditionFailed, "PRECONDITION_FAILED")
		}
		if got := b.do(t, request{method: "GET", path: path, token: token}); got.status != http.StatusOK {
			t.Errorf("%s is gone: %d", path, got.status)
		}
		if got := remove(etag); got.status >= 300 {
			t.Errorf("%s with its own: %d %s", path, got.status, got.body)
		}
	}
}
