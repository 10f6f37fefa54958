-- What a worker claims. Lock: none. Duration: instant.

-- +goose Up
-- Whether a worker with these types takes an execution: one of them, or of a type
-- that there is not. That nobody can run, so whoever meets it ends it as failed;
-- left to others it would wait for ever. Inlined, hence no SET.
-- +goose StatementBegin
CREATE FUNCTION is_of_types(job_type text, types text[]) RETURNS boolean LANGUAGE sql IMMUTABLE
AS $$ SELECT job_type = ANY (types) OR job_type <> ALL ('{http,function,command}'::text[]) $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION is_of_types(text, text[]);
