package httpcall

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/expr-lang/expr/vm"

	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/fault/suggest"
)

const (
	maxURL  = 4 << 10
	maxBody = 256 << 10
)

var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead}

// call is a job's configuration, read and with its defaults.
type call struct {
	target      *url.URL
	method      string
	headers     http.Header
	body        []byte
	contentType string // what the body is, where the job's headers do not say
	timeout     time.Duration
	expected    codes
	retryOn     codes // nil leaves retrying to the error's type
	condition   string
	program     *vm.Program // of the condition; nil is none
	signingKeys []string
	callback    bool          // the target reports the end after a 202
	heartbeat   time.Duration // how long it may be silent meanwhile; zero: any time
	audience    string        // of the token that says who calls; empty: there is none
}

// parse reads a configuration and lists everything that is wrong with it.
func (e *Executor) parse(config json.RawMessage) (*call, []fault.Field) {
	object := executor.ReadObject("config", config,
		"url", "method", "headers", "body", "timeout", "expectedStatusCode", "retryOnStatusCodes", "successWhen", "signingKeys",
		"completion", "heartbeatTimeout", "auth", "circuitBreaker")
	c := &call{method: http.MethodGet, headers: http.Header{}, expected: codes{{200, 299}}}
	c.target = e.readURL(object)
	if object.Read("method", &c.method, "a text") && !slices.Contains(methods, c.method) {
		object.Fault("method", "enum", suggest.OneOf(c.method, methods))
	}
	readHeaders(object, c.headers)
	c.readBody(object)
	c.timeout = object.Seconds("timeout")
	c.readStatuses(object)
	c.readCondition(object, e.conditions)
	c.readSigningKeys(object)
	c.readCompletion(object)
	c.readAuth(object)
	var breaker bool // Host reads it
	object.Read("circuitBreaker", &breaker, "true or false")
	return c, object.Faults()
}

func (e *Executor) readURL(object *executor.Object) *url.URL {
	var raw string
	if !object.Require("url", &raw, "an http or https URL") {
		return nil
	}
	if len(raw) > maxURL {
		object.Fault("url", "length", "must have at most 4096 bytes")
		return nil
	}
	target, err := url.Parse(raw)
	if err != nil { // its text holds the URL, which may hold a secret
		object.Fault("url", "syntax", "is not a valid URL")
		return nil
	}
	var refused *egress.Blocked
	if err := e.client.Check(target); errors.As(err, &refused) {
		object.Fault("url", refused.Rule, refused.Error())
	}
	return target
}

// readBody reads a body: a text is sent as it stands, any other value as JSON.
func (c *call) readBody(object *executor.Object) {
	var raw json.RawMessage
	if !object.Read("body", &raw, "a text or any JSON value") {
		return
	}
	if c.method == http.MethodHead {
		object.Fault("body", "conflict", "a HEAD request has no body")
	}
	c.body, c.contentType = raw, "application/json"
	if raw[0] == '"' {
		var text string
		_ = json.Unmarshal(raw, &text) // it was read as valid JSON before
		c.body, c.contentType = []byte(text), "text/plain; charset=utf-8"
	}
	if len(c.body) > maxBody {
		object.Fault("body", "length", "must have at most 262144 bytes")
	}
}

func (c *call) readStatuses(object *executor.Object) {
	expected, given := readCodes(object, "expectedStatusCode")
	if given {
		c.expected = expected
	}
	c.retryOn, _ = readCodes(object, "retryOnStatusCodes")
	if given && c.expected.overlaps(c.retryOn) {
		object.Fault("retryOnStatusCodes", "conflict", "holds a status that expectedStatusCode holds too")
	}
}

// override applies the parameters of a manual trigger, and lists what is wrong
// with them.
func (c *call) override(parameters json.RawMessage) []fault.Field {
	if len(parameters) == 0 || string(parameters) == "null" {
		return nil
	}
	object := executor.ReadObject("parameters", parameters, "body", "headers", "query")
	c.readBody(object)
	readHeaders(object, c.headers)
	var query map[string]string
	if object.Read("query", &query, "an object of texts") && len(query) > 0 {
		values := c.target.Query()
		for name, value := range query {
			values.Set(name, value)
		}
		c.target.RawQuery = values.Encode()
		if len(c.target.String()) > maxURL {
			object.Fault("query", "length", "makes the URL longer than 4096 bytes")
		}
	}
	return object.Faults()
}
