package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// store is retention's door to the database. Its queries see all tenants; they
// are on the list in package arch. Each removes at most a batch.
type store struct{ db *postgres.DB }

func (s store) queries() *db.Queries { return db.New(s.db.Pool()) }

func (s store) deleteRollups(ctx context.Context, before time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteOldRollups(ctx, db.DeleteOldRollupsParams{Before: before, Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete old roll-ups", n, err)
}

func (s store) deleteJobs(ctx context.Context, before time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteOldJobs(ctx, db.DeleteOldJobsParams{Before: before, Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete old jobs", n, err)
}

// place is one among the versions that took another's place, oldest first.
type place struct {
	at      time.Time
	job     uuid.UUID
	version int32
}

// deleteJobVersions looks at a batch of them from a place on, and answers the place
// that it came to; done says that there are no more.
func (s store) deleteJobVersions(ctx context.Context, before time.Time, from place, b batch) (removed int, to place, done bool, err error) {
	row, err := s.queries().DeleteOldJobVersions(ctx, db.DeleteOldJobVersionsParams{
		Before: before, AfterAt: from.at, AfterJob: from.job, AfterVersion: from.version,
		Skipped: int32(b.skipped), BatchSize: int32(b.size),
	})
	if err != nil {
		return 0, from, true, fmt.Errorf("delete old versions of jobs: %w", postgres.Fault(err))
	}
	return int(row.Removed), place{row.LastAt, row.LastJob, row.LastVersion}, int(row.Looked) < b.size, nil
}

func (s store) deleteBackfills(ctx context.Context, before time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteOldBackfills(ctx, db.DeleteOldBackfillsParams{Before: before, Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete old backfills", n, err)
}

func (s store) deleteDeadLetters(ctx context.Context, before time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteOldDeadLetters(ctx, db.DeleteOldDeadLettersParams{Before: before, Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete old dead letters", n, err)
}

func (s store) deleteReplays(ctx context.Context, before time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteOldDeadLetterReplays(ctx, db.DeleteOldDeadLetterReplaysParams{Before: before, Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete old replays", n, err)
}

func (s store) deleteRetries(ctx context.Context, before time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteOldExecutionRetries(ctx, db.DeleteOldExecutionRetriesParams{Before: before, Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete old retries of executions", n, err)
}

func (s store) deleteOutput(ctx context.Context, before time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteOldOutput(ctx, db.DeleteOldOutputParams{Before: before, Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete old output of executions", n, err)
}

func (s store) deleteProgress(ctx context.Context, before time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteOldProgress(ctx, db.DeleteOldProgressParams{Before: before, Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete old messages of progress", n, err)
}

// deleteIdempotencyKeys goes by the keys' own expiry, 24 hours.
func (s store) deleteIdempotencyKeys(ctx context.Context, at time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteExpiredIdempotencyKeys(ctx, db.DeleteExpiredIdempotencyKeysParams{Now: &at, Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete expired idempotency keys", n, err)
}

// now is the time itself, or the database's clock where it is zero.
func (s store) now(ctx context.Context, now time.Time) (at time.Time, err error) {
	if !now.IsZero() {
		return now, nil
	}
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		at = tx.At
		return nil
	})
	return at, err
}

func (s store) deleteFineMetrics(ctx context.Context, before time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteFineMetrics(ctx, db.DeleteFineMetricsParams{Before: before, Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete fine metrics", n, err)
}

func (s store) deleteMetrics(ctx context.Context, before time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteOldMetrics(ctx, db.DeleteOldMetricsParams{Before: before, Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete old metrics", n, err)
}

func (s store) deleteDeliveries(ctx context.Context, before time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteOldDeliveries(ctx, db.DeleteOldDeliveriesParams{Before: before, Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete old deliveries", n, err)
}

// deleteJobDurations goes by whether anybody is told of slow executions, and not by a time.
func (s store) deleteJobDurations(ctx context.Context, _ time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteStaleJobDurations(ctx, db.DeleteStaleJobDurationsParams{Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete durations of jobs that nobody is told of", n, err)
}

// deleteJobFailures goes by whether anybody is told of them, and not by a time.
func (s store) deleteJobFailures(ctx context.Context, _ time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteStaleJobFailures(ctx, db.DeleteStaleJobFailuresParams{Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete failures of jobs that nobody is told of", n, err)
}

func count(what string, n int64, err error) (int, error) {
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, postgres.Fault(err))
	}
	return int(n), nil
}

// shard is one of the chains that the audit log of a tenant is made of.
type shard struct {
	tenant uuid.UUID
	number int16
	old    bool // its first entry is too old
}

// listShards reads a page of the shards after one.
func (s store) listShards(ctx context.Context, before time.Time, after shard, b batch) (page []shard, err error) {
	p := db.ListAuditShardsParams{Before: before, AfterTenant: after.tenant, AfterShard: after.number, Skipped: int32(b.skipped), BatchSize: int32(b.size)}
	if after.tenant == uuid.Nil {
		p.AfterShard = -1
	}
	rows, err := s.queries().ListAuditShards(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("list the shards of the audit log: %w", postgres.Fault(err))
	}
	for _, r := range rows {
		page = append(page, shard{r.TenantID, r.Shard, r.Old})
	}
	return page, nil
}

// trim removes a batch from the beginning of a shard.
func (s store) trim(ctx context.Context, one shard, before time.Time) (int, error) {
	n, err := s.queries().TrimAuditShard(ctx, db.TrimAuditShardParams{TenantID: one.tenant, Shard: one.number, Before: before, Most: rows})
	return count("remove old entries of the audit log", int64(n), err)
}

func (s store) deleteMonitorRuns(ctx context.Context, before time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteOldMonitorRuns(ctx, db.DeleteOldMonitorRunsParams{Before: before, Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete old runs of monitors", n, err)
}

func (s store) deleteMonitorGaps(ctx context.Context, before time.Time, b batch) (int, error) {
	n, err := s.queries().DeleteOldMonitorGaps(ctx, db.DeleteOldMonitorGapsParams{Before: before, Skipped: int32(b.skipped), BatchSize: int32(b.size)})
	return count("delete old gaps of monitors", n, err)
}
