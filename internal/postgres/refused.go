package postgres

import (
	"context"
	"errors"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// connectTracer tells how an attempt to connect ended, after all hosts of the address were tried. The
// connection itself has the tracer that was set, if any.
type connectTracer struct {
	pgx.QueryTracer
	ended func(err error)
}

// TraceConnectStart gives the connection its tracer.
func (t connectTracer) TraceConnectStart(ctx context.Context, start pgx.TraceConnectStartData) context.Context {
	start.ConnConfig.Tracer = t.QueryTracer
	if set, ok := t.QueryTracer.(pgx.ConnectTracer); ok {
		return set.TraceConnectStart(ctx, start)
	}
	return ctx
}

// TraceConnectEnd tells how it ended.
func (t connectTracer) TraceConnectEnd(ctx context.Context, end pgx.TraceConnectEndData) {
	t.ended(end.Err)
	if set, ok := t.QueryTracer.(pgx.ConnectTracer); ok {
		set.TraceConnectEnd(ctx, end)
	}
}

// askForSession opens a session, closes it, and waits until the server has it free again: otherwise
// the next connection would be refused because of this one.
func askForSession(ctx context.Context, c *pgx.ConnConfig) error {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	c.AfterConnect = nil // it does nothing that it would have to be set up for
	conn, err := pgconn.ConnectConfig(ctx, &c.Config)
	if err != nil {
		return err
	}
	session, err := conn.Hijack()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = session.Conn.Close() })()
	defer func() { _ = session.Conn.Close() }()
	session.Frontend.Send(&pgproto3.Terminate{})
	if err := session.Frontend.Flush(); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, session.Conn) // until the server closes it
	return nil
}

// isRefusal reports whether the server, or the login, has no session free.
func isRefusal(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == tooManyConnections
}
