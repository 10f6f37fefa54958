package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/scheduler-service/scheduler/migrations"
)

const (
	// lockTimeout is how long a migration waits for one lock. Requests queue behind
	// it meanwhile. It is shorter than PostgreSQL's deadlock_timeout (1 s), so that
	// a migration and a request that wait for each other cost the migration its
	// turn, and not the request.
	lockTimeout = 500 * time.Millisecond
	// migrationTries is how often one migration is tried: for some five minutes.
	migrationTries = 70
	firstBackoff   = 200 * time.Millisecond
	longestBackoff = 5 * time.Second
)

// Migrate brings the schema to the version embedded in this binary, as the
// owner of the schema. Several at once are safe: one applies, the others wait.
// It returns how many migrations it applied. An installation from before 1.0 is
// taken to the baseline first.
//
// A migration that does not get a lock in time, or is the victim of a deadlock,
// is undone and repeated, so that it never holds up the processes that work on
// the same tables.
func Migrate(ctx context.Context, ownerURL string, log *slog.Logger) (applied int, err error) {
	if err := checkOwner(ctx, ownerURL); err != nil {
		return 0, err
	}
	version, err := installedVersion(ctx, ownerURL)
	if err != nil {
		return 0, err
	}
	m := migrator{ownerURL: ownerURL, log: log, tries: migrationTries}
	if 0 < version && version < migrations.FirstOfBaseline {
		if version < migrations.LastBefore {
			return 0, fmt.Errorf("the schema is at version %d: migrate it with a release from before 1.0 to version %d first, then with this one",
				version, migrations.LastBefore)
		}
		if m.files, err = migrations.Before(); err != nil {
			return 0, fmt.Errorf("read the migrations: %w", err)
		}
		if applied, err = m.up(ctx); err != nil {
			return applied, err
		}
	}
	m.files = migrations.FS
	more, err := m.up(ctx)
	return applied + more, err
}

// installedVersion returns the number of the newest migration that is applied; 0
// where there is none.
func installedVersion(ctx context.Context, ownerURL string) (version int64, err error) {
	err = asOwner(ctx, ownerURL, func(conn *pgx.Conn) error {
		var exists bool
		if err := conn.QueryRow(ctx, "SELECT to_regclass('goose_db_version') IS NOT NULL").Scan(&exists); err != nil || !exists {
			return err
		}
		return conn.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied").Scan(&version)
	})
	if err != nil {
		return 0, fmt.Errorf("read the version of the schema: %w", err)
	}
	return version, nil
}

// MigrateDown undoes every migration: for tests of the down parts.
func MigrateDown(ctx context.Context, ownerURL string) (err error) {
	conn, provider, err := openProvider(ownerURL, migrations.FS)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := provider.DownTo(ctx, 0); err != nil {
		return fmt.Errorf("migrate down: %w", err)
	}
	return nil
}

// migrator applies the files of one folder.
type migrator struct {
	ownerURL string
	files    fs.FS
	log      *slog.Logger
	tries    int // of one migration
}

func (m migrator) up(ctx context.Context) (applied int, err error) {
	conn, provider, err := openProvider(m.ownerURL, m.files)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	waits, err := watchLocks(ctx, m.ownerURL)
	if err != nil {
		return 0, err
	}
	defer waits.stop()
	for tries := 1; ; tries++ {
		results, err := provider.Up(ctx)
		applied += len(results)
		var partial *goose.PartialError
		if err == nil || !errors.As(err, &partial) {
			return applied, wrap("migrate", err)
		}
		if len(partial.Applied) > 0 {
			applied, tries = applied+len(partial.Applied), 1
		}
		name := path.Base(partial.Failed.Source.Path)
		if !lostRace(err) || tries >= m.tries {
			return applied, wrap("migrate: "+name+waits.because(), err)
		}
		backoff := min(firstBackoff<<min(tries-1, 10), longestBackoff)
		m.log.WarnContext(ctx, "a migration waits for a lock and is repeated",
			"migration", name, "waits_for", waits.last(), "tries", tries, "repeated_in", backoff.String(), "error", err)
		if err := rest(ctx, backoff); err != nil {
			return applied, err
		}
	}
}

// lostRace reports whether a migration failed only because somebody else held a
// lock.
func lostRace(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && (refused.Code == lockNotAvailable || refused.Code == "40P01") // deadlock_detected
}

func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("migrate: %w", ctx.Err())
	}
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// migrateName is the application_name of the session that applies migrations.
const migrateName = "scheduler-migrate"

func openProvider(ownerURL string, files fs.FS) (*sql.DB, *goose.Provider, error) {
	config, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return nil, nil, errors.New("DATABASE_OWNER_URL does not parse") // the driver's text repeats the password
	}
	config.RuntimeParams["application_name"] = migrateName
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		// By a statement: a pooler refuses it as a start-up parameter.
		_, err := conn.Exec(ctx, fmt.Sprintf("SET lock_timeout = %d", lockTimeout.Milliseconds())).ReadAll()
		return err
	}
	conn := stdlib.OpenDB(*config)
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("migration lock: %w", err), conn.Close())
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, conn, files, goose.WithSessionLocker(locker))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read the migrations: %w", err), conn.Close())
	}
	return conn, provider, nil
}

// SchemaVersion is the version that this binary needs: the number of its
// newest migration.
func SchemaVersion() (int64, error) {
	entries, err := migrations.FS.ReadDir(".")
	if err != nil {
		return 0, fmt.Errorf("read the migrations: %w", err)
	}
	return goose.NumericComponent(entries[len(entries)-1].Name())
}

// CheckSchema reports whether the database's schema is at least the one that
// this binary needs.
func (d *DB) CheckSchema(ctx context.Context) error {
	want, err := SchemaVersion()
	if err != nil {
		return err
	}
	var got int64
	if err := d.pool.QueryRow(ctx, "SELECT schema_version()").Scan(&got); err != nil {
		return fmt.Errorf("the schema is not there yet: run the migrations: %w", Fault(err))
	}
	if got < want {
		return fmt.Errorf("the schema is at version %d and this program needs %d: run the migrations", got, want)
	}
	return nil
}
