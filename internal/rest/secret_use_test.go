package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// sending is a definition that sends a body to an address.
func sending(url, body string) string {
	return strings.Replace(webhook, `{"url":"https://example.com/"}`, `{"url":"`+url+`","method":"POST","body":{"a":"`+body+`"}}`, 1)
}

// A caller that chooses a job's target reads there what the job sends, so an API key
// that may write jobs gives none a secret without secrets:use.
func TestSecretsNeedThePermissionToUseThem(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.makeSecret(t, b.ours, "billing", canary)
	_, plain := b.makeKey(t, b.ours, "jobs:read", "jobs:write", "jobs:trigger", "executions:read", "executions:control", "secrets:read", "secrets:write")
	_, entitled := b.makeKey(t, b.ours, "jobs:read", "jobs:write", "jobs:trigger", "executions:read", "executions:control", "secrets:use")
	call := func(token, method, path, body string) answer {
		r := request{method: method, path: base + path, token: token, body: body}
		if method == "PATCH" {
			r.header = map[string]string{"Content-Type": mergePatch}
		}
		return b.do(t, r)
	}
	const home, here = "https://example.com/a", "{{secret:billing}}"
	holder := "/jobs/" + read[api.Job](t, call(entitled, "POST", "/jobs", sending(home, here)), http.StatusCreated).ID.String()
	other := "/jobs/" + read[api.Job](t, call(plain, "POST", "/jobs", sending(home, "x")), http.StatusCreated).ID.String()
	once := "/jobs/" + read[api.Job](t, call(entitled, "POST", "/jobs", sending(home, here)), http.StatusCreated).ID.String()
	call(entitled, "PUT", once, sending(home, "x")) // version 1 refers to the secret, version 2 does not

	patch := func(config string) string { return `{"config":` + config + `}` }
	for name, r := range map[string]request{
		"create":                {method: "POST", path: "/jobs", body: sending(home, here)},
		"validate":              {method: "POST", path: "/jobs/validate", body: sending(home, here)},
		"unknown":               {method: "POST", path: "/jobs", body: sending(home, "{{secret:nobody-knows}}")},
		"validate unknown":      {method: "POST", path: "/jobs/validate", body: sending(home, "{{secret:nobody-knows}}")},
		"update":                {method: "PUT", path: other, body: sending(home, here)},
		"update unknown":        {method: "PUT", path: other, body: sending(home, "{{secret:nobody-knows}}")},
		"validate a stored one": {method: "POST", path: other + "/validate", body: sending(home, here)},
		"patch":                 {method: "PATCH", path: other, body: patch(`{"body":{"a":"` + here + `"}}`)},
		"restore":               {method: "POST", path: once + "/versions/1/restore"},
		"another host":          {method: "PUT", path: holder, body: sending("https://evil.example.com/a", here)},
		"another port":          {method: "PUT", path: holder, body: sending("https://example.com:8443/a", here)},
		"another scheme":        {method: "PUT", path: holder, body: sending("http://example.com/a", here)},
		"host by patch":         {method: "PATCH", path: holder, body: patch(`{"url":"https://evil.example.com/"}`)},
		"another type":          {method: "PUT", path: holder, body: strings.Replace(webhook, `"http","config":{"url":"https://example.com/"}`, `"function","config":{"functionName":"f","parameters":{"a":"`+here+`"}}`, 1)},
		"another place":         {method: "PUT", path: holder, body: sending(home+"?a="+here, here)},
		"trigger":               {method: "POST", path: holder + "/trigger", body: `{"parameters":{"body":"` + here + `"}}`},
		"trigger unknown":       {method: "POST", path: holder + "/trigger", body: `{"parameters":{"body":"{{secret:nobody-knows}}"}}`},
		"backfill":              {method: "POST", path: holder + "/backfills", body: `{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z","parameters":{"body":"` + here + `"}}`},
	} {
		e := refused(t, call(plain, r.method, r.path, r.body), http.StatusForbidden, "FORBIDDEN")
		if !strings.Contains(e.Error.Message, "secrets:use") || len(e.Error.Details) == 0 {
			t.Errorf("%s: the answer names no way out: %+v", name, e.Error)
		}
	}
	for _, r := range []request{ // one after the other
		{method: "PUT", path: holder, body: sending(home, here)},
		{method: "PUT", path: holder, body: sending("https://EXAMPLE.com/b", here)},
		{method: "PATCH", path: holder, body: `{"name":"renamed"}`},
		{method: "POST", path: holder + "/validate", body: sending(home, here)},
		{method: "POST", path: holder + "/validate"},
		{method: "POST", path: holder + "/versions/1/restore"},
		{method: "POST", path: holder + "/trigger", body: `{"parameters":{"body":"x"}}`},
		{method: "PUT", path: holder, body: sending(home, "x")},
		{method: "PUT", path: holder, body: sending("https://elsewhere.example.com/a", "x")},
	} {
		if got := call(plain, r.method, r.path, r.body); got.status/100 != 2 {
			t.Errorf("%s %s %s: %d %s", r.method, r.path, r.body, got.status, got.body)
		}
	}
}

// The parameters of an execution go to the target that they were given for.
func TestRetriedParametersKeepTheirTarget(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.makeSecret(t, b.ours, "billing", canary)
	_, plain := b.makeKey(t, b.ours, "jobs:read", "jobs:write", "jobs:trigger", "executions:read", "executions:control")
	developer := b.token(t, b.ours, identity.Developer)
	job := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: plain, body: sending("https://example.com/", "x")}), http.StatusCreated)
	path := base + "/jobs/" + job.ID.String()
	made := read[api.Execution](t, b.do(t, request{
		method: "POST", path: path + "/trigger", token: developer, body: `{"parameters":{"body":"{{secret:billing}}"}}`,
	}), http.StatusAccepted)
	if _, _, err := b.executions.Cancel(t.Context(), tenant.Actor{TenantID: b.ours.TenantID}, made.ID, ""); err != nil {
		t.Fatal(err)
	}
	retry := func(token string) answer {
		return b.do(t, request{method: "POST", path: base + "/executions/" + made.ID.String() + "/retry", token: token})
	}
	move := func(url string) {
		read[api.Job](t, b.do(t, request{method: "PUT", path: path, token: plain, body: sending(url, "x")}), http.StatusOK)
	}
	move("https://example.com/elsewhere")
	read[api.Execution](t, retry(plain), http.StatusAccepted)
	move("https://evil.example.com/")
	refused(t, retry(plain), http.StatusForbidden, "FORBIDDEN")
	bulk := b.do(t, request{method: "POST", path: base + "/executions/bulk/retry", token: plain, body: `{"ids":["` + made.ID.String() + `"]}`})
	if result := read[api.BulkResult](t, bulk, http.StatusOK); len(result.Faults) != 1 || result.Faults[0].Code != "FORBIDDEN" {
		t.Errorf("many at once: %s", bulk.body)
	}
	read[api.Execution](t, retry(developer), http.StatusAccepted)
}
