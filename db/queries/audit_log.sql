-- name: ListAuditEntries :many
-- Newest first, over scan_rows entries at most. Walks audit_log_list; of one
-- object, its own index. The last entry that was read comes back although it may
-- not fit: the next page begins after it.
SELECT sqlc.embed(audit_log), page.number, page.fits::boolean AS fits
FROM (
    SELECT s.strand, s.seq, s.at, s.number, s.fits FROM (
        SELECT l.strand, l.seq, l.at, row_number() OVER listed AS number, lead(true) OVER listed IS NULL AS last,
           ((sqlc.narg(actor)::text IS NULL OR l.actor = sqlc.narg(actor))
            AND (sqlc.narg(action)::text IS NULL OR l.action = sqlc.narg(action))
            AND (sqlc.narg(object_type)::text IS NULL OR l.object_type = sqlc.narg(object_type))) AS fits
        FROM (
            SELECT i.strand, i.seq, i.at, i.actor, i.action, i.object_type FROM audit_log i
            WHERE i.tenant_id = @tenant_id AND (i.at, i.strand, i.seq) < (@before_at::timestamptz, @before_shard::smallint, @before_seq::bigint)
              AND (sqlc.narg(object_id)::text IS NULL OR i.object_id = sqlc.narg(object_id))
              AND (sqlc.narg(from_at)::timestamptz IS NULL OR i.at >= sqlc.narg(from_at))
              AND (sqlc.narg(to_at)::timestamptz IS NULL OR i.at < sqlc.narg(to_at))
            ORDER BY i.at DESC, i.strand DESC, i.seq DESC LIMIT @scan_rows
        ) l
        WINDOW listed AS (ORDER BY l.at DESC, l.strand DESC, l.seq DESC)
    ) s
    WHERE s.fits OR s.last
    ORDER BY s.at DESC, s.strand DESC, s.seq DESC LIMIT @page_size
) page
JOIN audit_log ON audit_log.tenant_id = @tenant_id AND audit_log.strand = page.strand AND audit_log.seq = page.seq
ORDER BY page.at DESC, page.strand DESC, page.seq DESC;

-- name: ListAuditLinks :many
-- A piece of a shard from a link on, oldest first, each row with the shard's
-- head as of the same snapshot, the anchor of what retention removed, and the newest
-- record of that. Without any link there is one row, of seq 0.
SELECT coalesce(h.seq, 0)::bigint AS head_seq, coalesce(h.hash, '')::bytea AS head_hash,
       coalesce(n.seq, 0)::bigint AS anchor_seq, coalesce(n.hash, '')::bytea AS anchor_hash,
       coalesce((SELECT r.after FROM audit_log r WHERE r.tenant_id = n.tenant_id AND r.object_id = n.strand::text AND r.object_type = 'auditLog'
                 ORDER BY r.at DESC LIMIT 1), '')::text AS anchor_record,
       coalesce(l.seq, 0)::bigint AS seq, coalesce(l.at, 'epoch')::timestamptz AS at, coalesce(l.actor_kind, '')::text AS actor_kind,
       coalesce(l.actor, '')::text AS actor, coalesce(l.address, '')::text AS address, coalesce(l.request_id, '')::text AS request_id,
       coalesce(l.action, '')::text AS action, coalesce(l.object_type, '')::text AS object_type, coalesce(l.object_id, '')::text AS object_id,
       coalesce(l.change, '')::text AS change, l.before, l.after,
       coalesce(l.prev_hash, '')::bytea AS prev_hash, coalesce(l.hash, '')::bytea AS hash
FROM (SELECT 1) one
LEFT JOIN audit_heads h ON h.tenant_id = @tenant_id AND h.strand = @shard
LEFT JOIN audit_anchors n ON n.tenant_id = @tenant_id AND n.strand = @shard
LEFT JOIN (SELECT a.* FROM audit_log a WHERE a.tenant_id = @tenant_id AND a.strand = @shard AND a.seq >= @from_seq ORDER BY a.seq LIMIT @page_size) l ON true
ORDER BY l.seq;

-- name: ListAuditChains :many
-- Cross-tenant: the verification of all chains.
SELECT DISTINCT tenant_id FROM (SELECT tenant_id FROM audit_heads UNION ALL SELECT tenant_id FROM audit_anchors UNION ALL SELECT tenant_id FROM audit_log) t ORDER BY tenant_id;

-- name: ListAuditShards :many
-- Cross-tenant: retention. A page of shards, in the order of their key, and whether
-- the first entry of each was made before a given time.
SELECT h.tenant_id, h.strand,
       coalesce((SELECT l.at < @before::timestamptz FROM audit_log l WHERE l.tenant_id = h.tenant_id AND l.strand = h.strand ORDER BY l.seq LIMIT 1), false)::boolean AS old
FROM audit_heads h WHERE (h.tenant_id, h.strand) > (@after_tenant::uuid, @after_shard::smallint)
ORDER BY h.tenant_id, h.strand OFFSET @skipped LIMIT @batch_size;

-- name: TrimAuditShard :one
-- By retention. See the function: it removes at most so many entries of
-- one shard.
SELECT trim_audit_strand(@tenant_id::uuid, @shard::smallint, @before::timestamptz, @most::int) AS removed;
