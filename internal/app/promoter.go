package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/lease"
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
	promotes := promoter.New(promoter.Deps{
		DB: db, Hints: hints, Metrics: p.metrics, Log: p.log, CatchupPerSecond: c.CatchupPerSecond, TenantMaxRunning: c.TenantMaxRunning,
		Backlog:         tenant.Backlog{Max: c.TenantMaxWaiting, MaxPerJob: c.JobMaxWaiting},
		PartitionsAhead: c.PartitionsAhead, Duties: p.duties(c, db), Leases: p.leases(db, c.LockTTL),
	})
	p.ready.add(promotes.Ready)
	return promotes.Run(ctx)
}

// retentionEvery is often enough for what is kept for months, and soon enough
// where a partition was busy.
const retentionEvery = 15 * time.Minute

// duties are what one promoter at a time does.
func (p process) duties(c config.Promoter, db *postgres.DB) []promoter.Duty {
	old := retention.New(retention.Config{DB: db, Months: c.RetentionMonths, MetricDays: c.MetricsDays, AuditDays: c.AuditDays})
	removal := func(ctx context.Context, _ lease.Lease) (more bool, err error) {
		report, err := old.Pass(ctx, time.Time{})
		if !report.Nothing() {
			p.log.InfoContext(ctx, "what is too old was removed", "kept_from", report.Kept, "partitions", report.Partitions,
				"jobs", report.Jobs, "job_versions", report.JobVersions, "backfills", report.Backfills,
				"audit_entries", report.AuditEntries)
		}
		if report.Busy {
			p.log.InfoContext(ctx, "an old partition is in use, it is removed later", "kept_from", report.Kept)
		}
		return report.More, err
	}
	numbers := collect.NewCollector(db)
	collection := func(ctx context.Context, held lease.Lease) (more bool, err error) {
		_, err = numbers.Pass(ctx, held)
		return false, err
	}
	folding := func(ctx context.Context, _ lease.Lease) (more bool, err error) { return numbers.Fold(ctx, time.Time{}) }
	return []promoter.Duty{
		{Name: lease.Upkeep, Every: retentionEvery, Pass: removal},
		// Often enough that no half minute is left out.
		{Name: lease.Metrics, Every: collect.Every / 3, Pass: collection},
		{Name: lease.Fold1, Every: collect.Every, Pass: folding},
		{Name: lease.Fold2, Every: collect.Every, Pass: folding},
	}
}
