package httpcall

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/identity/oidc"
)

const maxAudience = 255

// noIssuer says why no call can prove who makes it here.
const noIssuer = "cannot be used here: the operator has not set PUBLIC_URL and OIDC_KEYS"

// WithIssuer is the same executor where calls may carry tokens of an issuer; a nil one
// makes none.
func (e *Executor) WithIssuer(issuer *oidc.Issuer) *Executor {
	with := *e
	with.issuer = issuer
	return &with
}

// readAuth reads how a call proves who makes it: {"type": "oidc", "audience": "…"}. The
// headers are read before.
func (c *call) readAuth(object *executor.Object) {
	var raw json.RawMessage
	if !object.Read("auth", &raw, "an object") {
		return
	}
	auth, kind := executor.ReadObject("config.auth", raw, "type", "audience"), ""
	if auth.Require("type", &kind, `"oidc"`) && kind != "oidc" {
		auth.Fault("type", "enum", `must be "oidc"`)
	}
	if auth.Require("audience", &c.audience, "a text") && (c.audience == "" || len(c.audience) > maxAudience || !isValue(c.audience)) {
		auth.Fault("audience", "length", "must have 1 to 255 bytes and no control characters")
	}
	object.Add(auth.Faults()...)
	if c.headers["Authorization"] != nil {
		object.Fault("auth", "conflict", "sets the header Authorization, which headers holds too")
	}
}

// authorize adds the token of an attempt, and returns it.
func (e *Executor) authorize(req *http.Request, c *call, run executor.Run, now time.Time) (token string, failure *executor.Error) {
	if c.audience == "" {
		return "", nil
	}
	if e.issuer == nil {
		return "", &executor.Error{Type: executor.ValidationError, Message: "config.auth: " + noIssuer}
	}
	token, err := e.issuer.Sign(oidc.Run{
		Tenant: run.TenantID, Job: run.JobID, Execution: run.ExecutionID, Attempt: run.Attempt, Audience: c.audience,
	}, now)
	if err != nil {
		return "", &executor.Error{Type: executor.SystemError, Message: "no token could be made"}
	}
	req.Header["Authorization"] = []string{"Bearer " + token}
	return token, nil
}

// forget takes a token out of an answer: a target may repeat what it was sent.
func (a *answer) forget(token string) {
	if token == "" {
		return
	}
	a.raw = bytes.ReplaceAll(a.raw, []byte(token), []byte("***"))
	for name, value := range a.Headers {
		a.Headers[name] = strings.ReplaceAll(value, token, "***")
	}
}
