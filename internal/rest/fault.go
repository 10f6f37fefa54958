package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
)

// maxDetails bounds the fields of an answer to an operation that is not known.
const maxDetails = 50

// serviceName is what we are called in answers to other services.
const serviceName = "scheduler-service"

// answers is the one table from fault to HTTP. The first line that fits is the
// answer: of the fault's kind, and of its code where the line names one. A
// fault without a code gets the line's.
var answers = []struct {
	kind   fault.Kind
	only   fault.Code // the code that the line is for; empty: all
	status int
	code   fault.Code
}{
	{fault.Invalid, fault.CodeMethodNotAllowed, http.StatusMethodNotAllowed, fault.CodeMethodNotAllowed},
	{fault.Invalid, fault.CodeNotAcceptable, http.StatusNotAcceptable, fault.CodeNotAcceptable},
	{fault.Invalid, fault.CodeBodyTooLarge, http.StatusRequestEntityTooLarge, fault.CodeBodyTooLarge},
	{fault.Invalid, fault.CodeUnsupportedMediaType, http.StatusUnsupportedMediaType, fault.CodeUnsupportedMediaType},
	{fault.Invalid, fault.CodeStatsRangeTooLarge, http.StatusUnprocessableEntity, fault.CodeStatsRangeTooLarge},
	{fault.Invalid, fault.CodeInvalidModule, http.StatusUnprocessableEntity, fault.CodeInvalidModule},
	{fault.Invalid, "", http.StatusBadRequest, fault.CodeValidationFailed},
	{fault.Unauthenticated, "", http.StatusUnauthorized, fault.CodeUnauthorized},
	{fault.Forbidden, "", http.StatusForbidden, fault.CodeForbidden},
	{fault.NotFound, "", http.StatusNotFound, fault.CodeNotFound},
	{fault.Conflict, fault.CodePreconditionFailed, http.StatusPreconditionFailed, fault.CodePreconditionFailed},
	{fault.Conflict, fault.CodeIdempotencyKeyReused, http.StatusUnprocessableEntity, fault.CodeIdempotencyKeyReused},
	{fault.Conflict, "", http.StatusConflict, fault.CodeConflict},
	{fault.TooMany, "", http.StatusTooManyRequests, fault.CodeRateLimited},
	{fault.Unavailable, "", http.StatusServiceUnavailable, fault.CodeUnavailable},
	{fault.Internal, "", http.StatusInternalServerError, fault.CodeInternalError},
}

// refuse answers a request with an error: the only place that writes a body
// which is not a handler's. It logs the error, since nobody does after it.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	c := callOf(r.Context())
	f := asFault(err)
	status, code := answerTo(f)
	c.refused = f.Kind.String()
	s.logRefusal(r.Context(), f, status, code)
	if seen, ok := w.(interface{ Status() int }); ok && seen.Status() != 0 {
		return // the answer has begun; all that is left is to end it
	}
	switch f.Kind {
	case fault.Internal:
		f = &fault.Error{Message: "something went wrong on our side; quote request " + c.id + " when you report it"}
	case fault.Unauthenticated:
		w.Header().Set("WWW-Authenticate", challenge(r))
	case fault.TooMany, fault.Unavailable:
		f = s.timed(f)
		w.Header().Set("Retry-After", strconv.Itoa(wholeSeconds(max(f.RetryAfter, time.Second))))
	}
	if status == http.StatusRequestEntityTooLarge {
		w.Header().Set("Connection", "close") // the rest of the body is not read
	}
	s.writeError(w, r, status, code, f)
}

// timed is a fault of a limit whose reset is only known as a wait, with the reset.
func (s *server) timed(f *fault.Error) *fault.Error {
	if f.Limit == nil || !f.Limit.Reset.IsZero() || f.RetryAfter == 0 {
		return f
	}
	now := s.Clock()
	e := fault.Exceeded(fault.Limit{Name: f.Limit.Name, Value: f.Limit.Value, Reset: now.Add(f.RetryAfter)}, f.Message, now)
	e.Code = f.Code
	return e
}

// wholeSeconds rounds up: nobody should come back too early.
func wholeSeconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

func (s *server) writeError(w http.ResponseWriter, r *http.Request, status int, code fault.Code, f *fault.Error) {
	limit := maxDetails
	if c := callOf(r.Context()); c.operation != nil {
		limit = c.operation.MaxFaults
	}
	details := make([]api.ErrorDetail, 0, len(f.Fields))
	for _, field := range f.Fields[:min(len(f.Fields), limit)] {
		details = append(details, api.ErrorDetail{Field: field.Path, Rule: field.Rule, Message: field.Message})
	}
	var answer any
	if isInternal(r.URL.Path) {
		answer = serviceError(code, f, details, s.Clock())
	} else {
		public := api.Error{Path: r.URL.Path, Timestamp: s.Clock()}
		public.Error.Code, public.Error.Message, public.Error.Details = string(code), f.Message, details
		public.Error.Limit = viewLimit(f.Limit)
		answer = public
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false) // it is no page (nosniff)
	_ = encoder.Encode(answer)   // fails only where the client is gone
}

// serviceError is the form of errors below /internal.
func serviceError(code fault.Code, f *fault.Error, details []api.ErrorDetail, now time.Time) api.ServiceError {
	answer := api.ServiceError{ErrorCode: string(code), Message: f.Message, Timestamp: now, ServiceName: serviceName, Limit: viewLimit(f.Limit)}
	if len(details) > 0 {
		answer.Details = &details
	}
	return answer
}

func viewLimit(l *fault.Limit) *api.LimitMet {
	if l == nil {
		return nil
	}
	view := api.LimitMet{Name: l.Name, Value: l.Value}
	if !l.Reset.IsZero() {
		view.ResetAt = new(l.Reset.UTC())
	}
	return &view
}

// asFault finds the fault in an error. An error without one is Internal, except for a
// deadline that passed and a client that left.
func asFault(err error) *fault.Error {
	var f *fault.Error
	switch {
	case errors.As(err, &f):
		if f.Kind == fault.Internal || f.Kind > fault.Unavailable {
			return &fault.Error{Cause: err} // its code and message are for us
		}
		return f
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fault.Wrap(fault.Unavailable, "", "the request took too long", err)
	default:
		return &fault.Error{Cause: err}
	}
}

// answerTo looks a fault up in the table.
func answerTo(f *fault.Error) (status int, code fault.Code) {
	for _, answer := range answers {
		if answer.kind == f.Kind && (answer.only == "" || answer.only == f.Code) {
			if f.Code != "" {
				return answer.status, f.Code
			}
			return answer.status, answer.code
		}
	}
	return http.StatusInternalServerError, fault.CodeInternalError
}

// loggedPath is how many bytes of a path a line of the log holds. A query may hold
// what is not meant for logs.
const loggedPath = 200

// logRefusal writes one line: what only we can mend is an error, what passes a
// warning, and what callers mend is worth knowing of.
func (s *server) logRefusal(ctx context.Context, f *fault.Error, status int, code fault.Code) {
	operation := "unknown"
	if c := callOf(ctx); c.operation != nil {
		operation = c.operation.ID
	}
	switch {
	case f.Kind == fault.Internal:
		s.Log.ErrorContext(ctx, "request failed", "operation", operation, "error", f.Cause)
	case errors.Is(ctx.Err(), context.Canceled):
		s.Log.InfoContext(ctx, "client left before the answer", "operation", operation)
	case f.Kind == fault.Unavailable:
		s.Log.WarnContext(ctx, "request could not be served", "operation", operation, "error", f)
	default:
		c, path := callOf(ctx), ""
		if c.operation != nil && !c.operation.HasSecretPath() { // others hold a token, or whatever somebody pasted
			path = c.url.Path[:min(len(c.url.Path), loggedPath)]
		}
		s.Log.InfoContext(ctx, "request refused", "operation", operation, "status", status, "code", code,
			"method", c.method, "path", path, "subject", c.who.Actor.Subject, "from", c.from.String())
	}
}

// challenge is what RFC 6750 (section 3) wants to be said with a 401.
func challenge(r *http.Request) string {
	if isInternal(r.URL.Path) {
		return "ServiceToken"
	}
	if r.Header.Get("Authorization") == "" {
		return "Bearer"
	}
	return `Bearer error="invalid_token"`
}

// refuseUndecoded answers what the contract allows and Go's types cannot hold,
// such as the whole number 1e2.
func (s *server) refuseUndecoded(w http.ResponseWriter, r *http.Request, err error) {
	s.refuse(w, r, wrong(undecoded(err)))
}

func undecoded(err error) fault.Field {
	field := fault.Field{Path: "body", Rule: "type", Message: "cannot be read as what is described"}
	var typed *json.UnmarshalTypeError
	var parameter *api.InvalidParamFormatError
	switch {
	case errors.As(err, &typed):
		field.Path, field.Message = typed.Field, fmt.Sprintf("%s cannot be read here; write whole numbers without point and exponent", typed.Value)
	case errors.As(err, &parameter):
		field.Path = parameter.ParamName
	}
	return field
}

// isOutdated reports whether somebody changed meanwhile what was to be changed.
func isOutdated(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == fault.CodePreconditionFailed
}

// below is an error whose fields stand within another one.
func below(name string, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Invalid {
		return err
	}
	fields := slices.Clone(f.Fields)
	for i := range fields {
		fields[i].Path = name + "." + fields[i].Path
	}
	return wrong(fields...)
}

// wrong is the fault of a request with these fields. The code is the first that
// applies: of the expression, of the config, of anything. A config that is
// missing is one of several fields that are.
func wrong(fields ...fault.Field) error {
	code := fault.CodeValidationFailed
	for _, field := range fields {
		switch {
		case field.Path == "cronExpression":
			code = fault.CodeInvalidCronExpression
		case field.Path == "config" && field.Rule == "required":
		case code == fault.CodeValidationFailed && (field.Path == "config" || strings.HasPrefix(field.Path, "config.") || strings.HasPrefix(field.Path, "config[")):
			code = fault.CodeInvalidJobConfig
		}
	}
	return fault.Wrong(code, fields...)
}

// seeOther sends a browser to another page, which does not learn where from.
func seeOther(w http.ResponseWriter, address string) {
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Location", address)
	w.WriteHeader(http.StatusSeeOther)
}
