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
	"github.com/scheduler-service/scheduler/internal/dispatch"
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

// progress is how far the pieces of an order are.
type progress struct {
	after dispatch.Place
	size  int32
}

// Cancel works on what was ordered to be cancelled, and on what suspended tenants
// have: it ends what waits and asks what runs to end, in pieces, tenants in turns,
// for half a second at most. It says how many executions that were. The error
// names the tenants that failed; the others go on. One process at a time does so,
// and the others return at once: four that each cancelled for half of their time
// kept both cores from tenants that cancel nothing.
func (m *Maintainer) Cancel(ctx context.Context) (cancelled int, err error) {
	orders, err := m.dispatch.Orders(ctx, cancelBatch)
	m.forgetProgress(orders)
	if len(orders) == 0 {
		return 0, err
	}
	failed := m.dispatch.CancelAlone(ctx, func() (err error) {
		cancelled, err = m.cancelInTurns(ctx, turnsOf(orders))
		return err
	})
	return cancelled, errors.Join(err, failed)
}

// cancelInTurns cancels pieces of what each tenant has, tenants in turns.
func (m *Maintainer) cancelInTurns(ctx context.Context, turns [][]dispatch.Order) (cancelled int, err error) {
	var errs []error
	for began := clock.Start(); len(turns) > 0; {
		left := turns[:0]
		for _, mine := range turns {
			if began.Elapsed() > cancelBudget || ctx.Err() != nil {
				return cancelled, errors.Join(errs...)
			}
			n, done, err := m.cancelPiece(ctx, mine[0])
			cancelled += n
			if err != nil {
				errs = append(errs, fmt.Errorf("tenant %s, job %s: %w", mine[0].Tenant, mine[0].Job, err))
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

// turnsOf are the orders of each tenant, tenants in any order.
func turnsOf(orders []dispatch.Order) (turns [][]dispatch.Order) {
	at := map[uuid.UUID]int{}
	for _, o := range orders {
		i, known := at[o.Tenant]
		if !known {
			i = len(turns)
			at[o.Tenant] = i
			turns = append(turns, nil)
		}
		turns[i] = append(turns[i], o)
	}
	rand.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
	return turns
}

// forgetProgress drops what is known of orders that are done.
func (m *Maintainer) forgetProgress(orders []dispatch.Order) {
	for o := range m.cancelling {
		if !slices.Contains(orders, o) {
			delete(m.cancelling, o)
		}
	}
}

// cancelPiece cancels the next piece of an order; done says that there is no
// further one now. A piece that the database refuses is divided until the
// execution that it refuses is alone, and that one is parked.
func (m *Maintainer) cancelPiece(ctx context.Context, o dispatch.Order) (n int, done bool, err error) {
	at, known := m.cancelling[o]
	if !known {
		at = &progress{size: firstPiece}
		m.cancelling[o] = at
	}
	mark := clock.Start()
	n, last, err := m.dispatch.CancelPiece(ctx, o, at.after, at.size)
	switch took := mark.Elapsed(); {
	case postgres.Refused(err) && at.size == 1:
		return 0, false, m.parkNext(ctx, o, at, err)
	case postgres.Refused(err):
		at.size = max(1, at.size/2)
		return 0, false, nil
	case err != nil:
		at.size = max(1, at.size/2)
		return 0, false, postgres.Fault(err)
	case n == 0:
		at.after = dispatch.Place{}
		return 0, true, m.dispatch.CloseOrder(ctx, o)
	case took < quickPiece:
		at.size = min(maxPiece, 2*at.size)
	case took > slowPiece:
		at.size = max(1, at.size/2)
	}
	at.after = last
	return n, false, nil
}

// parkNext parks the next execution of an order, whose cancelling the database
// refuses, and goes on behind it. One that cannot be parked either stays as it
// is: no claim takes it, and the next passes come back to it.
func (m *Maintainer) parkNext(ctx context.Context, o dispatch.Order, at *progress, why error) error {
	next, err := m.dispatch.NextPlace(ctx, o, at.after)
	if err != nil {
		return err
	}
	at.after = next
	if err := m.dispatch.ParkWaiting(ctx, o, next.ID, postgres.Why(why)); err != nil {
		m.c.Log.ErrorContext(ctx, "an execution cannot be cancelled", "execution_id", next.ID, "tenant_id", o.Tenant, "job_id", o.Job, "error", errors.Join(why, err))
		return nil
	}
	m.c.Log.WarnContext(ctx, "the end of a cancelled execution is parked", "execution_id", next.ID, "tenant_id", o.Tenant, "job_id", o.Job, "error", why)
	return nil
}
