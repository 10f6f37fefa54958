package promoter_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/promoter"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// run runs a promoter's passes.
func run(ctx context.Context, p *promoter.Promoter) error {
	return loop.Runner{Metrics: telemetry.NewMetrics(telemetry.NewRegistry()), Log: slog.New(slog.DiscardHandler)}.Run(ctx, p.Passes())
}

// The loops start, stop at any moment, and leave nothing behind: goleak looks
// at the end of the package.
func TestRunStartsAndStopsAtAnyMoment(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(t, nil)
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*5*time.Millisecond)
		if err := run(ctx, b.another()); err != nil {
			t.Errorf("run %d: %v", i, err)
		}
		cancel()
	}
}

// By the real clocks, the loop promotes at the scheduled time and not at a
// distance of its own: it sleeps until the next job is due.
func TestRunPromotesWhenDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.Overlap = job.OverlapAllow })
	p := b.another()
	if p.Ready() == nil {
		t.Error("ready before its first pass")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- run(ctx, p) }()
	deadline := time.After(time.Minute)
	for len(b.rows(t, j)) < 3 {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatal("three scheduled times were not promoted within a minute")
		}
	}
	if err := p.Ready(); err != nil {
		t.Errorf("not ready while it promotes: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, row := range b.rows(t, j) {
		if row.Status != execution.Pending || row.CreatedAt.Before(row.ScheduledAt) {
			t.Errorf("promoted at %v for %v", row.CreatedAt, row.ScheduledAt)
		}
	}
}
