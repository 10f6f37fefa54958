package app

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// The parts of one process find the same. The server of the tests has settings
// that no other should have.
func TestAdviceIsLoggedOnce(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	var out strings.Builder
	log, found := slog.New(slog.NewTextHandler(&out, nil)), &advice{}
	var v vitals
	for _, role := range []postgres.Role{postgres.Engine, postgres.API} {
		db, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: role, Name: "test", MaxConns: 1, StatementTimeout: pgtest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		found.seek(t.Context(), db, log)
		v = vitals{db: db, advice: found}
	}
	if len(found.list()) == 0 {
		t.Fatal("no advice")
	}
	for _, sentence := range found.list() {
		if n := strings.Count(out.String(), sentence); n != 1 {
			t.Errorf("logged %d times: %s", n, sentence)
		}
	}
	if shown, ok := v.database(t.Context()).Details["advice"].([]string); !ok || len(shown) != len(found.list()) {
		t.Errorf("health shows %q", shown)
	}
}
