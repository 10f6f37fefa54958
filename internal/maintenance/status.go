package maintenance

import (
	"context"
	"time"
)

// ChangeStatus changes the status of jobs where nobody has to be asked: it
// resumes those whose pause has run its time, and stops those that failed as
// often in a row as they allow. Both leave the record that a person's change
// leaves, by "system". A zero now means the database's clock.
func (m *Maintainer) ChangeStatus(ctx context.Context, now time.Time) (resumed, stopped int, err error) {
	if resumed, err = m.store.resumePaused(ctx, now); err != nil {
		return 0, 0, err
	}
	if stopped, err = m.store.stopFailing(ctx, now); err != nil {
		return resumed, 0, err
	}
	if resumed+stopped > 0 {
		m.c.Log.InfoContext(ctx, "jobs changed their status by themselves", "resumed", resumed, "stopped", stopped)
	}
	return resumed, stopped, nil
}
