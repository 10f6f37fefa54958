// Package client makes the generated client pleasant to call: it signs requests,
// repeats those that may be repeated, and turns refusals into errors.
//
// It owns nothing of the contract: every operation is a method of the generated client
// that Client embeds.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
)

// Version is that of this package and of the TypeScript client.
const Version = "0.2.0"

// Config says how to reach the service. URL and Token are needed.
type Config struct {
	URL   string
	Token string // a JWT or an API key
	// HTTP makes the calls; nil: one that gives up after 30 s.
	HTTP *http.Client
	// Attempts is how often a request is sent at most; 0: 4.
	Attempts int
	// MaxWait bounds how long Retry-After may make a call wait; 0: a minute. Beyond it
	// the refusal is returned.
	MaxWait time.Duration
}

// Client calls the service. A method whose name ends in WithResponse returns a nil error
// only if the service did what it was asked for; the answer is in the field of its
// status, such as JSON200.
type Client struct {
	*api.ClientWithResponses
	base *url.URL
	send doer
}

// New makes a client.
func New(c Config) (*Client, error) {
	c.Attempts, c.MaxWait = cmp.Or(c.Attempts, 4), cmp.Or(c.MaxWait, time.Minute)
	if c.HTTP == nil {
		c.HTTP = &http.Client{Timeout: 30 * time.Second}
	}
	base, err := url.Parse(c.URL)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("client: %q is not the address of a service, such as http://localhost:3009", c.URL)
	}
	generated, err := api.NewClientWithResponses(c.URL, api.WithHTTPClient(doer{c}))
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return &Client{generated, base, doer{c}}, nil
}

// Call is a request that is written out: a path of the contract with its ids in place,
// its query, its headers and its body (nil: none). It is for programs that pass an
// answer on as it came, with fields that this client does not know yet; others use the
// methods. It answers the body, and returns an *Error for a refusal.
func (c *Client) Call(ctx context.Context, method, path string, query url.Values, header http.Header, body []byte) ([]byte, error) {
	answer, err := c.Open(ctx, method, path, query, header, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Close() }() // it is read
	text, err := io.ReadAll(answer)
	if err != nil {
		return nil, fmt.Errorf("client: read the answer: %w", err)
	}
	return text, nil
}

// Open is Call for an answer that is read while it comes. The caller closes it.
func (c *Client) Open(ctx context.Context, method, path string, query url.Values, header http.Header, body []byte) (io.ReadCloser, error) {
	where := c.base.JoinPath(path)
	where.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, where.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	answer, err := c.send.Do(r)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// Error is a refusal of the service.
type Error struct {
	Status    int
	Code      string // what a program branches on, such as JOB_NOT_FOUND
	Message   string // for a person
	Details   []api.ErrorDetail
	Limit     *api.LimitMet // the limit that the request met; nil: none
	RequestID string        // what the service's log has
	// RetryAfter is how long to wait before asking again; 0: it was not said.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string {
	text := fmt.Sprintf("scheduler: %d %s: %s", e.Status, e.Code, e.Message)
	for _, d := range e.Details {
		text += fmt.Sprintf("; %s: %s", d.Field, d.Message)
	}
	return text
}

// Key is a new Idempotency-Key. With one, a request that makes something is repeated
// without making it twice.
func Key() *string {
	key := uuid.NewString()
	return &key
}

// HTTP is the configuration of a job that calls an address.
func HTTP(c api.HTTPConfig) (config api.JobConfig) {
	_ = config.FromHTTPConfig(c) // its fields always encode
	return config
}

// Function is the configuration of a job that calls a function.
func Function(c api.FunctionConfig) (config api.JobConfig) {
	_ = config.FromFunctionConfig(c) // its fields always encode
	return config
}

// Javascript is the configuration of a job that runs a script.
func Javascript(c api.JavascriptConfig) (config api.JobConfig) {
	_ = config.FromJavascriptConfig(c) // its fields always encode
	return config
}

// Wasm is the configuration of a job that runs a module that the tenant uploaded.
func Wasm(c api.WasmConfig) (config api.JobConfig) {
	_ = config.FromWasmConfig(c) // its fields always encode
	return config
}

// Items iterates over all items of a list, page by page. An error ends it.
func Items[T any](page func(cursor *string) (items []T, next *string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var cursor *string
		for {
			items, next, err := page(cursor)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == nil {
				return
			}
			cursor = next
		}
	}
}

// Jobs iterates over the jobs that fit.
func (c *Client) Jobs(ctx context.Context, p api.ListJobsParams) iter.Seq2[api.Job, error] {
	return Items(func(cursor *string) ([]api.Job, *string, error) {
		p.Cursor = cursor
		got, err := c.ListJobsWithResponse(ctx, &p)
		if err != nil {
			return nil, nil, err
		}
		return got.JSON200.Items, got.JSON200.NextCursor, nil
	})
}

// Executions iterates over the executions that fit.
func (c *Client) Executions(ctx context.Context, p api.ListExecutionsParams) iter.Seq2[api.Execution, error] {
	return Items(func(cursor *string) ([]api.Execution, *string, error) {
		p.Cursor = cursor
		got, err := c.ListExecutionsWithResponse(ctx, &p)
		if err != nil {
			return nil, nil, err
		}
		return got.JSON200.Items, got.JSON200.NextCursor, nil
	})
}

// doer sends the requests of the generated client.
type doer struct{ c Config }

// Do sends a request until it is answered, and returns an *Error for a refusal.
func (d doer) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+d.c.Token)
	r.Header.Set("User-Agent", "scheduler-go/"+Version)
	for attempt := 1; ; attempt++ {
		answer, err := d.c.HTTP.Do(r)
		var refusal *Error
		if err == nil {
			if answer.StatusCode < http.StatusBadRequest {
				return answer, nil
			}
			refusal = read(answer)
			err = refusal
		}
		wait, again := d.again(r, refusal, attempt)
		if !again || r.Context().Err() != nil {
			return nil, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.Context().Done():
			timer.Stop()
			return nil, err
		}
		if r.GetBody != nil {
			if r.Body, err = r.GetBody(); err != nil {
				return nil, fmt.Errorf("client: %w", err)
			}
		}
	}
}

// again says whether to send a request once more, and after how long. One that was
// refused because there were too many did nothing; another may have been done, and is
// repeated only if that changes nothing.
func (d doer) again(r *http.Request, refusal *Error, attempt int) (wait time.Duration, again bool) {
	repeatable := r.Method != http.MethodPost && r.Method != http.MethodPatch || r.Header.Get("Idempotency-Key") != ""
	wait = 100 * time.Millisecond << attempt
	switch {
	case attempt >= d.c.Attempts:
		return 0, false
	case refusal == nil: // no answer
		return wait, repeatable
	case refusal.Status == http.StatusTooManyRequests && refusal.Code == "RATE_LIMITED":
		again = true
	case refusal.Status == http.StatusServiceUnavailable || refusal.Status == http.StatusBadGateway || refusal.Status == http.StatusGatewayTimeout:
		again = repeatable
	}
	wait = max(wait, refusal.RetryAfter)
	return wait, again && wait <= d.c.MaxWait
}

// most bounds how much of a refusal is read.
const most = 1 << 20

func read(answer *http.Response) *Error {
	defer func() { _ = answer.Body.Close() }() // it is read
	e := &Error{Status: answer.StatusCode, Message: http.StatusText(answer.StatusCode), RequestID: answer.Header.Get("X-Request-Id")}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, most))
	var body api.Error
	if err == nil && strings.Contains(answer.Header.Get("Content-Type"), "json") && json.NewDecoder(bytes.NewReader(text)).Decode(&body) == nil && body.Error.Code != "" {
		e.Code, e.Message, e.Details, e.Limit = body.Error.Code, body.Error.Message, body.Error.Details, body.Error.Limit
	}
	return e
}
