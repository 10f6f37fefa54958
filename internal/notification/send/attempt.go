package send

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// maxExcerpt is how much of an answer is read and kept.
const maxExcerpt = 1 << 10

// patience is after how long without any success a notification is disabled.
const patience = 72 * time.Hour

// delays are those before the second attempt and each after it: about a day together, and
// with the tenth that may be added less than notification.Lifetime.
var delays = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 9 * time.Hour,
}

// letter is a message to be sent.
type letter struct {
	notification, tenant uuid.UUID
	name, kind, url      string
	recipients           []string
	delivery             uuid.UUID // Nil: there is nothing to send
	events               json.RawMessage
	count                int
	attempt              int
	createdAt, giveUpAt  time.Time
	claimedAt            time.Time
}

// secrets are what is secret of a notification, opened.
type secrets struct {
	signing []keyring.Text // the newest first
	url     keyring.Text
}

// result is what came of an attempt.
type result struct {
	status  int // of the answer; 0: there was none
	excerpt string
	err     error // nil: it was delivered
	gone    bool  // the receiver wants no more, ever
}

// deliver makes one attempt and records it.
func (s *Sender) deliver(ctx context.Context, l letter, now time.Time) ended {
	// An attempt is recorded even if the process is told to end.
	recording, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.c.Timeout+held/2)
	defer cancel()
	if l.delivery == uuid.Nil {
		return ended{err: s.store.settle(recording, l, now)}
	}
	begin := clock.Start()
	r := s.attempt(ctx, l)
	at := l.claimedAt.Add(begin.Elapsed())
	o := decide(l, r, at)
	disabled, err := s.store.finish(recording, l, o, at)
	s.c.Metrics.NotificationSent(l.kind, o.status)
	if disabled != "" {
		s.c.Log.WarnContext(ctx, "a notification was disabled", "notification_id", l.notification, "tenant_id", l.tenant, "reason", disabled)
	}
	return ended{status: o.status, err: err}
}

// outcome is what is recorded of an attempt.
type outcome struct {
	result

	status string    // of the delivery: delivered, pending or failed
	next   time.Time // when it is tried again
}

// decide says what becomes of a delivery after an attempt.
func decide(l letter, r result, at time.Time) outcome {
	o := outcome{result: r, status: "delivered", next: at}
	switch {
	case r.err == nil:
	case r.gone || l.attempt > len(delays):
		o.status = "failed"
	default:
		// A tenth more or less by the id, so that what failed together is not repeated together.
		delay := delays[l.attempt-1]
		spread := time.Duration(int64(delay) / 10 * (int64(l.delivery[15]) - 128) / 128)
		o.status, o.next = "pending", at.Add(delay+spread)
		if o.next.After(l.giveUpAt) {
			o.status = "failed"
		}
	}
	return o
}

// attempt sends a message.
func (s *Sender) attempt(ctx context.Context, l letter) result {
	if l.claimedAt.After(l.giveUpAt) {
		return result{err: errors.New("it waited for longer than a message may, and was not tried any more"), gone: false}
	}
	if l.kind == notification.Email {
		return s.mail(ctx, l)
	}
	opened, err := s.store.open(ctx, s.c.Keys, l)
	if err != nil {
		s.c.Log.ErrorContext(ctx, "a secret of a notification does not open", "notification_id", l.notification, "error", err)
		return result{err: errors.New("the secret of the notification cannot be opened: the operator has to look at SECRETS_KEYS of the promoters")}
	}
	ctx, cancel := context.WithTimeout(ctx, s.c.Timeout)
	defer cancel()
	req, err := compose(ctx, l, opened)
	if err != nil {
		return result{err: fmt.Errorf("the message cannot be made: %w", err)}
	}
	return call(s.c.Client.For(l.tenant), req)
}

// read is what a message tells.
func (l *letter) read() (events []notification.Event, err error) {
	if err := json.Unmarshal(l.events, &events); err != nil || len(events) == 0 {
		return nil, errors.New("its events cannot be read")
	}
	return events, nil
}

// mail hands a message to the mail server, where there is one.
func (s *Sender) mail(ctx context.Context, l letter) result {
	if s.c.Mail == nil {
		return result{err: errors.New("the operator has not configured SMTP_URL for the promoters")}
	}
	events, err := l.read()
	if err != nil {
		return result{err: fmt.Errorf("the message cannot be made: %w", err)}
	}
	ctx, cancel := context.WithTimeout(ctx, s.c.Timeout)
	defer cancel()
	sent, cause := s.c.Mail.send(ctx, l, events)
	if cause != nil {
		s.c.Log.WarnContext(ctx, "a message could not be mailed", "notification_id", l.notification, "error", cause)
	}
	return sent
}

// call sends a request and reads the beginning of the answer. The URL, which may be
// secret, stands in no error.
func call(client egress.Caller, req *http.Request) result {
	resp, err := client.Do(req, func(int) bool { return true }) // no redirect is followed
	if err != nil {
		return result{err: err}
	}
	defer resp.Body.Close()
	r := result{status: resp.StatusCode, gone: resp.StatusCode == http.StatusGone}
	begin, _ := io.ReadAll(io.LimitReader(resp.Body, maxExcerpt)) // an answer that breaks off is one
	r.excerpt = strings.ReplaceAll(strings.ToValidUTF8(string(begin), "�"), "\x00", "�")
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		r.err = fmt.Errorf("the receiver answered %d: redirects are not followed, write the URL that they lead to", resp.StatusCode)
	case r.gone:
		r.err = errors.New("the receiver answered 410: it is gone")
	case resp.StatusCode < 200 || resp.StatusCode >= 300:
		r.err = fmt.Errorf("the receiver answered %d", resp.StatusCode)
	}
	return r
}

// compose makes the request of a message.
func compose(ctx context.Context, l letter, opened secrets) (*http.Request, error) {
	events, err := l.read()
	if err != nil {
		return nil, err
	}
	if l.kind == notification.Slack {
		return toSlack(ctx, l, events, opened)
	}
	return toWebhook(ctx, l, events, opened)
}
