-- The fleet: one row for each incarnation of a worker, and the numbers about
-- the whole service that a process acting for one tenant may not count
-- itself. Neither holds a tenant's data. Lock: none. Duration: instant.

-- +goose Up
CREATE TABLE workers (
    id           uuid PRIMARY KEY,
    host         text        NOT NULL,
    pid          integer     NOT NULL,
    slots        integer     NOT NULL,
    running      integer     NOT NULL DEFAULT 0,
    started_at   timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    drained      boolean     NOT NULL DEFAULT false,
    dead         boolean     NOT NULL DEFAULT false
) WITH (fillfactor = 50);
GRANT SELECT ON workers TO scheduler_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON workers TO scheduler_engine;

CREATE TABLE service_gauges (
    name     text PRIMARY KEY,
    value    bigint      NOT NULL,
    taken_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
GRANT SELECT ON service_gauges TO scheduler_api;
GRANT SELECT, INSERT, UPDATE ON service_gauges TO scheduler_engine;

-- +goose Down
DROP TABLE service_gauges;
DROP TABLE workers;
