package promoter

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// park makes jobs of one tenant inactive in a transaction of their own, and says
// which; another transaction may have changed the others.
func (s *store) park(ctx context.Context, now time.Time, jobs []badJob) (done map[uuid.UUID]bool, err error) {
	params := db.ParkJobsParams{Now: postgres.At(now)}
	for _, k := range jobs {
		params.Ids, params.Versions = append(params.Ids, k.job.id), append(params.Versions, int32(k.job.version))
		params.Due, params.Reasons = append(params.Due, k.job.due), append(params.Reasons, k.reason())
	}
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		ids, err := tx.ParkJobs(ctx, params)
		if err != nil {
			return fmt.Errorf("park jobs: %w", err)
		}
		done = make(map[uuid.UUID]bool, len(ids))
		for _, id := range ids {
			done[id] = true
		}
		return nil
	})
	return done, err
}
