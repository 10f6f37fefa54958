package maintenance_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/execution"
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
