package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
)

// pageBytes bounds the rows of a page, in bytes. A page of a hundred rows that are as large as
// the contract lets them be would hold a hundred times as much, and a few times
// that again while it is written as an answer.
const pageBytes = 2 << 20

// Paged are the queries of a page: one stops at pageBytes, with at least a row,
// and then Cut says that there are more. The page is shorter than its limit, and
// the next one begins after its last row.
func (tx *Tx) Paged() *db.Queries { return db.New(paged{tx.through, tx}) }

// PagedSince is Paged with a time written into the statement, where that says 1970: a
// plan that is kept then has the partitions from there on alone.
func (tx *Tx) PagedSince(at time.Time) *db.Queries {
	return db.New(since{paged{tx.through, tx}, at.UTC().Format("'2006-01-02 15:04:05+00'")})
}

// since writes a time into a statement.
type since struct {
	db.DBTX

	at string
}

func (s since) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return s.DBTX.Query(ctx, strings.Replace(sql, "'1970-01-01 00:00:00+00'", s.at, 1), args...)
}

// Cut says whether the last query of Paged stopped before its end.
func (tx *Tx) Cut() bool { return tx.cut }

// paged bounds what a query answers.
type paged struct {
	db.DBTX

	tx *Tx
}

func (p paged) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	p.tx.cut = false
	rows, err := p.DBTX.Query(ctx, sql, args...)
	return &pageRows{Rows: rows, tx: p.tx, left: pageBytes}, err
}

// pageRows ends before the row that follows pageBytes of others. The rest
// it is read off the connection and held by nobody.
type pageRows struct {
	pgx.Rows

	tx   *Tx
	left int
}

// Next is that of pgx.Rows.
func (r *pageRows) Next() bool {
	if !r.Rows.Next() {
		return false
	}
	if r.left <= 0 {
		r.tx.cut = true
		r.Rows.Close()
		return false
	}
	for _, value := range r.Rows.RawValues() {
		r.left -= len(value)
	}
	return true
}
