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
const withStatements = "shared_preload_libraries=pg_stat_statements"

// cost is what a statement took since the server began: how often it ran, the µs of
// its execution and the bytes that it wrote to the log ahead.
type cost struct{ calls, micros, wal float64 }

// statementCosts are the costs by name of a statement. Statements of one name are
// added up; what has no name has its first words.
func statementCosts(ctx context.Context, admin string) (map[string]cost, error) {
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return nil, fmt.Errorf("read what statements cost: %w", err)
	}
	defer conn.Close(ctx)
	const read = `SELECT query, calls::float8, total_exec_time * 1000, wal_bytes::float8 FROM pg_stat_statements`
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
	_, err = pgx.ForEachRow(rows, []any{&text, &c.calls, &c.micros, &c.wal}, func() error {
		name := statementName(text)
		sum := all[name]
		all[name] = cost{sum.calls + c.calls, sum.micros + c.micros, sum.wal + c.wal}
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
		f := from[name]
		since[name] = cost{c.calls - f.calls, c.micros - f.micros, c.wal - f.wal}
	}
	names := slices.SortedFunc(maps.Keys(since), func(a, b string) int { return cmp.Compare(since[b].micros, since[a].micros) })
	var said strings.Builder
	var all cost
	for i, name := range names {
		c := since[name]
		all = cost{all.calls + c.calls, all.micros + c.micros, all.wal + c.wal}
		if i < most {
			fmt.Fprintf(&said, "\n  %-32s %8.4f calls %8.1f µs %8.0f B of WAL", name, c.calls/executions, c.micros/executions, c.wal/executions)
		}
	}
	return fmt.Sprintf("statements, for each execution: %.2f calls, %.1f µs, %.0f B of WAL%s",
		all.calls/executions, all.micros/executions, all.wal/executions, said.String())
}
