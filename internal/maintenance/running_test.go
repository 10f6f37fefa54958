package maintenance_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/postgres/refusal"
)

// Counts that somebody passed by are corrected, once.
func TestReconcileRunningCorrectsWrongCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	due := *j.NextExecutionAt
	b.pass(t, due)
	reconcile := func(want int) {
		t.Helper()
		if n, err := b.maintainer.ReconcileRunning(t.Context()); err != nil || n != want {
			t.Errorf("%d tenants corrected, want %d; %v", n, want, err)
		}
	}
	counted := func() (n int) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), b.database.AdminURL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if err := conn.QueryRow(t.Context(), "SELECT running FROM running_totals WHERE running = (running_by_type->>'function')::int").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	reconcile(0)
	b.claimBy(t, execution.ScheduledID(j.ID, due).String(), due.Add(time.Hour), due.Add(time.Hour))
	reconcile(1)
	if n := counted(); n != 1 {
		t.Errorf("counted %d, want the one that runs", n)
	}
	reconcile(0)
	exec(t, b.database.AdminURL, "DELETE FROM running_counts")
	reconcile(1)
	exec(t, b.database.AdminURL, "INSERT INTO running_keys SELECT tenant_id, 'k', gen_random_uuid() FROM running_counts")
	reconcile(1)
	reconcile(0)
	if n := counted(); n != 1 {
		t.Errorf("counted %d, want the one that runs", n)
	}
}

// A tenant whose count cannot be corrected leaves the others theirs.
func TestReconcileRunningGoesOnBehindAFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, tenant := range []uuid.UUID{uuid.Nil, uuid.Max} { // before and after the one of setup
		exec(t, b.database.AdminURL, fmt.Sprintf("INSERT INTO tenants (id, name) VALUES ('%s', 'another')", tenant))
	}
	exec(t, b.database.AdminURL, "UPDATE running_shards SET runs = 1, runs_by_type = '{\"function\": 1}' WHERE shard = 0")
	stuck := refusal.Refusal{Name: "stuck", Table: "running_shards", Event: "UPDATE", Rows: fmt.Sprintf("NEW.tenant_id = '%s'", uuid.Nil), SQLSTATE: "P0001"}
	exec(t, b.database.AdminURL, stuck.Begin())
	if n, err := b.maintainer.ReconcileRunning(t.Context()); n != 2 || err == nil {
		t.Errorf("%d tenants are corrected, %v; want two, and the error of the third", n, err)
	}
	if n := b.number(t, "SELECT count(*) FROM running_totals WHERE running <> 0"); n != 1 {
		t.Errorf("%d tenants are still counted wrongly, want one", n)
	}
}
