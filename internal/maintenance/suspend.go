package maintenance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// suspendBudget is how long one step of a pass goes on, and suspendBatch how many
// tenants it takes.
const (
	suspendBudget = time.Second
	suspendBatch  = 100
)

// SuspendReport is what Suspend did.
type SuspendReport struct {
	Paused, Resumed int // jobs, because of their tenant's status
	Purged          int // tenants of which nothing is left
}

// Suspend pauses the jobs of tenants that are suspended or being deleted; resumes
// what it paused once the tenant is active again; and removes, in bounded pieces,
// what a deleted tenant left (Cancel ends what of it is active). Tenants have
// turns, and what fails for one of them is in the error and holds up nobody else.
// Any number of promoters may do so at once.
func (m *Maintainer) Suspend(ctx context.Context) (report SuspendReport, err error) {
	var errs []error
	for _, step := range []struct {
		what string
		list func(context.Context) ([]uuid.UUID, error)
		do   func(context.Context, uuid.UUID) (count int, more bool, err error)
		into *int
	}{
		{"pause the jobs of a suspended tenant", m.store.tenantsToPause, m.store.pauseJobs, &report.Paused},
		{"resume the jobs of a tenant", m.store.tenantsToResume, m.store.resumeJobs, &report.Resumed},
		{"purge a deleted tenant", m.store.tenantsToPurge, m.store.purge, &report.Purged},
	} {
		ids, err := step.list(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", step.what, err))
			continue
		}
		n, failed := tenantByTenant(ctx, ids, step.do)
		*step.into = n
		for id, err := range failed {
			errs = append(errs, fmt.Errorf("%s: tenant %s: %w", step.what, id, err))
		}
	}
	if report != (SuspendReport{}) {
		m.c.Log.InfoContext(ctx, "tenants were suspended, resumed or purged", "paused_jobs", report.Paused, "resumed_jobs", report.Resumed, "purged_tenants", report.Purged)
	}
	return report, errors.Join(errs...)
}

// tenantByTenant does one piece for each tenant, then the next for those that have more,
// until none has or the budget is used up. A tenant whose piece fails is left alone.
func tenantByTenant(ctx context.Context, tenants []uuid.UUID, do func(context.Context, uuid.UUID) (int, bool, error)) (count int, failed map[uuid.UUID]error) {
	failed = map[uuid.UUID]error{}
	for began := clock.Start(); len(tenants) > 0; {
		left := tenants[:0]
		for _, id := range tenants {
			if began.Elapsed() > suspendBudget || ctx.Err() != nil {
				return count, failed
			}
			n, more, err := do(ctx, id)
			count += n
			if err != nil {
				failed[id] = err
			} else if more {
				left = append(left, id)
			}
		}
		tenants = left
	}
	return count, failed
}
