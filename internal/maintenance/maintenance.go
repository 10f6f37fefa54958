// Package maintenance keeps the tables right.
//
// It owns bounded passes: Sweep reassigns or ends executions whose worker is
// gone or whose deadline passed, pools executions whose hint was lost and stores parked ends;
// EndAwaited ends waits for a callback that never came;
// Cancel cancels in pieces what was ordered to be cancelled; Suspend pauses and
// resumes the jobs of tenants; ChangeStatus ends pauses and stops jobs that keep
// failing; ReconcileSchedules and ReconcileRunning compare what should be with
// what is; MakePartitions, CountWaiting, Gauge and WatchSnapshots see to tables
// and numbers. Any number of processes may run each at once. It refuses to make
// executions (package promoter), to run them (package worker) and to remove what
// is old (package retention).
package maintenance

import (
	"context"
	"log/slog"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/hint"
	"github.com/scheduler-service/scheduler/internal/job/schedules"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/parking"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// hints is what maintenance needs of the queue.
type hints interface {
	Publish(ctx context.Context, lane queue.Lane, ids []uuid.UUID) error
	PublishTogether(ctx context.Context, lane queue.Lane, ids []uuid.UUID) error
	LostContents(ctx context.Context) (lost bool, err error)
	Depth(ctx context.Context) (map[queue.Lane]int, error)
}

// Config is what a Maintainer is made of.
type Config struct {
	DB      *postgres.DB // acting as postgres.Engine
	Hints   hints
	Metrics *telemetry.Metrics
	Log     *slog.Logger
	// TenantMaxRunning is how many executions a tenant may run at once where it
	// has no limit of its own; 0, or nil: any number. The same in every process.
	TenantMaxRunning func() int
	// Backlog is how many executions may wait where a tenant has no limits of its
	// own; nil: any number.
	Backlog func() tenant.Backlog
	Spans   partition.Spans // of the partitions that are made
	// PartitionsAhead is for how many months to come there are partitions, where
	// each has a month; at least one is made.
	PartitionsAhead int
	// CallWorkers tells workers that something is in the pool without a hint; nil: it is
	// found by their polls alone.
	CallWorkers func(ctx context.Context)
	// Elsewhere are passes of others; find-work calls those that FindWork knows, by their names.
	Elsewhere []loop.Pass
	// Finished is told of executions that a sweep ended; nil: nobody is.
	Finished func(tenant, execution uuid.UUID)
}

// Maintainer does the passes. One goroutine at a time calls each.
type Maintainer struct {
	c          Config
	store      *store
	dispatch   *dispatch.Store
	hints      *hint.Sender
	fleet      *fleet.Store
	parking    *parking.Store
	callbacks  *callback.Desk
	schedules  *schedules.Cache             // of ReconcileSchedules
	cancelling map[dispatch.Order]*progress // of Cancel
	counting   waitingCount                 // of CountWaiting
}

// New makes a Maintainer.
func New(c Config) *Maintainer {
	if c.CallWorkers == nil {
		c.CallWorkers = func(context.Context) {}
	}
	if c.Finished == nil {
		c.Finished = func(uuid.UUID, uuid.UUID) {}
	}
	if c.Backlog == nil {
		c.Backlog = func() tenant.Backlog { return tenant.Backlog{} }
	}
	hints := hint.New(hint.Config{DB: c.DB, Queue: c.Hints, Log: c.Log})
	return &Maintainer{
		c: c, store: &store{db: c.DB}, dispatch: dispatch.NewStore(c.DB, dispatch.Config{TenantMaxRunning: c.TenantMaxRunning}),
		hints: hints, callbacks: callback.New(callback.Config{DB: c.DB, Hints: hints, Metrics: c.Metrics, Log: c.Log, TenantMaxRunning: c.TenantMaxRunning, CallWorkers: c.CallWorkers, Finished: c.Finished}),
		fleet: fleet.NewStore(c.DB), parking: parking.NewStore(c.DB), schedules: schedules.NewCache(),
		cancelling: map[dispatch.Order]*progress{}, counting: waitingCount{rows: countRowsLeast},
	}
}
