package chaos

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
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
			if !sleep(ctx, 50*time.Millisecond) {
				return context.Cause(ctx)
			}
		}
	})
}

// growLog makes the server need some more segments of its log, as a heavy load
// does. The result does not matter.
func (s store) growLog(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for n := 0; n < 8 && sleep(ctx, 200*time.Millisecond); n++ {
		_ = s.with(ctx, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SELECT pg_logical_emit_message(false, 'chaos', repeat('x', 100000)), pg_switch_wal()")
			return err
		})
	}
}

// execUntilDone runs statements of ours until they were done: a table that is in use is
// locked for a moment only. A large fleet on a small machine may leave no such moment for
// a minute, and a fault that could not be taken back would last until the end. While it
// waits for the lock, all who write the table wait behind it: a fifth of the time at most,
// or it would be a fault by itself (of 0.5 s in every 0.6, for two minutes, a fleet of 16 did
// not recover before the end).
func (s store) execUntilDone(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("it could not be done in two minutes"))
	defer cancel()
	for {
		err := s.with(ctx, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SET lock_timeout = '200ms'; "+sql)
			return err
		})
		if err == nil {
			return nil
		}
		if !sleep(ctx, 800*time.Millisecond) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// insertWaiting stores executions of a job that wait, as if they had been triggered.
func (s store) insertWaiting(ctx context.Context, job uuid.UUID, n int) error {
	const sql = `INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts,
			timeout_ms, pooled, available_at, sweep_at)
		SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - i), 12, '0') || '8' || substr(md5($1 || ':' || i), 1, 3) || '8' || substr(md5($1 || ':' || i), 4, 15))::uuid,
			j.tenant_id, j.id, j.version, date_trunc('milliseconds', now()) - i * interval '1 ms', 'manual', j.job_type, j.priority, 1, 10000, true,
			now() - i * interval '1 ms', 'infinity'
		FROM scheduled_jobs j, generate_series(1, $2::int) i WHERE j.id = $1::text::uuid`
	return s.with(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, job.String(), n)
		return err
	})
}
