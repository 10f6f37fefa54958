package maintenance

import (
	"context"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/postgres"
)

func (s *store) tenantsToPause(ctx context.Context) ([]uuid.UUID, error) {
	ids, err := s.queries().ListTenantsToHold(ctx, suspendBatch)
	return ids, postgres.Fault(err)
}

func (s *store) pauseJobs(ctx context.Context, tenant uuid.UUID) (jobs int, more bool, err error) {
	n, err := s.queries().HoldJobs(ctx, tenant)
	return int(n), n > 0, postgres.Fault(err)
}

func (s *store) tenantsToResume(ctx context.Context) ([]uuid.UUID, error) {
	ids, err := s.queries().ListTenantsToFree(ctx, suspendBatch)
	return ids, postgres.Fault(err)
}

func (s *store) resumeJobs(ctx context.Context, tenant uuid.UUID) (jobs int, more bool, err error) {
	n, err := s.queries().FreeJobs(ctx, tenant)
	return int(n), n > 0, postgres.Fault(err)
}

// tenantsToPurge are deleted tenants of which nothing is active.
func (s *store) tenantsToPurge(ctx context.Context) ([]uuid.UUID, error) {
	ids, err := s.queries().ListDeletingTenants(ctx, suspendBatch)
	return ids, postgres.Fault(err)
}

// purge removes a piece of what a deleted tenant left, and then the tenant. It
// counts tenants.
func (s *store) purge(ctx context.Context, tenant uuid.UUID) (tenants int, more bool, err error) {
	q := s.queries()
	for _, purge := range []func(context.Context, uuid.UUID) (int64, error){
		q.PurgeHistory, q.PurgeOutput, q.PurgeProgress, q.PurgeRollups, q.PurgeJobs, q.PurgeIdempotencyKeys, q.PurgeCalendars, q.PurgeSecrets, q.PurgeFunctions, q.PurgeRemoteFunctions, q.PurgeApiKeys, q.PurgeExecutionDays,
		q.PurgeJobCounts, q.PurgeNotifications, q.PurgeDeliveries, q.PurgeJobFailures, q.PurgeJobDurations, q.PurgeJobDeadlines, q.PurgeRemoteClaims, q.PurgeDeadLetters, q.PurgeDeadLetterReplays, q.PurgeObjectiveCounts, q.PurgeObjectives,
		q.PurgeMonitorRuns, q.PurgeMonitorEvents, q.PurgeMonitors,
	} {
		n, err := purge(ctx, tenant)
		if err != nil {
			return 0, false, postgres.Fault(err)
		}
		if n > 0 {
			return 0, true, nil
		}
	}
	n, err := q.PurgeTenant(ctx, tenant)
	return int(n), false, postgres.Fault(err)
}
