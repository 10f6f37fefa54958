package seed

import (
	"context"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/statistics/collect"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// rollUp counts the whole history, as the promoter does after an upgrade but without its
// pauses. It takes turns with the promoter that runs, by the same lease.
func (s *store) rollUp(ctx context.Context, engine *postgres.DB) error {
	if err := s.forgetRollUps(ctx); err != nil {
		return err
	}
	leases := lease.NewStore(lease.Config{DB: engine, Holder: "seed", TTL: time.Minute, Metrics: telemetry.NewMetrics(telemetry.NewRegistry())})
	collector := collect.NewCollector(engine)
	for complete := false; !complete; {
		ran, err := leases.Run(ctx, lease.Metrics, func(ctx context.Context, held lease.Lease) error {
			_, err := collector.Pass(ctx, held)
			return err
		})
		if err != nil && fault.KindOf(err) != fault.Unavailable { // the promoter held a lock for too long: its turn
			return fmt.Errorf("count the history: %w", err)
		}
		if err != nil || !ran || collector.Waiting() {
			clock.Sleep(ctx, 100*time.Millisecond)
		}
		if complete, err = s.counted(ctx); err != nil {
			return err
		}
	}
	for more := true; more; {
		var err error
		if _, more, err = collector.Fold(ctx, time.Time{}); err != nil && fault.KindOf(err) != fault.Unavailable {
			return fmt.Errorf("fold the counts: %w", err)
		}
	}
	return nil
}
