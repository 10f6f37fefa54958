package rest_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
)

func TestAnAPIKeyFromItsMakingToItsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	admin := b.token(t, b.ours, identity.Admin)
	made := b.do(t, request{method: "POST", path: base + "/api-keys", token: admin, body: `{"name":"deployment","scopes":["jobs:write","jobs:read"]}`})
	key := read[api.NewAPIKey](t, made, http.StatusCreated)
	path := base + "/api-keys/" + key.ID.String()
	if made.header.Get("Location") != path || key.CreatedBy != "ada" || !strings.HasPrefix(key.Key, key.Prefix) {
		t.Errorf("made %+v at %q", key, made.header.Get("Location"))
	}
	created := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: key.Key, body: webhook}), http.StatusCreated)
	if created.CreatedBy != "api-key:"+key.ID.String() || created.TenantID != b.ours.TenantID {
		t.Errorf("the job is %s's, made by %s", created.TenantID, created.CreatedBy)
	}
	refused(t, b.do(t, request{method: "POST", path: base + "/jobs/" + created.ID.String() + "/trigger", token: key.Key}), http.StatusForbidden, "FORBIDDEN")
	refused(t, b.do(t, request{method: "POST", path: base + "/api-keys", token: key.Key, body: `{"name":"x","scopes":["jobs:read"]}`}), http.StatusForbidden, "FORBIDDEN")

	for _, path := range []string{path, base + "/api-keys"} {
		got := b.do(t, request{method: "GET", path: path, token: admin})
		if got.status != http.StatusOK || strings.Contains(got.body, key.Key[len(key.Prefix):]) || !strings.Contains(got.body, key.Prefix) {
			t.Errorf("GET %s: %d %s", path, got.status, got.body)
		}
	}
	if strings.Contains(b.log.String(), key.Key[len(key.Prefix):]) {
		t.Error("the log holds the key")
	}
	rotated := read[api.NewAPIKey](t, b.do(t, request{method: "POST", path: path + "/rotate", token: admin}), http.StatusOK)
	refused(t, b.do(t, request{method: "GET", path: base + "/jobs", token: key.Key}), http.StatusUnauthorized, "UNAUTHORIZED")
	if got := b.do(t, request{method: "GET", path: base + "/jobs", token: rotated.Key}); got.status != http.StatusOK {
		t.Errorf("the new key: %d %s", got.status, got.body)
	}
	if got := b.do(t, request{method: "DELETE", path: path, token: admin}); got.status != http.StatusNoContent {
		t.Errorf("DELETE: %d %s", got.status, got.body)
	}
	refused(t, b.do(t, request{method: "GET", path: base + "/jobs", token: rotated.Key}), http.StatusUnauthorized, "UNAUTHORIZED")
	refused(t, b.do(t, request{method: "GET", path: path, token: admin}), http.StatusNotFound, "API_KEY_NOT_FOUND")
}

func TestEverythingThatIsWrongWithAKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	admin := b.token(t, b.ours, identity.Admin)
	got := b.do(t, request{method: "POST", path: base + "/api-keys", token: admin, body: `{"name":"","scopes":["nothing","keys:write"],"expiresAt":"2020-01-01T00:00:00Z","key":"mine"}`})
	var fields []string
	for _, d := range refused(t, got, http.StatusBadRequest, "VALIDATION_FAILED").Error.Details {
		fields = append(fields, d.Field+" "+d.Rule)
	}
	slices.Sort(fields)
	for _, want := range []string{"expiresAt future", "name minLength", "scopes[0] enum", "scopes[1] withheld"} {
		if !slices.Contains(fields, want) {
			t.Errorf("%q is not among %q", want, fields)
		}
	}
	refused(t, b.do(t, request{method: "POST", path: base + "/api-keys", token: admin, body: `{"name":"x","scopes":[]}`}), http.StatusBadRequest, "VALIDATION_FAILED")
}
