package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// store looks into the product's database from outside, as the superuser on a
// connection of its own each time, because the server is restarted meanwhile.
type store struct {
	url string
	// columns of finished rows, whose print may not change; none: all. A migration
	// may add to a row and not change it.
	columns []string
}

// hashedColumns is what the print of a row h is taken of.
func (s store) hashedColumns() string {
	if len(s.columns) == 0 {
		return "h"
	}
	return "ROW(h." + strings.Join(s.columns, ", h.") + ")"
}

// rememberColumns has prints taken of the columns that there are now.
func (s *store) rememberColumns(ctx context.Context) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		const sql = `SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute
			WHERE attrelid = 'job_executions'::regclass AND attnum > 0 AND NOT attisdropped`
		return conn.QueryRow(ctx, sql).Scan(&s.columns)
	})
}

// allowCommands makes the tenants, which may have jobs of every type. It is what a
// platform administrator does.
func (s store) allowCommands(ctx context.Context, tenants int) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		for n := range tenants {
			const sql = `INSERT INTO tenants (id, name, job_types) VALUES ($1, $2, '{http,function,javascript,wasm,command,remote}')`
			if _, err := conn.Exec(ctx, sql, tenantID(n), fmt.Sprint("tenant ", n)); err != nil {
				return fmt.Errorf("make a tenant: %w", err)
			}
		}
		return nil
	})
}

// row is an execution, finished or not.
type row struct {
	tenant       uuid.UUID
	id, job      uuid.UUID
	trigger      string
	status       string
	reason       string
	attempt, max int
	scheduledAt  time.Time
	missedCount  int64
	missedUntil  *time.Time
	createdAt    time.Time
	completedAt  *time.Time
	attempts     string
	jobType      string
}

// finished says that nothing more happens to it.
func (r row) finished() bool { return r.completedAt != nil }

func (s store) with(ctx context.Context, fn func(conn *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, err := pgx.ParseConfig(s.url)
	if err != nil {
		return err
	}
	// The planner expects many rows of tables without statistics, and had these questions
	// compiled: up to six seconds of a core each time, in the place of some milliseconds.
	c.RuntimeParams["jit"] = "off"
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) // it may be cut already
	return fn(conn)
}

// one asks for one value.
func (s store) one(ctx context.Context, into any, sql string, args ...any) error {
	return s.with(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, sql, args...).Scan(into) })
}

// unfinished is how many executions are not finished, and jobs whose schedule is not.
func (s store) unfinished(ctx context.Context) (n int, err error) {
	err = s.one(ctx, &n, `SELECT (SELECT count(*) FROM active_executions) + (SELECT count(*) FROM scheduled_jobs
		WHERE status = 'active' AND deleted_at IS NULL AND next_execution_at < 'infinity')`)
	return n, err
}

// transactions is how many transactions the database has committed since its server started.
func (s store) transactions(ctx context.Context) (n int64, err error) {
	err = s.one(ctx, &n, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
	return n, err
}

// late is how many of some jobs are due for two seconds and not promoted.
func (s store) late(ctx context.Context, jobs []uuid.UUID) (n int, err error) {
	err = s.one(ctx, &n, `SELECT count(*) FROM scheduled_jobs
		WHERE id = ANY ($1) AND status = 'active' AND next_execution_at < now() - interval '2 seconds'`, jobs)
	return n, err
}

// madeAfter is how many rows the schedule of a job made since. It is asked
// while the job is paused: a row's created_at alone is when the transaction
// began that made it, which may be before a resume that it saw.
func (s store) madeAfter(ctx context.Context, job uuid.UUID, since time.Time) (n int, err error) {
	err = s.one(ctx, &n, "SELECT count(*) FROM executions WHERE job_id = $1 AND trigger_type = 'scheduled' AND created_at > $2", job, since)
	return n, err
}

// rows reads every execution.
func (s store) rows(ctx context.Context) (all []row, err error) {
	const sql = `SELECT tenant_id, id, job_id, trigger_type, status, reason, attempt, max_attempts, scheduled_at,
		coalesce(missed_count, 0), missed_until, created_at, completed_at, attempts::text, job_type FROM executions`
	err = s.with(ctx, func(conn *pgx.Conn) error {
		found, err := conn.Query(ctx, sql)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(found, func(from pgx.CollectableRow) (r row, err error) {
			err = from.Scan(&r.tenant, &r.id, &r.job, &r.trigger, &r.status, &r.reason, &r.attempt, &r.max, &r.scheduledAt,
				&r.missedCount, &r.missedUntil, &r.createdAt, &r.completedAt, &r.attempts, &r.jobType)
			r.scheduledAt = r.scheduledAt.UTC()
			return r, err
		})
		return err
	})
	return all, err
}

// stored is a job's row.
type stored struct {
	tenant       uuid.UUID
	name, status string
	deleted      bool
	due          bool // a scheduled time has come already
}

func (s store) jobs(ctx context.Context) (map[uuid.UUID]stored, error) {
	const sql = `SELECT tenant_id, id, name, status, deleted_at IS NOT NULL,
		status = 'active' AND deleted_at IS NULL AND coalesce(next_execution_at <= now(), false) FROM scheduled_jobs`
	out := map[uuid.UUID]stored{}
	err := s.with(ctx, func(conn *pgx.Conn) error {
		var id uuid.UUID
		var j stored
		found, err := conn.Query(ctx, sql)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(found, []any{&j.tenant, &id, &j.name, &j.status, &j.deleted, &j.due}, func() error {
			out[id] = j
			return nil
		})
		return err
	})
	return out, err
}

// history is what must never change: a print of each finished row.
type history struct {
	prints map[uuid.UUID]string
	twice  []uuid.UUID // executions that have two rows
	both   int         // executions that are finished and active at once
}

// check compares the history with what it was before.
func (h history) check(f *findings, before history) {
	for id, print := range before.prints {
		now, there := h.prints[id]
		f.check("I3", there && now == print, uuid.Nil, id, "execution %s was finished and changed (is there: %t)", id, there)
	}
	for _, id := range h.twice {
		f.check("I3", false, uuid.Nil, id, "execution %s is finished twice", id)
	}
	f.check("I3", h.both == 0, uuid.Nil, uuid.Nil, "%d executions are finished and active at once", h.both)
}

// history reads all finished rows.
func (s store) history(ctx context.Context) (h history, err error) {
	h.prints = map[uuid.UUID]string{}
	err = s.with(ctx, func(conn *pgx.Conn) error {
		var id uuid.UUID
		var print string
		found, err := conn.Query(ctx, "SELECT id, md5(("+s.hashedColumns()+")::text) FROM job_executions h")
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(found, []any{&id, &print}, func() error {
			if _, there := h.prints[id]; there {
				h.twice = append(h.twice, id)
			}
			h.prints[id] = print
			return nil
		})
		if err != nil {
			return err
		}
		// Read later: what was finished before cannot be active now.
		found, err = conn.Query(ctx, "SELECT id FROM active_executions")
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(found, []any{&id}, func() error {
			if _, finished := h.prints[id]; finished {
				h.both++
			}
			return nil
		})
		return err
	})
	return h, err
}

// snapshot is what must never be too many: runs of one job, tenant or key at a time.
type snapshot struct {
	running map[uuid.UUID]int

	byTenant map[uuid.UUID]counted
	byKey    map[string]int // runs of a tenant with a concurrency key
}

// counted is how many executions of a tenant run, and how many are counted.
type counted struct{ running, counted int }

func (s store) snapshot(ctx context.Context) (shot snapshot, err error) {
	shot = snapshot{running: map[uuid.UUID]int{}, byTenant: map[uuid.UUID]counted{}}
	err = s.with(ctx, func(conn *pgx.Conn) error {
		var id uuid.UUID
		var n int
		found, err := conn.Query(ctx, "SELECT job_id, count(*) FROM active_executions WHERE status = 'running' GROUP BY 1")
		if err != nil {
			return err
		}
		if _, err = pgx.ForEachRow(found, []any{&id, &n}, func() error { shot.running[id] = n; return nil }); err != nil {
			return err
		}
		if shot.byTenant, err = tenantCounts(ctx, conn); err != nil {
			return err
		}
		shot.byKey, err = keyCounts(ctx, conn)
		return err
	})
	return shot, err
}

// tenantCounts reads what runs of each tenant, and what is counted, as of one
// moment.
func tenantCounts(ctx context.Context, conn *pgx.Conn) (map[uuid.UUID]counted, error) {
	const sql = `SELECT c.tenant_id, c.running, (SELECT count(*) FROM active_executions a WHERE a.tenant_id = c.tenant_id AND a.status = 'running' AND a.awaited_until IS NULL)
		FROM running_totals c`
	out := map[uuid.UUID]counted{}
	found, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	var id uuid.UUID
	var one counted
	_, err = pgx.ForEachRow(found, []any{&id, &one.counted, &one.running}, func() error { out[id] = one; return nil })
	return out, err
}

// keyCounts reads how many executions run of each tenant and concurrency key.
func keyCounts(ctx context.Context, conn *pgx.Conn) (map[string]int, error) {
	const sql = `SELECT tenant_id || ' ' || concurrency_key, count(*) FROM active_executions
		WHERE status = 'running' AND concurrency_key IS NOT NULL GROUP BY 1`
	out := map[string]int{}
	found, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	var key string
	var n int
	_, err = pgx.ForEachRow(found, []any{&key, &n}, func() error { out[key] = n; return nil })
	return out, err
}

// lock holds a table for so long against everybody else.
func (s store) lock(ctx context.Context, table string, d time.Duration) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(context.WithoutCancel(ctx)) // nothing was written
		if _, err := tx.Exec(ctx, "LOCK TABLE "+pgx.Identifier{table}.Sanitize()+" IN ACCESS EXCLUSIVE MODE"); err != nil {
			return err
		}
		sleep(ctx, d)
		return nil
	})
}

// exhaustSessions takes every session that the server gives, for so long.
func (s store) exhaustSessions(ctx context.Context, url string, d time.Duration) int {
	var taken []*pgx.Conn
	defer func() {
		for _, conn := range taken {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	for len(taken) < 400 && ctx.Err() == nil {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			break
		}
		taken = append(taken, conn)
	}
	sleep(ctx, d)
	return len(taken)
}
