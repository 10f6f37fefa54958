-- name: AcquireLock :one
-- Takes a lease that nobody has or that ran out, by the database's clock. One
-- that is held is only looked at. Two that race for a free one wait for each
-- other on the row; the second finds the first one's expiry and gets no row.
INSERT INTO scheduler_locks (name, owner, holder, fence, acquired_at, expires_at)
SELECT @name, @owner, @holder, 1, now(), now() + make_interval(secs => @ttl_seconds::float8)
WHERE NOT EXISTS (SELECT 1 FROM scheduler_locks held WHERE held.name = @name AND held.expires_at > now())
ON CONFLICT (name) DO UPDATE SET
    owner = EXCLUDED.owner, holder = EXCLUDED.holder, fence = scheduler_locks.fence + 1,
    acquired_at = EXCLUDED.acquired_at, expires_at = EXCLUDED.expires_at
WHERE scheduler_locks.expires_at <= EXCLUDED.acquired_at
RETURNING fence;

-- name: ExtendLock :execrows
-- A lease that ran out is not extended, even if nobody took it since.
UPDATE scheduler_locks SET expires_at = now() + make_interval(secs => @ttl_seconds::float8)
WHERE name = @name AND owner = @owner AND fence = @fence AND expires_at > now();

-- name: ReleaseLock :execrows
UPDATE scheduler_locks SET expires_at = now()
WHERE name = @name AND owner = @owner AND fence = @fence AND expires_at > now();

-- name: GuardLock :one
-- FOR SHARE: the next owner of the lease waits for the end of the transaction
-- that asked, so nothing that it wrote lands after the next owner began. The
-- clock is read anew, because the transaction may have begun long before.
SELECT fence FROM scheduler_locks
WHERE name = @name AND owner = @owner AND fence = @fence AND expires_at > clock_timestamp()
FOR SHARE;
