package derive

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/divide"
)

const (
	// eventRows bounds one transaction that tells what monitors found, and eventBatches how
	// many one call does.
	eventRows    = 500
	eventBatches = 10
)

// errUnreadable is the cause where an event cannot be read.
var errUnreadable = errors.New("an event cannot be read")

// TellMonitors makes deliveries of what monitors found, and says whether something is left.
// Unlike what executions did, that is told at once: each event is a row that waits, written
// with the change that it is about, so no time has to be waited for after which nothing
// more is committed. An event that cannot be told is logged and dropped. Any number of
// processes may call it.
func (d *Deriver) TellMonitors(ctx context.Context) (more bool, err error) {
	for range eventBatches {
		ids, err := d.store.untold(ctx, eventRows)
		if err != nil || len(ids) == 0 {
			return false, err
		}
		err = divide.Items[uuid.UUID]{
			Refused: func(err error) bool { return errors.Is(err, errUnreadable) || postgres.Refused(err) },
			Send: func(some []uuid.UUID) error {
				r, err := d.store.tellMonitors(ctx, some)
				d.metrics.EventsTold(r.Told, r.Dropped)
				return err
			},
			Alone: func(one uuid.UUID, refused error) error {
				d.log.ErrorContext(ctx, "what a monitor found cannot be told", "event_id", one, "error", refused)
				return d.store.dropMonitorEvent(ctx, one)
			},
		}.All(ids)
		if err != nil || len(ids) < eventRows {
			return false, err
		}
	}
	return true, nil
}
