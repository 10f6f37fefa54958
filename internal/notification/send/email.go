package send

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/scheduler-service/scheduler/internal/notification"
)

// Mailer hands messages to the installation's mail server.
type Mailer struct {
	host    string
	from    string
	options []mail.Option
}

// NewMailer reads a URL such as smtps://user:password@mail.example.com:465; with smtp, the
// connection turns to TLS before anything is said, unless ?tls=off says that it stays
// plain. Errors do not repeat the password.
func NewMailer(address, from string) (*Mailer, error) {
	target, err := url.Parse(address)
	if err != nil || target.Hostname() == "" || target.Scheme != "smtp" && target.Scheme != "smtps" {
		return nil, errors.New("is not smtp://… or smtps://… with a host")
	}
	if err := mail.NewMsg().From(from); err != nil {
		return nil, fmt.Errorf("SMTP_FROM: %q is not an address", from)
	}
	m := &Mailer{host: target.Hostname(), from: from, options: []mail.Option{mail.WithTimeout(timeout)}}
	port := map[string]int{"smtp": 587, "smtps": 465}[target.Scheme]
	if text := target.Port(); text != "" {
		if port, err = strconv.Atoi(text); err != nil {
			return nil, errors.New("has no port that can be read")
		}
	}
	m.options = append(m.options, mail.WithPort(port))
	switch {
	case target.Scheme == "smtps":
		m.options = append(m.options, mail.WithSSL())
	case target.Query().Get("tls") == "off":
		m.options = append(m.options, mail.WithTLSPolicy(mail.NoTLS))
	default:
		m.options = append(m.options, mail.WithTLSPolicy(mail.TLSMandatory))
	}
	if user := target.User; user != nil {
		password, _ := user.Password()
		m.options = append(m.options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(user.Username()), mail.WithPassword(password))
	}
	return m, nil
}

// send hands a message to the mail server, one for all recipients. The cause of a failure
// names the inside and is for the log.
func (m *Mailer) send(ctx context.Context, l letter, events []notification.Event) (r result, cause error) {
	message := mail.NewMsg()
	headline := title(events, l.count)
	lines := make([]string, len(events))
	for i := range events {
		lines[i] = sentence(&events[i]) + "\n"
	}
	if err := errors.Join(message.From(m.from), message.To(l.recipients...)); err != nil {
		return result{err: errors.New("the addresses cannot be written to")}, err
	}
	message.Subject(headline)
	message.SetGenHeader(mail.Header("Auto-Submitted"), "auto-generated")
	message.SetMessageIDWithValue(l.delivery.String() + "@" + m.host)
	message.SetDateWithValue(l.claimedAt)
	message.SetBodyString(mail.TypeTextPlain, strings.Join(lines, "\n")+"\n-- \nNotification "+plain(l.name, 200)+" of the scheduler\n")
	client, err := mail.NewClient(m.host, m.options...)
	if err != nil {
		return result{err: errors.New("the operator's mail server cannot be spoken to")}, err
	}
	if err := client.DialAndSendWithContext(ctx, message); err != nil {
		return result{err: errors.New("the mail server did not take it: " + refusal(err))}, err
	}
	return result{}, nil
}

// refusal says what went wrong without the names of the inside.
func refusal(err error) string {
	var failed *mail.SendError
	var away *net.OpError
	switch {
	case errors.As(err, &failed) && failed.ErrorCode() != 0:
		return "it answered " + strconv.Itoa(failed.ErrorCode())
	case errors.As(err, &away):
		return "it is not reachable"
	default:
		return "see the log of the promoter"
	}
}
