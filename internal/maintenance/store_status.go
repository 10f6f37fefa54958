package maintenance

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

func (s *store) resumePaused(ctx context.Context, now time.Time) (int, error) {
	rows, err := s.queries().ResumePausedJobs(ctx, postgres.At(now))
	if err != nil {
		return 0, fmt.Errorf("resume jobs whose pause ended: %w", postgres.Fault(err))
	}
	return len(rows), nil
}

func (s *store) stopFailing(ctx context.Context, now time.Time) (int, error) {
	q := s.queries()
	failing, err := q.ListFailingJobs(ctx, postgres.At(now))
	if err != nil {
		return 0, fmt.Errorf("list failing jobs: %w", postgres.Fault(err))
	}
	if len(failing) == 0 {
		return 0, nil
	}
	ids := make([]uuid.UUID, len(failing))
	for i, f := range failing {
		ids[i] = f.ID
	}
	n, err := q.StopFailingJobs(ctx, db.StopFailingJobsParams{Now: postgres.At(now), Ids: ids})
	if err != nil {
		return 0, fmt.Errorf("stop failing jobs: %w", postgres.Fault(err))
	}
	return int(n), nil
}
