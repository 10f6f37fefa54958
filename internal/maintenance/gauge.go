package maintenance

import (
	"context"
	"time"

	"github.com/scheduler-service/scheduler/internal/partition"
)

// MakePartitions makes the partitions that are missing; a zero now means the
// database's clock. It takes no lease: without partitions nothing is recorded,
// and several processes that make them at once make each once.
func (m *Maintainer) MakePartitions(ctx context.Context, now time.Time) error {
	made, err := partition.Keep(ctx, m.store.queries(), max(1, m.c.PartitionsAhead), now)
	if err != nil {
		return err
	}
	if made > 0 {
		m.c.Log.InfoContext(ctx, "partitions made", "count", made)
	}
	return nil
}

// Gauge takes the numbers about the whole service, those of the database from
// whichever process counted them last. Without Redis the queue is what waits in
// the database.
func (m *Maintainer) Gauge(ctx context.Context) error {
	waiting, err := m.store.gauge(ctx)
	if err != nil {
		return err
	}
	depths, err := m.c.Hints.Depth(ctx)
	if err != nil {
		depths = waiting
	}
	for lane, n := range depths {
		m.c.Metrics.SetQueueSize(string(lane), n)
	}
	return nil
}
