-- The roles that the processes act as. Lock: none. Duration: instant.
--
-- Neither of them logs in, owns anything or bypasses row-level security. A
-- process logs in with a role of the operator's that is a member of one of
-- them and acts as it (SET ROLE at connection start):
--   scheduler_api     one tenant at a time, the one named by app.tenant_id
--   scheduler_engine  promoter and worker: all tenants, only the tables and
--                     columns that the protocol needs
-- Roles belong to the cluster, not to the database, so several databases may
-- create them at the same time: "already there" is success.

-- +goose Up
-- +goose StatementBegin
DO $$
BEGIN
    BEGIN
        CREATE ROLE scheduler_api NOLOGIN NOSUPERUSER NOBYPASSRLS;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END;
    BEGIN
        CREATE ROLE scheduler_engine NOLOGIN NOSUPERUSER NOBYPASSRLS;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END;
END
$$;
-- +goose StatementEnd
GRANT USAGE ON SCHEMA public TO scheduler_api, scheduler_engine;

-- What version the schema has, for the processes' readiness, without a grant
-- on the migrations' own table.
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
