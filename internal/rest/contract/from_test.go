package contract

import (
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/api"
)

// What nobody thought about is not served.
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
