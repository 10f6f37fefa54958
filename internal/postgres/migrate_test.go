package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// files is a folder of migrations, in their order from number 1 on.
func files(ups ...string) fstest.MapFS {
	folder := fstest.MapFS{}
	for i, up := range ups {
		folder[fmt.Sprintf("%06d_step.sql", i+1)] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + up)}
	}
	return folder
}

// handler is called with what is logged, one by one. The logger waits for it.
type handler func(slog.Record)

func (h handler) Enabled(context.Context, slog.Level) bool           { return true }
func (h handler) Handle(_ context.Context, record slog.Record) error { h(record); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler                 { return h }
func (h handler) WithGroup(string) slog.Handler                      { return h }

// records are what is logged, in their order.
type records chan slog.Record

func (r records) log() *slog.Logger {
	return slog.New(handler(func(record slog.Record) { r <- record }))
}

func attributes(record slog.Record) map[string]string {
	all := map[string]string{}
	record.Attrs(func(a slog.Attr) bool { all[a.Key] = a.Value.String(); return true })
	return all
}

// outcome is what a migration came to that runs beside the test.
type outcome struct {
	applied int
	err     error
}

func TestMigrateRepeatsWhatALockHoldsUp(t *testing.T) {
	t.Parallel()
	database := pgtest.Empty(t)
	folder := files("CREATE TABLE hot (id int);", "CREATE TABLE cold (id int);", "ALTER TABLE hot ADD COLUMN more int;")
	if _, err := postgres.MigrateFiles(t.Context(), database.OwnerURL, files("CREATE TABLE hot (id int);"), slog.New(slog.DiscardHandler), 1); err != nil {
		t.Fatal(err)
	}
	holder := connect(t, database.AdminURL)
	exec(t, holder, "SET application_name = 'a report'")
	exec(t, holder, "BEGIN")
	exec(t, holder, "SELECT * FROM hot")
	logged, ended := make(records, 100), make(chan outcome, 1)
	go func() {
		n, err := postgres.MigrateFiles(t.Context(), database.OwnerURL, folder, logged.log(), 100)
		ended <- outcome{n, err}
	}()
	var got map[string]string
	// On a busy machine nobody may have looked at the locks while a try waited: then a later one tells.
	for try := 0; try < 20 && got["waits_for"] == ""; try++ {
		select {
		case record := <-logged:
			got = attributes(record)
		case end := <-ended:
			t.Fatalf("it ended while the table was locked: %+v", end)
		}
	}
	if got["migration"] != "000003_step.sql" {
		t.Errorf("the log names migration %q", got["migration"])
	}
	for _, part := range []string{"AccessExclusiveLock on hot", fmt.Sprint(holder.PgConn().PID()), "a report"} {
		if !strings.Contains(got["waits_for"], part) {
			t.Errorf("the log says that it waits for %q: without %q", got["waits_for"], part)
		}
	}
	exec(t, holder, "COMMIT")
	if end := <-ended; end.err != nil || end.applied != 2 {
		t.Errorf("applied %d of 2: %v", end.applied, end.err)
	}
}

// A sequence keeps its value when a transaction is undone, so the second try
// succeeds.
const deadlockOnce = `CREATE SEQUENCE IF NOT EXISTS tries;
-- +goose StatementBegin
DO $$ BEGIN IF nextval('tries') = 1 THEN RAISE 'deadlock detected' USING ERRCODE = '%s'; END IF; END $$;
-- +goose StatementEnd`

func TestMigrateRepeatsTheVictimOfADeadlockOnly(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		code string
		want int
	}{{"40P01", 2}, {"55P03", 2}, {"23505", 1}} {
		t.Run(test.code, func(t *testing.T) {
			t.Parallel()
			database := pgtest.Empty(t)
			logged := make(records, 100)
			n, err := postgres.MigrateFiles(t.Context(), database.OwnerURL, files("CREATE SEQUENCE tries;", fmt.Sprintf(deadlockOnce, test.code)), logged.log(), 3)
			if n != test.want || (err == nil) != (test.want == 2) || len(logged) != test.want-1 {
				t.Errorf("%d applied with %d log lines: %v", n, len(logged), err)
			}
		})
	}
}

func TestMigrateGivesUpAndSaysWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	database := pgtest.Empty(t)
	holder := connect(t, database.OwnerURL)
	exec(t, holder, "CREATE TABLE hot (id int)")
	exec(t, holder, "BEGIN")
	exec(t, holder, "LOCK TABLE hot IN ROW EXCLUSIVE MODE")
	var err error
	// On a busy machine nobody may have looked at the locks while a try waited.
	for try := 0; try < 20 && (err == nil || !strings.Contains(err.Error(), "AccessExclusiveLock")); try++ {
		var n int
		logged := make(records, 100)
		n, err = postgres.MigrateFiles(t.Context(), database.OwnerURL, files("ALTER TABLE hot ADD COLUMN more int;"), logged.log(), 2)
		if n != 0 || err == nil || len(logged) != 1 {
			t.Fatalf("%d applied with %d log lines: %v", n, len(logged), err)
		}
	}
	for _, part := range []string{"000001_step.sql", "AccessExclusiveLock on hot", fmt.Sprint(holder.PgConn().PID())} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error is %q: without %q", err, part)
		}
	}
}
