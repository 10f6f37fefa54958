package chaos

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// answers asks whether the server takes sessions.
func (s store) answers(ctx context.Context) error {
	var n int
	return s.one(ctx, &n, "SELECT 1")
}

// promote makes a standby take writes, and returns when it does.
func (s store) promote(ctx context.Context) error {
	var done bool
	if err := s.one(ctx, &done, "SELECT pg_promote(true, 15)"); err != nil {
		return err
	}
	if !done {
		return errors.New("the standby was not promoted within 15 s")
	}
	return nil
}

// synchronous makes every commit wait for the standby, and returns once the
// standby has all that was committed before.
func (s store) synchronous(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("the standby does not keep up"))
	defer cancel()
	return s.with(ctx, func(conn *pgx.Conn) error {
		for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return err
			}
		}
		for {
			var ready bool
			err := conn.QueryRow(ctx, "SELECT coalesce(bool_or(sync_state = 'sync' AND state = 'streaming'), false) FROM pg_stat_replication").Scan(&ready)
			if ready || err != nil {
				return err
			}
			if !rest(ctx, 50*time.Millisecond) {
				return context.Cause(ctx)
			}
		}
	})
}

// press makes the server need some more segments of its log, as a heavy load
// does. What it says about that is its own affair.
func (s store) press(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for n := 0; n < 8 && rest(ctx, 200*time.Millisecond); n++ {
		_ = s.with(ctx, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SELECT pg_logical_emit_message(false, 'chaos', repeat('x', 100000)), pg_switch_wal()")
			return err
		})
	}
}
