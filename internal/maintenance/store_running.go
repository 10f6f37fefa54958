package maintenance

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/postgres"
)

func (s *store) tenantsWithWrongCounts(ctx context.Context) ([]uuid.UUID, error) {
	tenants, err := s.queries().ListDriftedTenants(ctx)
	if err != nil {
		return nil, fmt.Errorf("compare counts with rows: %w", postgres.Fault(err))
	}
	return tenants, nil
}

// countRunning holds the tenant's counts locked while it counts: two statements,
// because one would count on the snapshot from before the lock.
func (s *store) countRunning(ctx context.Context, tenant uuid.UUID) error {
	err := s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := tx.EnsureRunningCount(ctx, tenant); err != nil {
			return err
		}
		if _, err := tx.LockRunningCount(ctx, tenant); err != nil {
			return err
		}
		return tx.ReconcileRunning(ctx, tenant)
	})
	if err != nil {
		return fmt.Errorf("count what a tenant runs: %w", postgres.Fault(err))
	}
	return nil
}
