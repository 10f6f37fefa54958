package maintenance

import (
	"context"
	"errors"
)

// ReconcileRunning compares what is counted as running with what runs, corrects
// the tenants where it differs, and returns how many these are. Every statement
// changes both together, so they differ only after workers of an older version
// or an operator's own statements; it is then logged. A tenant that cannot be corrected keeps
// no other one from it.
func (m *Maintainer) ReconcileRunning(ctx context.Context) (corrected int, err error) {
	differing, err := m.store.tenantsWithWrongCounts(ctx)
	if err != nil {
		return 0, err
	}
	for _, tenant := range differing {
		if failed := m.store.countRunning(ctx, tenant); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		corrected++
		m.c.Log.ErrorContext(ctx, "the count of running executions was wrong and is corrected", "tenant_id", tenant)
	}
	return corrected, err
}
