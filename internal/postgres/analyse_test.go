package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// Whenever a table is analysed, each session plans its statements on the table again. So a
// table whose settings say that its rows change all the time is not analysed after the 50
// changes of PostgreSQL's default.
func TestTablesThatChangeAllTheTimeAreSeldomAnalysed(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.New(t).AdminURL)
	rows, err := conn.Query(t.Context(), `SELECT c.relname::text
		FROM pg_class c CROSS JOIN LATERAL (SELECT coalesce(jsonb_object_agg(o.option_name, o.option_value), '{}') AS of FROM pg_options_to_table(c.reloptions) o) options
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
		  AND options.of ?| ARRAY['fillfactor', 'autovacuum_vacuum_threshold', 'autovacuum_vacuum_cost_delay']
		  AND coalesce((options.of ->> 'autovacuum_analyze_threshold')::int, 50) < 2000
		ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	often, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range often {
		t.Errorf("%s is made for many changes and has no autovacuum_analyze_threshold of 2000 or more", table)
	}
}
