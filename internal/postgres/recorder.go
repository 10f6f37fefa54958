package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// recorder stands in for a connection and queues what generated write methods
// send, so that several of them travel together.
type recorder struct{ batch pgx.Batch }

// Exec queues a statement; its result is not known yet.
func (r *recorder) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	r.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

// errRecorded is the refusal of a read: it would need an answer.
var errRecorded = errors.New("only writes can be sent along with the commit")

// Query refuses.
func (r *recorder) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, errRecorded
}

// QueryRow refuses.
func (r *recorder) QueryRow(context.Context, string, ...any) pgx.Row { return refusal{} }

type refusal struct{}

func (refusal) Scan(...any) error { return errRecorded }

// SendBatch refuses: it is a round trip of its own.
func (r *recorder) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return noBatch{} }

// noBatch has no results.
type noBatch struct{ pgx.BatchResults }

// Exec refuses.
func (noBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, errRecorded }

// Query refuses.
func (noBatch) Query() (pgx.Rows, error) { return nil, errRecorded }

// QueryRow refuses.
func (noBatch) QueryRow() pgx.Row { return refusal{} }

// Close refuses.
func (noBatch) Close() error { return errRecorded }
