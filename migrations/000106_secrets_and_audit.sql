-- Secrets, the credentials in definitions, both sealed, and the audit log.

-- +goose Up
CREATE TABLE secrets (
    id          uuid PRIMARY KEY,
    tenant_id   uuid        NOT NULL REFERENCES tenants (id),
    name        text        NOT NULL CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$'),
    description text        NOT NULL DEFAULT '',
    version     integer     NOT NULL DEFAULT 1 CHECK (version >= 1),
    key_id      text        NOT NULL,
    sealed      bytea       NOT NULL,
    created_by  text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_by  text        NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, name)
);
CREATE INDEX secrets_list ON secrets (tenant_id, created_at DESC, id DESC);
ALTER TABLE secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE secrets FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON secrets TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON secrets TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY purge ON secrets AS RESTRICTIVE FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));
-- The API writes values and cannot read them, not even sealed.
GRANT SELECT (id, tenant_id, name, description, version, key_id, created_by, created_at, updated_by, updated_at), INSERT, DELETE,
    UPDATE (description, version, key_id, sealed, updated_by, updated_at) ON secrets TO scheduler_api;
GRANT SELECT, UPDATE (key_id, sealed), DELETE ON secrets TO scheduler_engine;

-- The texts that stand as *** in the configuration of a job's version.
CREATE TABLE job_credentials (
    job_id    uuid    NOT NULL,
    version   integer NOT NULL,
    tenant_id uuid    NOT NULL,
    key_id    text    NOT NULL,
    sealed    bytea   NOT NULL,
    PRIMARY KEY (job_id, version),
    FOREIGN KEY (job_id, version) REFERENCES job_versions (job_id, version) ON DELETE CASCADE
);
ALTER TABLE job_credentials ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_credentials FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON job_credentials TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON job_credentials TO scheduler_engine USING (true) WITH CHECK (true);
-- A new version keeps what the one before had.
GRANT SELECT, INSERT ON job_credentials TO scheduler_api;
GRANT SELECT, UPDATE (key_id, sealed) ON job_credentials TO scheduler_engine;

-- Every change that the API's role makes to what a tenant has. A trigger of the changed
-- table writes it, so no code path can forget to. It is deferred to the commit, so that
-- the chain's head is locked for the moment of the commit only. A commit waits for the
-- disk with that lock, so one chain takes no more changes a second than the disk
-- (measured: 480, and 1,500 without a record). Hence eight shards (column strand), each a
-- chain: a commit takes the first that is free.
CREATE TABLE audit_log (
    tenant_id   uuid        NOT NULL,
    strand      smallint    NOT NULL CHECK (strand BETWEEN 0 AND 7),
    seq         bigint      NOT NULL CHECK (seq >= 1), -- in its shard, without gaps, in the order of the commits
    at          timestamptz NOT NULL,
    actor_kind  text        NOT NULL,
    actor       text        NOT NULL,
    address     text        NOT NULL,
    request_id  text        NOT NULL,
    action      text        NOT NULL,
    object_type text        NOT NULL,
    object_id   text        NOT NULL,
    change      text        NOT NULL CHECK (change IN ('create', 'update', 'delete')),
    before      text, -- texts and not jsonb: the hash is of the very bytes
    after       text,
    prev_hash   bytea       NOT NULL CHECK (length(prev_hash) = 32),
    hash        bytea       NOT NULL CHECK (length(hash) = 32),
    PRIMARY KEY (tenant_id, strand, seq)
);
CREATE INDEX audit_log_list ON audit_log (tenant_id, at DESC, strand DESC, seq DESC);
CREATE INDEX audit_log_object ON audit_log (tenant_id, object_id, at DESC);
ALTER TABLE audit_log ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_log FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON audit_log FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON audit_log FOR SELECT TO scheduler_engine USING (true);
-- The triggers act as the owner.
CREATE POLICY owner ON audit_log TO CURRENT_USER USING (true) WITH CHECK (true);
GRANT SELECT ON audit_log TO scheduler_api, scheduler_engine;

-- The last link of each shard: nobody can cut the end off the log alone.
CREATE TABLE audit_heads (
    tenant_id uuid     NOT NULL,
    strand    smallint NOT NULL,
    seq       bigint   NOT NULL,
    hash      bytea    NOT NULL,
    PRIMARY KEY (tenant_id, strand)
) WITH (
    fillfactor = 10,
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE audit_heads ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_heads FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON audit_heads FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON audit_heads FOR SELECT TO scheduler_engine USING (true);
-- The triggers act as the owner.
CREATE POLICY owner ON audit_heads TO CURRENT_USER USING (true) WITH CHECK (true);
GRANT SELECT ON audit_heads TO scheduler_api, scheduler_engine;

-- The beginning of a shard whose first entries retention removed: the entry before it,
-- and its hash. The log records each row when it is written, so a row that retention
-- did not write differs from its record.
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
-- The triggers act as the owner.
CREATE POLICY owner ON audit_anchors TO CURRENT_USER USING (true) WITH CHECK (true);
GRANT SELECT ON audit_anchors TO scheduler_api, scheduler_engine;

-- +goose StatementBegin
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'insufficient_privilege';
END
$$;
-- +goose StatementEnd
CREATE TRIGGER append_only BEFORE UPDATE OR TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE audit_log ENABLE ALWAYS TRIGGER append_only;
CREATE TRIGGER append_only BEFORE UPDATE OR TRUNCATE ON audit_anchors FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE audit_anchors ENABLE ALWAYS TRIGGER append_only;

-- Entries may be deleted that an anchor stands for and that are older than 30 days, by
-- the owner too; no role of the processes has the right to delete any.
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

-- A part of what is hashed: after its length in bytes, so that no other parts make the
-- same text. Without a SET of their own this function and the next are inlined.
-- +goose StatementBegin
CREATE FUNCTION audit_part(part text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN part IS NULL THEN '-' ELSE octet_length(part)::text || ':' || part END $$;
-- +goose StatementEnd

-- The part of a row that is recorded is bounded, so that no definition fills the log.
-- +goose StatementBegin
CREATE FUNCTION audit_text(part text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN part IS NULL OR octet_length(part) <= 16384 THEN part
      ELSE jsonb_build_object('omitted', 'larger than 16384 bytes', 'bytes', octet_length(part))::text END $$;
-- +goose StatementEnd

-- Changes are recorded of the API's role, and of a login that puts the role off, for
-- which it must name a tenant all the same.
-- +goose StatementBegin
CREATE FUNCTION audited() RETURNS boolean LANGUAGE sql STABLE
AS $$ SELECT current_user = 'scheduler_api' OR current_user <> 'scheduler_engine' AND current_setting('app.tenant_id', true) <> '' $$;
-- +goose StatementEnd

-- Records a change. Arguments: the kind of thing, the column of its id, the column of
-- its tenant, and the columns that are not recorded. app.call says who makes the change;
-- package audit writes it.
-- +goose StatementBegin
CREATE FUNCTION record_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
AS $$
DECLARE
    call    jsonb := coalesce(nullif(current_setting('app.call', true), ''), '{}')::jsonb;
    was     jsonb;
    is_now  jsonb;
    row     jsonb;
    change  text;
    owner   uuid;
    mine    smallint;
    head    record;
    entry   public.audit_log;
BEGIN
    IF TG_OP <> 'INSERT' THEN was := to_jsonb(OLD); END IF;
    IF TG_OP <> 'DELETE' THEN is_now := to_jsonb(NEW); END IF;
    row := coalesce(is_now, was);
    owner := (row ->> TG_ARGV[2])::uuid;
    change := CASE TG_OP WHEN 'INSERT' THEN 'create' WHEN 'DELETE' THEN 'delete' ELSE 'update' END;
    IF TG_OP = 'UPDATE' AND was ->> 'deleted_at' IS NULL AND is_now ->> 'deleted_at' IS NOT NULL THEN
        change := 'delete';
    END IF;
    IF TG_TABLE_NAME = 'active_executions' AND TG_OP = 'DELETE' THEN
        -- It went to the history: waiting no more, cancelled.
        change := 'update';
        was := jsonb_build_object('status', was -> 'status');
        is_now := jsonb_build_object('status', 'cancelled');
    END IF;
    was := was - string_to_array(TG_ARGV[3], ',');
    is_now := is_now - string_to_array(TG_ARGV[3], ',');
    IF was IS NOT NULL AND is_now IS NOT NULL THEN
        SELECT coalesce(jsonb_object_agg(o.key, o.value), '{}'), coalesce(jsonb_object_agg(n.key, n.value), '{}') INTO was, is_now
        FROM jsonb_each(was) o JOIN jsonb_each(is_now) n ON n.key = o.key WHERE n.value <> o.value;
        IF is_now = '{}' THEN
            RETURN NULL;
        END IF;
    END IF;

    -- One strand for a whole transaction, so that no two of them hold one and
    -- wait for the other's.
    mine := nullif(current_setting('app.strand', true), '')::smallint;
    SELECT h.strand, h.seq, h.hash INTO head FROM public.audit_heads h
    WHERE h.tenant_id = owner AND (mine IS NULL OR h.strand = mine) ORDER BY h.strand FOR NO KEY UPDATE SKIP LOCKED LIMIT 1;
    IF NOT FOUND THEN
        INSERT INTO public.audit_heads (tenant_id, strand, seq, hash)
        SELECT owner, n, 0, decode(repeat('00', 32), 'hex') FROM generate_series(0, 7) n ON CONFLICT DO NOTHING;
        IF FOUND THEN
            mine := 0; -- the tenant's first change
        ELSE
            mine := coalesce(mine, floor(random() * 8)::smallint); -- all are held: wait for one
        END IF;
        SELECT h.strand, h.seq, h.hash INTO head FROM public.audit_heads h WHERE h.tenant_id = owner AND h.strand = mine FOR NO KEY UPDATE;
    END IF;
    PERFORM set_config('app.strand', head.strand::text, true);
    entry.tenant_id := owner;
    entry.strand := head.strand;
    entry.seq := head.seq + 1;
    entry.at := clock_timestamp();
    entry.actor_kind := coalesce(call ->> 'kind', 'process');
    entry.actor := coalesce(call ->> 'actor', session_user);
    entry.address := coalesce(call ->> 'address', '');
    entry.request_id := coalesce(call ->> 'request', '');
    entry.action := coalesce(call ->> 'action', change);
    entry.object_type := TG_ARGV[0];
    entry.object_id := row ->> TG_ARGV[1];
    entry.change := change;
    entry.before := public.audit_text(jsonb_strip_nulls(was)::text);
    entry.after := public.audit_text(jsonb_strip_nulls(is_now)::text);
    entry.prev_hash := head.hash;
    entry.hash := sha256(head.hash || convert_to(
        public.audit_part(owner::text) || public.audit_part(entry.strand::text) || public.audit_part(entry.seq::text)
        || public.audit_part((extract(epoch FROM entry.at) * 1000000)::bigint::text) || public.audit_part(entry.actor_kind)
        || public.audit_part(entry.actor) || public.audit_part(entry.address) || public.audit_part(entry.request_id)
        || public.audit_part(entry.action) || public.audit_part(entry.object_type) || public.audit_part(entry.object_id)
        || public.audit_part(entry.change) || public.audit_part(entry.before) || public.audit_part(entry.after), 'UTF8'));
    INSERT INTO public.audit_log VALUES (entry.*);
    UPDATE public.audit_heads h SET seq = entry.seq, hash = entry.hash WHERE h.tenant_id = owner AND h.strand = entry.strand;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION refuse_change(), refuse_removal(), audit_part(text), audit_text(text), record_change() FROM PUBLIC;

-- UPDATE OF: only where a statement sets one of these columns, so that advancing a job
-- costs nothing here. Of a job also what a process changes that names its call.
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE OR UPDATE OF version, status, deleted_at, paused_until ON scheduled_jobs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited() OR current_setting('app.call', true) <> '') EXECUTE FUNCTION record_change('job', 'id', 'tenant_id',
    'id,tenant_id,created_at,created_by,updated_at,last_execution_at,execution_count,audited_at,audit_difference,next_execution_at,catch_up_until,anchor_at,secret_names,status_at,status_by,max_attempts,generation');
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE OR UPDATE ON calendars
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('calendar', 'id', 'tenant_id',
    'id,tenant_id,created_at,updated_at');
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE OR UPDATE OF status ON backfills
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('backfill', 'id', 'tenant_id',
    'id,tenant_id,created_at,requested_by,cursor_at,created,next_batch_at');
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE OR UPDATE ON secrets
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('secret', 'name', 'tenant_id',
    'tenant_id,sealed,created_at,created_by,updated_at,updated_by');
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE OR UPDATE OF name, hash, old_hash, old_until, scopes, expires_at ON api_keys
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('apiKey', 'id', 'tenant_id',
    'id,tenant_id,hash,old_hash,last_used_at,created_at,created_by');
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE OR UPDATE ON tenants
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('tenant', 'id', 'id',
    'id,created_at,updated_at');
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT ON denied_calls
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('call', 'operation', 'tenant_id', 'id,tenant_id,operation');
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT ON audit_anchors
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION record_change('auditLog', 'strand', 'tenant_id', 'tenant_id');
-- The API makes executions one by one. Those that it ends are recorded where an
-- operation is about executions; where a job ends, its own entry says so, and it may
-- have thousands.
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT ON active_executions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('execution', 'id', 'tenant_id',
    'id,tenant_id,created_at,sweep_at,available_at,attempts,attempt,lost_count,progress,triggered_by,timeout_ms,max_attempts,concurrency_limit,generation,has_slot,awaits_slot,awaits_turn');
CREATE CONSTRAINT TRIGGER record_end AFTER DELETE OR UPDATE OF cancel_requested_at ON active_executions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (audited() AND strpos(current_setting('app.call', true), '"executions":true') > 0)
    EXECUTE FUNCTION record_change('execution', 'id', 'tenant_id',
    'id,tenant_id,created_at,sweep_at,available_at,attempts,attempt,lost_count,progress,triggered_by,timeout_ms,max_attempts,concurrency_limit,generation,has_slot,awaits_slot,awaits_turn');

-- Removes the beginning of one shard: at most so many entries, the oldest first, up to
-- the first that was made at or after a time. SECURITY DEFINER, because retention must
-- not have the right to delete entries; it refuses those younger than 30 days whatever
-- it is asked. Returns how many it removed.
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
DROP TRIGGER record_end ON active_executions;
DROP TRIGGER record_change ON active_executions;
DROP TRIGGER record_change ON denied_calls;
DROP TRIGGER record_change ON tenants;
DROP TRIGGER record_change ON api_keys;
DROP TRIGGER record_change ON backfills;
DROP TRIGGER record_change ON calendars;
DROP TRIGGER record_change ON scheduled_jobs;
DROP TABLE audit_anchors;
DROP TABLE audit_heads;
DROP TABLE audit_log;
DROP TABLE job_credentials;
DROP TABLE secrets;
DROP FUNCTION record_change();
DROP FUNCTION audited();
DROP FUNCTION audit_text(text);
DROP FUNCTION audit_part(text);
DROP FUNCTION refuse_removal();
DROP FUNCTION refuse_change();
