package httpcall

import (
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/signature"
)

// keyReference is how a job names a signing key: a secret's name and nothing else, so that
// no definition holds a key.
var keyReference = regexp.MustCompile(`^\{\{secret:[^{}]+\}\}$`)

// readSigningKeys reads the member signingKeys. Before a run it holds references, in a
// run the keys themselves.
func (c *call) readSigningKeys(object *executor.Object) {
	if !object.Read("signingKeys", &c.signingKeys, "a list of texts") {
		return
	}
	if n := len(c.signingKeys); n < 1 || n > signature.MaxKeys {
		object.Fault("signingKeys", "length", "must hold 1 or 2 keys")
	}
}

// plainKeys lists the signing keys that a definition does not refer to.
func (c *call) plainKeys() (faults []fault.Field) {
	for i, text := range c.signingKeys {
		if !keyReference.MatchString(text) {
			faults = append(faults, fault.Field{
				Path: fmt.Sprintf("config.signingKeys[%d]", i), Rule: "reference",
				Message: "must be {{secret:name}} alone: store the key as a secret",
			})
		}
	}
	return faults
}

// sign adds the headers of a signed call. The message is the execution, so that a target
// that has seen it recognises a further attempt.
func (c *call) sign(req *http.Request, run executor.Run, now time.Time) *executor.Error {
	keys, err := signature.ParseKeys(c.signingKeys...)
	if err != nil {
		return &executor.Error{Type: executor.ValidationError, Message: "config.signingKeys: " + err.Error()}
	}
	keys.Sign(req.Header, run.ExecutionID.String(), now, c.body)
	return nil
}
