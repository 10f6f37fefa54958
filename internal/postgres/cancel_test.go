package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/devstack"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// A commit that waits for a synchronous standby goes on waiting when the client that
// asked for it has left: nobody sees it before the standby has it.
func TestNobodyCutsTheWaitForTheStandbyShort(t *testing.T) {
	t.Parallel()
	server, err := devstack.StartPostgres(t.Context(), devstack.Options{Dir: t.TempDir(), Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	owner, err := pgx.Connect(t.Context(), server.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(t.Context())
	for _, statement := range []string{
		"CREATE ROLE scheduler_api", "CREATE ROLE process LOGIN IN ROLE scheduler_api",
		"CREATE TABLE kept (n int)", "GRANT INSERT, SELECT ON kept TO scheduler_api",
		"ALTER SYSTEM SET synchronous_standby_names = 'never'", "SELECT pg_reload_conf()",
	} {
		if _, err := owner.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	ask := func(query string) (n int) {
		t.Helper()
		if err := owner.QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	until(t, "the setting", func() bool {
		return ask("SELECT count(*)::int FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting <> ''") == 1
	})
	db, err := postgres.Open(t.Context(), postgres.Config{URL: server.URL("postgres", "process"), Role: postgres.API, Name: "test", MaxConns: 1, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	const waits = "SELECT count(*)::int FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
	hasty, leave := context.WithCancel(t.Context())
	defer leave()
	left := make(chan error, 1)
	go func() { // the first commits do not wait: the checkpointer has not read the setting yet
		for {
			if _, err := db.Pool().Exec(hasty, "INSERT INTO kept VALUES (1)"); err != nil {
				left <- err
				return
			}
		}
	}()
	until(t, "the commit waits", func() bool { return ask(waits) == 1 })
	const kept = "SELECT count(*)::int FROM kept"
	before := ask(kept)
	leave()
	<-left
	// A cancellation would have come on a connection of its own by now.
	quiet, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	<-quiet.Done()
	if n, seen := ask(waits), ask(kept)-before; n != 1 || seen != 0 {
		t.Errorf("%d commits wait and %d rows of them are seen, want 1 and 0", n, seen)
	}
	for _, statement := range []string{"ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"} {
		if _, err := owner.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the end of the wait", func() bool { return ask(kept) == before+1 })
	db.Close()
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: it did not come", what)
		}
	}
}
