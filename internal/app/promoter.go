package app

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/config"
	letters "github.com/scheduler-service/scheduler/internal/deadletter/collect"
	"github.com/scheduler-service/scheduler/internal/deadletter/replay"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/maintenance"
	"github.com/scheduler-service/scheduler/internal/objective/count"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/promoter"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/retention"
	"github.com/scheduler-service/scheduler/internal/statistics/collect"
)

// Promoter runs a promoter until ctx is cancelled.
func Promoter(ctx context.Context, c config.Promoter, log *slog.Logger) error {
	p := newProcess(log, config.Settings(c))
	p, flush, err := p.traced(ctx, c.Process, "promoter")
	if err != nil {
		return err
	}
	defer flush()
	return p.observed(ctx, c.MetricsAddr(), func(ctx context.Context) error { return p.promoter(ctx, c, nil) })
}

// promoter runs one; messages of notifications may reach the endpoints beside what the
// configuration allows.
func (p process) promoter(ctx context.Context, c config.Promoter, endpoints []netip.AddrPort) error {
	p = p.named("promoter")
	db, hints, err := p.stores(ctx, c.Stores, postgres.Config{Role: postgres.Engine, Name: "promoter", MaxConns: promoterConns})
	if err != nil {
		return err
	}
	defer db.Close()
	defer hints.Close()
	p.log.InfoContext(ctx, "promoter starts")
	ear := hints.Ear(queue.CallDue)
	callWorkers := caller(hints, queue.CallPool)
	backlog, maxRunning := p.backlog(), p.live.Int("TENANT_MAX_RUNNING")
	promotes := promoter.New(promoter.Config{
		DB: db, Hints: hints, Metrics: p.metrics, Log: p.log, CatchupPerSecond: p.live.Int("SCHEDULER_CATCHUP_PER_SECOND"), Backlog: backlog,
		Called: ear.Hears, CallWorkers: callWorkers, Spans: p.spans(),
	})
	roots := p.roots(db)
	tells, closeTells, err := p.notifications(ctx, c, db, endpoints)
	if err != nil {
		return err
	}
	defer closeTells()
	replays := replay.New(db, execution.NewStore(db, execution.Config{TenantMaxRunning: maxRunning, Backlog: backlog}), p.metrics, callWorkers)
	maintains := maintenance.New(maintenance.Config{
		DB: db, Hints: hints, Metrics: p.metrics, Log: p.log, TenantMaxRunning: maxRunning, Backlog: backlog, Spans: p.spans(), PartitionsAhead: c.PartitionsAhead,
		CallWorkers: callWorkers, Finished: roots.Finished,
		Elsewhere: slices.Concat(replays.Passes(), collect.NewCollector(db).Passes(), letters.New(db, p.metrics, 0).Passes(), count.New(db).Passes(), tells),
	})
	p.ready.add(promotes.Ready)
	retains := retention.New(retention.Config{DB: db, Log: p.log, Refresh: p.kept})
	passes := slices.Concat(promotes.Passes(), maintains.Passes(), retains.Passes(), []loop.Pass{
		p.live.Pass(db),
		{Name: "tidy-queue", Every: time.Minute, Do: func(ctx context.Context, _ *loop.Turn) error {
			_, err := hints.Tidy(ctx, clock.Now())
			return err
		}},
	})
	runner := loop.Runner{Leases: p.leases(db, c.LockTTL), Metrics: p.metrics, Log: p.log}
	return beside(roots.Run, func() error {
		return together(ctx,
			func(ctx context.Context) error { return ear.Listen(ctx, promotes.Wake) },
			func(ctx context.Context) error { return runner.Run(ctx, passes) })
	})
}
