package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// lockWatch notes what a migration waits for, on a connection of its own:
// afterwards PostgreSQL only says that a lock came too late.
type lockWatch struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	seen string
}

// watchEvery is short beside lockTimeout, so that no wait which ends a try goes
// unseen.
const watchEvery = lockTimeout / 5

// migrationWaits names the lock that the migrating session waits for, and the
// sessions that keep it from it. Any user sees application names, not only a
// superuser.
const migrationWaits = `
SELECT coalesce(string_agg(DISTINCT format('%s on %s, which process %s (%s) blocks',
           l.mode, coalesce(l.relation::regclass::text, l.locktype), b.pid, coalesce(nullif(s.application_name, ''), 'no name')), '; '), '')
FROM pg_stat_activity w
JOIN pg_locks l ON l.pid = w.pid AND NOT l.granted
CROSS JOIN unnest(pg_blocking_pids(w.pid)) AS b (pid)
LEFT JOIN pg_stat_activity s ON s.pid = b.pid
WHERE w.datname = current_database() AND w.application_name = $1`

func watchLocks(ctx context.Context, ownerURL string) (*lockWatch, error) {
	conn, err := pgx.Connect(ctx, ownerURL)
	if err != nil {
		return nil, fmt.Errorf("connect as the owner to %s: %w", redacted(ownerURL), Fault(err))
	}
	watching, cancel := context.WithCancel(ctx)
	w := &lockWatch{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		w.run(watching, conn)
	}()
	return w, nil
}

func (w *lockWatch) run(ctx context.Context, conn *pgx.Conn) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var seen string
		if err := conn.QueryRow(ctx, migrationWaits, migrateName).Scan(&seen); err != nil {
			return // the migration says what is wrong with the database
		}
		if seen != "" {
			w.mu.Lock()
			w.seen = seen
			w.mu.Unlock()
		}
	}
}

// last is what the migration waited for when it was last seen waiting.
func (w *lockWatch) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

func (w *lockWatch) because() string {
	if seen := w.last(); seen != "" {
		return " waits for " + seen
	}
	return ""
}

func (w *lockWatch) stop() {
	w.cancel()
	<-w.done
}
