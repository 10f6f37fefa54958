package app

import (
	"context"
	"log/slog"

	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/promoter"
)

// Promoter runs a promoter until ctx is cancelled.
func Promoter(ctx context.Context, c config.Promoter, log *slog.Logger) error {
	p := newProcess(log)
	return together(ctx,
		func(ctx context.Context) error { return p.promoter(ctx, c) },
		func(ctx context.Context) error { return p.serveMetrics(ctx, c.MetricsAddr()) })
}

func (p process) promoter(ctx context.Context, c config.Promoter) error {
	p = p.named("promoter")
	db, hints, err := p.stores(ctx, c.Stores, postgres.Engine, "promoter", promoterConns)
	if err != nil {
		return err
	}
	defer db.Close()
	defer hints.Close()
	if err := db.CheckSchema(ctx); err != nil {
		return err
	}
	p.log.InfoContext(ctx, "promoter starts")
	promotes := promoter.New(promoter.Deps{
		DB: db, Hints: hints, Metrics: p.metrics, Log: p.log, CatchupPerSecond: c.CatchupPerSecond, TenantMaxRunning: c.TenantMaxRunning,
	})
	p.ready.add(promotes.Ready)
	return promotes.Run(ctx)
}
