package postgres

import (
	"context"
	"fmt"
)

// serverSettings are what no session can set for itself, and what decides
// whether it is enough.
type serverSettings struct {
	fsync, fullPageWrites, autovacuum, trackCounts bool
	synchronousCommit                              string
	naptime                                        int // seconds
	maxConnections, reserved, connected            int
	maxPrepared, maxLocks                          int // of max_locks_per_transaction
	partitions, indexes                            int // of job_executions
	standby, mayCreateRoles                        bool
}

func (d *DB) serverSettings(ctx context.Context) (s serverSettings, err error) {
	err = d.pool.QueryRow(ctx, `SELECT current_setting('fsync')::bool, current_setting('full_page_writes')::bool,
		current_setting('autovacuum')::bool, current_setting('track_counts')::bool, current_setting('synchronous_commit'),
		extract(epoch FROM current_setting('autovacuum_naptime')::interval)::int,
		current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int,
		(SELECT sum(pg_stat_get_db_numbackends(oid)) FROM pg_database)::int,
		current_setting('max_prepared_transactions')::int, current_setting('max_locks_per_transaction')::int,
		(SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass('public.job_executions')),
		(SELECT count(*) FROM pg_index WHERE indrelid = to_regclass('public.job_executions')),
		pg_is_in_recovery(), (SELECT rolcreaterole FROM pg_roles WHERE rolname = session_user)`).
		Scan(&s.fsync, &s.fullPageWrites, &s.autovacuum, &s.trackCounts, &s.synchronousCommit, &s.naptime,
			&s.maxConnections, &s.reserved, &s.connected, &s.maxPrepared, &s.maxLocks, &s.partitions, &s.indexes,
			&s.standby, &s.mayCreateRoles)
	return s, err
}

// Advice lists what the server's administrator should change, each a sentence
// with the setting, its value, what is needed and why. The processes work
// without it, but slower or with less than is promised.
func (d *DB) Advice(ctx context.Context) ([]string, error) {
	s, err := d.serverSettings(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the server's settings: %w", Fault(err))
	}
	return s.advice(int(d.pool.Config().MaxConns)), nil
}

// slowestNaptime is how rarely autovacuum may look at the tables, in seconds.
const slowestNaptime = 15

// advice judges the settings for a process that opens up to conns connections
// and has opened one.
func (s serverSettings) advice(conns int) []string {
	var advice []string
	unless := func(right bool, format string, args ...any) {
		if !right {
			advice = append(advice, fmt.Sprintf(format, args...))
		}
	}
	unless(!s.standby, "the server is a standby and takes no writes: DATABASE_URL should name the primary (target_session_attrs=read-write)")
	unless(!s.mayCreateRoles, "the login of DATABASE_URL may create roles and should not (ALTER ROLE … NOCREATEROLE): who reads its password can give himself more")
	unless(s.fsync, "fsync is off and must be on: a crash of the database's machine damages everything that is stored")
	unless(s.fullPageWrites, "full_page_writes is off and must be on: a crash of the database's machine damages pages that were being written")
	unless(s.synchronousCommit != "off", "synchronous_commit is off and must be on or stricter: a crash of the database loses jobs and outcomes that were acknowledged")
	unless(s.autovacuum, "autovacuum is off and must be on: dead rows are never removed, and every poll reads them")
	unless(s.trackCounts, "track_counts is off and must be on: autovacuum does nothing without it")
	unless(!s.autovacuum || s.naptime <= slowestNaptime,
		"autovacuum_naptime is %d s and should be 5 s: the tables of what waits and runs turn over within seconds, and polls read the dead rows in them", s.naptime)
	unless(s.maxConnections-s.reserved-s.connected >= conns-1,
		"max_connections is %d and should be %d or more: %d are in use, %d are reserved, and this process opens up to %d; requests and executions wait for a connection",
		s.maxConnections, s.connected-1+s.reserved+conns, s.connected, s.reserved, conns)
	// The server has more room than this, and other processes, which want some.
	each, sessions := s.partitions*(1+s.indexes), s.maxConnections+s.maxPrepared
	unless(each*conns <= s.maxLocks*sessions,
		"max_locks_per_transaction is %d and should be %d: a query over all %d partitions of job_executions takes %d locks and this process makes up to %d at once, for which the server is sure to have %d; a query without a lock fails",
		s.maxLocks, each*conns/sessions+1, s.partitions, each, conns, s.maxLocks*sessions)
	return advice
}

// sessionSetting is what a session has, in the setting's unit.
func (d *DB) sessionSetting(ctx context.Context, name string) (value string, err error) {
	// pg_settings does not have the role.
	err = d.pool.QueryRow(ctx, `SELECT coalesce((SELECT setting FROM pg_settings WHERE name = $1), current_setting($1))`, name).Scan(&value)
	if err != nil {
		return "", fmt.Errorf("read a setting of the session: %w", Fault(err))
	}
	return value, nil
}
