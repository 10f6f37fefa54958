package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/postgres"
)

// withStatements makes a server count what each statement costs. The extension comes
// with PostgreSQL; counting takes some per cent of it.
const (
	withStatements = "shared_preload_libraries=pg_stat_statements"
	withPlanning   = "pg_stat_statements.track_planning=on"
)

// cost is what a statement took since the server began: how often it ran, the µs of
// its execution and of its planning, the bytes that it wrote to the log ahead, and the pages that it looked at,
// each as often as it did.
type cost struct{ calls, micros, planned, wal, pages float64 }

func (c cost) plus(d cost) cost {
	return cost{c.calls + d.calls, c.micros + d.micros, c.planned + d.planned, c.wal + d.wal, c.pages + d.pages}
}

func (c cost) times(n float64) cost {
	return cost{n * c.calls, n * c.micros, n * c.planned, n * c.wal, n * c.pages}
}

// statementCosts are the costs by name of a statement. Statements of one name are
// added up; what has no name has its first words.
func statementCosts(ctx context.Context, admin string) (map[string]cost, error) {
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return nil, fmt.Errorf("read what statements cost: %w", err)
	}
	defer conn.Close(ctx)
	const read = `SELECT query, calls::float8, total_exec_time * 1000, total_plan_time * 1000, wal_bytes::float8, (shared_blks_hit + shared_blks_read)::float8 FROM pg_stat_statements`
	if _, err := conn.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`); err != nil {
		return nil, fmt.Errorf("read what statements cost: %w", postgres.Fault(err))
	}
	rows, err := conn.Query(ctx, read)
	if err != nil {
		return nil, fmt.Errorf("read what statements cost: %w", postgres.Fault(err))
	}
	all := map[string]cost{}
	var text string
	var c cost
	_, err = pgx.ForEachRow(rows, []any{&text, &c.calls, &c.micros, &c.planned, &c.wal, &c.pages}, func() error {
		name := statementName(text)
		all[name] = all[name].plus(c)
		return nil
	})
	return all, err
}

// statementName is how the product names a statement, in its first line.
func statementName(text string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if name, ok := strings.CutPrefix(first, "-- name: "); ok {
		name, _, _ = strings.Cut(name, " ")
		return name
	}
	return strings.Join(strings.Fields(first)[:min(4, len(strings.Fields(first)))], " ")
}

// dearest says which statements cost most for each execution between two readings.
func dearest(from, to map[string]cost, executions float64) string {
	const most = 12
	since := map[string]cost{}
	for name, c := range to {
		since[name] = c.plus(from[name].times(-1)).times(1 / executions)
	}
	names := slices.SortedFunc(maps.Keys(since), func(a, b string) int { return cmp.Compare(since[b].micros, since[a].micros) })
	var said strings.Builder
	var all cost
	for i, name := range names {
		c := since[name]
		all = all.plus(c)
		if i < most {
			fmt.Fprintf(&said, "\n  %-32s %8.4f calls %8.1f µs, %.1f to plan %8.0f B of WAL %8.1f pages", name, c.calls, c.micros, c.planned, c.wal, c.pages)
		}
	}
	return fmt.Sprintf("statements, for each execution: %.2f calls, %.1f µs, %.1f to plan, %.0f B of WAL, %.1f pages%s",
		all.calls, all.micros, all.planned, all.wal, all.pages, said.String())
}
