package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	secrets "github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

const canary = "canary-77aa01be3f"

func TestSecrets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	developer := b.token(t, b.ours, identity.Developer)
	call := func(method, path, body string) answer {
		return b.do(t, request{method: method, path: base + path, token: developer, body: body})
	}
	got := call("PUT", "/secrets/billing", `{"value":"`+canary+`","description":"for billing"}`)
	made := read[api.Secret](t, got, http.StatusCreated)
	if made.Name != "billing" || made.Version != 1 || made.KeyID != "k1" || made.CreatedBy != "ada" || got.header.Get("Location") != base+"/secrets/billing" {
		t.Errorf("stored %+v, %v", made, got.header)
	}
	replaced := read[api.Secret](t, call("PUT", "/secrets/billing", `{"value":"`+canary+`-2"}`), http.StatusOK)
	if replaced.Version != 2 || replaced.ID != made.ID || replaced.Description != "for billing" {
		t.Errorf("replaced by %+v", replaced)
	}
	if found := read[api.Secret](t, call("GET", "/secrets/billing", ""), http.StatusOK); cmp.Diff(replaced, found) != "" {
		t.Errorf("read %+v", found)
	}
	for i := range 3 {
		call("PUT", fmt.Sprintf("/secrets/s%d", i), `{"value":"`+canary+`"}`)
	}
	first := read[api.SecretPage](t, call("GET", "/secrets?limit=3", ""), http.StatusOK)
	second := read[api.SecretPage](t, call("GET", "/secrets?limit=3&cursor="+*first.NextCursor, ""), http.StatusOK)
	var names []string
	for _, one := range append(first.Items, second.Items...) {
		names = append(names, one.Name)
	}
	if diff := cmp.Diff([]string{"s2", "s1", "s0", "billing"}, names); diff != "" || second.HasMore {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	body := strings.Replace(webhook, `"url":"https://example.com/"`, `"url":"https://example.com/?key={{secret:billing}}"`, 1)
	job := read[api.Job](t, call("POST", "/jobs", body), http.StatusCreated)
	if e := refused(t, call("DELETE", "/secrets/billing", ""), http.StatusConflict, "CONFLICT"); !strings.Contains(e.Error.Message, "1 job") {
		t.Errorf("message %q", e.Error.Message)
	}
	call("DELETE", "/jobs/"+job.ID.String(), "")
	if got := call("DELETE", "/secrets/billing", ""); got.status != http.StatusNoContent {
		t.Errorf("deleted: %d %s", got.status, got.body)
	}
	refused(t, call("GET", "/secrets/billing", ""), http.StatusNotFound, "SECRET_NOT_FOUND")
	if strings.Contains(b.log.String(), canary) {
		t.Error("the log holds a value")
	}
}

func TestSecretsThatAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	developer := b.token(t, b.ours, identity.Developer)
	for name, r := range map[string]request{
		"empty":       {path: "/secrets/a", body: `{"value":""}`},
		"none":        {path: "/secrets/a", body: `{}`},
		"too long":    {path: "/secrets/a", body: `{"value":"` + canary + strings.Repeat("x", 65536) + `"}`},
		"many bytes":  {path: "/secrets/a", body: `{"value":"` + canary + strings.Repeat("é", 33000) + `"}`},
		"no text":     {path: "/secrets/a", body: `{"value":["` + canary + `"]}`},
		"NUL":         {path: "/secrets/a", body: `{"value":"` + canary + `\u0000"}`},
		"more":        {path: "/secrets/a", body: `{"value":"` + canary + `","` + canary + `":1}`},
		"odd name":    {path: "/secrets/a%20b", body: `{"value":"` + canary + `"}`},
		"long name":   {path: "/secrets/" + strings.Repeat("a", 65), body: `{"value":"` + canary + `"}`},
		"hidden name": {path: "/secrets/.a", body: `{"value":"` + canary + `"}`},
	} {
		r.method, r.path, r.token = "PUT", base+r.path, developer
		got := b.do(t, r)
		refused(t, got, http.StatusBadRequest, "VALIDATION_FAILED")
		if name != "more" && strings.Contains(got.body, canary) {
			t.Errorf("%s: the answer repeats the value: %s", name, got.body)
		}
	}
	if b.stored(t)["secrets"] != 0 || strings.Contains(b.log.String(), canary) {
		t.Errorf("stored %v", b.stored(t))
	}
	none, err := keyring.Parse("")
	if err != nil {
		t.Fatal(err)
	}
	bare := setup(t, func(d *parts.Deps) { d.Secrets = secrets.NewStore(b.db, none) })
	e := refused(t, bare.do(t, request{method: "PUT", path: base + "/secrets/a", token: bare.token(t, bare.ours, identity.Developer), body: `{"value":"x"}`}),
		http.StatusServiceUnavailable, "SECRETS_NOT_CONFIGURED")
	if !strings.Contains(e.Error.Message, "SECRETS_KEYS") {
		t.Errorf("message %q", e.Error.Message)
	}
}

// A credential in a definition shows in no answer, log line or row.
func TestCredentialsInDefinitions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	admin := b.token(t, b.ours, identity.Admin)
	var all strings.Builder
	call := func(method, path, body string) answer {
		got := b.do(t, request{method: method, path: base + path, token: admin, body: body, header: map[string]string{"Idempotency-Key": "k" + method + path}})
		all.WriteString(got.body)
		return got
	}
	define := func(token, password string) string {
		return strings.Replace(webhook, `{"url":"https://example.com/"}`,
			`{"url":"https://example.com/?token=`+token+`","method":"POST","body":{"password":"`+password+`","n":1}}`, 1)
	}
	made := read[api.Job](t, call("POST", "/jobs", define(canary, canary)), http.StatusCreated)
	want := `{"url":"https://example.com/?token=***","body":{"n":1,"password":"***"},"method":"POST"}`
	same := func(what string, config api.JobConfig) {
		t.Helper()
		raw, err := config.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(decoded(t, want), decoded(t, string(raw))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	same("created", made.Config)
	path := "/jobs/" + made.ID.String()
	same("read", read[api.Job](t, call("GET", path, ""), http.StatusOK).Config)
	same("replayed", read[api.Job](t, call("POST", "/jobs", define(canary, canary)), http.StatusCreated).Config)
	same("kept", read[api.Job](t, call("PUT", path, define("***", "***")), http.StatusOK).Config)
	same("replaced", read[api.Job](t, call("PUT", path, define(canary+"-2", "***")), http.StatusOK).Config)
	call("GET", "/jobs", "")
	call("POST", path+"/validate", define(canary, "***"))
	call("POST", path+"/validate", "")
	for name, body := range map[string]string{
		"masked in a new job":     define("***", "x"),
		"an unknown secret":       define("{{secret:none}}", canary),
		"a reference in a method": strings.Replace(define("a", canary), `"POST"`, `"{{secret:none}}"`, 1),
		"wrong beside it":         strings.Replace(define(canary, canary), `"url"`, `"urls"`, 1),
	} {
		for _, operation := range []string{"/jobs", "/jobs/validate"} {
			if e := refused(t, call("POST", operation, body), http.StatusBadRequest, "INVALID_JOB_CONFIG"); len(e.Error.Details) == 0 {
				t.Errorf("%s: no details", name)
			}
		}
	}
	refused(t, call("POST", path+"/trigger", `{"parameters":{"headers":{"Authorization":"Bearer `+canary+`"}}}`), http.StatusBadRequest, "VALIDATION_FAILED")
	refused(t, call("POST", path+"/trigger", `{"parameters":{"body":"{{secret:none}}"}}`), http.StatusBadRequest, "VALIDATION_FAILED")
	// A caller that may not list the secrets sends none to a job's target.
	operator := request{method: "POST", path: base + path + "/trigger", token: b.token(t, b.ours, identity.Operator), body: `{"parameters":{"body":"{{secret:none}}"}}`}
	refused(t, b.do(t, operator), http.StatusForbidden, "FORBIDDEN")
	if strings.Contains(all.String(), canary) {
		t.Errorf("an answer holds a credential: %s", all.String())
	}
	if strings.Contains(b.log.String(), canary) {
		t.Error("the log holds a credential")
	}
	for table, text := range b.snapshot(t) {
		if strings.Contains(text, canary) {
			t.Errorf("%s holds a credential", table)
		}
	}
}

func decoded(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}
