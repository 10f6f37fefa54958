-- name: NotifyListeners :exec
-- Notifies those who listen on channels. PostgreSQL does so in the commit, under a lock of the whole server. So this
-- is a transaction of its own, which waits for no disk.
SELECT set_config('synchronous_commit', 'off', true), pg_notify(channel, '') FROM unnest(@channels::text[]) AS channel;
