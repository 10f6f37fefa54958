package intake

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/monitor"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
)

// store is the door to the database; it sees all tenants.
type store struct{ db *postgres.DB }

// slack is added before the first and after the last ping that was lost: their callers may
// have sent others that never came so far.
const slack = 2 * time.Second

// seen is what a sign found.
type seen struct {
	watched bool // a monitor has a deadline
	gone    int  // processes that are taken for gone
}

// touch gives a sign and stores a gap where there was one.
func (s store) touch(ctx context.Context, taker uuid.UUID, name string, quiet time.Duration, lost span) (seen, error) {
	p := db.TouchMonitorIntakeParams{Taker: taker, Name: name, GoneSeconds: gone.Seconds(), SilenceSeconds: quiet.Seconds()}
	if lost.from != nil {
		p.LostFromSeconds, p.LostToSeconds = (lost.from.Elapsed() + slack).Seconds(), max(0, lost.to.Elapsed()-slack).Seconds()
	}
	row, err := db.New(s.db.Pool()).TouchMonitorIntake(ctx, p)
	if err != nil {
		return seen{}, fmt.Errorf("say that pings can be stored: %w", postgres.Fault(err))
	}
	return seen{watched: row.Watched, gone: int(row.Gone)}, nil
}

// leave ends the signs of a process.
func (s store) leave(ctx context.Context, taker uuid.UUID) error {
	return postgres.Fault(db.New(s.db.Pool()).EndMonitorTaker(ctx, taker))
}

// front is the key of our own pings, and how long ago the last one came in.
func (s store) front(ctx context.Context) (key string, silent time.Duration, err error) {
	row, err := db.New(s.db.Pool()).GetMonitorFront(ctx)
	if err != nil {
		return "", 0, fmt.Errorf("find when a ping of our own came in: %w", postgres.Fault(err))
	}
	return row.PingKey, time.Duration(min(row.SilentSeconds, MaxHold.Seconds()) * float64(time.Second)), nil
}

// touchFront says that a ping of our own came in. It answers whether the key is that of our own.
func (s store) touchFront(ctx context.Context, key string) (ours bool, err error) {
	n, err := db.New(s.db.Pool()).TouchMonitorFront(ctx, db.TouchMonitorFrontParams{PingKey: key, SilenceSeconds: frontSilence.Seconds(), HeldSeconds: MaxHold.Seconds()})
	if err != nil {
		return false, fmt.Errorf("say that a ping of our own came in: %w", postgres.Fault(err))
	}
	return n > 0, nil
}

// held is a monitor whose row is locked, and what decides about it.
type held struct {
	m       *monitor.Monitor
	machine *monitor.Machine
}

// other names a run of a monitor by the caller's id.
type other struct {
	monitor uuid.UUID
	run     string
}

// take stores pings in one transaction, in the order in which they came, and answers them
// once it is committed. It answers none where it fails.
func (s store) take(ctx context.Context, all []*waiter) error {
	answers := make([]Answer, len(all))
	err := s.db.InTx(ctx, func(tx *postgres.Tx) error {
		found, err := lock(ctx, tx, all)
		if err != nil {
			return err
		}
		open, err := findOpen(ctx, tx, found, all)
		if err != nil {
			return err
		}
		var changes monitor.Batch
		for i, w := range all {
			h, ok := found[w.key]
			if !ok {
				answers[i] = Answer{err: monitor.NoSuchKey()}
				continue
			}
			// A ping is as old as it waited, by the database's clock.
			w.ping.At = tx.At.Add(-w.came.Elapsed()).Truncate(time.Microsecond)
			var elsewhere *monitor.Open
			if key := (other{h.m.ID, w.ping.RunID}); h.m.Elsewhere(w.ping) {
				elsewhere = open[key]
				delete(open, key)
			}
			h.machine.Ping(w.ping, elsewhere)
			answers[i] = Answer{Status: h.m.Status(tx.At)}
		}
		for _, h := range found {
			if err := changes.Add(h.machine); err != nil {
				return err
			}
		}
		return changes.Write(ctx, tx)
	})
	if err != nil {
		return err
	}
	for i, w := range all {
		w.reply(answers[i])
	}
	return nil
}

// lock finds the monitors by their keys and locks them.
func lock(ctx context.Context, tx *postgres.Tx, all []*waiter) (map[string]held, error) {
	keys := make([]string, len(all))
	for i, w := range all {
		keys[i] = w.key
	}
	rows, err := tx.LockMonitorsByKeys(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("find monitors by their keys: %w", err)
	}
	found := make(map[string]held, len(rows))
	for _, row := range rows {
		m, err := monitor.FromRow(row)
		if err != nil {
			return nil, err
		}
		machine, err := m.Machine()
		if err != nil {
			return nil, err
		}
		found[m.PingKey] = held{&m, machine}
	}
	return found, nil
}

// findOpen finds the runs that pings may end and that are not the last of their monitors.
func findOpen(ctx context.Context, tx *postgres.Tx, found map[string]held, all []*waiter) (map[other]*monitor.Open, error) {
	var p db.FindOpenMonitorRunsParams
	for _, w := range all {
		if h, ok := found[w.key]; ok && h.m.Elsewhere(w.ping) {
			p.MonitorIds, p.RunIds = append(p.MonitorIds, h.m.ID), append(p.RunIds, w.ping.RunID)
		}
	}
	if len(p.MonitorIds) == 0 {
		return nil, nil
	}
	rows, err := tx.FindOpenMonitorRuns(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("find runs that go on: %w", err)
	}
	open := map[other]*monitor.Open{}
	for _, r := range rows {
		open[other{r.MonitorID, r.RunID}] = &monitor.Open{N: r.N, StartedAt: columns.OrZero(r.StartedAt).UTC()}
	}
	return open, nil
}
