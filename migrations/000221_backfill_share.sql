-- How much of the executions that its tenant may have in a day a backfill may use, in
-- percent. Backfills that run already go on as they were asked for.

-- +goose Up
ALTER TABLE backfills ADD COLUMN daily_share smallint NOT NULL DEFAULT 100 CHECK (daily_share BETWEEN 1 AND 100);

-- +goose Down
ALTER TABLE backfills DROP COLUMN daily_share;
