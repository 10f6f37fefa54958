// Package settled says up to which time nothing more will be committed.
//
// It owns the mark. A row bears the time at which its transaction began, and a commit may
// take long, such as one that waits for a standby which is away. So rows can appear in a past
// that was read already. A pass that reads what is new therefore reads only up to a mark: a time
// before which no open transaction can still add rows. It refuses to know what is read.
package settled

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

const (
	// Lag is how far reading stays behind the mark: a row bears the time at which its
	// transaction began, and the longest may take a statement's time-out several times
	// until it writes.
	Lag = 15 * time.Second
	// patience is how long transactions that wrote may hold up reading before that is
	// an error.
	patience = time.Minute
)

// Mark is a time, and the transactions that had written by then and were still open. Once they
// have ended, everything up to Lag before that time can be read, and no row will be added there.
// One goroutine at a time uses a Mark.
type Mark struct {
	db      *postgres.DB
	at      time.Time // zero: the next Settle makes one
	made    clock.Mark
	writers []string
}

// NewMark makes one; db acts as postgres.Engine.
func NewMark(db *postgres.DB) *Mark { return &Mark{db: db} }

// Settle marks the time, unless it is marked, and reports whether all transactions that
// had written by then have ended.
func (m *Mark) Settle(ctx context.Context) (settled bool, err error) {
	at, writers, err := listWriters(ctx, m.db)
	if err != nil {
		return false, err
	}
	if m.at.IsZero() {
		m.at, m.made, m.writers = at, clock.Start(), writers
	}
	m.writers = slices.DeleteFunc(m.writers, func(w string) bool { return !slices.Contains(writers, w) })
	if m.Waiting() && m.made.Elapsed() > patience {
		return false, fmt.Errorf("outcomes are not read since %v: a transaction that has written does not end (in pg_locks: virtualtransaction %s)",
			m.made.Elapsed().Round(time.Second), m.writers[0])
	}
	return !m.Waiting(), nil
}

// Waiting reports whether the last Settle found a transaction that has written and not
// ended.
func (m *Mark) Waiting() bool { return !m.at.IsZero() && len(m.writers) > 0 }

// Until is the time up to which may be read, once it is settled.
func (m *Mark) Until() time.Time { return m.at.Add(-Lag) }

// Reached says that everything up to the mark is read: the next Settle makes another.
func (m *Mark) Reached() { m.at, m.writers = time.Time{}, nil }
