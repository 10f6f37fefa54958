package hint

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

type store struct{ db *postgres.DB }

func (s store) pool(ctx context.Context, ids []uuid.UUID) error {
	if _, err := db.New(s.db.Pool()).PoolExecutions(ctx, ids); err != nil {
		return fmt.Errorf("pool executions: %w", postgres.Fault(err))
	}
	return nil
}
