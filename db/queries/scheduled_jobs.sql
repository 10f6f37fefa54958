-- name: InsertJob :batchone
-- Writes both tables itself: through the view it takes half as long again.
WITH made AS (
INSERT INTO job_definitions (
    id, tenant_id, name, description, tags, created_by, created_at, updated_at,
    cron_expression, timezone, interval_ms, run_at, anchor_at, start_date, end_date,
    job_type, config, retry_config, max_attempts, timeout_seconds, priority, status, status_reason,
    jitter_seconds, dst_gap, dst_overlap, calendars, max_executions, max_concurrent, overlap_policy, overlap_queue_limit,
    misfire_policy, misfire_limit, misfire_grace_seconds, disable_after_failures, status_by, status_at, secret_names, concurrency_key,
    execution_timeout_seconds, complete_within_seconds, set_name)
VALUES (
    @id, @tenant_id, @name, @description, @tags::text[], @created_by, @now::timestamptz, @now::timestamptz,
    sqlc.narg(cron_expression), @timezone, sqlc.narg(interval_ms), sqlc.narg(run_at), @anchor_at, sqlc.narg(start_date), sqlc.narg(end_date),
    @job_type, @config, @retry_config, @max_attempts, @timeout_seconds, @priority, @status, @status_reason,
    @jitter_seconds, @dst_gap, @dst_overlap, @calendars, sqlc.narg(max_executions), @max_concurrent, @overlap_policy, @overlap_queue_limit,
    @misfire_policy, @misfire_limit, @misfire_grace_seconds, sqlc.narg(disable_after_failures), @created_by, @now::timestamptz,
    @secret_names::text[], @concurrency_key, sqlc.narg(execution_timeout_seconds), sqlc.narg(complete_within_seconds), @set_name)
RETURNING *
),
placed AS (
    INSERT INTO job_schedule (job_id, tenant_id, status, next_execution_at)
    SELECT m.id, m.tenant_id, m.status, sqlc.narg(next_execution_at)::timestamptz FROM made m RETURNING *
)
SELECT d.id, s.tenant_id, d.name, d.description, d.tags, d.created_by, d.created_at, d.updated_at, d.deleted_at, d.version, d.cron_expression,
       d.interval_ms, d.run_at, d.timezone, d.anchor_at, d.start_date, d.end_date, d.max_executions, d.jitter_seconds, d.dst_gap, d.dst_overlap,
       d.calendars, d.job_type, d.config, d.secret_names, d.retry_config, d.max_attempts, d.timeout_seconds, d.priority, d.max_concurrent,
       d.concurrency_key, d.overlap_policy, d.overlap_queue_limit, d.misfire_policy, d.misfire_limit, d.misfire_grace_seconds,
       d.disable_after_failures, s.status, d.status_reason, d.status_by, d.status_at, d.paused_until, d.resume_policy, s.next_execution_at,
       s.last_execution_at, s.execution_count, s.catch_up_until, d.generation, s.audited_at, s.audit_difference, d.execution_timeout_seconds,
       d.set_name, d.complete_within_seconds
FROM made d CROSS JOIN placed s;

-- name: GetJob :one
SELECT * FROM scheduled_jobs WHERE tenant_id = @tenant_id AND id = @id AND deleted_at IS NULL;

-- name: LockJob :one
-- NO KEY UPDATE waits for a promoter's claim of the same row (milliseconds),
-- so once a pause, an edit or a deletion is committed no later promotion uses
-- the old state.
SELECT * FROM scheduled_jobs WHERE tenant_id = @tenant_id AND id = @id AND deleted_at IS NULL
FOR NO KEY UPDATE;

-- name: LockJobToRun :batchone
-- LockJob for a run that somebody asked for, which is noted in the same statement. A run
-- that is refused is rolled back, and the note with it. execution_count stays: it counts
-- the runs of the schedule, which max_executions bounds. Answers no more than a run needs.
WITH noted AS (
    UPDATE job_schedule s SET last_execution_at = coalesce(sqlc.narg(now)::timestamptz, now())
    WHERE s.tenant_id = @tenant_id AND s.job_id = @id RETURNING s.job_id
)
SELECT j.version, j.name, j.job_type, j.priority, j.max_attempts, j.timeout_seconds, j.generation, j.overlap_policy, j.max_concurrent, j.concurrency_key, j.config
FROM held_jobs(ARRAY(SELECT n.job_id FROM noted n)) j WHERE j.deleted_at IS NULL;

-- name: ListNewestJobs :many
-- ListJobs without filters, with how many jobs the tenant has. It has one plan for all
-- calls (see postgres.InNewest) and reads the rows of the page alone.
SELECT sqlc.embed(scheduled_jobs), (SELECT coalesce(sum(c.jobs), 0) FROM job_counts c WHERE c.tenant_id = @tenant_id)::bigint AS total
FROM scheduled_jobs
WHERE scheduled_jobs.tenant_id = @tenant_id AND deleted_at IS NULL AND (created_at, id) < (@place_at::timestamptz, @place_id::uuid)
ORDER BY created_at DESC, id DESC LIMIT @page_size;

-- name: ListJobs :many
-- Walks scheduled_jobs_list from the position of the last page, over scan_rows
-- rows at most, however few the filters leave. Each row is filtered: under
-- row-level security no index can answer them, because their operators are not
-- leakproof, and every further index over this table would cost each edit of a job a
-- write. The last row that was read comes back although it may not fit: the next
-- page begins after it. The plan is made for each call (see postgres.InList), and
-- oldest_first leaves it one order, that of the index or the reverse.
SELECT sqlc.embed(scheduled_jobs), page.number, coalesce(page.fits, false)::boolean AS fits
FROM (
    SELECT s.id, s.created_at, s.number, s.fits FROM (
        SELECT j.id, j.created_at, row_number() OVER listed AS number, lead(true) OVER listed IS NULL AS last,
           ((sqlc.narg(statuses)::text[] IS NULL OR j.status = ANY (sqlc.narg(statuses)::text[]))
            AND (sqlc.narg(job_types)::text[] IS NULL OR j.job_type = ANY (sqlc.narg(job_types)::text[]))
            AND (sqlc.narg(all_tags)::text[] IS NULL OR j.tags @> sqlc.narg(all_tags)::text[])
            AND (sqlc.narg(any_tags)::text[] IS NULL OR j.tags && sqlc.narg(any_tags)::text[])
            AND (sqlc.narg(contained)::text IS NULL OR strpos(lower(j.name), lower(sqlc.narg(contained)::text)) > 0
                                                    OR strpos(lower(j.description), lower(sqlc.narg(contained)::text)) > 0)
            AND (sqlc.narg(set_name)::text IS NULL OR j.set_name = sqlc.narg(set_name)::text)
            AND (sqlc.narg(created_by)::text IS NULL OR j.created_by = sqlc.narg(created_by)::text)
            AND (sqlc.narg(next_from)::timestamptz IS NULL OR (j.status = 'active' AND (SELECT n.next_execution_at FROM job_schedule n WHERE n.job_id = j.id) >= sqlc.narg(next_from)::timestamptz))
            AND (sqlc.narg(next_to)::timestamptz IS NULL OR (j.status = 'active' AND (SELECT n.next_execution_at FROM job_schedule n WHERE n.job_id = j.id) < sqlc.narg(next_to)::timestamptz))) AS fits
        FROM (
            SELECT i.* FROM job_definitions i
            WHERE i.tenant_id = @tenant_id AND i.deleted_at IS NULL
              AND CASE WHEN @oldest_first::boolean THEN (i.created_at, i.id) > (@place_at::timestamptz, @place_id::uuid)
                       ELSE (i.created_at, i.id) < (@place_at::timestamptz, @place_id::uuid) END
              AND i.created_at >= @created_from::timestamptz AND i.created_at < @created_to::timestamptz
            ORDER BY CASE WHEN @oldest_first::boolean THEN i.created_at END, CASE WHEN @oldest_first::boolean THEN i.id END,
                     CASE WHEN NOT @oldest_first::boolean THEN i.created_at END DESC, CASE WHEN NOT @oldest_first::boolean THEN i.id END DESC
            LIMIT @scan_rows
        ) j
        WINDOW listed AS (ORDER BY CASE WHEN @oldest_first::boolean THEN j.created_at END, CASE WHEN @oldest_first::boolean THEN j.id END,
                                   CASE WHEN NOT @oldest_first::boolean THEN j.created_at END DESC, CASE WHEN NOT @oldest_first::boolean THEN j.id END DESC)
    ) s
    WHERE s.fits OR s.last
    ORDER BY CASE WHEN @oldest_first::boolean THEN s.created_at END, CASE WHEN @oldest_first::boolean THEN s.id END,
             CASE WHEN NOT @oldest_first::boolean THEN s.created_at END DESC, CASE WHEN NOT @oldest_first::boolean THEN s.id END DESC
    LIMIT @page_size
) page
JOIN scheduled_jobs ON scheduled_jobs.tenant_id = @tenant_id AND scheduled_jobs.id = page.id
ORDER BY CASE WHEN @oldest_first::boolean THEN page.created_at END, CASE WHEN @oldest_first::boolean THEN page.id END,
         CASE WHEN NOT @oldest_first::boolean THEN page.created_at END DESC, CASE WHEN NOT @oldest_first::boolean THEN page.id END DESC;

-- name: CountJobsToSort :one
-- How many jobs another order than that of the list has to read; counts so many at
-- most.
SELECT count(*) FROM (
    SELECT 1 FROM job_definitions
    WHERE tenant_id = @tenant_id AND deleted_at IS NULL AND created_at >= @created_from::timestamptz AND created_at < @created_to::timestamptz
    LIMIT @most
) j;

-- name: ListSortedJobs :many
-- The list by another order. It reads the tenant's jobs by scheduled_jobs_list, makes a key
-- of each, and returns those with the first keys. Keys are texts: times are written so that
-- their texts sort as they do. A job without such a time stands last either way. The schedule
-- of a job is looked up where the order or a filter needs it.
SELECT sqlc.embed(scheduled_jobs), page.key::text AS sort_key
FROM (
    SELECT j.id, k.key FROM job_definitions j
    CROSS JOIN LATERAL (SELECT (CASE @sort_by::text
        WHEN 'name' THEN lower(j.name)
        WHEN 'updatedAt' THEN to_char(j.updated_at AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS')
        WHEN 'lastExecutionAt' THEN coalesce(to_char((SELECT n.last_execution_at FROM job_schedule n WHERE n.job_id = j.id) AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS'),
                                             CASE WHEN @descending::boolean THEN '' ELSE '~' END)
        ELSE coalesce(CASE WHEN j.status = 'active' THEN to_char((SELECT n.next_execution_at FROM job_schedule n WHERE n.job_id = j.id) AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS') END,
                      CASE WHEN @descending::boolean THEN '' ELSE '~' END)
        END) COLLATE "C" AS key) k
    WHERE j.tenant_id = @tenant_id AND j.deleted_at IS NULL
      AND (sqlc.narg(after_key)::text IS NULL
           OR (@descending::boolean AND (k.key, j.id) < (sqlc.narg(after_key)::text COLLATE "C", @after_id::uuid))
           OR (NOT @descending::boolean AND (k.key, j.id) > (sqlc.narg(after_key)::text COLLATE "C", @after_id::uuid)))
      AND j.created_at >= @created_from::timestamptz AND j.created_at < @created_to::timestamptz
      AND (sqlc.narg(statuses)::text[] IS NULL OR j.status = ANY (sqlc.narg(statuses)::text[]))
      AND (sqlc.narg(job_types)::text[] IS NULL OR j.job_type = ANY (sqlc.narg(job_types)::text[]))
      AND (sqlc.narg(all_tags)::text[] IS NULL OR j.tags @> sqlc.narg(all_tags)::text[])
      AND (sqlc.narg(any_tags)::text[] IS NULL OR j.tags && sqlc.narg(any_tags)::text[])
      AND (sqlc.narg(contained)::text IS NULL OR strpos(lower(j.name), lower(sqlc.narg(contained)::text)) > 0
                                              OR strpos(lower(j.description), lower(sqlc.narg(contained)::text)) > 0)
      AND (sqlc.narg(set_name)::text IS NULL OR j.set_name = sqlc.narg(set_name)::text)
      AND (sqlc.narg(created_by)::text IS NULL OR j.created_by = sqlc.narg(created_by)::text)
      AND (sqlc.narg(next_from)::timestamptz IS NULL OR (j.status = 'active' AND (SELECT n.next_execution_at FROM job_schedule n WHERE n.job_id = j.id) >= sqlc.narg(next_from)::timestamptz))
      AND (sqlc.narg(next_to)::timestamptz IS NULL OR (j.status = 'active' AND (SELECT n.next_execution_at FROM job_schedule n WHERE n.job_id = j.id) < sqlc.narg(next_to)::timestamptz))
    ORDER BY CASE WHEN @descending::boolean THEN k.key END DESC, CASE WHEN NOT @descending::boolean THEN k.key END,
             CASE WHEN @descending::boolean THEN j.id END DESC, j.id
    LIMIT @page_size
) page
JOIN scheduled_jobs ON scheduled_jobs.tenant_id = @tenant_id AND scheduled_jobs.id = page.id
ORDER BY CASE WHEN @descending::boolean THEN page.key END DESC, CASE WHEN NOT @descending::boolean THEN page.key END,
         CASE WHEN @descending::boolean THEN page.id END DESC, page.id;

-- name: UpdateJob :one
UPDATE scheduled_jobs SET
    name = @name, description = @description, tags = @tags::text[], updated_at = @now::timestamptz, version = version + 1,
    cron_expression = sqlc.narg(cron_expression), timezone = @timezone, interval_ms = sqlc.narg(interval_ms),
    run_at = sqlc.narg(run_at), anchor_at = @anchor_at, start_date = sqlc.narg(start_date), end_date = sqlc.narg(end_date),
    job_type = @job_type, config = @config, retry_config = @retry_config, max_attempts = @max_attempts,
    timeout_seconds = @timeout_seconds, execution_timeout_seconds = sqlc.narg(execution_timeout_seconds), priority = @priority,
    complete_within_seconds = sqlc.narg(complete_within_seconds),
    jitter_seconds = @jitter_seconds, dst_gap = @dst_gap, dst_overlap = @dst_overlap, calendars = @calendars,
    max_executions = sqlc.narg(max_executions), max_concurrent = @max_concurrent, overlap_policy = @overlap_policy,
    overlap_queue_limit = @overlap_queue_limit, misfire_policy = @misfire_policy, misfire_limit = @misfire_limit,
    misfire_grace_seconds = @misfire_grace_seconds, disable_after_failures = sqlc.narg(disable_after_failures), concurrency_key = @concurrency_key,
    status = @status, status_reason = @status_reason, status_by = @status_by, status_at = @status_at,
    next_execution_at = sqlc.narg(next_execution_at), secret_names = @secret_names::text[]
WHERE tenant_id = @tenant_id AND id = @id
RETURNING *;

-- name: UpdateJobStatus :one
UPDATE scheduled_jobs SET
    status = @status, status_reason = @status_reason, status_by = @status_by, status_at = @now::timestamptz,
    paused_until = sqlc.narg(paused_until), resume_policy = sqlc.narg(resume_policy),
    next_execution_at = sqlc.narg(next_execution_at), updated_at = @now::timestamptz
WHERE tenant_id = @tenant_id AND id = @id
RETURNING *;

-- name: DeleteJobs :exec
-- For rows that the caller holds locked. They stay, unseen, as long as their history
-- may be read.
UPDATE scheduled_jobs SET deleted_at = @now::timestamptz, status = 'inactive', status_reason = 'deleted', next_execution_at = NULL
WHERE tenant_id = @tenant_id AND id = ANY (@ids::uuid[]);

-- name: JobExists :one
-- Also for a deleted job, whose history stays readable.
SELECT EXISTS (SELECT 1 FROM job_definitions WHERE tenant_id = @tenant_id AND id = @id);

-- name: ClaimDueJobs :many
-- Cross-tenant: the promoter. Takes and locks what is due, oldest first, and
-- skips what another promoter holds. Locked in a part of its own that is
-- materialized: inside an UPDATE ... WHERE id IN (SELECT ... LIMIT ... SKIP LOCKED)
-- the planner may take more rows than the limit. Walks job_schedule_due; the
-- lower bound spares the scan the index entries of jobs advanced since some old
-- snapshot began. held_jobs reads the definitions under the locks: an edit that was committed
-- before a job was locked counts. Jobs may also be chosen by their ids, and kept out: those of a
-- batch that failed, which is divided.
-- With each job comes how many of its executions have a slot or wait for one, where
-- its overlap policy asks: count_active counts under the locks, because its argument
-- is known only when all of them are held, and it sees what was committed by then.
-- And, if see_backlogs asks, whether its tenant has a backlog in the pool: more than
-- backlog_over executions of one priority and type that may start, behind which what
-- becomes due belongs. That walks the backlogs as ListPooledExecutions does, and only
-- when something is due.
WITH RECURSIVE walk AS (
    (SELECT e.tenant_id, e.priority, e.job_type FROM active_executions e WHERE e.pooled ORDER BY e.tenant_id, e.priority, e.job_type LIMIT 1)
    UNION ALL
    SELECT n.tenant_id, n.priority, n.job_type FROM walk w CROSS JOIN LATERAL (
        SELECT e.tenant_id, e.priority, e.job_type FROM active_executions e
        WHERE e.pooled AND (e.tenant_id, e.priority, e.job_type) > (w.tenant_id, w.priority, w.job_type)
        ORDER BY e.tenant_id, e.priority, e.job_type LIMIT 1
    ) n
),
backlogs AS MATERIALIZED (SELECT w.tenant_id, w.priority, w.job_type FROM walk w LIMIT 1000),
chosen AS MATERIALIZED (
    SELECT job_id FROM job_schedule
    WHERE job_id = ANY (@chosen::uuid[]) AND status = 'active' AND next_execution_at <= coalesce(sqlc.narg(now)::timestamptz, now())
    FOR NO KEY UPDATE SKIP LOCKED
),
oldest AS MATERIALIZED (
    SELECT job_id FROM job_schedule
    WHERE status = 'active'
      AND next_execution_at <= coalesce(sqlc.narg(now)::timestamptz, now())
      AND next_execution_at >= @since::timestamptz
      AND job_id <> ALL (@except_ids::uuid[]) AND tenant_id <> ALL (@except_tenants::uuid[])
    ORDER BY next_execution_at
    LIMIT @batch_size
    FOR NO KEY UPDATE SKIP LOCKED
),
due AS MATERIALIZED (
    SELECT j.id, j.tenant_id, j.version, j.job_type, j.priority, j.max_attempts, j.timeout_seconds,
           j.cron_expression, j.timezone, j.interval_ms, j.run_at, j.anchor_at, j.start_date, j.end_date, j.jitter_seconds, j.dst_gap, j.dst_overlap, j.calendars,
           j.max_concurrent, j.overlap_policy, j.overlap_queue_limit, j.max_executions, j.execution_count,
           j.misfire_policy, j.misfire_limit, j.misfire_grace_seconds, j.resume_policy, j.next_execution_at, j.catch_up_until, j.generation,
           -- The key is made of it, where there is one.
           j.concurrency_key, j.name, (CASE WHEN j.concurrency_key <> '' THEN j.config END)::jsonb AS config
    FROM held_jobs(ARRAY(SELECT c.job_id FROM chosen c UNION ALL SELECT o.job_id FROM oldest o)) j
)
SELECT d.*, coalesce(p.taken, 0)::bigint AS taken, coalesce(p.waiting, 0)::bigint AS waiting,
       (d.overlap_policy = 'cancel_running' AND EXISTS (SELECT 1 FROM cancellations c WHERE c.job_id = d.id))::boolean AS cancelling,
       (CASE WHEN @see_backlogs::boolean THEN d.tenant_id = ANY (ARRAY(
           SELECT l.tenant_id FROM backlogs l WHERE EXISTS (
               SELECT 1 FROM active_executions e
               WHERE e.pooled AND e.tenant_id = l.tenant_id AND e.priority = l.priority AND e.job_type = l.job_type
                 AND e.available_at <= coalesce(sqlc.narg(now)::timestamptz, now())
               OFFSET @backlog_over::int)))
       ELSE false END)::boolean AS has_backlog
FROM due d
LEFT JOIN count_active(ARRAY(SELECT u.id FROM due u WHERE u.overlap_policy <> 'allow')) p ON p.job_id = d.id
ORDER BY d.next_execution_at;

-- name: LockDueJobsInTurns :many
-- Cross-tenant: the promoter, when more is due than a pass takes. Locks the oldest
-- due jobs of each tenant, the same number of each and most of them together, for
-- ClaimDueJobs in the same transaction, and skips what another promoter holds. Where
-- only one tenant has something due it locks nothing. Its one row may lead a
-- transaction.
-- It steps through job_schedule_turns, at most walk_size tenants a pass, and says
-- before which tenant the next pass goes on. It steps backwards, because the latest
-- scheduled time of a tenant is rarely a dead index entry, while the earliest ones are
-- those of jobs advanced since some old snapshot began. Bounds are pairs and the order
-- names both columns, so that no other index serves.
WITH RECURSIVE walk AS (
    (SELECT j.tenant_id FROM job_schedule j WHERE j.status = 'active' AND j.tenant_id < @before_tenant::uuid
     ORDER BY j.tenant_id DESC, j.next_execution_at DESC LIMIT 1)
    UNION ALL
    SELECT n.tenant_id FROM walk w CROSS JOIN LATERAL (
        SELECT j.tenant_id FROM job_schedule j WHERE j.status = 'active' AND j.tenant_id < w.tenant_id
        ORDER BY j.tenant_id DESC, j.next_execution_at DESC LIMIT 1
    ) n
),
walked AS MATERIALIZED (SELECT w.tenant_id FROM walk w LIMIT @walk_size::int),
with_due AS MATERIALIZED (
    SELECT w.tenant_id FROM walked w CROSS JOIN LATERAL (
        SELECT j.job_id FROM job_schedule j
        WHERE j.status = 'active'
          AND (j.tenant_id, j.next_execution_at) >= (w.tenant_id, @since::timestamptz)
          AND (j.tenant_id, j.next_execution_at) <= (w.tenant_id, coalesce(sqlc.narg(now)::timestamptz, now()))
        ORDER BY j.tenant_id, j.next_execution_at LIMIT 1
    ) d
    WHERE w.tenant_id <> ALL (@except_tenants::uuid[])
    LIMIT @most::int
),
-- Up to where this pass came, unless it saw the last tenant.
ending AS MATERIALIZED (
    SELECT CASE WHEN (SELECT count(*) FROM with_due) >= @most::int THEN (SELECT d.tenant_id FROM with_due d ORDER BY d.tenant_id LIMIT 1)
                WHEN (SELECT count(*) FROM walked) >= @walk_size::int THEN (SELECT w.tenant_id FROM walked w ORDER BY w.tenant_id LIMIT 1) END AS tenant_id
),
share AS MATERIALIZED (SELECT count(*) AS tenants, sqlc.arg(most)::int / greatest(1, count(*)) AS each FROM with_due d),
locked AS MATERIALIZED (
    SELECT j.job_id FROM with_due t CROSS JOIN LATERAL (
        SELECT j.job_id FROM job_schedule j
        WHERE j.status = 'active'
          AND (j.tenant_id, j.next_execution_at) >= (t.tenant_id, @since::timestamptz)
          AND (j.tenant_id, j.next_execution_at) <= (t.tenant_id, coalesce(sqlc.narg(now)::timestamptz, now()))
          AND j.job_id <> ALL (@except_ids::uuid[])
        ORDER BY j.tenant_id, j.next_execution_at
        LIMIT (SELECT s.each FROM share s)
        FOR NO KEY UPDATE SKIP LOCKED
    ) j
    WHERE (SELECT s.tenants FROM share s) > 1 OR @before_tenant::uuid <> @any_tenant::uuid OR (SELECT e.tenant_id FROM ending e) IS NOT NULL
)
SELECT ARRAY(SELECT l.job_id FROM locked l)::uuid[] AS ids, coalesce((SELECT e.tenant_id FROM ending e), @any_tenant::uuid)::uuid AS before_tenant;

-- name: AdvanceJobs :exec
-- Cross-tenant: the promoter, for the rows it holds locked. Counts the runs in
-- the same write, so that a finished run costs none. Year 9999 is "never". A job
-- that was promoted in part keeps in catch_up_until what its misfire policy decided.
-- The definition is written where the schedule has ended, or what a pause held back is promoted.
WITH advanced AS (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@next_at::timestamptz[]) AS next_at, unnest(@last_at::timestamptz[]) AS last_at,
           unnest(@until_at::timestamptz[]) AS until_at, unnest(@runs::bigint[]) AS runs, unnest(@reasons::text[]) AS reason
),
ended AS (
    UPDATE job_definitions d SET
        status = CASE WHEN a.next_at = '9999-01-01 00:00:00+00' THEN 'inactive' ELSE d.status END,
        status_reason = CASE WHEN a.next_at = '9999-01-01 00:00:00+00' THEN a.reason ELSE d.status_reason END,
        status_by = CASE WHEN a.next_at = '9999-01-01 00:00:00+00' THEN 'system' ELSE d.status_by END,
        status_at = CASE WHEN a.next_at = '9999-01-01 00:00:00+00' THEN coalesce(sqlc.narg(now)::timestamptz, now()) ELSE d.status_at END,
        resume_policy = NULL
    FROM advanced a WHERE d.id = a.id AND d.id = ANY (@changed_ids::uuid[])
)
UPDATE job_schedule s SET
    next_execution_at = nullif(a.next_at, '9999-01-01 00:00:00+00'), catch_up_until = nullif(a.until_at, '9999-01-01 00:00:00+00'),
    last_execution_at = CASE WHEN a.runs > 0 THEN a.last_at ELSE s.last_execution_at END,
    execution_count = s.execution_count + a.runs
FROM advanced a WHERE s.job_id = a.id;

-- name: BoundStatements :many
-- For the rest of the transaction: a part of a batch that took too long gets less
-- time than the batch. Waiting for a lock ends earlier, so that the error says
-- which of the two it was.
SELECT concat(set_config('lock_timeout', @lock_timeout::text, true), set_config('statement_timeout', @statement_timeout::text, true))::text AS bounds;

-- name: ParkJobs :many
-- Cross-tenant: the promoter. A job that cannot be promoted becomes inactive and
-- keeps its next scheduled time, so that a resume loses nothing. One that was
-- changed, or promoted by another promoter, meanwhile is tried again.
UPDATE scheduled_jobs j SET
    status = 'inactive', status_reason = u.reason, status_by = 'system', status_at = coalesce(sqlc.narg(now)::timestamptz, now())
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@versions::int[]) AS version, unnest(@due::timestamptz[]) AS due, unnest(@reasons::text[]) AS reason) u
WHERE j.id = u.id AND j.version = u.version AND j.next_execution_at = u.due AND j.status = 'active' RETURNING j.id;

-- name: MendSchedule :one
-- Cross-tenant: the promoter, for a due schedule that it has locked and whose job is not there with that
-- status. Removes it if there is no definition, and else gives it the status of the definition.
WITH removed AS (
    DELETE FROM job_schedule s WHERE s.job_id = @id AND NOT EXISTS (SELECT 1 FROM job_definitions d WHERE d.id = s.job_id) RETURNING 1
),
corrected AS (
    UPDATE job_schedule s SET status = d.status FROM job_definitions d WHERE d.id = s.job_id AND s.job_id = @id AND s.status <> d.status RETURNING 1
)
SELECT EXISTS (SELECT 1 FROM removed)::boolean AS removed, EXISTS (SELECT 1 FROM corrected)::boolean AS corrected;

-- name: NextDue :one
-- Cross-tenant: the promoter, which sleeps until then. In the past, with its job, when
-- somebody else holds the row of a due job locked. Passes over the jobs that batches pass
-- over, too. One step into job_schedule_due. And for how many microseconds the
-- transaction has lasted.
SELECT coalesce(j.next_execution_at, '9999-01-01 00:00:00+00')::timestamptz AS next_at,
       coalesce(j.job_id, '00000000-0000-0000-0000-000000000000')::uuid AS job_id,
       coalesce(j.tenant_id, '00000000-0000-0000-0000-000000000000')::uuid AS tenant_id,
       (extract(epoch FROM clock_timestamp() - now()) * 1000000)::bigint AS held_us
FROM (SELECT 1) AS always
LEFT JOIN LATERAL (
    SELECT s.job_id, s.tenant_id, s.next_execution_at FROM job_schedule s
    WHERE s.status = 'active' AND s.next_execution_at >= @since::timestamptz
      AND s.job_id <> ALL (@except_ids::uuid[]) AND s.tenant_id <> ALL (@except_tenants::uuid[])
    ORDER BY s.next_execution_at LIMIT 1
) j ON true;

-- name: TransactionTime :one
-- For how many microseconds the transaction has lasted.
SELECT (extract(epoch FROM clock_timestamp() - now()) * 1000000)::bigint AS held_us;

-- name: AwaitDueJob :many
-- Cross-tenant: the promoter, for a job that is late and that scans have found locked.
-- Stands in line for the row, which ClaimDueJobs would skip, and locks it for ClaimDueJobs
-- in the same transaction. And when it had it: the wait may have put that off.
WITH due AS MATERIALIZED (
    SELECT job_id FROM job_schedule
    WHERE job_id = @id AND status = 'active' AND next_execution_at <= coalesce(sqlc.narg(now)::timestamptz, now())
    FOR NO KEY UPDATE
)
SELECT clock_timestamp()::timestamptz AS at FROM due;

-- name: PollDue :one
-- Cross-tenant: the promoter, while nothing is due. When the next job is, as NextDue
-- has it, and whether a backfill is due. One step into an index each.
SELECT now()::timestamptz AS at,
       coalesce((SELECT next_execution_at FROM job_schedule
                 WHERE status = 'active' AND next_execution_at >= @since::timestamptz
                   AND job_id <> ALL (@except_ids::uuid[]) AND tenant_id <> ALL (@except_tenants::uuid[])
                 ORDER BY next_execution_at LIMIT 1), '9999-01-01 00:00:00+00')::timestamptz AS next_at,
       EXISTS (SELECT 1 FROM backfills WHERE status = 'running' AND next_batch_at <= now())::boolean AS backfill_due;

-- name: OldestDue :one
-- Cross-tenant: maintenance of partitions. The oldest scheduled time that may still be written.
SELECT coalesce(sqlc.narg(now)::timestamptz, now())::timestamptz AS at,
       least(coalesce(sqlc.narg(now)::timestamptz, now()),
             (SELECT min(next_execution_at) FROM job_schedule WHERE status = 'active'),
             (SELECT min(from_at) FROM backfills WHERE status = 'running'),
             (SELECT min(scheduled_at) FROM active_executions))::timestamptz AS oldest;

-- name: LockJobs :many
-- Cross-tenant: the worker, before it counts the places of these jobs; in id
-- order, so that no two workers wait for each other.
SELECT job_id FROM job_schedule WHERE job_id = ANY (@ids::uuid[]) ORDER BY job_id FOR NO KEY UPDATE;

-- name: LockFreeJobs :many
-- Cross-tenant: LockJobs without waiting. Skips the jobs that somebody else holds.
SELECT job_id FROM job_schedule WHERE job_id = ANY (@ids::uuid[]) ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED;

-- name: ResumePausedJobs :many
-- Cross-tenant: the promoter. A pause that has run its time ends by itself;
-- what it held back is treated as the job's misfire policy says. Skips rows
-- that somebody is changing: the next sweep sees what became of them.
WITH over AS MATERIALIZED (
    SELECT d.id FROM job_schedule s JOIN job_definitions d ON d.id = s.job_id
    WHERE d.status = 'paused' AND d.paused_until <= coalesce(sqlc.narg(now)::timestamptz, now())
    ORDER BY d.paused_until LIMIT 500 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE scheduled_jobs j SET
    status = 'active', status_reason = 'the pause was over', status_by = 'system', status_at = coalesce(sqlc.narg(now)::timestamptz, now()),
    paused_until = NULL, resume_policy = CASE WHEN j.next_execution_at <= coalesce(sqlc.narg(now)::timestamptz, now()) THEN j.misfire_policy END
FROM over o WHERE j.id = o.id RETURNING j.id, j.tenant_id;

-- name: StopFailingJobs :execrows
-- Cross-tenant: the automatic stop, with the same record as a pause by hand.
UPDATE scheduled_jobs SET
    status = 'inactive', status_by = 'system', status_at = coalesce(sqlc.narg(now)::timestamptz, now()), next_execution_at = NULL,
    status_reason = format('%s executions in a row failed', disable_after_failures)
WHERE id = ANY (@ids::uuid[]) AND status = 'active';

-- name: ListJobsToAudit :many
-- Cross-tenant: the auditor. A sample of jobs that were left alone for the
-- whole window, from an id on. Says so of each table: a condition on the id of the view would
-- reach one of them, and the other would be walked from its first row.
SELECT d.id, d.tenant_id, d.version, d.job_type, d.cron_expression, d.timezone, d.interval_ms, d.run_at, d.anchor_at, d.start_date, d.end_date,
       d.jitter_seconds, d.dst_gap, d.dst_overlap, d.calendars, d.max_executions, d.timeout_seconds, d.priority, d.max_concurrent, d.overlap_policy,
       d.overlap_queue_limit, d.concurrency_key, d.misfire_policy, d.misfire_limit, d.misfire_grace_seconds, s.next_execution_at, d.created_at, d.updated_at, d.status_at,
       coalesce(sqlc.narg(now)::timestamptz, now())::timestamptz AS at
FROM job_schedule s JOIN job_definitions d ON d.id = s.job_id
WHERE s.status = 'active' AND s.next_execution_at IS NOT NULL AND s.job_id >= @from_id::uuid AND d.id >= @from_id::uuid
ORDER BY s.job_id LIMIT @sample_size;

-- name: RecordAudit :exec
-- Cross-tenant: the auditor. Skips jobs that somebody else holds: while it waited for one
-- it would hold the others, and claims would wait for those. Their turn comes again.
WITH free AS MATERIALIZED (
    SELECT j.job_id FROM job_schedule j WHERE j.job_id = ANY (@ids::uuid[]) FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE job_schedule SET audited_at = u.at, audit_difference = u.difference
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@differences::bigint[]) AS difference, coalesce(sqlc.narg(now)::timestamptz, now()) AS at) u
WHERE job_schedule.job_id = u.id AND job_schedule.job_id = ANY (ARRAY(SELECT f.job_id FROM free f));

-- name: CountJobsDueAt :one
-- How many of a tenant's jobs are due at one time: the stampede warning.
SELECT count(*) FROM job_schedule
WHERE tenant_id = @tenant_id AND status = 'active' AND next_execution_at = @at::timestamptz;

-- name: DeleteOldJobs :execrows
-- Cross-tenant: retention. Jobs that were deleted before the oldest month that
-- is kept, with their versions and backfills; a bounded piece each time. Skips
-- what is locked.
DELETE FROM scheduled_jobs j USING (
    SELECT o.id FROM scheduled_jobs o
    WHERE o.deleted_at < @before::timestamptz AND NOT EXISTS (SELECT 1 FROM active_executions a WHERE a.job_id = o.id OFFSET 0)
    ORDER BY o.deleted_at OFFSET @skipped LIMIT @batch_size FOR UPDATE SKIP LOCKED
) old WHERE j.id = old.id;

-- name: CountJobsByStatus :one
-- And how long ago the oldest of a tenant's due times was to be promoted. Counting active
-- jobs would read all of them. They are the rest of job_counts, whose trigger counts in the
-- transaction of the change, so that one statement sees both as of one time.
SELECT greatest(0, coalesce((SELECT sum(c.jobs) FROM job_counts c WHERE c.tenant_id = @tenant_id), 0) - n.paused - n.inactive)::bigint AS active,
       n.paused, n.inactive,
       coalesce((SELECT j.next_execution_at FROM job_schedule j
                 WHERE j.tenant_id = @tenant_id AND j.status = 'active' AND j.next_execution_at <= @now::timestamptz
                 ORDER BY j.next_execution_at LIMIT 1), @now::timestamptz)::timestamptz AS oldest_due_at
FROM (
    SELECT count(*) FILTER (WHERE i.status = 'paused') AS paused, count(*) FILTER (WHERE i.status = 'inactive') AS inactive
    FROM job_definitions i WHERE i.tenant_id = @tenant_id AND i.deleted_at IS NULL AND i.status <> 'active'
) n;

-- name: ListUpcomingJobs :many
-- The schedules of a tenant's active jobs that are due before a time, those that are due
-- first: walks job_schedule_turns as far as the rows go.
SELECT id, name, cron_expression, timezone, interval_ms, run_at, anchor_at, start_date, end_date,
       jitter_seconds, dst_gap, dst_overlap, calendars, max_executions, execution_count, timeout_seconds, priority, max_concurrent, overlap_policy,
       overlap_queue_limit, concurrency_key, misfire_policy, misfire_limit, misfire_grace_seconds,
       coalesce(next_execution_at, '9999-01-01 00:00:00+00')::timestamptz AS next_execution_at
FROM scheduled_jobs
WHERE tenant_id = @tenant_id AND status = 'active' AND next_execution_at < @to_at::timestamptz
ORDER BY scheduled_jobs.next_execution_at LIMIT @most;

-- name: ListJobNames :many
-- Deleted jobs keep theirs as long as their executions are kept.
SELECT id, name FROM job_definitions WHERE tenant_id = @tenant_id AND id = ANY (@ids::uuid[]);
