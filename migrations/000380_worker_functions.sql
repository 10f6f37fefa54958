-- The Go functions that workers have, so that the API can check the jobs that call them.
-- No tenant's data: what is compiled into a worker is everybody's.

-- +goose Up
CREATE TABLE worker_functions (
    module       text        NOT NULL CHECK (length(module) BETWEEN 1 AND 200),
    name         text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    description  text        NOT NULL CHECK (length(description) <= 1000),
    parameters   jsonb       NOT NULL CHECK (pg_column_size(parameters) <= 65536), -- their JSON schema; {} takes any
    published_at timestamptz NOT NULL DEFAULT now(), -- by the worker that started last
    PRIMARY KEY (module, name)
);
GRANT SELECT ON worker_functions TO scheduler_api;
GRANT SELECT, INSERT, UPDATE ON worker_functions TO scheduler_engine;

-- +goose Down
DROP TABLE worker_functions;
