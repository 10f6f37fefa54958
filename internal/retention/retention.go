// Package retention removes what is too old to be kept.
//
// It owns what goes when: whole months of executions by dropping their
// partitions, and after them, in bounded batches, what only those executions
// needed (their roll-ups, job versions, deleted jobs, finished backfills), and what has a life of
// its own (idempotency keys, dead workers,
// the history of metrics). It refuses to delete single
// executions: what is over is append-only. Everything that it does may be done
// twice, by two processes at once, and be interrupted anywhere, so it needs no
// fence. Called by the promoter, which lets one process at a time do it.
package retention

import (
	"context"
	"time"

	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

const (
	// batch bounds one statement, and maxBatches how often a pass repeats it while
	// it comes back full: 100,000 rows of each kind. A pass an hour so keeps up with
	// two million idempotency keys a day.
	batch      = 1000
	maxBatches = 100
	// fineMetrics is how long metrics are kept for each half minute; afterwards
	// those for each five minutes stay.
	fineMetrics = 6 * time.Hour
)

// Config says what is kept.
type Config struct {
	DB *postgres.DB // acting as postgres.Engine
	// Months is how many calendar months of executions are kept beside the current
	// one; 1 and more.
	Months int
	// MetricDays is for how many days the history of metrics is kept; 1 and more.
	MetricDays int
}

// Keeper removes what is older than its configuration says. Its passes are called by
// one goroutine.
type Keeper struct {
	Config

	store    store
	fleet    *fleet.Store
	versions place // up to which the last pass looked, when it did not come to the end
}

// New makes a keeper.
func New(c Config) *Keeper {
	return &Keeper{Config: c, store: store{db: c.DB}, fleet: fleet.NewStore(c.DB)}
}

// Report is what a pass removed.
type Report struct {
	Kept       time.Time // the first instant whose executions are kept
	Partitions []string
	// Busy says that a partition could not be removed without holding others up;
	// a later pass may.
	Busy            bool
	Jobs            int // deleted ones
	JobVersions     int
	Backfills       int
	IdempotencyKeys int
	Rollups         int // of hours and days whose executions went
	Metrics         int // rows of their history
}

// Pass removes what is too old at now; a zero now means the database's clock.
func (k *Keeper) Pass(ctx context.Context, now time.Time) (r Report, err error) {
	q := k.store.queries()
	if r.Kept, err = partition.Kept(ctx, q, k.Months, now); err != nil {
		return r, err
	}
	var done bool
	if r.Partitions, done, err = partition.Retire(ctx, q, r.Kept); err != nil {
		return r, err
	}
	r.Busy = !done
	for _, step := range []struct {
		removed *int
		remove  func(ctx context.Context, before time.Time) (int, error)
	}{
		{&r.Rollups, k.store.deleteRollups},
		{&r.Backfills, k.store.deleteBackfills},
		{&r.Jobs, k.store.deleteJobs},
		{&r.IdempotencyKeys, k.store.deleteIdempotencyKeys},
	} {
		if *step.removed, err = inBatches(ctx, r.Kept, step.remove); err != nil {
			return r, err
		}
	}
	if r.JobVersions, err = k.forgetVersions(ctx, r.Kept); err != nil {
		return r, err
	}
	if r.Metrics, err = k.thin(ctx, now); err != nil {
		return r, err
	}
	return r, k.fleet.Forget(ctx, now)
}

// forgetVersions goes through the versions that took another's place long ago, from
// where the last pass stopped, and begins anew after the last of them: most of them
// stay, as long as their jobs do.
func (k *Keeper) forgetVersions(ctx context.Context, before time.Time) (removed int, err error) {
	for range maxBatches {
		n, to, done, err := k.store.deleteJobVersions(ctx, before, k.versions)
		removed += n
		if k.versions = to; done || err != nil {
			k.versions = place{}
			return removed, err
		}
	}
	return removed, nil
}

// thin removes what is too old of the history of metrics, and what is too fine.
func (k *Keeper) thin(ctx context.Context, now time.Time) (removed int, err error) {
	at, err := k.store.now(ctx, now)
	if err != nil {
		return 0, err
	}
	fine, err := inBatches(ctx, at.Add(-fineMetrics), k.store.deleteFineMetrics)
	if err != nil {
		return fine, err
	}
	old, err := inBatches(ctx, at.AddDate(0, 0, -k.MetricDays), k.store.deleteMetrics)
	return fine + old, err
}

// Nothing says that a pass removed nothing that an operator would ask about.
func (r Report) Nothing() bool { return len(r.Partitions)+r.Jobs+r.JobVersions+r.Backfills == 0 }

// inBatches repeats a bounded removal until it is not full.
func inBatches(ctx context.Context, before time.Time, remove func(ctx context.Context, before time.Time) (int, error)) (removed int, err error) {
	for range maxBatches {
		n, err := remove(ctx, before)
		removed += n
		if err != nil || n < batch {
			return removed, err
		}
	}
	return removed, nil
}
