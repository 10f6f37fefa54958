package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
)

func TestFunctions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	developer := b.token(t, b.ours, identity.Developer)
	call := func(method, path, body string) answer {
		r := request{method: method, path: base + path, token: developer, body: body}
		if method == "PUT" {
			r.header = map[string]string{"Content-Type": "application/wasm"}
		}
		return b.do(t, r)
	}
	got := call("PUT", "/functions/resize", "one")
	made := read[api.Function](t, got, http.StatusCreated)
	if made.Name != "resize" || made.Version != 1 || made.SizeBytes != 3 || len(made.Digest) != 64 || made.CreatedBy != "ada" || got.header.Get("Location") != base+"/functions/resize" {
		t.Errorf("stored %+v, %v", made, got.header)
	}
	if same := read[api.Function](t, call("PUT", "/functions/resize", "one"), http.StatusOK); same.Version != 1 {
		t.Errorf("the same module is version %d", same.Version)
	}
	for i := range 22 {
		call("PUT", "/functions/resize", fmt.Sprint("module ", i))
	}
	found := read[api.Function](t, call("GET", "/functions/resize", ""), http.StatusOK)
	if found.Version != 23 || found.ID != made.ID || len(*found.Versions) != 20 || (*found.Versions)[0].Digest != found.Digest || (*found.Versions)[19].Version != 4 {
		t.Errorf("read %+v", found)
	}
	for i := range 3 {
		call("PUT", fmt.Sprint("/functions/f", i), "one")
	}
	first := read[api.FunctionPage](t, call("GET", "/functions?limit=3", ""), http.StatusOK)
	second := read[api.FunctionPage](t, call("GET", "/functions?limit=3&cursor="+*first.NextCursor, ""), http.StatusOK)
	names := ""
	for _, one := range append(first.Items, second.Items...) {
		names += one.Name + " "
	}
	if names != "f2 f1 f0 resize " || second.HasMore {
		t.Errorf("listed %s", names)
	}
	e := refused(t, call("PUT", "/functions/other", "broken"), http.StatusUnprocessableEntity, "INVALID_MODULE")
	if e.Error.Message != "the body is broken" {
		t.Errorf("message %q", e.Error.Message)
	}
	refused(t, call("GET", "/functions/other", ""), http.StatusNotFound, "FUNCTION_NOT_FOUND")
	refused(t, call("PUT", "/functions/a%20b", "one"), http.StatusBadRequest, "VALIDATION_FAILED")
	refused(t, call("PUT", "/functions/large", strings.Repeat("x", 8<<20+1)), http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE")
	refused(t, b.do(t, request{method: "PUT", path: base + "/functions/a", token: developer, body: `{}`}), http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE")
	if got := call("DELETE", "/functions/resize", ""); got.status != http.StatusNoContent {
		t.Errorf("deleted: %d %s", got.status, got.body)
	}
	refused(t, call("DELETE", "/functions/resize", ""), http.StatusNotFound, "FUNCTION_NOT_FOUND")
}
