package send_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/notification/send"
)

// Nothing is sent by one that does not know whom it may call.
func TestNothingIsSentToAnyoneWhoMayNotBeCalledNow(t *testing.T) {
	t.Parallel()
	unknown := errors.New("nobody knows whom we may call")
	fresh := unknown
	b, r := setup(t, func(c *send.Config) { c.Fresh = func(context.Context) error { return fresh } }), receive(t, status(http.StatusOK))
	id, _ := b.make(b.who, notification.Webhook, r.URL)
	b.waits(b.who, id, failed("x"))
	if report, err := b.sender.Pass(t.Context(), b.now.Add(time.Minute)); !errors.Is(err, unknown) || report != (send.Report{}) || r.got() != 0 {
		t.Errorf("sent %+v (%v), and the receiver got %d", report, err, r.got())
	}
	fresh = nil
	if report := b.pass(b.now.Add(time.Minute)); report.Delivered != 1 || r.got() != 1 {
		t.Errorf("sent %+v, and the receiver got %d", report, r.got())
	}
}
