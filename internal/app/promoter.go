package app

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/maintenance"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/promoter"
	"github.com/scheduler-service/scheduler/internal/retention"
	"github.com/scheduler-service/scheduler/internal/statistics/collect"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Promoter runs a promoter until ctx is cancelled.
func Promoter(ctx context.Context, c config.Promoter, log *slog.Logger) error {
	p := newProcess(log)
	return p.observed(ctx, c.MetricsAddr(), func(ctx context.Context) error { return p.promoter(ctx, c) })
}

func (p process) promoter(ctx context.Context, c config.Promoter) error {
	p = p.named("promoter")
	db, hints, err := p.stores(ctx, c.Stores, postgres.Config{Role: postgres.Engine, Name: "promoter", MaxConns: promoterConns})
	if err != nil {
		return err
	}
	defer db.Close()
	defer hints.Close()
	p.log.InfoContext(ctx, "promoter starts")
	backlog := tenant.Backlog{Max: c.TenantMaxWaiting, MaxPerJob: c.JobMaxWaiting}
	promotes := promoter.New(promoter.Config{
		DB: db, Hints: hints, Metrics: p.metrics, Log: p.log, CatchupPerSecond: c.CatchupPerSecond, Backlog: backlog,
	})
	maintains := maintenance.New(maintenance.Config{
		DB: db, Hints: hints, Metrics: p.metrics, Log: p.log, TenantMaxRunning: c.TenantMaxRunning, Backlog: backlog, PartitionsAhead: c.PartitionsAhead,
	})
	p.ready.add(promotes.Ready)
	retains := retention.New(retention.Config{
		DB: db, Log: p.log, Months: c.RetentionMonths, MetricDays: c.MetricsDays, AuditDays: c.AuditDays,
	})
	passes := slices.Concat(promotes.Passes(), maintains.Passes(), retains.Passes(), collect.NewCollector(db).Passes(), []loop.Pass{
		{Name: "tidy-queue", Every: time.Minute, Do: func(ctx context.Context, _ *loop.Turn) error {
			_, err := hints.Tidy(ctx, clock.Now())
			return err
		}},
	})
	return loop.Runner{Leases: p.leases(db, c.LockTTL), Metrics: p.metrics, Log: p.log}.Run(ctx, passes)
}
