-- name: CountFailedCalls :many
-- Cross-tenant: the worker. Adds failures to the breakers of hosts, at most once a second
-- for each worker; a row of failures begins anew where the last one began before the window. A
-- tenant that has most_hosts breakers gets no more. An open breaker counts nothing: the calls were
-- made before it opened. Locks in the order of tenants and hosts.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
calls AS (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@hosts::text[]) AS host,
           unnest(@failures::bigint[]) AS failures, unnest(@reasons::text[]) AS reason
),
fresh AS (
    SELECT c.id, row_number() OVER (PARTITION BY c.tenant_id ORDER BY c.host)
                 + (SELECT count(*) FROM circuit_breakers o WHERE o.tenant_id = c.tenant_id) AS nth
    FROM calls c
    WHERE NOT EXISTS (SELECT 1 FROM circuit_breakers k WHERE k.tenant_id = c.tenant_id AND k.host = c.host)
)
INSERT INTO circuit_breakers AS b (id, tenant_id, host, state, failures, failing_since, failed_at, reason, pause_seconds, created_at)
SELECT c.id, c.tenant_id, c.host, 'closed', c.failures, clock.at, clock.at, c.reason, @pause_seconds::int, clock.at
FROM calls c, clock
WHERE NOT EXISTS (SELECT 1 FROM fresh f WHERE f.id = c.id AND f.nth > @most_hosts::bigint)
ORDER BY c.tenant_id, c.host
ON CONFLICT (tenant_id, host) DO UPDATE SET
    failures = excluded.failures + CASE WHEN b.failing_since >= excluded.failing_since - make_interval(secs => @window_seconds::int) THEN b.failures ELSE 0 END,
    failing_since = CASE WHEN b.failing_since >= excluded.failing_since - make_interval(secs => @window_seconds::int) THEN b.failing_since ELSE excluded.failing_since END,
    failed_at = excluded.failed_at, reason = excluded.reason
WHERE b.state = 'closed'
RETURNING b.id, b.failures;

-- name: OpenBreakers :many
-- Cross-tenant: the worker, for breakers that it counted failures of. Whichever worker comes
-- first opens one.
UPDATE circuit_breakers b SET state = 'open', opened_at = clock.at, retry_at = clock.at + make_interval(secs => b.pause_seconds)
FROM (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) clock
WHERE b.id = ANY (ARRAY(SELECT o.id FROM circuit_breakers o WHERE o.id = ANY (@ids::uuid[]) AND o.state = 'closed' ORDER BY o.tenant_id, o.host FOR UPDATE))
RETURNING b.tenant_id, b.host, b.failures, b.reason;

-- name: ForgetFailures :exec
-- Cross-tenant: the worker. A call succeeded, so the failures before it are no longer in a
-- row. An open breaker is closed by its probe alone.
DELETE FROM circuit_breakers b
WHERE b.id = ANY (ARRAY(
    SELECT o.id FROM circuit_breakers o
    JOIN (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@hosts::text[]) AS host) c ON c.tenant_id = o.tenant_id AND c.host = o.host
    WHERE o.state = 'closed' ORDER BY o.tenant_id, o.host FOR UPDATE OF o));

-- name: ListAllBreakers :many
-- Cross-tenant: the worker, which asks no breaker of the database before a call. retry_in_ms
-- is how long it is until a probe may go out.
SELECT b.tenant_id, b.host, b.state,
       coalesce(extract(epoch FROM b.retry_at - coalesce(sqlc.narg(now)::timestamptz, now())) * 1000, 0)::bigint AS retry_in_ms
FROM circuit_breakers b ORDER BY b.failed_at DESC LIMIT @most;

-- name: ClaimProbe :execrows
-- Of all workers that ask at once one gets the probe: the others wait for the lock of the
-- row and then find it half open. A probe whose end nobody wrote is given to another once
-- its time is up.
UPDATE circuit_breakers SET state = 'half_open', probe = @probe::uuid, retry_at = clock.at + make_interval(secs => @within_seconds::int)
FROM (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) clock
WHERE tenant_id = @tenant_id AND host = @host AND state <> 'closed' AND retry_at <= clock.at;

-- name: CloseProbed :execrows
DELETE FROM circuit_breakers WHERE tenant_id = @tenant_id AND host = @host AND probe = @probe::uuid;

-- name: ReopenProbed :execrows
-- After a probe that failed, the next one goes out after twice as long, up to the most.
-- One that says nothing, because its run was ended, is repeated by the next call.
UPDATE circuit_breakers SET
    state = 'open', probe = NULL, failures = failures + @failed::int,
    failed_at = CASE WHEN @failed::int = 1 THEN clock.at ELSE failed_at END, reason = CASE WHEN @failed::int = 1 THEN @reason::text ELSE reason END,
    pause_seconds = CASE WHEN @failed::int = 1 THEN least(2 * pause_seconds, @most_pause_seconds::int) ELSE pause_seconds END,
    retry_at = CASE WHEN @failed::int = 1 THEN clock.at + make_interval(secs => least(2 * pause_seconds, @most_pause_seconds::int)) ELSE clock.at END
FROM (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) clock
WHERE tenant_id = @tenant_id AND host = @host AND probe = @probe::uuid;

-- name: ListBreakers :many
SELECT * FROM circuit_breakers
WHERE tenant_id = @tenant_id AND (created_at, id) < (@before_created_at::timestamptz, @before_id::uuid)
ORDER BY created_at DESC, id DESC LIMIT @page_size;

-- name: DeleteBreaker :execrows
DELETE FROM circuit_breakers WHERE tenant_id = @tenant_id AND id = @id;

-- name: DeleteOldBreakers :execrows
-- Cross-tenant: maintenance. Failures that did not go on, and open breakers of hosts that
-- nobody calls any more.
DELETE FROM circuit_breakers b
WHERE b.id = ANY (ARRAY(
    SELECT o.id FROM circuit_breakers o, (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) clock
    WHERE o.failed_at < clock.at - CASE WHEN o.state = 'closed' THEN interval '10 minutes' ELSE interval '1 day' END
    LIMIT @batch_size FOR UPDATE OF o SKIP LOCKED));
