-- The roles of the processes. The baseline of 1.0 is made of this file and those up to
-- 000107, which belong together: a new installation applies them in their order, and
-- one from before 1.0 takes the way in migrations/before (docs/run/upgrade.md). None
-- locks a table that is there, and all take less than a second.
--
-- No process owns anything or bypasses row-level security. It logs in with a role of
-- the operator's that is a member of one of these, and acts as it (SET ROLE):
--   scheduler_api     sees one tenant at a time, which app.tenant_id names
--   scheduler_engine  promoter and worker: sees all tenants, and may write only what
--                     the protocol needs
-- Each table says what the two may do, by grants and by policies. The owner's own
-- statements are bound by policies too (FORCE).
--
-- Roles belong to the cluster, so several databases may create them at the same time:
-- "already there" is success.

-- +goose Up
-- +goose StatementBegin
DO $$
BEGIN
    -- An owner who may not create roles gets them from an administrator.
    IF to_regrole('scheduler_api') IS NULL THEN
        BEGIN
            CREATE ROLE scheduler_api NOLOGIN NOSUPERUSER NOBYPASSRLS;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
        END;
    END IF;
    IF to_regrole('scheduler_engine') IS NULL THEN
        BEGIN
            CREATE ROLE scheduler_engine NOLOGIN NOSUPERUSER NOBYPASSRLS;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
        END;
    END IF;
END
$$;
-- +goose StatementEnd
GRANT USAGE ON SCHEMA public TO scheduler_api, scheduler_engine;

-- The version of the schema, which each process checks when it starts, without a grant
-- on the table of migrations.
-- +goose StatementBegin
CREATE FUNCTION schema_version() RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT coalesce(max(version_id), 0) FROM public.goose_db_version WHERE is_applied $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION schema_version() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION schema_version() TO scheduler_api, scheduler_engine;

-- +goose Down
DROP FUNCTION schema_version();
-- The roles stay: another database of the same cluster may use them.
REVOKE USAGE ON SCHEMA public FROM scheduler_api, scheduler_engine;
