-- name: ListSetJobs :many
-- The jobs of a section of a set, by name. Walks scheduled_jobs_set.
SELECT * FROM scheduled_jobs
WHERE tenant_id = @tenant_id AND set_name = @set_name AND set_name <> '' AND deleted_at IS NULL
  AND name COLLATE "C" > @after_name::text AND (sqlc.narg(through_name)::text IS NULL OR name COLLATE "C" <= sqlc.narg(through_name)::text)
ORDER BY name COLLATE "C" LIMIT @page_size;

-- name: ListJobsOutsideSet :many
-- Which of some names jobs outside a set have: one of the jobs, and how many there are.
-- No index has the names of jobs: it reads the tenant's jobs by scheduled_jobs_list, and
-- is asked for names that the set lacks.
SELECT j.name, count(*) AS jobs, min(j.id::text)::uuid AS id, min(j.version)::int AS version, min(j.set_name)::text AS set_name
FROM (SELECT DISTINCT unnest(@names::text[]) AS name) n
JOIN job_definitions j ON j.name = n.name
WHERE j.tenant_id = @tenant_id AND j.deleted_at IS NULL AND j.set_name <> @set_name
GROUP BY j.name;

-- name: ListAdoptedJobs :many
-- By name, as a set reads them.
SELECT * FROM scheduled_jobs WHERE tenant_id = @tenant_id AND id = ANY (@ids::uuid[]) AND deleted_at IS NULL
ORDER BY name COLLATE "C", id;

-- name: LockPlannedJobs :many
-- LockJob for several, in id order, as everybody locks several jobs.
SELECT * FROM scheduled_jobs WHERE tenant_id = @tenant_id AND id = ANY (@ids::uuid[]) AND deleted_at IS NULL
ORDER BY id FOR NO KEY UPDATE;

-- name: AdoptJobs :exec
-- For rows that the caller holds locked.
UPDATE scheduled_jobs SET set_name = @set_name, updated_at = @now::timestamptz WHERE tenant_id = @tenant_id AND id = ANY (@ids::uuid[]);

-- name: ListJobSets :many
-- Walks scheduled_jobs_set, and no further than the page.
SELECT j.set_name, count(*) AS jobs FROM job_definitions j
WHERE j.tenant_id = @tenant_id AND j.set_name <> '' AND j.deleted_at IS NULL AND j.set_name > @after_name::text
GROUP BY j.set_name ORDER BY j.set_name LIMIT @page_size;
