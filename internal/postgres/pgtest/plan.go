package pgtest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// errTakenDown is what a Statement answers instead of rows.
var errTakenDown = errors.New("taken down")

// Statement takes down what a generated method sends instead of sending it, so
// that a test can ask for its plan: db.New takes one for a connection.
type Statement struct {
	sql  string
	args []any
}

// Exec takes the statement down and fails.
func (s *Statement) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	s.sql, s.args = sql, args
	return pgconn.CommandTag{}, errTakenDown
}

// Query takes the statement down and fails.
func (s *Statement) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	s.sql, s.args = sql, args
	return nil, errTakenDown
}

// QueryRow takes the statement down and answers a row that fails.
func (s *Statement) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	s.sql, s.args = sql, args
	return takenDown{}
}

// SendBatch takes down the only statement of a batch.
func (s *Statement) SendBatch(_ context.Context, b *pgx.Batch) pgx.BatchResults {
	if len(b.QueuedQueries) != 1 {
		panic("a batch of several statements has no plan of its own")
	}
	s.sql, s.args = b.QueuedQueries[0].SQL, b.QueuedQueries[0].Arguments
	return unsent{}
}

// unsent are the results of a batch that was taken down.
type unsent struct{ pgx.BatchResults }

// QueryRow answers a row that fails.
func (unsent) QueryRow() pgx.Row { return takenDown{} }

// Close does nothing.
func (unsent) Close() error { return nil }

type takenDown struct{}

func (takenDown) Scan(...any) error { return errTakenDown }

// PlanNode is a step of a plan that was run, with the steps below it, as EXPLAIN
// (ANALYZE, BUFFERS, FORMAT JSON) tells it. Row counts are those of one loop.
type PlanNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	Index    string     `json:"Index Name"`
	Loops    float64    `json:"Actual Loops"`
	Rows     float64    `json:"Actual Rows"`
	Joined   float64    `json:"Rows Removed by Join Filter"`
	Filtered float64    `json:"Rows Removed by Filter"`
	Took     float64    `json:"Actual Total Time"` // ms, of one loop
	Hit      float64    `json:"Shared Hit Blocks"`
	Read     float64    `json:"Shared Read Blocks"`
	Plans    []PlanNode `json:"Plans"`
}

// Walk visits the step and all below it.
func (n PlanNode) Walk(visit func(PlanNode)) {
	visit(n)
	for _, below := range n.Plans {
		below.Walk(visit)
	}
}

// Touched is how many rows the step itself produced, compared and threw away.
func (n PlanNode) Touched() float64 { return n.Loops * (n.Rows + n.Joined + n.Filtered) }

// Buffers is how many pages the step and all below it looked at, those of the
// functions that they call included.
func (n PlanNode) Buffers() float64 { return n.Hit + n.Read }

// Explain runs what ask sends to the Statement, of a tenant (uuid.Nil: of none)
// and with a plan_cache_mode ("auto" where nothing is to be forced), tells how
// it was run and takes it back.
//
// The statement is prepared and executed by name. EXPLAIN of a statement with parameters has the
// plan for their values in every mode.
func Explain(t testing.TB, conn *pgx.Conn, mode string, tenantID uuid.UUID, ask func(context.Context, *Statement) error) PlanNode {
	t.Helper()
	var s Statement
	if err := ask(t.Context(), &s); !errors.Is(err, errTakenDown) {
		t.Fatalf("no statement was sent: %v", err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	tenant := tenantID.String()
	if tenantID == uuid.Nil {
		tenant = ""
	}
	if _, err := tx.Exec(t.Context(), "SELECT set_config('app.tenant_id', $1, true), set_config('plan_cache_mode', $2, true)", tenant, mode); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.PgConn().Deallocate(t.Context(), explained) }()
	var text []byte
	if err := tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+prepared(t, tx, s), pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
		t.Fatalf("%v: %s", err, s.sql)
	}
	var plans []struct{ Plan PlanNode }
	if err := json.Unmarshal(text, &plans); err != nil || len(plans) != 1 {
		t.Fatal(err, len(plans))
	}
	return plans[0].Plan
}

// explained is the name of the statement that Explain prepares.
const explained = "explained"

// prepared prepares a statement and returns the command that executes it.
func prepared(t testing.TB, tx pgx.Tx, s Statement) string {
	t.Helper()
	d, err := tx.Conn().PgConn().Prepare(t.Context(), explained, s.sql, nil)
	if err != nil {
		t.Fatalf("%v: %s", err, s.sql)
	}
	values := make([]string, len(s.args))
	for i, arg := range s.args {
		text, err := tx.Conn().TypeMap().Encode(d.ParamOIDs[i], pgtype.TextFormatCode, arg, nil)
		if err != nil {
			t.Fatalf("%v: parameter %d of %s", err, i+1, s.sql)
		}
		if values[i] = "NULL"; text != nil {
			values[i] = "'" + strings.ReplaceAll(string(text), "'", "''") + "'"
		}
	}
	if len(values) == 0 {
		return "EXECUTE " + explained
	}
	return "EXECUTE " + explained + "(" + strings.Join(values, ", ") + ")"
}
