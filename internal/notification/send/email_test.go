package send_test

import (
	"context"
	"io"
	"net"
	netmail "net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/notification/send"
)

// postOffice is a mail server that keeps what it takes.
type postOffice struct {
	mu       sync.Mutex
	messages []string
	to       []string
	refuse   *smtp.SMTPError
}

func (p *postOffice) NewSession(*smtp.Conn) (smtp.Session, error) { return session{p}, nil }

type session struct{ *postOffice }

func (s session) Mail(string, *smtp.MailOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return s.refuse
	}
	return nil
}

func (s session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = append(s.to, to)
	return nil
}

func (s session) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, string(text))
	return err
}

func (session) Reset()        {}
func (session) Logout() error { return nil }

func open(t *testing.T) (*postOffice, string) {
	t.Helper()
	office := &postOffice{}
	server := smtp.NewServer(office)
	server.Domain = "localhost"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Shutdown(context.WithoutCancel(t.Context())) })
	return office, listener.Addr().String()
}

// A job's name with line breaks makes no header, and what the server refuses is tried
// again.
func TestEmailIsSent(t *testing.T) {
	t.Parallel()
	office, address := open(t)
	mailer, err := send.NewMailer("smtp://"+address+"?tls=off", "scheduler@example.com")
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t, func(c *send.Config) { c.Mail = mailer })
	made, secret, err := b.store.Create(t.Context(), b.who, notification.Spec{
		Name: "mail", Kind: notification.Email, To: []string{"ada@example.com", "eve@example.com"}, Events: []string{"job.failed"}, JobIDs: []uuid.UUID{}, Tags: []string{}, Enabled: true,
	})
	if err != nil || secret != "" {
		t.Fatalf("a secret %q: %v", secret, err)
	}
	delivery := b.waits(b.who, made.ID, failed("nightly\r\nBcc: mallory@example.com\r\n\r\nDear all"))
	office.refuse = &smtp.SMTPError{Code: 451, Message: "later"}
	b.pass(time.Time{})
	d := b.only(made.ID)
	if d.Status != "pending" || !strings.Contains(d.Error, "451") {
		t.Fatalf("refused, it is %+v", d)
	}
	office.refuse = nil
	b.pass(d.NextAttemptAt.Add(time.Second))
	if d = b.only(made.ID); d.Status != "delivered" || len(office.messages) != 1 || strings.Join(office.to, " ") != "ada@example.com eve@example.com" {
		t.Fatalf("it is %+v; sent to %v", d, office.to)
	}
	message, err := netmail.ReadMessage(strings.NewReader(office.messages[0]))
	if err != nil {
		t.Fatal(err)
	}
	if got := message.Header.Get("Subject"); !strings.HasPrefix(got, "nightly  Bcc: mallory@example.com") || !strings.HasSuffix(got, " failed") {
		t.Errorf("the subject is %q", got)
	}
	if message.Header.Get("Bcc") != "" || message.Header.Get("Auto-Submitted") != "auto-generated" || !strings.Contains(message.Header.Get("Message-Id"), delivery.String()) {
		t.Errorf("the headers are %v", message.Header)
	}
}

// Without a mail server, or with one that is away, the attempt fails and says so.
func TestEmailWithoutAServer(t *testing.T) {
	t.Parallel()
	away, err := send.NewMailer("smtp://127.0.0.1:1?tls=off", "scheduler@example.com")
	if err != nil {
		t.Fatal(err)
	}
	for want, mailer := range map[string]*send.Mailer{"SMTP_URL": nil, "not reachable": away} {
		b := setup(t, func(c *send.Config) { c.Mail = mailer })
		made, _, err := b.store.Create(t.Context(), b.who, notification.Spec{
			Name: "mail", Kind: notification.Email, To: []string{"ada@example.com"}, Events: []string{"job.failed"}, JobIDs: []uuid.UUID{}, Tags: []string{}, Enabled: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		b.waits(b.who, made.ID, failed("x"))
		b.pass(time.Time{})
		if d := b.only(made.ID); d.Status != "pending" || !strings.Contains(d.Error, want) || strings.Contains(d.Error, "127.0.0.1") {
			t.Errorf("it is %+v, want %q", d, want)
		}
	}
	for _, wrong := range []string{"http://a", "smtp://", "smtp://a:x", "a"} {
		if _, err := send.NewMailer(wrong, "a@example.com"); err == nil {
			t.Errorf("%s is a mail server", wrong)
		}
	}
	if _, err := send.NewMailer("smtps://a", "a\r\nBcc: b@example.com"); err == nil {
		t.Error("a sender with a line break is taken")
	}
}

func TestAddressesThatAreRefused(t *testing.T) {
	t.Parallel()
	spec := notification.Spec{Name: "a", Kind: notification.Email}
	for _, to := range []string{"ada", "Ada <ada@example.com>", "ada@example.com, eve@example.com", "a@b\r\nBcc: c@d", "a@b\x00", "\"a\nb\"@example.com", ""} {
		spec.To = []string{to}
		if fields := notification.Validate(spec, nil); len(fields) != 1 || fields[0].Path != "to[0]" {
			t.Errorf("%q: %v", to, fields)
		}
	}
	spec.To = []string{"ada+x@example.com"}
	if fields := notification.Validate(spec, nil); len(fields) > 0 {
		t.Errorf("a good address: %v", fields)
	}
}
