package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Store takes and gives back leases for one process.
type Store struct {
	c Config
	q *db.Queries
}

// NewStore makes a store.
func NewStore(c Config) *Store { return &Store{c: c, q: db.New(c.DB.Pool())} }

// Acquire takes the lease of a name. It is ErrHeld when somebody else has it,
// or this process does: a lease is not taken twice. After another error the
// lease may have been taken all the same, by nobody who knows; it runs out.
func (s *Store) Acquire(ctx context.Context, name string) (Lease, error) {
	l := Lease{Name: name, owner: uuid.New(), sent: clock.Start()}
	var err error
	l.Fence, err = s.q.AcquireLock(ctx, db.AcquireLockParams{Name: name, Owner: l.owner, Holder: s.c.Holder, TtlSeconds: s.c.TTL.Seconds()})
	err = postgres.Fault(err)
	switch {
	case err == nil:
		s.c.Metrics.LockAcquired("acquired")
		return l, nil
	case fault.KindOf(err) == fault.NotFound:
		s.c.Metrics.LockAcquired("held")
		return Lease{}, ErrHeld
	}
	s.c.Metrics.LockAcquired("error")
	if fault.KindOf(err) == fault.Unavailable {
		s.c.Metrics.LockTimedOut()
	}
	return Lease{}, fmt.Errorf("acquire the lease %s: %w", name, err)
}

// Extend prolongs a lease to a full TTL from now, and answers it with that. It
// is ErrLost when the lease ran out, is another's or was released; another
// error leaves it as it was or extended.
func (s *Store) Extend(ctx context.Context, l Lease) (Lease, error) {
	sent := clock.Start()
	n, err := s.q.ExtendLock(ctx, db.ExtendLockParams{Name: l.Name, Owner: l.owner, Fence: l.Fence, TtlSeconds: s.c.TTL.Seconds()})
	if err != nil {
		return l, fmt.Errorf("extend the lease %s: %w", l.Name, postgres.Fault(err))
	}
	if n == 0 {
		s.c.Metrics.LockTimedOut()
		return l, ErrLost
	}
	l.sent = sent
	return l, nil
}

// Release gives a lease back. It is ErrLost when it was not had any more, which
// changes nothing for the owner.
func (s *Store) Release(ctx context.Context, l Lease) error {
	n, err := s.q.ReleaseLock(ctx, db.ReleaseLockParams{Name: l.Name, Owner: l.owner, Fence: l.Fence})
	if err != nil {
		return fmt.Errorf("release the lease %s: %w", l.Name, postgres.Fault(err))
	}
	if n == 0 {
		return ErrLost
	}
	return nil
}

// Guard is the fence: it refuses a transaction of a late owner with ErrLost,
// and until a transaction that it let pass has ended, nobody else gets the lease.
// Such a transaction should be short, since the lease is not extended while it
// lasts.
func (l Lease) Guard(ctx context.Context, tx *postgres.Tx) error {
	_, err := tx.GuardLock(ctx, db.GuardLockParams{Name: l.Name, Owner: l.owner, Fence: l.Fence})
	if err = postgres.Fault(err); fault.KindOf(err) == fault.NotFound {
		return ErrLost
	}
	if err != nil {
		return fmt.Errorf("check the lease %s: %w", l.Name, err)
	}
	return nil
}

// Try takes and releases the lease Health, and reports whether leases work. That
// somebody else tries at the same moment is no failure.
func (s *Store) Try(ctx context.Context) error {
	l, err := s.Acquire(ctx, Health)
	if errors.Is(err, ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.Release(ctx, l)
}
