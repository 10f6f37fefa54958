package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
)

// The statements of IndexHistory.
const (
	// onlyOne lets one session at a time do it.
	onlyOne = "SELECT pg_try_advisory_lock(hashtext('job_executions_key'))"
	// oldHistoryKey says whether the history still has the primary key of installations from before migration 690.
	oldHistoryKey = "SELECT to_regclass('public.job_executions_list') IS NOT NULL"
	// partsWithoutKey are the partitions that have no whole index which can become their part of
	// the new key, with the name that it gets.
	partsWithoutKey = `
SELECT p.relid::regclass::text, left(c.relname, 59) || '_key'
FROM pg_partition_tree('public.job_executions') p JOIN pg_class c ON c.oid = p.relid
WHERE p.isleaf AND NOT EXISTS (
    SELECT 1 FROM pg_index i JOIN pg_class n ON n.oid = i.indexrelid
    WHERE i.indrelid = p.relid AND n.relname = left(c.relname, 59) || '_key' AND i.indisvalid AND i.indisunique)
ORDER BY 1`
	// takeHistoryKey makes of the indexes of the partitions the primary key of the history. Nothing
	// is built: it holds its lock for some milliseconds.
	takeHistoryKey = `
DO $$
DECLARE
    part record;
BEGIN
    ALTER TABLE public.job_executions DROP CONSTRAINT job_executions_pkey;
    DROP INDEX public.job_executions_list;
    FOR part IN SELECT p.relid, left(c.relname, 59) || '_key' AS built, left(c.relname, 58) || '_pkey' AS key
                FROM pg_partition_tree('public.job_executions') p JOIN pg_class c ON c.oid = p.relid WHERE p.isleaf
    LOOP
        EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %I PRIMARY KEY USING INDEX %I', part.relid::regclass, part.key, part.built);
    END LOOP;
    ALTER TABLE public.job_executions ADD CONSTRAINT job_executions_pkey PRIMARY KEY (tenant_id, scheduled_at, id);
END
$$`
)

// IndexHistory gives the history of an installation that has executions the primary key of a
// new one, as the owner of the schema: (tenant, scheduled time, id) in place of (id,
// scheduled time) and of an index of the list. It says whether there was anything to do.
//
// It builds the parts of the key while the processes work: 2.5 s for two million executions
// on two cores. Then it takes the old ones away, and waits for that lock as a migration
// does. If it ends before, what it has built stays, and the next call goes on there.
// Processes of a version from before migration 690 cannot work afterwards.
func IndexHistory(ctx context.Context, ownerURL string, log *slog.Logger) (done bool, err error) {
	err = asOwner(ctx, ownerURL, func(conn *pgx.Conn) error {
		var alone bool
		if err := conn.QueryRow(ctx, onlyOne).Scan(&alone); err != nil {
			return err
		}
		if !alone {
			return errors.New("another session is at it: wait until it ends")
		}
		for tries := 1; ; tries++ {
			if err := conn.QueryRow(ctx, oldHistoryKey).Scan(&done); err != nil || !done {
				return err
			}
			if err := buildHistoryKeys(ctx, conn, log); err != nil {
				return err
			}
			whole, err := swapHistoryKey(ctx, conn)
			if whole || err != nil && (!lostRace(err) || tries >= migrationTries) {
				return err
			}
			if err != nil {
				log.WarnContext(ctx, "the history's new key waits for a lock, and is tried again", "tries", tries, "error", err)
			}
			if err := rest(ctx, min(firstBackoff<<min(tries-1, 10), longestBackoff)); err != nil {
				return err
			}
		}
	})
	return done, wrap("index the history", err)
}

// part is a partition of the history.
type part struct {
	table string // as SQL names it
	key   string // the name of its index
}

// buildHistoryKeys builds what the new key lacks. Writers go on meanwhile.
func buildHistoryKeys(ctx context.Context, conn *pgx.Conn, log *slog.Logger) error {
	parts, err := partsWithout(ctx, conn.Query)
	if err != nil {
		return err
	}
	for _, p := range parts {
		log.InfoContext(ctx, "an index of the history is built", "partition", p.table)
		key := pgx.Identifier{p.key}.Sanitize()
		// One that was not finished is of no use.
		if _, err := conn.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS public."+key); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "CREATE UNIQUE INDEX CONCURRENTLY "+key+" ON "+p.table+" (tenant_id, scheduled_at, id)"); err != nil {
			return err
		}
	}
	return nil
}

func partsWithout(ctx context.Context, query func(context.Context, string, ...any) (pgx.Rows, error)) ([]part, error) {
	rows, err := query(ctx, partsWithoutKey)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p part, err error) {
		return p, row.Scan(&p.table, &p.key)
	})
}

// swapHistoryKey takes the new key in place of the old one, and says whether it did: a partition
// that was made meanwhile has no part of it yet.
func swapHistoryKey(ctx context.Context, conn *pgx.Conn) (whole bool, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", lockTimeout.Milliseconds())); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "LOCK TABLE public.job_executions IN ACCESS EXCLUSIVE MODE"); err != nil {
			return err
		}
		left, err := partsWithout(ctx, tx.Query)
		if err != nil || len(left) > 0 {
			return err
		}
		whole = true
		_, err = tx.Exec(ctx, takeHistoryKey)
		return err
	})
	return whole && err == nil, err
}
