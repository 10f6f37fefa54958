package promoter

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func (s *store) fullBacklogs(ctx context.Context, most tenant.Backlog) (backlogs, error) {
	rows, err := s.queries().ListFullBacklogs(ctx, db.ListFullBacklogsParams{MaxWaiting: int32(most.Max), MaxWaitingPerJob: int32(most.MaxPerJob)})
	if err != nil {
		return nil, fmt.Errorf("list the full backlogs: %w", err)
	}
	all := make(backlogs, len(rows))
	for _, r := range rows {
		limit, why := most.Full(r.JobID != uuid.Nil, r.Most, r.Own)
		all[backlogOf{r.TenantID, r.JobID}] = full{limit, why}
	}
	return all, nil
}
