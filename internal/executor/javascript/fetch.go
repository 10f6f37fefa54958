package javascript

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/httpcall"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wire"
	"github.com/scheduler-service/scheduler/internal/trace"
	"github.com/scheduler-service/scheduler/internal/version"
)

const (
	maxURL        = 4 << 10
	maxAnswer     = 1 << 20
	maxHeaders    = 64
	maxHeaderSize = 16 << 10
)

var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead}

// caller is the host of a run: it makes the calls that the script asks for.
type caller struct {
	executor.Reporter
	client *egress.Client
	run    executor.Run
}

// Fetch makes a call. A refusal and a failure are the response's error, whose text the
// script may see.
func (c *caller) Fetch(ctx context.Context, asked wire.Request) wire.Response {
	request, err := c.request(ctx, asked)
	if err != nil {
		return wire.Response{Error: err.Error()}
	}
	span := trace.Outgoing(request)
	defer span.End()
	answer, err := c.client.For(c.run.TenantID).Do(request, nil)
	if err != nil {
		span.Fail(string(executor.NetworkError))
		return wire.Response{Error: err.Error()}
	}
	defer answer.Body.Close() // nothing to do about it
	span.Answered(answer.StatusCode)
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return wire.Response{Error: "the connection broke before the answer was complete"}
	case len(body) > maxAnswer:
		return wire.Response{Error: fmt.Sprintf("the answer has more than %d bytes", maxAnswer)}
	}
	response := wire.Response{URL: answer.Request.URL.String(), Status: answer.StatusCode, Body: string(body)}
	if response.Binary = !utf8.Valid(body); response.Binary {
		response.Body = base64.StdEncoding.EncodeToString(body)
	}
	for name, values := range answer.Header {
		for _, value := range values {
			response.Headers = append(response.Headers, [2]string{strings.ToLower(name), strings.ToValidUTF8(value, "\uFFFD")})
		}
	}
	return response
}

// request is the call as net/http makes it.
func (c *caller) request(ctx context.Context, asked wire.Request) (*http.Request, error) {
	target, err := url.Parse(asked.URL)
	switch {
	case len(asked.URL) > maxURL:
		return nil, fmt.Errorf("the URL has more than %d bytes", maxURL)
	case err != nil || target.Host == "": // its text holds the URL, which may hold a secret
		return nil, errors.New("the URL is not a valid absolute URL")
	case !slices.Contains(methods, asked.Method):
		return nil, fmt.Errorf("the method is none of %s", strings.Join(methods, ", "))
	case asked.Body != nil && (asked.Method == http.MethodGet || asked.Method == http.MethodHead):
		return nil, fmt.Errorf("a %s request has no body", asked.Method)
	}
	var body io.Reader
	if asked.Body != nil {
		body = strings.NewReader(*asked.Body)
	}
	request, err := http.NewRequestWithContext(ctx, asked.Method, asked.URL, body)
	if err != nil {
		return nil, errors.New("the URL is not a valid absolute URL")
	}
	size := 0
	for name, value := range asked.Headers {
		if size += len(name) + len(value); size > maxHeaderSize || len(asked.Headers) > maxHeaders {
			return nil, fmt.Errorf("there may be %d headers of %d bytes together", maxHeaders, maxHeaderSize)
		}
		// Each call of a script is another one, so it has a key of its own, if any.
		if !strings.EqualFold(name, "Idempotency-Key") && !httpcall.Sendable(name, value) {
			return nil, fmt.Errorf("the header %.60q cannot be sent", name)
		}
		request.Header.Set(name, value)
	}
	for name, value := range map[string]string{
		"X-Execution-Id": c.run.ExecutionID.String(), "X-Job-Id": c.run.JobID.String(), "X-Attempt": strconv.Itoa(c.run.Attempt),
	} {
		request.Header.Set(name, value)
	}
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", "scheduler-service/"+version.String())
	}
	if body != nil && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "text/plain;charset=UTF-8")
	}
	return request, nil
}
