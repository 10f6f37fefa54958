package calls

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/postgres"
)

// errDeaf is the error of a session that lives, at which notifications do not arrive: it is in another
// database or at another server, or a pooler lends it for one transaction.
var errDeaf = errors.New("notifications do not arrive")

// listener is a session that listens.
type listener struct {
	c       *Carrier
	conn    *pgx.Conn
	channel string // of the calls
	proof   string // a channel of this session alone
	heard   func() // is told of each call
}

func newListener(c *Carrier, conn *pgx.Conn, channel string, heard func()) *listener {
	return &listener{c: c, conn: conn, channel: channel, proof: fmt.Sprintf("scheduler_proof_%016x", rand.Uint64()), heard: heard}
}

// listen begins to listen in both channels.
func (l *listener) listen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.c.answerWithin)
	defer cancel()
	_, err := l.conn.Exec(ctx, "LISTEN "+pgx.Identifier{l.channel}.Sanitize()+"; LISTEN "+pgx.Identifier{l.proof}.Sanitize())
	return postgres.Fault(err)
}

// hearAll hears calls until the session ends, and returns why. After each silence the session has to
// prove that it hears.
func (l *listener) hearAll(ctx context.Context) error {
	for {
		quiet, cancel := context.WithTimeout(ctx, l.c.askAfter)
		err := l.hear(quiet, l.channel)
		passed := quiet.Err() != nil && ctx.Err() == nil
		cancel()
		if passed && err != nil {
			err = l.prove(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// hear returns after the next notification in a channel, and tells of all calls until then.
func (l *listener) hear(ctx context.Context, channel string) error {
	for {
		notification, err := l.conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if notification.Channel == l.channel {
			l.heard()
		}
		if notification.Channel == channel {
			return nil
		}
	}
}

// prove has the session hear a notification that was sent as calls are. Otherwise it returns errDeaf; if
// the notification could not be sent or the session has ended, it returns the error of that. Nothing is
// heard while the notification waits for a connection, for which a poll would wait, too.
func (l *listener) prove(ctx context.Context) error {
	sending, cancel := context.WithTimeout(ctx, l.c.answerWithin)
	err := l.c.notify(sending, []string{l.proof})
	cancel()
	if err != nil {
		return err
	}
	hearing, cancel := context.WithTimeout(ctx, l.c.hearWithin)
	defer cancel()
	err = l.hear(hearing, l.proof)
	if err == nil || hearing.Err() == nil || ctx.Err() != nil {
		return err
	}
	if err := l.ping(ctx); err != nil {
		return err // the network was cut, so nothing is wrong with the address
	}
	if l.hear(hearing, l.proof) != nil { // what came before the answer, as to a process that stood still
		return errDeaf
	}
	return nil
}

// ping asks the session whether it lives.
func (l *listener) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.c.answerWithin)
	defer cancel()
	return postgres.Fault(l.conn.Ping(ctx))
}
