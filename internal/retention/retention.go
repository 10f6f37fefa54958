// Package retention removes what is too old to be kept.
//
// It owns what goes when: whole partitions of executions, and after them, in bounded batches, what only those executions
// needed (their roll-ups, dead letters, job versions, deleted jobs, finished backfills), and what has a life of
// its own (the output of executions, idempotency keys, dead workers,
// the history of metrics, the audit log, messages of notifications). It refuses to delete single
// executions: what is finished is append-only. Everything that it does may be done
// twice, by two processes at once, and be interrupted anywhere, so it needs no
// fence.
package retention

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/statistics/rollup"
)

const (
	// budget is how long a pass goes on. One that meets it says so in its report,
	// and is called again after a short rest.
	budget = time.Second
	// fineMetrics is how long metrics are kept for each half minute; afterwards
	// those for each five minutes stay.
	fineMetrics = 6 * time.Hour
	// deliveryDays is for how many days the messages of notifications are kept.
	deliveryDays = 30
)

// Config says what is kept.
type Config struct {
	DB  *postgres.DB // acting as postgres.Engine
	Log *slog.Logger
	// Executions is how long these are kept.
	Executions partition.Term
	// MetricDays is for how many days the history of metrics is kept; 1 and more.
	MetricDays int
	// OutputDays is for how many days the output of executions is kept; 0: as long as the
	// executions.
	OutputDays int
	// AuditDays is for how many days entries of the audit log are kept, 30 and more; 0: for ever.
	AuditDays int
	// Refresh sets the four of them to what holds when a pass begins; nil: they stay.
	Refresh func(*Config)
	// Budget is how long a pass goes on; zero means a second. A pass removes at
	// least one batch of each kind, however short it is.
	Budget time.Duration
}

// Keeper removes what is older than its configuration says. Its passes are called by
// one goroutine.
type Keeper struct {
	c        Config
	store    store
	fleet    *fleet.Store
	progress map[string]*progress // by kind
	versions walk[place]          // over the versions of jobs
	shards   walk[shard]          // over the shards of the audit log
}

// walk is how far a kind was read that is not removed from its beginning on.
type walk[T any] struct {
	at     T
	passed int // of the rows that cannot be deleted, how many lie before that
}

// New makes a keeper.
func New(c Config) *Keeper {
	if c.Budget == 0 {
		c.Budget = budget
	}
	return &Keeper{c: c, store: store{db: c.DB}, fleet: fleet.NewStore(c.DB), progress: map[string]*progress{}}
}

// Report is what a pass removed.
type Report struct {
	Kept       time.Time // the first time whose executions are kept
	Partitions []string
	// Busy says that a partition could not be removed without holding others up;
	// a later pass may.
	Busy bool
	// More says that the budget ended before the work did: the next pass goes on.
	More            bool
	Jobs            int // deleted ones
	JobVersions     int
	Backfills       int
	Retries         int // which execution repeated which
	Output          int // chunks of output and messages of progress
	IdempotencyKeys int
	Rollups         int // of hours and days whose executions went
	Metrics         int // rows of their history
	AuditEntries    int
	Deliveries      int // messages of notifications
	JobFailures     int // and durations of jobs, that nobody is told of
	MonitorRuns     int // runs of monitors, and times when none could be stored
	DeadLetters     int // of executions that went, and replays from before
}

// Pass removes what is too old at now, until nothing is left or its budget is
// met; a zero now means the database's clock. The kinds take turns, a batch each, so
// that much of one keeps none of the others waiting, and what fails in one of
// them is in the error and stops none of the others.
func (k *Keeper) Pass(ctx context.Context, now time.Time) (r Report, err error) {
	if k.c.Refresh != nil {
		k.c.Refresh(&k.c)
	}
	begin := clock.Start()
	at, err := k.store.now(ctx, now)
	if err != nil {
		return r, err
	}
	months := k.retire(ctx, now, &r)
	kinds := k.kinds(at, &r)
	var failed []error
	for turn := 0; len(kinds) > 0 && ctx.Err() == nil; turn++ {
		if turn > 0 && begin.Elapsed() >= k.c.Budget {
			r.More = true
			break
		}
		left := kinds[:0]
		for _, one := range kinds {
			done, err := k.step(ctx, one)
			if err != nil {
				failed = append(failed, err)
			}
			if !done {
				left = append(left, one)
			}
		}
		kinds = left
	}
	return r, errors.Join(append(failed, months, k.fleet.Forget(ctx, now))...)
}

// retire removes whole partitions of executions.
func (k *Keeper) retire(ctx context.Context, now time.Time, r *Report) (err error) {
	q := k.store.queries()
	if r.Kept, err = partition.Kept(ctx, q, k.c.Executions, now); err != nil {
		return err
	}
	var done bool
	r.Partitions, done, err = partition.Retire(ctx, q, r.Kept)
	r.Busy = !done && err == nil
	return err
}

// kinds are what is removed row by row. Where it is not known from when on
// executions are kept, nothing goes that depends on it.
func (k *Keeper) kinds(at time.Time, r *Report) []kind {
	s, fine, coarse := k.store, at.Add(-fineMetrics), at.AddDate(0, 0, -k.c.MetricDays)
	all := []kind{
		{"idempotency keys", rows, &r.IdempotencyKeys, before(at, s.deleteIdempotencyKeys)},
		{"fine metrics", rows, &r.Metrics, before(fine, s.deleteFineMetrics)},
		{"metrics", rows, &r.Metrics, before(coarse, s.deleteMetrics)},
		{"deliveries", rows, &r.Deliveries, before(at.AddDate(0, 0, -deliveryDays), s.deleteDeliveries)},
		{"job durations", rows, &r.JobFailures, before(at, s.deleteJobDurations)},
		{"gaps of monitors", rows, &r.MonitorRuns, before(at.AddDate(-1, -3, 0), s.deleteMonitorGaps)},
		{"job failures", rows, &r.JobFailures, before(at, s.deleteJobFailures)},
	}
	if k.c.AuditDays > 0 {
		// Whole days, so that a shard is trimmed once a day.
		first := at.AddDate(0, 0, -k.c.AuditDays).Truncate(24 * time.Hour)
		all = append(all, kind{"audit entries", rows, &r.AuditEntries, func(ctx context.Context, b batch) (int, bool, error) { return k.trimAudit(ctx, first, b) }})
	}
	if r.Kept.IsZero() {
		return all
	}
	said := clock.Later(r.Kept, at.AddDate(0, 0, -k.c.OutputDays))
	if k.c.OutputDays == 0 {
		said = r.Kept
	}
	return append(all,
		// The week that the first kept day is in counts days that are kept.
		kind{"roll-ups", rows, &r.Rollups, before(rollup.Week.Begin(r.Kept), s.deleteRollups)},
		kind{"dead letters", rows, &r.DeadLetters, before(r.Kept, s.deleteDeadLetters)},
		kind{"replays", rows, &r.DeadLetters, before(r.Kept, s.deleteReplays)},
		kind{"execution retries", rows, &r.Retries, before(r.Kept, s.deleteRetries)},
		kind{"output", outputs, &r.Output, before(said, s.deleteOutput)},
		kind{"messages of progress", rows, &r.Output, before(said, s.deleteProgress)},
		kind{"backfills", rows, &r.Backfills, before(r.Kept, s.deleteBackfills)},
		kind{"jobs", jobs, &r.Jobs, before(r.Kept, s.deleteJobs)},
		kind{"runs of monitors", rows, &r.MonitorRuns, before(r.Kept, s.deleteMonitorRuns)},
		kind{"job versions", rows, &r.JobVersions, func(ctx context.Context, b batch) (int, bool, error) { return k.forgetVersions(ctx, r.Kept, b) }},
	)
}

// forgetVersions goes through the versions that took another's place long ago, from
// where it stopped, and begins anew after the last of them: most of them
// stay, as long as their jobs do.
func (k *Keeper) forgetVersions(ctx context.Context, before time.Time, b batch) (removed int, done bool, err error) {
	removed, to, done, err := k.store.deleteJobVersions(ctx, before, k.versions.at, batch{b.size, b.skipped - k.versions.passed})
	if err != nil {
		return removed, false, err
	}
	if k.versions = (walk[place]{to, b.skipped}); done {
		k.versions = walk[place]{}
	}
	return removed, done, nil
}

// trimAudit removes the beginnings of shards of the audit log, one shard after the
// other.
func (k *Keeper) trimAudit(ctx context.Context, before time.Time, b batch) (removed int, done bool, err error) {
	page, err := k.store.listShards(ctx, before, k.shards.at, batch{b.size, b.skipped - k.shards.passed})
	if err != nil {
		return 0, false, err
	}
	for _, one := range page {
		for old := one.old; old; {
			n, err := k.store.trim(ctx, one, before)
			if removed += n; err != nil || removed >= rows {
				return removed, false, err
			}
			old = n == rows
		}
		k.shards = walk[shard]{one, b.skipped}
	}
	if done = len(page) < b.size; done {
		k.shards = walk[shard]{}
	}
	return removed, done, nil
}

// Passes is what a process that removes old rows does again and again.
func (k *Keeper) Passes() []loop.Pass {
	// Often enough for what is kept for days, and soon enough where a partition
	// was in use.
	return []loop.Pass{{Name: lease.Retention, Every: 15 * time.Minute, Leased: true, Do: k.remove}}
}

func (k *Keeper) remove(ctx context.Context, turn *loop.Turn) error {
	r, err := k.Pass(ctx, time.Time{})
	if !r.Nothing() {
		k.c.Log.InfoContext(ctx, "old rows were removed", "kept_from", r.Kept, "partitions", r.Partitions,
			"jobs", r.Jobs, "job_versions", r.JobVersions, "backfills", r.Backfills, "audit_entries", r.AuditEntries)
	}
	if r.Busy {
		k.c.Log.InfoContext(ctx, "an old partition is in use, it is removed later", "kept_from", r.Kept)
	}
	if r.More {
		turn.Again(loop.Soon)
	}
	return err
}

// Nothing says that a pass removed nothing that an operator would ask about.
func (r Report) Nothing() bool {
	return len(r.Partitions)+r.Jobs+r.JobVersions+r.Backfills+r.AuditEntries == 0
}
