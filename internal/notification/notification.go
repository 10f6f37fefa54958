// Package notification is what a tenant wants to be told: some events of some jobs,
// where, and the messages that tell them.
//
// It owns the notification, its validation, which events it tells, its secrets as they
// are sealed, and the store behind the API. It refuses to find out what happened, which is
// package derive's, and to send anything, which is package send's.
package notification

import (
	"fmt"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// Kinds of notifications.
const (
	Webhook = "webhook" // a signed POST with JSON
	Slack   = "slack"   // a POST in the form of Slack's incoming webhooks; its URL is secret
	Email   = "email"   // a message in plain text, through the installation's mail server
)

const (
	// most is how many a tenant may have.
	most = 100
	// Lifetime is for how long a message is tried at most, and for how long one waits whose
	// notification is disabled.
	Lifetime = 26 * time.Hour

	maxURL = 2048
	hidden = "/***" // stands for the path of a URL that is secret
)

// Spec is all that a tenant may set.
type Spec struct {
	Name    string
	Kind    string
	URL     string   // of kind Slack, as it is shown, without its path
	To      []string // the addresses of kind Email
	Events  []string
	JobIDs  []uuid.UUID // none: every job
	Tags    []string    // a job has one of them; none: every job
	Enabled bool
	Quiet   *Quiet // nil: none
	// Group is the least distance of two messages: what happens within it after one is told
	// together. 0: each event has a message of its own.
	Group time.Duration
}

// Notification is a stored one, without its secrets.
type Notification struct {
	Spec

	ID             uuid.UUID
	TenantID       uuid.UUID
	Version        int
	DisabledReason string // why it was disabled by itself; empty: it was not
	FailingSince   *time.Time
	// PreviousUntil is until when messages are signed with the secret before, too.
	PreviousUntil *time.Time
	Dropped       int64 // events that were not told
	CreatedBy     string
	CreatedAt     time.Time
	UpdatedAt     time.Time
	Since         time.Time // events from before are not told
}

// Tells reports whether it tells an event of a job with these tags.
func (n *Notification) Tells(e *Event, tags []string) bool {
	return n.Enabled && e.At.After(n.Since) && slices.Contains(n.Events, e.Type) &&
		(len(n.JobIDs) == 0 || e.JobID != nil && slices.Contains(n.JobIDs, *e.JobID)) &&
		(len(n.Tags) == 0 || slices.ContainsFunc(n.Tags, func(tag string) bool { return slices.Contains(tags, tag) }))
}

// Release is when an event of now may be told, after a last message.
func (n *Notification) Release(now, last time.Time) time.Time {
	at := now
	if next := last.Add(n.Group); n.Group > 0 && next.After(at) {
		at = next
	}
	return n.Quiet.Until(at)
}

// Validate lists everything that is wrong with a spec, under the contract's names. allowed
// says whether a URL may be called.
func Validate(s Spec, allowed func(*url.URL) error) []fault.Field {
	var fields []fault.Field
	wrong := func(path, rule, message string) {
		fields = append(fields, fault.Field{Path: path, Rule: rule, Message: message})
	}
	if n := utf8.RuneCountInString(s.Name); n > 200 || strings.TrimSpace(s.Name) == "" {
		wrong("name", "bounds", "must have 1 to 200 characters, not all of them blank")
	}
	for path, texts := range map[string][]string{"name": {s.Name}, "url": {s.URL}, "tags": s.Tags} {
		if slices.ContainsFunc(texts, func(text string) bool { return strings.ContainsRune(text, 0) || !utf8.ValidString(text) }) {
			wrong(path, "pattern", "contains what cannot be stored: U+0000, or no UTF-8")
		}
	}
	if s.Quiet != nil {
		fields = append(fields, s.Quiet.validate()...)
	}
	target, err := url.Parse(s.URL)
	switch {
	case s.Kind == Email:
		return append(fields, checkEmail(s)...)
	case len(s.To) > 0:
		wrong("to", "kind", "belongs to kind email alone")
	case s.URL == "":
		wrong("url", "required", "is needed: where the messages go")
	case err != nil || len(s.URL) > maxURL:
		wrong("url", "format", fmt.Sprintf("must be a URL of at most %d characters", maxURL))
	default:
		if err := allowed(target); err != nil {
			wrong("url", "target", err.Error())
		}
	}
	return fields
}

// checkEmail lists what is wrong with the addresses of kind Email. An address is one of
// RFC 5322 without a name: a name could end a line of the message and begin another.
func checkEmail(s Spec) (fields []fault.Field) {
	if s.URL != "" {
		fields = append(fields, fault.Field{Path: "url", Rule: "kind", Message: "is not allowed for kind email: put the addresses in to"})
	}
	if len(s.To) == 0 {
		fields = append(fields, fault.Field{Path: "to", Rule: "required", Message: "is needed: the addresses that messages go to"})
	}
	for i, text := range s.To {
		parsed, err := mail.ParseAddress(text)
		if err != nil || parsed.Address != text || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
			fields = append(fields, fault.Field{Path: fmt.Sprintf("to[%d]", i), Rule: "format", Message: "must be an address such as ada@example.com"})
		}
	}
	return fields
}

// shownURL is a URL as it is stored in the open and shown.
func shownURL(kind, text string) string {
	target, err := url.Parse(text)
	if kind != Slack || err != nil {
		return text
	}
	return target.Scheme + "://" + target.Host + hidden
}

// NotFound is the answer for a notification, or a delivery of one, that does not exist or
// is another tenant's.
func NotFound() error {
	return fault.New(fault.NotFound, fault.CodeNotificationNotFound, "there is no notification with this id")
}

// Purposes of secrets.
const (
	Signing = "signing" // what messages are signed with
	Address = "url"     // a URL that is secret
)

// Binding is what a secret of a notification is bound to.
func Binding(tenant, notification, id uuid.UUID, purpose string) keyring.Binding {
	return keyring.Binding{Tenant: tenant, Object: "notification", ID: id, Field: purpose + "@" + notification.String()}
}
