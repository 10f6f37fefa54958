-- name: InsertDeniedCall :one
-- The trigger records it; see DeleteDeniedCall.
INSERT INTO denied_calls (tenant_id, operation, reason) VALUES (@tenant_id, @operation, @reason) RETURNING id;

-- name: DeleteDeniedCall :exec
-- In the same transaction: the record is in the audit log.
DELETE FROM denied_calls WHERE tenant_id = @tenant_id AND id = @id;
