-- The beginning of the audit log may be removed, and what is left stays verifiable.
-- Lock: SHARE ROW EXCLUSIVE on audit_log for the moment of replacing a trigger.
-- Duration: instant.

-- +goose Up
-- Where a strand begins whose first entries are removed: after which entry, and with
-- which hash. Each row is recorded in the log itself when it is written, so a row
-- that retention did not write differs from its record.
CREATE TABLE audit_anchors (
    tenant_id  uuid        NOT NULL,
    strand     smallint    NOT NULL CHECK (strand BETWEEN 0 AND 7),
    seq        bigint      NOT NULL CHECK (seq >= 1), -- of the last entry that is removed
    hash       bytea       NOT NULL CHECK (length(hash) = 32),
    up_to      timestamptz NOT NULL,                  -- when that entry was made
    PRIMARY KEY (tenant_id, strand)
) WITH (fillfactor = 50);
ALTER TABLE audit_anchors ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_anchors FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON audit_anchors FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON audit_anchors FOR SELECT TO scheduler_engine USING (true);
-- The function below acts as the owner, whom the policies bind too.
CREATE POLICY owner ON audit_anchors TO CURRENT_USER USING (true) WITH CHECK (true);
GRANT SELECT ON audit_anchors TO scheduler_api, scheduler_engine;
CREATE TRIGGER append_only BEFORE UPDATE OR TRUNCATE ON audit_anchors FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE audit_anchors ENABLE ALWAYS TRIGGER append_only;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT ON audit_anchors
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION record_change('auditLog', 'strand', 'tenant_id', 'tenant_id');

-- Entries may be deleted that an anchor stands for and that are older than 30 days,
-- whoever deletes them; no role of the processes has the right to delete any.
DROP TRIGGER append_only ON audit_log;
CREATE TRIGGER append_only BEFORE UPDATE OR TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE audit_log ENABLE ALWAYS TRIGGER append_only;
-- +goose StatementBegin
CREATE FUNCTION refuse_removal() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM gone g WHERE g.at > now() - interval '30 days' OR NOT EXISTS (
            SELECT 1 FROM public.audit_anchors a WHERE a.tenant_id = g.tenant_id AND a.strand = g.strand AND a.seq >= g.seq)) THEN
        RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER removal AFTER DELETE ON audit_log REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION refuse_removal();
ALTER TABLE audit_log ENABLE ALWAYS TRIGGER removal;
REVOKE ALL ON FUNCTION refuse_removal() FROM PUBLIC;

-- Removes the beginning of one strand: at most so many entries, the oldest first,
-- up to the first that was made at or after an instant. SECURITY DEFINER, because
-- retention must not have the right to delete entries; it refuses what is younger
-- than 30 days whatever it is asked. Answers how many entries it removed.
-- +goose StatementBegin
CREATE FUNCTION trim_audit_strand(owner uuid, of_strand smallint, until timestamptz, most integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    last    record;
    removed integer;
BEGIN
    IF until > now() - interval '30 days' THEN
        RAISE EXCEPTION 'audit entries up to % are too young to be removed', until USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- One at a time for a tenant: two would each write an anchor.
    IF NOT pg_try_advisory_xact_lock(hashtext('trim_audit_strand'), hashtext(owner::text)) THEN
        RETURN 0;
    END IF;
    SELECT o.seq, o.hash, o.at INTO last
    FROM (SELECT l.seq, l.hash, l.at, bool_and(l.at < until) OVER (ORDER BY l.seq) AS old
          FROM public.audit_log l WHERE l.tenant_id = owner AND l.strand = of_strand ORDER BY l.seq LIMIT most) o
    WHERE o.old ORDER BY o.seq DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    DELETE FROM public.audit_anchors a WHERE a.tenant_id = owner AND a.strand = of_strand;
    INSERT INTO public.audit_anchors (tenant_id, strand, seq, hash, up_to) VALUES (owner, of_strand, last.seq, last.hash, last.at);
    DELETE FROM public.audit_log l WHERE l.tenant_id = owner AND l.strand = of_strand AND l.seq <= last.seq;
    GET DIAGNOSTICS removed = ROW_COUNT;
    -- The record of another strand's anchor may just have been removed: write it again.
    WITH unrecorded AS (
        DELETE FROM public.audit_anchors a
        WHERE a.tenant_id = owner AND a.strand <> of_strand AND NOT EXISTS (
            SELECT 1 FROM public.audit_log l WHERE l.tenant_id = owner AND l.object_id = a.strand::text AND l.object_type = 'auditLog')
        RETURNING a.*)
    INSERT INTO public.audit_anchors SELECT u.* FROM unrecorded u;
    RETURN removed;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION trim_audit_strand(uuid, smallint, timestamptz, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION trim_audit_strand(uuid, smallint, timestamptz, integer) TO scheduler_engine;

-- +goose Down
DROP FUNCTION trim_audit_strand(uuid, smallint, timestamptz, integer);
DROP TRIGGER removal ON audit_log;
DROP FUNCTION refuse_removal();
DROP TRIGGER append_only ON audit_log;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE audit_log ENABLE ALWAYS TRIGGER append_only;
DROP TABLE audit_anchors;
