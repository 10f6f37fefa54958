package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/scheduler-service/scheduler/db"
)

// CommitWith commits with the writes that fn makes, all in one round trip.
// The writes are only sent when fn returned, so their results are not known to
// it, or with a read of one row, which is then the last thing that fn does. The
// transaction is over afterwards.
func (tx *Tx) CommitWith(ctx context.Context, fn func(q *db.Queries) error) error {
	if tx.opening != nil {
		return errUnled
	}
	queued := recorder{tx: tx}
	if err := fn(db.New(&queued)); err != nil || tx.committed {
		return Fault(err)
	}
	queued.batch.Queue("COMMIT")
	tx.committed = true
	return Fault(tx.conn.SendBatch(ctx, &queued.batch).Close())
}

// recorder stands in for a connection and queues what generated write methods
// send, so that several of them travel together, with the commit behind them.
type recorder struct {
	tx    *Tx
	batch pgx.Batch
}

// Exec queues a statement; its result is not known yet.
func (r *recorder) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if r.tx.committed {
		return pgconn.CommandTag{}, errRecorded // it would never be sent
	}
	r.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

// errRecorded is the refusal of a read that would need an answer before the end.
var errRecorded = errors.New("only writes can be sent along with the commit, and one read of a row at the end")

// Query refuses.
func (r *recorder) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, errRecorded
}

// QueryRow sends what is queued, the read, and the commit.
func (r *recorder) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if r.tx.committed {
		return refusal{errRecorded}
	}
	writes := r.batch.Len()
	r.batch.Queue(sql, args...)
	r.batch.Queue("COMMIT")
	r.tx.committed = true
	results := r.tx.conn.SendBatch(ctx, &r.batch)
	for range writes {
		_, _ = results.Exec() // its error comes back with the row
	}
	return lastRow{results}
}

// lastRow is the row behind which only the commit comes.
type lastRow struct{ results pgx.BatchResults }

// Scan answers an error of any of the statements, too.
func (r lastRow) Scan(into ...any) error {
	err := r.results.QueryRow().Scan(into...)
	if closed := r.results.Close(); err == nil {
		err = closed
	}
	return err
}

type refusal struct{ err error }

func (r refusal) Scan(...any) error { return r.err }

// SendBatch refuses: it is a round trip of its own.
func (r *recorder) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return noBatch{} }

// leader stands in for the connection of a transaction whose beginning is sent
// along with its first statement.
type leader struct{ tx *Tx }

// errUnled is the refusal of a first statement that cannot lead.
var errUnled = errors.New("the first statement of this transaction must be one that reads rows")

// Query sends the beginning along, once.
func (l leader) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if l.tx.opening == nil {
		return l.tx.conn.Query(ctx, sql, args...)
	}
	l.tx.opening.Queue(sql, args...)
	results := l.tx.opened(l.tx.conn.SendBatch(ctx, l.tx.opening), opening{led: true})
	rows, err := results.Query()
	if err != nil {
		_ = results.Close() // nobody closes rows that there are not, and the connection would be lost
		return nil, err
	}
	return ledRows{rows, results}, nil
}

// ledRows are rows behind which the results of a batch end.
type ledRows struct {
	pgx.Rows
	results pgx.BatchResults
}

// Close frees the connection. Its error is that of the rows, or of the
// connection, which the next statement meets.
func (r ledRows) Close() {
	r.Rows.Close()
	_ = r.results.Close()
}

// Exec is the connection's once the transaction has begun.
func (l leader) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if l.tx.opening != nil {
		return pgconn.CommandTag{}, errUnled
	}
	return l.tx.conn.Exec(ctx, sql, args...)
}

// QueryRow is the connection's once the transaction has begun.
func (l leader) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if l.tx.opening != nil {
		return refusal{errUnled}
	}
	return l.tx.conn.QueryRow(ctx, sql, args...)
}

// SendBatch is the connection's once the transaction has begun.
func (l leader) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if l.tx.opening != nil {
		return noBatch{}
	}
	return l.tx.conn.SendBatch(ctx, b)
}

// noBatch has no results.
type noBatch struct{ pgx.BatchResults }

// Exec refuses.
func (noBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, errRecorded }

// Query refuses.
func (noBatch) Query() (pgx.Rows, error) { return nil, errRecorded }

// QueryRow refuses.
func (noBatch) QueryRow() pgx.Row { return refusal{errRecorded} }

// Close refuses.
func (noBatch) Close() error { return errRecorded }
