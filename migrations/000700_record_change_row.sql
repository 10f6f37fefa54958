-- The function that records changes does not name the type of a job's row, so that the table may be
-- divided (712): it works before and after.

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION record_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    call    jsonb := coalesce(nullif(current_setting('app.call', true), ''), '{}')::jsonb;
    was     jsonb;
    is_now  jsonb;
    row     jsonb;
    rest    record; -- a row of job_definitions, or of scheduled_jobs before it was divided
    unsaid  text[] := string_to_array(TG_ARGV[3], ','); -- the columns that are not recorded
    change  text;
    owner   uuid;
    mine    smallint;
    head    record;
    said    text; -- the parts of the entry that do not depend on its place
    zone    text := current_setting('timezone');
    entry   public.audit_log;
BEGIN
    -- Times are recorded in UTC. A function with a SET of its own pays for it at each call;
    -- this one pays only in sessions with another zone, and gives them theirs back.
    IF zone <> 'UTC' THEN
        PERFORM set_config('timezone', 'UTC', true);
    END IF;

    -- A job that is paused, resumed, stopped or deleted differs in these columns alone:
    -- comparing the two rows costs a fifth of comparing all their columns as JSON.
    IF TG_TABLE_NAME IN ('job_definitions', 'scheduled_jobs') AND TG_OP = 'UPDATE' THEN
        rest := OLD;
        rest.status := NEW.status; rest.status_reason := NEW.status_reason; rest.status_by := NEW.status_by; rest.status_at := NEW.status_at;
        rest.paused_until := NEW.paused_until; rest.resume_policy := NEW.resume_policy; rest.deleted_at := NEW.deleted_at;
        rest.generation := NEW.generation; rest.updated_at := NEW.updated_at;
        IF rest OPERATOR(pg_catalog.*=) NEW THEN
            was := jsonb_build_object('id', OLD.id, 'tenant_id', OLD.tenant_id, 'status', OLD.status, 'status_reason', OLD.status_reason,
                'paused_until', OLD.paused_until, 'resume_policy', OLD.resume_policy, 'deleted_at', OLD.deleted_at);
            is_now := jsonb_build_object('id', NEW.id, 'tenant_id', NEW.tenant_id, 'status', NEW.status, 'status_reason', NEW.status_reason,
                'paused_until', NEW.paused_until, 'resume_policy', NEW.resume_policy, 'deleted_at', NEW.deleted_at);
        END IF;
    END IF;
    IF TG_OP <> 'INSERT' AND was IS NULL THEN was := to_jsonb(OLD); END IF;
    IF TG_OP <> 'DELETE' AND is_now IS NULL THEN is_now := to_jsonb(NEW); END IF;
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
    IF was IS NOT NULL AND is_now IS NOT NULL THEN
        SELECT jsonb_object_agg(n.key, was -> n.key) - unsaid, jsonb_object_agg(n.key, n.value) - unsaid INTO was, is_now
        FROM jsonb_each(is_now) n WHERE n.value <> was -> n.key;
        IF is_now IS NULL OR is_now = '{}' THEN
            IF zone <> 'UTC' THEN
                PERFORM set_config('timezone', zone, true);
            END IF;
            RETURN NULL;
        END IF;
    ELSE
        was := was - unsaid;
        is_now := is_now - unsaid;
    END IF;

    entry.tenant_id := owner;
    entry.actor_kind := coalesce(call ->> 'kind', 'process');
    entry.actor := coalesce(call ->> 'actor', session_user);
    entry.address := coalesce(call ->> 'address', '');
    entry.request_id := coalesce(call ->> 'request', '');
    entry.action := coalesce(call ->> 'action', change);
    entry.object_type := TG_ARGV[0];
    entry.object_id := row ->> TG_ARGV[1];
    entry.change := change;
    -- audit_text bounds large texts. It is called for those alone: PostgreSQL does not inline
    -- it, since jsonb_build_object is not immutable, and a call costs 15 µs.
    entry.before := jsonb_strip_nulls(was)::text;
    IF octet_length(entry.before) > 16384 THEN
        entry.before := public.audit_text(entry.before);
    END IF;
    entry.after := jsonb_strip_nulls(is_now)::text;
    IF octet_length(entry.after) > 16384 THEN
        entry.after := public.audit_text(entry.after);
    END IF;
    -- The same as audit_part of each of them, in one call: none of these is NULL.
    said := format('%s:%s%s:%s%s:%s%s:%s%s:%s%s:%s%s:%s%s:%s',
        octet_length(entry.actor_kind), entry.actor_kind, octet_length(entry.actor), entry.actor, octet_length(entry.address), entry.address,
        octet_length(entry.request_id), entry.request_id, octet_length(entry.action), entry.action, octet_length(entry.object_type), entry.object_type,
        octet_length(entry.object_id), entry.object_id, octet_length(entry.change), entry.change) || public.audit_part(entry.before) || public.audit_part(entry.after);

    -- One shard (column strand) for a whole transaction, so that no two of them hold one and
    -- wait for the other's.
    mine := nullif(current_setting('app.strand', true), '')::smallint;
    IF mine IS NULL THEN
        SELECT h.strand, h.seq, h.hash INTO head FROM public.audit_heads h
        WHERE h.tenant_id = owner ORDER BY h.strand FOR NO KEY UPDATE SKIP LOCKED LIMIT 1;
    ELSE
        SELECT h.strand, h.seq, h.hash INTO head FROM public.audit_heads h
        WHERE h.tenant_id = owner AND h.strand = mine FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
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
    entry.strand := head.strand;
    entry.seq := head.seq + 1;
    entry.at := clock_timestamp();
    entry.prev_hash := head.hash;
    entry.hash := sha256(head.hash || convert_to(
        public.audit_part(owner::text) || public.audit_part(entry.strand::text) || public.audit_part(entry.seq::text)
        || public.audit_part((extract(epoch FROM entry.at) * 1000000)::bigint::text) || said, 'UTF8'));
    INSERT INTO public.audit_log VALUES (entry.*);
    UPDATE public.audit_heads h SET seq = entry.seq, hash = entry.hash WHERE h.tenant_id = owner AND h.strand = entry.strand;
    IF zone <> 'UTC' THEN
        PERFORM set_config('timezone', zone, true);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- It stays: it works with the table as it was.
SELECT 1;
