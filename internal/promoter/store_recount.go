package promoter

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/postgres"
)

func (s *store) drifted(ctx context.Context) ([]uuid.UUID, error) {
	tenants, err := s.queries().ListDriftedTenants(ctx)
	if err != nil {
		return nil, fmt.Errorf("compare counts with rows: %w", postgres.Fault(err))
	}
	return tenants, nil
}

// recount holds the tenant's counts locked while it counts: two statements,
// because one would count on the snapshot from before the lock.
func (s *store) recount(ctx context.Context, tenant uuid.UUID) error {
	err := s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := tx.EnsureRunningCount(ctx, tenant); err != nil {
			return err
		}
		if _, err := tx.LockRunningCount(ctx, tenant); err != nil {
			return err
		}
		return tx.RecountRunning(ctx, tenant)
	})
	if err != nil {
		return fmt.Errorf("recount what a tenant runs: %w", postgres.Fault(err))
	}
	return nil
}
