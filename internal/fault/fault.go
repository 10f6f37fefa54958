// Package fault is the vocabulary of errors that callers branch on.
//
// It owns eight kinds, the codes, and the fields that an invalid request got wrong. It
// refuses everything else: an error that no caller treats differently stays an
// ordinary wrapped error and counts as Internal. The package that turns a kind into an HTTP
// answer is package rest, in one table; who turns a PostgreSQL code into a
// kind is package postgres, in one function.
package fault

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind says what the caller can do about an error.
type Kind uint8

// The kinds, from what the caller can mend to what only we can.
const (
	Internal        Kind = iota // a defect or an unexpected failure; nothing for the caller to mend
	Invalid                     // the request is wrong; Fields say where
	Unauthenticated             // who asks is not known
	Forbidden                   // who asks is known and may not
	NotFound                    // there is no such thing, or it belongs to somebody else
	Conflict                    // the thing's state does not allow it, or it changed meanwhile
	TooMany                     // a limit is met; RetryAfter says when to come back
	Unavailable                 // a dependency is away; the same request may succeed later
)

// String is the kind's name, for logs.
func (k Kind) String() string {
	names := [...]string{"internal", "invalid", "unauthenticated", "forbidden", "not_found", "conflict", "too_many", "unavailable"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Field names one wrong part of a request.
type Field struct {
	// Path is where it stands: a JSON name with dots and indexes
	// ("retryConfig.maxRetries", "tags[3]"), or the name of a parameter.
	Path string
	// Rule is the rule that was broken, in one word ("required", "maximum").
	Rule string
	// Message says what is wrong and what would be right, for a person.
	Message string
	// Meant is the path of the field that an unknown name was taken for; it is not shown.
	Meant string
}

// String is the field as a sentence. Messages that begin with a verb say something
// of the field, the others stand by themselves.
func (f Field) String() string {
	verb, _, _ := strings.Cut(f.Message, " ")
	switch verb {
	case "must", "is", "are", "has", "have", "holds", "stands", "lies", "cannot", "does", "names", "refers", "needs", "may", "contains", "comes", "drop", "differs":
		return f.Path + " " + f.Message
	}
	return f.Path + ": " + f.Message
}

// Limit is a bound that a request met.
type Limit struct {
	Name  string    // as the contract names it, such as maxJobs
	Value int64     // what is allowed
	Reset time.Time // when waiting helps; zero: it does not
}

// Error is an error with a kind. The zero value is an internal error.
type Error struct {
	Kind Kind
	// Code, where empty, is the kind's general code.
	Code Code
	// Message is for the client and names no inner detail.
	Message string
	// Fields lists every wrong part of an Invalid request.
	Fields []Field
	// RetryAfter, where not zero, is how long to wait before asking again.
	RetryAfter time.Duration
	// Limit, where not nil, is the bound that was met.
	Limit *Limit
	// Cause is for the log alone; it is never shown to a client.
	Cause error
}

// Error joins the message and, for the log, the cause.
func (e *Error) Error() string {
	text := e.Message
	if text == "" {
		text = e.Kind.String()
	}
	for i, f := range e.Fields {
		if i == 0 && e.Kind == Invalid {
			text = f.String() // which the message says too
			continue
		}
		text += "; " + f.String()
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap gives the cause to errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Cause }

// New makes an error of a kind with the code and the message that a client sees.
func New(kind Kind, code Code, message string) *Error {
	return &Error{Kind: kind, Code: code, Message: message}
}

// Wrap makes an error of a kind around a cause that only the log shows.
func Wrap(kind Kind, code Code, message string, cause error) *Error {
	return &Error{Kind: kind, Code: code, Message: message, Cause: cause}
}

// Wrong makes an Invalid error that lists fields. Its message is the first of them,
// so that a person who reads only that can mend something.
func Wrong(code Code, fields ...Field) *Error {
	e := &Error{Kind: Invalid, Code: code, Message: "the request is not valid", Fields: fields}
	if len(fields) > 0 {
		e.Message = fields[0].String()
	}
	if n := len(fields) - 1; n > 0 {
		e.Message += fmt.Sprintf(" (and %d more, see details)", n)
	}
	return e
}

// Exceeded makes the error of a limit that was met: TooMany where waiting
// until its reset helps, and Forbidden where it does not. The reset is put off
// to the next whole second, which is what Retry-After can say.
func Exceeded(limit Limit, message string, now time.Time) *Error {
	e := &Error{Kind: Forbidden, Code: CodeQuotaExceeded, Message: message, Limit: &limit}
	if !limit.Reset.IsZero() {
		if whole := limit.Reset.Truncate(time.Second); whole.Before(limit.Reset) {
			limit.Reset = whole.Add(time.Second)
		}
		e.Kind, e.RetryAfter = TooMany, max(limit.Reset.Sub(now), time.Second)
	}
	return e
}

// KindOf is the kind of the outermost Error in err's chain, and Internal when
// there is none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}
