-- name: InsertExecutionRetry :exec
INSERT INTO execution_retries (execution_id, tenant_id, job_id, retry_of, created_at)
VALUES (@execution_id, @tenant_id, @job_id, @retry_of, @created_at);

-- name: DeleteOldExecutionRetries :execrows
-- Cross-tenant: retention. A batch of the oldest, of all tenants. Skips so many rows
-- that cannot be deleted.
DELETE FROM execution_retries r
WHERE r.execution_id = ANY (ARRAY(SELECT o.execution_id FROM execution_retries o WHERE o.created_at < @before
                                  ORDER BY o.created_at OFFSET @skipped LIMIT @batch_size));
