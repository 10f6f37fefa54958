package past

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// Finished runs count in the hours and days of a zone's clock, those of the tenant alone,
// and a count of too many says from when on it is complete.
func TestRunsAreCounted(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	admin, err := pgx.Connect(t.Context(), database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(context.WithoutCancel(t.Context())) })
	opened, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: postgres.API, Name: "test", MaxConns: 1, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	who := tenant.Actor{TenantID: uuid.New(), Subject: "ada"}
	for _, owner := range []uuid.UUID{who.TenantID, uuid.New()} {
		for _, statement := range []string{
			"INSERT INTO tenants (id, name) VALUES ($1, 'x')",
			`INSERT INTO monitors (id, tenant_id, name, interval_seconds, start_grace_seconds, completion_grace_seconds, ping_key, created_by) VALUES ($1::uuid, $1::uuid, 'x', 60, 60, 60, $1::uuid::text, 'ada')`,
			`INSERT INTO monitor_runs (monitor_id, place, n, tenant_id, at, outcome, reason)
				SELECT $1::uuid, n, n, $1::uuid, at, outcome, reason FROM (VALUES
				(1, '2026-03-28 18:14:59Z'::timestamptz, 'completed', ''), (2, '2026-03-28 18:15:00Z', 'completed', 'too_slow'), (3, '2026-03-28 18:29:59Z', 'failed', 'failed'),
				(4, '2026-03-28 18:30:00Z', 'missed', 'not_started'), (5, '2026-03-28 19:20:00Z', 'unknown', 'outage'), (6, '2026-03-28 19:21:00Z', 'running', ''),
				(7, '2026-03-28 19:22:00Z', 'logged', ''), (8, '2026-03-29 18:30:00Z', 'completed', ''), (9, '2026-03-30 00:00:00Z', 'completed', '')) r (n, at, outcome, reason)`,
		} {
			if _, err := admin.Exec(t.Context(), statement, owner); err != nil {
				t.Fatal(err)
			}
		}
	}
	kolkata, err := time.LoadLocation("Asia/Kolkata") // half an hour ahead: its day begins at 18:30
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name  string
		zone  *time.Location
		daily bool
		most  int
		want  string
	}{
		{"hours", time.UTC, false, 100, "28 18h 4 3, 28 19h 1 0, 29 18h 1 0, "},
		{"hours of a half zone", kolkata, false, 100, "28 17h 3 2, 28 18h 2 1, 29 18h 1 0, "}, // 18:14 is 23:44 there
		{"days", time.UTC, true, 100, "28 00h 5 3, 29 00h 1 0, "},
		{"days of a half zone", kolkata, true, 100, "27 18h 3 2, 28 18h 2 1, 29 18h 1 0, "},
		{"too many", time.UTC, true, 5, "28 00h 2 1, 29 00h 1 0, complete from 18:30"},
	} {
		c, err := (&Store{db: opened, most: test.most}).Count(t.Context(), who, Query{From: from, To: from.AddDate(0, 0, 2), Zone: test.zone, Daily: test.daily})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, b := range c.Buckets {
			got += fmt.Sprintf("%s %d %d, ", b.At.UTC().Format("02 15h"), b.Runs, b.Failed)
		}
		if c.Truncated {
			got += "complete from " + c.CompleteFrom.Format("15:04")
		} else if !c.CompleteFrom.Equal(from) {
			t.Errorf("%s: complete from %v", test.name, c.CompleteFrom)
		}
		if got != test.want {
			t.Errorf("%s: got  %s\nwant %s", test.name, got, test.want)
		}
	}
}
