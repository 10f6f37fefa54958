package postgres_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/devstack"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// product starts a PostgreSQL that nobody has tuned, beside some settings, with
// the schema and its partitions, and opens it.
func product(t *testing.T, months, conns int, settings ...string) *postgres.DB {
	t.Helper()
	server, err := devstack.StartPostgres(t.Context(), devstack.Options{Stock: true, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := postgres.EnsureDatabase(t.Context(), server.AdminURL, "product", "owner"); err != nil {
		t.Fatal(err)
	}
	owner, login := server.URL("product", "owner"), server.URL("product", "process")
	if _, err := postgres.Migrate(t.Context(), owner, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if _, err := partition.Prepare(t.Context(), owner, partition.Month, months-1); err != nil {
		t.Fatal(err)
	}
	if err := postgres.EnsureLogin(t.Context(), owner, login); err != nil {
		t.Fatal(err)
	}
	d, err := postgres.Open(t.Context(), postgres.Config{URL: login, Role: postgres.Engine, Name: "test", MaxConns: conns, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func advice(t *testing.T, d *postgres.DB) []string {
	t.Helper()
	found, err := d.Advice(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A server as PostgreSQL comes does with one change, and is told of it.
func TestAdviceForAStockServer(t *testing.T) {
	t.Parallel()
	got := advice(t, product(t, 4, 20))
	const want = "autovacuum_naptime is 60 s and should be 5 s: the tables of what waits and runs turn over within seconds, and polls read the dead rows in them"
	if len(got) != 1 || got[0] != want {
		t.Errorf("got %q", got)
	}
}

func TestAdviceNamesEachSetting(t *testing.T) {
	t.Parallel()
	d := product(t, 24, 60, "fsync=off", "full_page_writes=off", "synchronous_commit=off", "autovacuum=off", "track_counts=off",
		"max_connections=40", "max_locks_per_transaction=64")
	got := advice(t, d)
	for i, want := range []string{
		"fsync is off and must be on: ", "full_page_writes is off and must be on: ", "synchronous_commit is off and must be on or stricter: ",
		"autovacuum is off and must be on: ", "track_counts is off and must be on: ",
		"max_connections is 40 and should be 6", "max_locks_per_transaction is 64 and should be ",
	} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) || len(got) != 7 {
			t.Errorf("got %d: %q, want %q", len(got), got, want)
		}
	}
}

func TestAdviceIsSilentWhereAllIsWell(t *testing.T) {
	t.Parallel()
	if got := advice(t, product(t, 4, 6, "autovacuum_naptime=5s")); len(got) != 0 {
		t.Errorf("got %q", got)
	}
}

// The advice about locks is true: as many queries over all months as the
// process has connections fit where nothing is advised.
func TestAdvisedLocksAreEnough(t *testing.T) {
	t.Parallel()
	const months, conns = 120, 18
	// With huge pages the server rounds its shared memory up to 2 MB, and up to
	// that many more locks fit than it is sure to have. Sessions that prepared the database
	// count as connected for a moment after they were closed.
	settings := []string{"max_connections=24", "superuser_reserved_connections=1", "autovacuum_naptime=5s", "huge_pages=off"}
	d := product(t, months, conns, settings...)
	var needed int
	got := advice(t, d)
	if len(got) != 1 {
		t.Fatalf("advice %q", got)
	}
	if _, err := fmt.Sscanf(got[0], "max_locks_per_transaction is 64 and should be %d:", &needed); err != nil {
		t.Fatal(err)
	}
	if err := readAtOnce(t, d, conns); err == nil {
		t.Error("all the locks fit, and it is advised to make room for them")
	}
	d = product(t, months, conns, append(settings, fmt.Sprintf("max_locks_per_transaction=%d", needed))...)
	if got := advice(t, d); len(got) != 0 {
		t.Errorf("advice %q", got)
	}
	if err := readAtOnce(t, d, conns); err != nil {
		t.Error(err)
	}
}

// readAtOnce has n transactions that have each read all months, at once.
func readAtOnce(t *testing.T, d *postgres.DB, n int) error {
	t.Helper()
	for range n {
		tx, err := d.Pool().Begin(t.Context())
		if err != nil {
			return err
		}
		defer func(tx pgx.Tx) { _ = tx.Rollback(t.Context()) }(tx)
		// On a busy machine the first ones would be ended as idle before the last one has read.
		if _, err := tx.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
			return err
		}
		if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM job_executions"); err != nil {
			return err
		}
	}
	return nil
}
