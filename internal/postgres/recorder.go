package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/scheduler-service/scheduler/db"
)

// CommitWith commits with the statements of fn, all in one round trip, see Together.
// It may end with a read instead, which is then the last thing that fn does. The transaction is over afterwards.
func (tx *Tx) CommitWith(ctx context.Context, fn func(q *db.Queries) error) error {
	if tx.opening != nil {
		return errUnled
	}
	return tx.send(ctx, fn, true)
}

// Together sends the statements of fn in one round trip: writes, whose results are not
// known to fn, and batches, of which fn reads no result before it has queued all.
func (tx *Tx) Together(ctx context.Context, fn func(q *db.Queries) error) error {
	return tx.send(ctx, fn, false)
}

func (tx *Tx) send(ctx context.Context, fn func(q *db.Queries) error, commit bool) error {
	queued := &recorder{tx: tx, commit: commit}
	if commit && tx.how.turn {
		queued.batch.Queue(setLockTimeout, tx.how.lockTimeout)
		queued.batch.Queue(endTurn)
	}
	err := fn(db.New(queued))
	if err == nil {
		queued.flush(ctx)
	}
	if queued.results != nil {
		if closed := queued.results.Close(); err == nil {
			err = closed
		}
	}
	return Fault(err)
}

// recorder stands in for a connection and queues what generated methods send, so
// that several of them travel together, and the commit behind them.
type recorder struct {
	tx      *Tx
	commit  bool
	batch   pgx.Batch
	results pgx.BatchResults // once it is sent
	read    int              // results of statements that were read
}

// errRecorded is the refusal of a statement that comes too late to travel along.
var errRecorded = errors.New("only writes and batches can be sent together, and one read at the end")

// flush sends what is queued, once.
func (r *recorder) flush(ctx context.Context) {
	if r.results != nil {
		return
	}
	if r.commit {
		r.batch.Queue("COMMIT")
		r.tx.committed = true
	}
	r.results = r.tx.through.SendBatch(ctx, &r.batch)
}

// skip reads the results of the statements before one that nobody reads.
func (r *recorder) skip(to int) {
	for ; r.read < to; r.read++ {
		_, _ = r.results.Exec() // its error comes back with the next result
	}
	r.read++
}

// Exec queues a statement; its result is not known yet.
func (r *recorder) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if r.results != nil {
		return pgconn.CommandTag{}, errRecorded // it would never be sent
	}
	r.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

// Query sends what is queued, and the read. The error of the commit is that of
// CommitWith.
func (r *recorder) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if r.results != nil {
		return nil, errRecorded
	}
	r.sendUpTo(ctx, sql, args)
	return r.results.Query()
}

// sendUpTo sends what is queued, and a read, whose result is the next one.
func (r *recorder) sendUpTo(ctx context.Context, sql string, args []any) {
	at := r.batch.Len()
	r.batch.Queue(sql, args...)
	r.flush(ctx)
	r.skip(at)
}

// QueryRow sends what is queued, and the read.
func (r *recorder) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if r.results != nil {
		return refusal{errRecorded}
	}
	r.sendUpTo(ctx, sql, args)
	return lastRow{r.results}
}

// SendBatch queues the statements of a batch. They are sent when the first result of
// any is read.
func (r *recorder) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if r.results != nil {
		return noBatch{}
	}
	at := r.batch.Len()
	r.batch.QueuedQueries = append(r.batch.QueuedQueries, b.QueuedQueries...)
	return &laterResults{send: func() { r.flush(ctx) }, of: r, next: at}
}

// laterResults are those of a batch that travels with others.
type laterResults struct {
	pgx.BatchResults

	send func()
	of   *recorder
	next int
}

func (l *laterResults) results() pgx.BatchResults {
	l.send()
	l.of.skip(l.next)
	l.next++
	return l.of.results
}

// Exec reads the result of a write.
func (l *laterResults) Exec() (pgconn.CommandTag, error) { return l.results().Exec() }

// Query reads rows.
func (l *laterResults) Query() (pgx.Rows, error) { return l.results().Query() }

// QueryRow reads a row.
func (l *laterResults) QueryRow() pgx.Row { return l.results().QueryRow() }

// Close does nothing: others may be read still.
func (l *laterResults) Close() error { return nil }

// lastRow is the row behind which no other result is read.
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

// leader stands in for the connection of a transaction whose beginning is sent
// along with its first statement, or with each.
type leader struct {
	tx *Tx
	o  opening
}

// errUnled is the refusal of a first statement that cannot lead.
var errUnled = errors.New("the first statement of this transaction must be one that reads rows")

// leads says whether the beginning has to be sent along.
func (l leader) leads() bool {
	if l.o.each && l.tx.opening == nil {
		l.tx.opening = l.o.batch()
	}
	return l.tx.opening != nil
}

// lead sends the beginning and the statements.
func (l leader) lead(ctx context.Context, statements ...*pgx.QueuedQuery) pgx.BatchResults {
	b := l.tx.opening
	b.QueuedQueries = append(b.QueuedQueries, statements...)
	return l.tx.opened(l.tx.conn.SendBatch(ctx, b), l.o)
}

// Query sends the beginning along, once.
func (l leader) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if !l.leads() {
		return l.tx.conn.Query(ctx, sql, args...)
	}
	results := l.lead(ctx, &pgx.QueuedQuery{SQL: sql, Arguments: args})
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
	if l.leads() {
		return pgconn.CommandTag{}, errUnled
	}
	return l.tx.conn.Exec(ctx, sql, args...)
}

// QueryRow sends the beginning along, once.
func (l leader) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if !l.leads() {
		return l.tx.conn.QueryRow(ctx, sql, args...)
	}
	return lastRow{l.lead(ctx, &pgx.QueuedQuery{SQL: sql, Arguments: args})}
}

// SendBatch sends the beginning along, once.
func (l leader) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if !l.leads() {
		return l.tx.conn.SendBatch(ctx, b)
	}
	return l.lead(ctx, b.QueuedQueries...)
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
