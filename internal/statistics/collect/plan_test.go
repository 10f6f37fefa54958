package collect_test

import (
	"context"
	"testing"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// A fold reads each counted row a few times at most, also where the statistics are of a
// moment when the table had one row.
func TestAFoldReadsEachRowAFewTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	add := func(hours int) {
		b.exec(`INSERT INTO outcome_deltas (tenant_id, at, outcomes, cells)
			SELECT $1, date_trunc('hour', now()) - n * interval '1 hour', 1, 'cells' FROM generate_series(1, $2::int) n`, b.a, hours)
	}
	add(1)
	b.exec("ANALYZE outcome_deltas")
	add(1000)
	var touched float64
	ask := func(_ context.Context, s *pgtest.Statement) error {
		_, err := db.New(s).TakeOutcomeDeltas(t.Context(), db.TakeOutcomeDeltasParams{TenantID: b.a, MostBytes: 2500}) // 500 rows
		return err
	}
	plan := pgtest.Explain(t, b.admin, "force_generic_plan", b.a, ask)
	plan.Walk(func(n pgtest.PlanNode) { touched += n.Touched() })
	if plan.Rows != 500 || touched > 10_000 {
		t.Errorf("%v rows were taken, and %v touched", plan.Rows, touched)
	}
}
