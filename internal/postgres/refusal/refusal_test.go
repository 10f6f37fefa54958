package refusal_test

import (
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/postgres/refusal"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// insertLocks adds one row for each name.
const insertLocks = `INSERT INTO scheduler_locks (name, owner, holder, acquired_at, expires_at)
	SELECT n, gen_random_uuid(), '', now(), now() FROM unnest($1::text[]) AS n`

func TestRefusesChosenRowsUntilItEnds(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.New(t).OwnerURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	exec := func(sql string, args ...any) error {
		_, err := conn.Exec(t.Context(), sql, args...)
		return err
	}
	// The owner is bound by row-level security, and no policy is for him.
	if err := exec("ALTER TABLE scheduler_locks NO FORCE ROW LEVEL SECURITY"); err != nil {
		t.Fatal(err)
	}
	chosen := refusal.Refusal{Name: "chosen", Table: "scheduler_locks", Event: "INSERT OR UPDATE", Rows: "NEW.name = 'poison'"}
	for _, code := range refusal.SQLSTATEs() {
		chosen.SQLSTATE = code
		if err := exec(chosen.Begin()); err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		err := exec(insertLocks, []string{"a", "poison", "b"})
		var pe *pgconn.PgError
		if !errors.As(err, &pe) || pe.Code != code {
			t.Errorf("%s: the batch with the chosen row is answered %v", code, err)
		}
		if !postgres.Refused(err) {
			t.Errorf("%s: Refused is false, so that its statement is repeated for ever", code)
		}
		if err := exec(insertLocks, []string{"x" + code, "y" + code}); err != nil {
			t.Errorf("%s: the others are refused too: %v", code, err)
		}
	}
	if err := exec(chosen.End()); err != nil {
		t.Fatal(err)
	}
	if err := exec(insertLocks, []string{"poison"}); err != nil {
		t.Errorf("after its end: %v", err)
	}
}
