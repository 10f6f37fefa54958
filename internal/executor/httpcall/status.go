package httpcall

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/executor"
)

// maxRetryAfter bounds how long a target may keep us away.
const maxRetryAfter = time.Hour

// span is a range of status codes, both ends included.
type span struct{ low, high int }

// codes is a set of status codes.
type codes []span

func (c codes) has(status int) bool {
	for _, s := range c {
		if s.low <= status && status <= s.high {
			return true
		}
	}
	return false
}

func (c codes) overlaps(other codes) bool {
	for _, a := range c {
		for _, b := range other {
			if a.low <= b.high && b.low <= a.high {
				return true
			}
		}
	}
	return false
}

// readCodes reads a code, a range such as "200-299" or "2xx", or a list of
// these, and tells whether the member is there.
func readCodes(object *executor.Object, name string) (codes, bool) {
	var raw json.RawMessage
	if !object.Read(name, &raw, "a status code") {
		return nil, false
	}
	const rule = `must be a code from 100 to 599, or a range such as "200-299" or "2xx"`
	set := codes{}
	if raw[0] != '[' {
		s, ok := readSpan(raw)
		if ok {
			return append(set, s), true
		}
		object.Fault(name, "status", rule)
		return set, true
	}
	var list []json.RawMessage
	_ = json.Unmarshal(raw, &list) // it was read as valid JSON before
	if len(list) == 0 || len(list) > 100 {
		object.Fault(name, "length", "must hold 1 to 100 codes or ranges")
	}
	for i, item := range list {
		s, ok := readSpan(item)
		if !ok {
			object.Fault(fmt.Sprintf("%s[%d]", name, i), "status", rule)
			continue
		}
		set = append(set, s)
	}
	return set, true
}

func readSpan(raw json.RawMessage) (span, bool) {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	low, high, ranged := strings.Cut(text, "-")
	if len(text) == 3 && strings.EqualFold(text[1:], "xx") {
		low, high = text[:1]+"00", text[:1]+"99"
	} else if !ranged {
		high = low
	}
	from, err1 := strconv.ParseUint(strings.TrimSpace(low), 10, 16)
	to, err2 := strconv.ParseUint(strings.TrimSpace(high), 10, 16)
	if err1 != nil || err2 != nil || from < 100 || to > 599 || from > to {
		return span{}, false
	}
	return span{int(from), int(to)}, true
}

// judge says what a status means: nil is success. Where the job lists
// retryOnStatusCodes, a status in it fails and is retried even where it is a
// 2xx, and any other unexpected status is not; without a list 408, 425, 429
// and 5xx are retried.
func (c *call) judge(resp *http.Response, now time.Time) *executor.Error {
	status := resp.StatusCode
	again := c.retryOn.has(status)
	if c.expected.has(status) && !again {
		return nil
	}
	failure := &executor.Error{
		Type:       typeOf(status),
		Message:    strings.TrimSpace(fmt.Sprintf("unexpected status %d %s", status, http.StatusText(status))),
		RetryAfter: retryAfter(resp.Header.Get("Retry-After"), now),
	}
	if c.retryOn != nil {
		failure.Retry = &again
	}
	return failure
}

func typeOf(status int) executor.ErrorType {
	switch {
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return executor.SystemError
	default:
		return executor.UserError
	}
}

// retryAfter reads the header Retry-After (RFC 9110, section 10.2.3): seconds
// or a date. A value that cannot be read or has passed is zero; more than an hour is an
// hour.
func retryAfter(value string, now time.Time) time.Duration {
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(date.Sub(now), 0), maxRetryAfter)
}
