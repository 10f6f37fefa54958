package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/execution"
)

// clear empties the tables for the next sequence.
func (s *real) clear(ctx context.Context) error {
	_, err := s.admin.Exec(ctx, `DELETE FROM active_executions; DELETE FROM job_executions; DELETE FROM scheduled_jobs; DELETE FROM workers; DELETE FROM running_keys;
		UPDATE running_shards SET runs = 0, runs_by_type = '{}', permits = 0, permits_of = NULL, backlogged_at = NULL;
		UPDATE tenants SET max_running = NULL, max_running_by_type = '{}'`)
	return err
}

// state reads everything back, in one round trip.
func (s *real) state(ctx context.Context) (*tables, error) {
	var t tables
	var batch pgx.Batch
	read := func(sql string, scan func(row pgx.CollectableRow) error) {
		batch.Queue(sql).Query(func(rows pgx.Rows) error {
			_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, scan(row) })
			return err
		})
	}
	read(`SELECT id, status, next_execution_at, last_execution_at, execution_count, paused_until, coalesce(resume_policy, ''), deleted_at IS NOT NULL
	      FROM scheduled_jobs ORDER BY id`, func(row pgx.CollectableRow) error {
		var r jobRow
		err := row.Scan(&r.ID, &r.Status, zero{&r.Next}, zero{&r.Last}, &r.Count, zero{&r.Until}, &r.Resume, &r.Deleted)
		t.jobs = append(t.jobs, r)
		return err
	})
	read(`SELECT id, job_id, tenant_id, job_type, scheduled_at, trigger_type, status, priority, attempt, max_attempts, lost_count, pooled, concurrency_limit, coalesce(concurrency_key, ''), timeout_ms,
	             attempts, available_at, least(sweep_at, '9999-01-01 00:00:00+00'), started_at, attempt_started_at, deadline_at, cancel_requested_at, coalesce(cancel_reason, ''),
	             coalesce(worker_id, '00000000-0000-0000-0000-000000000000'), coalesce(lease_token, '00000000-0000-0000-0000-000000000000')
	      FROM active_executions ORDER BY id`, func(row pgx.CollectableRow) error {
		var r activeRow
		var timeout int
		err := row.Scan(&r.ID, &r.Job, &r.Tenant, &r.Type, zero{&r.At}, &r.Trigger, &r.Status, &r.Priority, &r.Attempt, &r.MaxAttempts, &r.Lost, &r.Pooled, &r.SlotLimit, &r.Key, &timeout,
			tried{&r.Failures}, zero{&r.AvailableAt}, zero{&r.SweepAt}, zero{&r.StartedAt}, zero{&r.AttemptedAt}, zero{&r.DeadlineAt}, zero{&r.CancelAt}, &r.CancelFor, &r.Worker, &r.Token)
		r.Timeout = time.Duration(timeout) * time.Millisecond
		t.active = append(t.active, r)
		return err
	})
	read(`SELECT id, job_id, tenant_id, scheduled_at, trigger_type, status, reason, attempt, max_attempts, attempts, coalesce(error_type, ''), started_at, completed_at,
	             coalesce(missed_count, 0), missed_until,
	             coalesce(worker_id, '00000000-0000-0000-0000-000000000000'), coalesce(lease_token, '00000000-0000-0000-0000-000000000000')
	      FROM job_executions ORDER BY id, scheduled_at`, func(row pgx.CollectableRow) error {
		var r finishedRow
		err := row.Scan(&r.ID, &r.Job, &r.Tenant, zero{&r.At}, &r.Trigger, &r.Status, &r.Reason, &r.Attempt, &r.MaxAttempts, tried{&r.Failures}, &r.ErrorType,
			zero{&r.StartedAt}, zero{&r.CompletedAt}, &r.MissedCount, zero{&r.MissedUntil}, &r.Worker, &r.Token)
		if r.Status == execution.Skipped || r.Status == execution.Missed {
			r.Reason = "" // words for people
		}
		t.finished = append(t.finished, r)
		return err
	})
	read("SELECT id, expires_at, dead, job_types FROM workers ORDER BY id", func(row pgx.CollectableRow) error {
		var r workerRow
		err := row.Scan(&r.ID, zero{&r.ExpiresAt}, &r.Dead, &r.Types)
		t.workers = append(t.workers, r)
		return err
	})
	read(`SELECT t.id, coalesce(t.max_running, -1), coalesce((t.max_running_by_type->>'function')::int, -1), coalesce((t.max_running_by_type->>'http')::int, -1),
	             c.running, coalesce((c.running_by_type->>'function')::int, 0), coalesce((c.running_by_type->>'http')::int, 0), c.backlogged_at
	      FROM tenants t JOIN running_totals c ON c.tenant_id = t.id ORDER BY t.id`, func(row pgx.CollectableRow) error {
		var r tenantRow
		err := row.Scan(&r.ID, &r.Most.All, &r.Most.Function, &r.Most.HTTP, &r.Running.All, &r.Running.Function, &r.Running.HTTP, zero{&r.Backlogged})
		t.tenants = append(t.tenants, r)
		return err
	})
	read("SELECT tenant_id, key, execution_id FROM running_keys ORDER BY tenant_id, key", func(row pgx.CollectableRow) error {
		var k keyRow
		err := row.Scan(&k.Of.Tenant, &k.Of.Key, &k.ID)
		t.keys = append(t.keys, k)
		return err
	})
	return &t, s.admin.SendBatch(ctx, &batch).Close()
}

// zero reads NULL as the zero time.
type zero struct{ to *time.Time }

// Scan implements sql.Scanner.
func (z zero) Scan(v any) error {
	if at, ok := v.(time.Time); ok {
		*z.to = at.UTC()
	}
	return nil
}

// tried reads the list of earlier attempts.
type tried struct{ to *[]failure }

// Scan implements sql.Scanner.
func (f tried) Scan(v any) error {
	var list []execution.Attempt
	if err := json.Unmarshal([]byte(fmt.Sprintf("%s", v)), &list); err != nil {
		return err
	}
	for _, a := range list {
		*f.to = append(*f.to, failure{Number: a.Number, Type: a.Error.Type})
	}
	return nil
}
