package rest_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// A platform administrator sets and resets a setting, which the audit log of his tenant
// records; what is refused changes nothing.
func TestSettings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.PlatformAdmin)
	path := base + "/settings/JOB_MAX_WAITING"
	find := func() api.Setting {
		t.Helper()
		all := read[api.SettingList](t, b.do(t, request{method: "GET", path: base + "/settings", token: token}), http.StatusOK).Items
		return all[slices.IndexFunc(all, func(s api.Setting) bool { return s.Name == "JOB_MAX_WAITING" })]
	}
	if before := find(); before.Source != api.SettingSourceEnvironment || before.ChangedAt != nil || before.Default != "100000" {
		t.Errorf("at first it is %+v", before)
	}
	set := read[api.Setting](t, b.do(t, request{method: "PUT", path: path, token: token, body: `{"value":"25"}`}), http.StatusOK)
	if *set.Value != "25" || set.Source != api.SettingSourceDatabase || *set.ChangedBy != "ada" || set.ChangedAt == nil {
		t.Errorf("set to 25 it is %+v", set)
	}
	for _, body := range []string{`{"value":"many"}`, `{"value":"100000001"}`, `{"value":""}`, `{"value":25}`, `{}`} {
		e := refused(t, b.do(t, request{method: "PUT", path: path, token: token, body: body}), http.StatusBadRequest, "VALIDATION_FAILED")
		if len(e.Error.Details) != 1 || !strings.HasPrefix(e.Error.Details[0].Field, "value") {
			t.Errorf("%s: %+v", body, e.Error)
		}
	}
	if after := find(); *after.Value != "25" {
		t.Errorf("after what was refused it is %+v", after)
	}
	refused(t, b.do(t, request{method: "PUT", path: base + "/settings/HTTP_ADDR", token: token, body: `{"value":":80"}`}), http.StatusNotFound, "NOT_FOUND")
	refused(t, b.do(t, request{method: "PUT", path: path, token: b.token(t, b.ours, identity.Admin), body: `{"value":"1"}`}), http.StatusForbidden, "FORBIDDEN")
	for range 2 { // the second changes nothing
		if got := b.do(t, request{method: "DELETE", path: path, token: token}); got.status != http.StatusNoContent {
			t.Errorf("reset: %d %s", got.status, got.body)
		}
	}
	if after := find(); after.Source != api.SettingSourceEnvironment || after.ChangedAt == nil {
		t.Errorf("after the reset it is %+v", after)
	}
	entries := read[api.AuditPage](t, b.do(t, request{method: "GET", path: base + "/audit?objectType=setting", token: token}), http.StatusOK).Items
	var said []string
	for _, e := range entries {
		said = append(said, e.Action+" "+e.ObjectID+" "+string(*e.After))
	}
	if want := []string{"resetSetting JOB_MAX_WAITING {}", `putSetting JOB_MAX_WAITING {"value":"25"}`}; !slices.Equal(said, want) {
		t.Errorf("the audit log says %q", said)
	}
}
