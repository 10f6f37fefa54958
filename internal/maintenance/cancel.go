package maintenance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

const (
	// cancelBudget is how long a pass cancels, half of the time between two: what
	// a process can cancel follows from the speed of its database.
	cancelBudget = 500 * time.Millisecond
	// cancelBatch is how many orders, and how many suspended tenants, a pass takes.
	cancelBatch = 200
	// A piece is one statement. It starts with firstPiece executions, doubles
	// while it is quick, up to maxPiece, and halves when it is slow or fails.
	firstPiece, maxPiece  = 250, 2000
	quickPiece, slowPiece = 100 * time.Millisecond, 300 * time.Millisecond
)

// target is what is cancelled in pieces: everything that a job has up to a
// generation, or everything of a tenant that is suspended.
type target struct {
	tenant, job uuid.UUID // job: nil for a tenant's
	generation  int32
	spare       bool // what backfills made
	reason, by  string
}

// progress is how far the pieces of a target are.
type progress struct {
	after place
	size  int32
}

// place is one in the order in which pieces follow one another.
type place struct {
	at time.Time
	id uuid.UUID
}

// Cancel works on what was ordered to be cancelled, and on what suspended tenants
// have: it ends what waits and asks what runs to end, in pieces, tenants in turns,
// for half a second at most. It says how many executions that were. What fails for
// one tenant is in the error, and the others go on. Any number of promoters may do
// so at once.
func (m *Maintainer) Cancel(ctx context.Context) (cancelled int, err error) {
	targets, errs := m.store.targets(ctx)
	m.forgetProgress(targets)
	turns := turnsOf(targets)
	for began := clock.Start(); len(turns) > 0; {
		left := turns[:0]
		for _, mine := range turns {
			if began.Elapsed() > cancelBudget || ctx.Err() != nil {
				return cancelled, errors.Join(errs...)
			}
			n, done, err := m.cancelPiece(ctx, mine[0])
			cancelled += n
			if err != nil {
				errs = append(errs, fmt.Errorf("tenant %s, job %s: %w", mine[0].tenant, mine[0].job, err))
			}
			if done || err != nil { // the next pass tries it again
				mine = mine[1:]
			}
			if len(mine) > 0 {
				left = append(left, mine)
			}
		}
		turns = left
	}
	return cancelled, errors.Join(errs...)
}

// turnsOf are the targets of each tenant, tenants in any order.
func turnsOf(targets []target) (turns [][]target) {
	at := map[uuid.UUID]int{}
	for _, t := range targets {
		i, known := at[t.tenant]
		if !known {
			i = len(turns)
			at[t.tenant] = i
			turns = append(turns, nil)
		}
		turns[i] = append(turns[i], t)
	}
	rand.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
	return turns
}

// forgetProgress drops what is known of targets that are done.
func (m *Maintainer) forgetProgress(targets []target) {
	for t := range m.cancelling {
		if !slices.Contains(targets, t) {
			delete(m.cancelling, t)
		}
	}
}

// cancelPiece cancels the next piece of a target; done says that there is no
// further one now. A piece that the database refuses is divided until the
// execution that it refuses is alone, and that one is parked.
func (m *Maintainer) cancelPiece(ctx context.Context, t target) (n int, done bool, err error) {
	at, known := m.cancelling[t]
	if !known {
		at = &progress{size: firstPiece}
		m.cancelling[t] = at
	}
	mark := clock.Start()
	n, last, err := m.store.cancelPiece(ctx, t, *at)
	switch took := mark.Elapsed(); {
	case postgres.Refused(err) && at.size == 1:
		return 0, false, m.parkNext(ctx, t, at, err)
	case postgres.Refused(err):
		at.size = max(1, at.size/2)
		return 0, false, nil
	case err != nil:
		at.size = max(1, at.size/2)
		return 0, false, postgres.Fault(err)
	case n == 0:
		at.after = place{}
		return 0, true, m.store.closeOrder(ctx, t)
	case took < quickPiece:
		at.size = min(maxPiece, 2*at.size)
	case took > slowPiece:
		at.size = max(1, at.size/2)
	}
	at.after = last
	return n, false, nil
}

// parkNext parks the next execution of a target, whose cancelling the database
// refuses, and goes on behind it. One that cannot be parked either stays as it
// is: no claim takes it, and the next passes come back to it.
func (m *Maintainer) parkNext(ctx context.Context, t target, at *progress, why error) error {
	next, err := m.store.nextPlace(ctx, t, *at)
	if err != nil {
		return err
	}
	at.after = next
	if err := m.store.parkWaiting(ctx, t, next.id, why); err != nil {
		m.c.Log.ErrorContext(ctx, "an execution cannot be cancelled", "execution_id", next.id, "tenant_id", t.tenant, "job_id", t.job, "error", errors.Join(why, err))
		return nil
	}
	m.c.Log.WarnContext(ctx, "the end of a cancelled execution is parked", "execution_id", next.id, "tenant_id", t.tenant, "job_id", t.job, "error", why)
	return nil
}
