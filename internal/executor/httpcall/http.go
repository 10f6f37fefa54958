// Package httpcall runs jobs of type http: one call, judged by its status.
//
// It owns what such a job may say (url, method, headers, body, timeout,
// expectedStatusCode, retryOnStatusCodes, successWhen, signingKeys, auth), the headers that every target is
// told who calls by, and what is kept of an answer. It refuses headers that
// belong to the connection, to proxies or to us, and follows the rules of
// package egress for where a call may go. A target may see one attempt more
// than once after a crash; Idempotency-Key is the same in all attempts of an
// execution. Package executor's registry calls it.
package httpcall

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity/oidc"
	"github.com/scheduler-service/scheduler/internal/trace"
	"github.com/scheduler-service/scheduler/internal/version"
)

// Executor runs and checks jobs of type http.
type Executor struct {
	client     *egress.Client
	now        clock.Clock
	conditions *conditions
	// callbacks says that targets reach the API.
	callbacks bool
	// issuer makes the tokens that say who calls; nil makes none.
	issuer *oidc.Issuer
}

var _ executor.Checker = (*Executor)(nil)

// New makes an executor that calls through client. The clock serves a
// Retry-After that is a date.
func New(client *egress.Client, now clock.Clock) *Executor {
	return &Executor{client: client, now: now, conditions: &conditions{}}
}

// Validate lists every fault of a job's configuration. A host that is written
// as an address, or is localhost, is refused here where it may not be called;
// any other name is decided on when it is connected to.
func (e *Executor) Validate(config json.RawMessage) []fault.Field {
	c, faults := e.parse(config)
	if c.callback && !e.callbacks {
		faults = append(faults, fault.Field{Path: "config.completion", Rule: "unavailable", Message: noCallbacks})
	}
	if c.audience != "" && e.issuer == nil {
		faults = append(faults, fault.Field{Path: "config.auth", Rule: "unavailable", Message: noIssuer})
	}
	return append(faults, c.plainKeys()...)
}

// ValidateParameters lists every fault of a manual trigger's overrides: body
// replaces the body, headers and query set single headers and single
// parameters of the URL's query. Nothing else may be overridden.
func (e *Executor) ValidateParameters(config, parameters json.RawMessage) []fault.Field {
	c, faults := e.parse(config)
	if len(faults) > 0 {
		return faults
	}
	return c.override(parameters)
}

// Host is the host of a job's URL, without its port, for circuit breakers; empty for a job
// that leaves them out.
func (e *Executor) Host(config json.RawMessage) string {
	var c struct {
		URL     string `json:"url"`
		Breaker *bool  `json:"circuitBreaker"`
	}
	if json.Unmarshal(config, &c) != nil || c.Breaker != nil && !*c.Breaker {
		return ""
	}
	target, err := url.Parse(c.URL)
	if err != nil {
		return ""
	}
	return target.Hostname()
}

// Execute makes the call. Any 2xx status is a success unless the job says
// otherwise, by statuses or by a condition on the answer. The result is {statusCode, headers, body, bodyEncoding, truncated,
// bodyBytes, durationMs}, and there is one whenever the target answered. Where the job
// completes by callback, a 202 says that the target reports the end later.
func (e *Executor) Execute(ctx context.Context, run executor.Run) executor.Outcome {
	c, faults := e.parse(run.Config)
	if len(faults) == 0 {
		faults = c.override(run.Parameters)
	}
	if len(faults) > 0 {
		return executor.Outcome{Err: invalid(faults)}
	}
	ctx, limit, stop := run.Within(ctx, c.timeout)
	defer stop()
	req := c.request(ctx, run)
	if err := c.addCallback(req, run); err != nil {
		return executor.Outcome{Err: err}
	}
	if err := c.sign(req, run, e.now()); err != nil {
		return executor.Outcome{Err: err}
	}
	token, failure := e.authorize(req, c, run, e.now())
	if failure != nil {
		return executor.Outcome{Err: failure}
	}
	span := trace.Outgoing(req)
	defer span.End()
	started := clock.Start()
	resp, err := e.client.For(run.TenantID).Do(req, c.final)
	if err != nil {
		failure := callError(ctx, err, limit)
		span.Fail(string(failure.Type))
		return executor.Outcome{Err: failure}
	}
	defer resp.Body.Close() // nothing to do about it
	span.Answered(resp.StatusCode)
	if c.awaits(resp.StatusCode) {
		return executor.Outcome{Await: true, Heartbeat: c.heartbeat}
	}
	read, err := readAnswer(resp)
	read.forget(token)
	read.DurationMs = started.Elapsed().Milliseconds()
	out := executor.Outcome{Result: read.encode(), Err: c.judge(resp, e.now())}
	switch {
	case err != nil:
		out.Err = callError(ctx, errBroken, limit)
	case out.Err == nil:
		out.Err = c.meets(read)
	}
	return out
}

var errBroken = errors.New("the connection broke before the answer was complete")

// request is the call as net/http makes it.
func (c *call) request(ctx context.Context, run executor.Run) *http.Request {
	req := (&http.Request{
		Method: c.method, URL: c.target, Host: c.target.Host, Header: c.headers,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if len(c.body) > 0 {
		req.ContentLength = int64(len(c.body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.body)), nil }
		req.Body, _ = req.GetBody()
	}
	set := func(name, value string) { c.headers[name] = []string{value} }
	if c.contentType != "" && c.headers["Content-Type"] == nil {
		set("Content-Type", c.contentType)
	}
	if c.headers["User-Agent"] == nil {
		set("User-Agent", "scheduler-service/"+version.String())
	}
	set("X-Execution-Id", run.ExecutionID.String())
	set("X-Job-Id", run.JobID.String())
	set("X-Scheduled-At", run.ScheduledAt.UTC().Format(time.RFC3339Nano))
	set("X-Attempt", strconv.Itoa(run.Attempt))
	set("Idempotency-Key", run.ExecutionID.String())
	return req
}

// final tells which redirects are an answer that the job waits for, and so are
// not followed.
func (c *call) final(status int) bool { return c.expected.has(status) || c.retryOn.has(status) }

// callError says why there is no complete answer. A refused target is the
// job's own fault; everything else may pass.
func callError(ctx context.Context, err error, limit time.Duration) *executor.Error {
	var refused *egress.Blocked
	switch {
	case errors.As(err, &refused):
		return &executor.Error{Type: executor.ValidationError, Message: refused.Error()}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &executor.Error{Type: executor.Timeout, Message: fmt.Sprintf("no complete answer within %s", limit)}
	case ctx.Err() != nil:
		return &executor.Error{Type: executor.SystemError, Message: "the call was cancelled"}
	default:
		return &executor.Error{Type: executor.NetworkError, Message: err.Error()}
	}
}

// invalid is a configuration that was fine once, or was never asked about.
func invalid(faults []fault.Field) *executor.Error {
	var list []string
	for _, f := range faults {
		list = append(list, f.Path+": "+f.Message)
	}
	return &executor.Error{Type: executor.ValidationError, Message: strings.Join(list, "; ")}
}
