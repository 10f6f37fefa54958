// Package lease lets one process at a time do something, however many run.
//
// It owns leases in PostgreSQL: taking one that is free, extending and releasing
// it by its owner alone, its end by the database's clock when the owner is gone,
// and a fencing number that grows with each acquisition. It refuses to promise
// that an owner notices in time that it is late: work that must not be done twice
// calls Guard in its own transaction, which commits only while the lease stands.
// It refuses to wait: who does not get a lease comes again later.
package lease

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// Names of leases, which are names of passes. The database lets the API take Health only.
const (
	Retention = "retention"
	Metrics   = "metrics" // the history of metrics
	Fold1     = "fold-1"  // roll-ups; two processes at once fold what is counted
	Fold2     = "fold-2"
	Health    = "health" // taken and released to see whether leases work
)

// Both are of kind Conflict.
var (
	// ErrHeld says that somebody else has the lease.
	ErrHeld = fault.New(fault.Conflict, fault.CodeLockAcquisitionFailed, "another process holds the lease")
	// ErrLost says that a lease was had and is not any more: it ran out, and
	// somebody else may have it.
	ErrLost = fault.New(fault.Conflict, fault.CodeLockLost, "the lease ran out")
)

// Lease is one acquisition of a name. It stands until it is released or its
// time runs out by the database's clock.
type Lease struct {
	Name string
	// Fence is the number of the acquisition: 1 for the first of a name, and
	// larger with each.
	Fence int64

	owner uuid.UUID
	sent  clock.Mark // when the last statement that prolonged it was sent
}

// Config says whose leases they are.
type Config struct {
	DB *postgres.DB
	// Holder names the process for the operator, such as "host/4711"; at most
	// 200 characters.
	Holder string
	// TTL is how long a lease stands without being extended; at least 30 ms.
	TTL     time.Duration
	Metrics *telemetry.Metrics
}

// Run calls fn while it holds the lease of a name, and says whether it did: it
// answers false and no error when somebody else holds it. The lease is extended
// in the background; fn's context ends, with ErrLost as its cause, a tenth of
// the TTL before the database would give the lease to another. Then an error of
// fn comes back as ErrLost too. The lease is released when fn returns.
func (s *Store) Run(ctx context.Context, name string, fn func(ctx context.Context, l Lease) error) (ran bool, err error) {
	l, err := s.Acquire(ctx, name)
	if errors.Is(err, ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	holding, end := context.WithCancelCause(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		s.keep(holding, l, end)
	}()
	defer func() {
		end(nil)
		<-kept
		// Also when ctx has ended: the next owner need not wait for the TTL. If
		// it fails, he does.
		releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.c.TTL/3)
		defer cancel()
		_ = s.Release(releasing, l)
	}()
	err = fn(holding, l)
	if err != nil && errors.Is(context.Cause(holding), ErrLost) {
		err = errors.Join(ErrLost, err)
	}
	return true, err
}

// keep extends a lease at every third of its time until ctx ends, and ends it
// with ErrLost when that did not succeed in nine tenths of it. The time is
// counted from when a statement was sent, so it is over here before it is in
// the database.
func (s *Store) keep(ctx context.Context, l Lease, end context.CancelCauseFunc) {
	timer := time.NewTimer(s.c.TTL / 3)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		left := s.c.TTL*9/10 - l.sent.Elapsed()
		if left <= 0 {
			s.c.Metrics.LockTimedOut()
			end(ErrLost)
			return
		}
		next, err := s.extendWithin(ctx, l, left)
		switch {
		case errors.Is(err, ErrLost):
			end(ErrLost)
			return
		case err == nil:
			l = next
		}
		timer.Reset(min(s.c.TTL/3, max(0, s.c.TTL*9/10-l.sent.Elapsed())))
	}
}

// extendWithin is Extend with a bound. An error that is not ErrLost says
// nothing about the lease.
func (s *Store) extendWithin(ctx context.Context, l Lease, left time.Duration) (Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	return s.Extend(ctx, l)
}
