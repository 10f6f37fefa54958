package postgres_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// turningOver are the tables that are empty between two bursts, and large in them. The keys that are
// taken and the orders to cancel are few: reading all of them once is cheaper than a look-up for each
// row, which passes over what was removed before.
var turningOver = []string{"active_executions"}

// anyRow are the statements that read one of these indexes from its start, once, and why.
var anyRow = map[string]string{
	"ClaimDueJobs":          "steps from backlog to backlog, a thousand times at most",
	"CountParkedExecutions": "counts a partial index that is nearly always empty",
	"FindWork":              "asks whether there is any row",
	"HasUnhintedExecutions": "asks whether there is any row",
	"ListCancelledRuns":     "reads a partial index of what is asked to end",
	"ListDriftedTenants":    "compares all that runs with the counts",
	"ListOverdueAwaited":    "reads a partial index of what is asked to end",
	"ListParkedExecutions":  "steps from tenant to tenant of a partial index",
	"TakeMetrics":           "counts all",
}

// anyOrder are the statements that read all rows of a condition to choose some of them, and why.
var anyOrder = map[string]string{
	"ListLateExecutions": "chooses at random, because the oldest may be those that the database refuses",
}

// A plan that is made while a table is empty is kept for the next burst, and all indexes cost it the
// same. One that reads a whole index for each row makes a burst quadratic: measured, 150 to 700 µs
// an execution in place of 90. So each statement finds rows by the first column of an index. And
// where it wants the first rows of a backlog, it reads them in the order of an index.
func TestPlansOfEmptyTables(t *testing.T) {
	t.Parallel()
	const (
		fill = `SET session_replication_role = replica;
			INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, pooled, available_at, sweep_at)
			SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1, now(), 'scheduled', 'http', 1, 1000, true, now(), now() FROM generate_series(1, 20000);`
		leave = "DELETE FROM active_executions WHERE ctid < (SELECT ctid FROM active_executions ORDER BY ctid DESC OFFSET %d LIMIT 1)"
	)
	for state, before := range map[string]string{
		"never used":         "",
		"used and vacuumed":  fill + "DELETE FROM active_executions",
		"with an entry left": fill + fmt.Sprintf(leave, 0),
		"with 5 left":        fill + fmt.Sprintf(leave, 4),
		"with 20 left":       fill + fmt.Sprintf(leave, 19),
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			admin := connect(t, pgtest.New(t).AdminURL)
			exec(t, admin, before)
			exec(t, admin, "VACUUM (ANALYZE)")
			exec(t, admin, postgres.EnginePlans())
			first := firstColumns(t, admin)
			for name, statement := range statements(t) {
				plan := explain(t, admin, statement)
				for _, whole := range wholeIndexes(plan, first, anyRow[name] != "", false) {
					t.Errorf("%s: %s", name, whole)
				}
				if anyOrder[name] != "" {
					continue
				}
				for _, sorted := range sortsForFirst(plan, false) {
					t.Errorf("%s: %s", name, sorted)
				}
			}
		})
	}
}

// indexStep is a step of a plan, with the steps below it.
type indexStep struct {
	Type     string      `json:"Node Type"`
	Relation string      `json:"Relation Name"`
	Index    string      `json:"Index Name"`
	Cond     string      `json:"Index Cond"`
	Parent   string      `json:"Parent Relationship"`
	Plans    []indexStep `json:"Plans"`
}

// wholeIndexes tells the steps that read an index without a condition on its first column. A
// statement that may read one from its start may do so once, and not for each row.
func wholeIndexes(step indexStep, first map[string]string, may, perRow bool) (found []string) {
	column := first[step.Index]
	if column != "" && !regexp.MustCompile(`\b`+column+`\b`).MatchString(step.Cond) && (!may || perRow || step.Cond != "") {
		found = append(found, fmt.Sprintf("reads the whole of %s (%s)", step.Index, step.Cond))
	}
	for _, below := range step.Plans {
		repeated := perRow || below.Parent == "SubPlan" || below.Parent == "Inner" && step.Type == "Nested Loop"
		found = append(found, wholeIndexes(below, first, may, repeated && below.Parent != "InitPlan")...)
	}
	return found
}

// sortsForFirst tells the steps that read all rows of a condition and sort them, where only the
// first ones are wanted.
func sortsForFirst(step indexStep, limited bool) (found []string) {
	for _, below := range step.Plans {
		if limited && step.Type == "Sort" && slices.Contains(turningOver, below.Relation) {
			found = append(found, fmt.Sprintf("sorts what it reads of %s (%s%s), for the first of it", below.Relation, below.Index, below.Cond))
		}
		found = append(found, sortsForFirst(below, step.Type == "Limit" || limited && step.Type == "LockRows")...)
	}
	return found
}

// firstColumns tells the first column of each index of the tables that turn over.
func firstColumns(t *testing.T, admin *pgx.Conn) map[string]string {
	t.Helper()
	rows, err := admin.Query(t.Context(), `SELECT c.relname, pg_get_indexdef(i.indexrelid, 1, true) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
		WHERE i.indrelid::regclass::text = ANY ($1)`, turningOver)
	if err != nil {
		t.Fatal(err)
	}
	columns := map[string]string{}
	var name, column string
	if _, err := pgx.ForEachRow(rows, []any{&name, &column}, func() error { columns[name] = column; return nil }); err != nil {
		t.Fatal(err)
	}
	return columns
}

// statements reads the text of every statement of package db from its source.
func statements(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../db/*.sql.gen.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	all := map[string]string{}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range tree.Decls {
			decl, ok := declared.(*ast.GenDecl)
			if !ok || decl.Tok != token.CONST {
				continue
			}
			for _, spec := range decl.Specs {
				value := spec.(*ast.ValueSpec)
				text, err := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				all[value.Names[0].Name] = text
			}
		}
	}
	return all
}

// explain asks for the plan that a process keeps.
func explain(t *testing.T, conn *pgx.Conn, statement string) indexStep {
	t.Helper()
	exec(t, conn, "DEALLOCATE ALL")
	prepared, err := conn.Prepare(t.Context(), "asked", statement)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, oid := range prepared.ParamOIDs {
		kind, _ := conn.TypeMap().TypeForOID(oid)
		values = append(values, sample(kind.Name))
	}
	ask := "EXPLAIN (FORMAT JSON) EXECUTE asked"
	if len(values) > 0 {
		ask += "(" + strings.Join(values, ", ") + ")"
	}
	results, err := conn.PgConn().Exec(t.Context(), ask).ReadAll()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, ask, statement)
	}
	var plans []struct{ Plan indexStep }
	if err := json.Unmarshal(slices.Concat(results[0].Rows[0]...), &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan
}

// sample is a value of a type, so that the months that a statement reads are planned.
func sample(kind string) string {
	if element, list := strings.CutPrefix(kind, "_"); list {
		return "ARRAY[" + sample(element) + "]"
	}
	switch kind {
	case "timestamptz":
		return "now()"
	case "uuid":
		return "gen_random_uuid()"
	case "bool":
		return "true"
	case "json", "jsonb":
		return "'{}'::" + kind
	case "interval":
		return "interval '1 second'"
	case "bytea":
		return `'\x00'::bytea`
	}
	return "'1'::" + kind
}
