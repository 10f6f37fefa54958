package postgres_test

import (
	"testing"

	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/migrations"
)

// The shards of tenants that were there before take over what was counted of them. The
// owner of the schema, which migrates, is under row-level security as others are.
func TestShardsTakeOverWhatWasCounted(t *testing.T) {
	t.Parallel()
	database := pgtest.Empty(t)
	apply(t, database, baseline(t))
	admin := connect(t, database.AdminURL)
	exec(t, admin, `INSERT INTO tenants (id, name) SELECT gen_random_uuid(), 'tenant ' || i FROM generate_series(1, 3) i`)
	exec(t, admin, `UPDATE running_counts SET running = 7, running_by_type = '{"http": 5, "function": 2}', crowded_at = now()
		WHERE tenant_id = (SELECT id FROM tenants WHERE name = 'tenant 2')`)
	apply(t, database, migrations.FS)
	for sql, want := range map[string]int{
		"SELECT count(*) FROM running_shards":                                                       48,
		"SELECT sum(runs) FROM running_shards":                                                      7,
		"SELECT count(*) FROM running_shards WHERE runs_by_type = '{\"http\": 5, \"function\": 2}'": 1,
		"SELECT count(*) FROM running_shards WHERE backlogged_at IS NOT NULL AND shard = 0":         1,
		"SELECT sum(running) FROM running_totals":                                                   7,
		"SELECT sum(running) FROM running_counts":                                                   0,
	} {
		if got := count(t, admin, sql); got != want {
			t.Errorf("%s: %d, want %d", sql, got, want)
		}
	}
}
