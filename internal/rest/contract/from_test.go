package contract

import (
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/api"
)

// An operation that states no permission is not served.
func TestAnOperationWithoutAPermissionIsNotServed(t *testing.T) {
	t.Parallel()
	for _, permission := range []any{nil, "", 7, []any{"jobs:read"}} {
		document, err := api.GetSpec()
		if err != nil {
			t.Fatal(err)
		}
		document.Paths.Value("/health/live").Get.Extensions["x-permission"] = permission
		if _, err := from(document); err == nil || !strings.Contains(err.Error(), "getLiveness") {
			t.Errorf("x-permission %v: error %v, want one that names the operation", permission, err)
		}
	}
}

// A body has one form, which is what it is checked as.
func TestAnOperationTakesOneKindOfBody(t *testing.T) {
	t.Parallel()
	document, err := api.GetSpec()
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := from(document)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"POST /api/v1/scheduler/jobs": "application/json", "POST /api/v1/scheduler/calendars/import": "text/calendar", "GET /health": "",
	} {
		if got := loaded.Operations()[name].MediaType(); got != want {
			t.Errorf("%s takes %q, want %q", name, got, want)
		}
	}
	body := document.Paths.Value("/api/v1/scheduler/jobs").Post.RequestBody.Value
	body.Content["text/plain"] = body.Content["application/json"]
	if _, err := from(document); err == nil || !strings.Contains(err.Error(), "createJob") {
		t.Errorf("two forms: error %v, want one that names the operation", err)
	}
}
