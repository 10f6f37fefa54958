package promoter

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

const (
	// turnTenants is how many tenants one pass looks at for their turns, at some
	// 10 µs each.
	turnTenants = 500
	// oldestShare is which part of a batch in turns is kept for the oldest jobs,
	// whosever they are: so the lower bound of the scan goes on.
	oldestShare = 10
)

// turns is how a promoter claims while more is due than a pass takes: from each
// tenant the same number of jobs first, then the oldest ones. Tenants are walked
// backwards, and each pass goes on where the one before ended.
type turns struct {
	on     bool      // the last batch was full
	before uuid.UUID // tenants before this one are next
}

// after notes what a pass with that batch claimed.
func (t *turns) after(made plan, batch int) {
	t.on, t.before = made.claimed >= batch, made.before
}

// lockInTurns locks the oldest jobs of each tenant, and makes of them what is claimed
// first. The rest of the batch is claimed as ever.
func (d *due) lockInTurns(ctx context.Context, tx *postgres.Tx) (before uuid.UUID, err error) {
	rows, err := tx.LockDueJobsInTurns(ctx, db.LockDueJobsInTurnsParams{
		Now: postgres.At(d.now), Since: d.since, Most: int32(d.batch - max(1, d.batch/oldestShare)), WalkSize: turnTenants,
		AnyTenant: uuid.Max, BeforeTenant: d.turns.before, ExceptIds: orEmpty(d.exceptIDs), ExceptTenants: orEmpty(d.exceptTenants),
	})
	if err != nil {
		return uuid.Max, fmt.Errorf("lock due jobs in turns: %w", err)
	}
	locked := rows[0]
	d.chosen, d.batch = locked.Ids, d.batch-len(locked.Ids)
	d.exceptIDs = slices.Concat(d.exceptIDs, locked.Ids)
	return locked.BeforeTenant, nil
}
