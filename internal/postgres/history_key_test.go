package postgres_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/migrations"
)

const historyKey = "SELECT count(*) FROM pg_constraint WHERE conrelid = 'job_executions'::regclass AND contype = 'p' AND pg_get_constraintdef(oid) = 'PRIMARY KEY (tenant_id, scheduled_at, id)'"

// An installation that has executions keeps the key that processes of the version before name, until somebody
// says that they are gone. Then it has what a new one has.
func TestTheHistoryOfAnOlderInstallationGetsItsKey(t *testing.T) {
	t.Parallel()
	made, grown := pgtest.Empty(t), pgtest.Empty(t)
	apply(t, made, migrations.FS)
	if n := count(t, connect(t, made.AdminURL), historyKey); n != 1 {
		t.Error("a new installation has the old key")
	}
	apply(t, grown, baseline(t))
	filled(t, grown)
	apply(t, grown, migrations.FS)
	admin := connect(t, grown.AdminURL)
	if n := count(t, admin, historyKey); n != 0 {
		t.Error("an installation with executions has the new key already")
	}
	exec(t, admin, "INSERT INTO job_executions SELECT * FROM job_executions ON CONFLICT (id, scheduled_at) DO NOTHING") // as the version before does
	exec(t, admin, `DO $$ BEGIN -- one that was not finished
		EXECUTE (SELECT format('CREATE UNIQUE INDEX %I ON %s (id)', p.relid::regclass || '_key', p.relid::regclass) FROM pg_partition_tree('job_executions') p WHERE p.isleaf LIMIT 1);
		UPDATE pg_index SET indisvalid = false WHERE indexrelid::regclass::text LIKE '%\_key';
		END $$`)
	holder, builds, waits := connect(t, grown.AdminURL), 0, 0
	done, err := postgres.IndexHistory(t.Context(), grown.OwnerURL, slog.New(handler(func(record slog.Record) {
		switch {
		case strings.Contains(record.Message, "waits for a lock"):
			if waits++; waits == 1 {
				exec(t, holder, "COMMIT")
			}
			return
		case builds == 0: // it knows the partitions by now, and not this one
			exec(t, admin, "SELECT make_job_executions_partition(now() + interval '4 months', 'day')")
		case strings.HasPrefix(attributes(record)["partition"], "job_executions_d"):
			exec(t, holder, "BEGIN")
			exec(t, holder, "LOCK TABLE ONLY job_executions IN ACCESS SHARE MODE") // as who reads
		}
		builds++
	})))
	if !done || err != nil || builds < 2 || waits == 0 {
		t.Fatalf("done %v after %d builds and %d waits: %v", done, builds, waits, err)
	}
	if diff := cmp.Diff(catalogueOf(t, made), catalogueOf(t, grown)); diff != "" {
		t.Errorf("the schema is not that of a new installation (-new +this):\n%s", diff)
	}
	if n := count(t, admin, "SELECT count(*) FROM job_executions"); n < hotRows {
		t.Errorf("%d rows are left", n)
	}
	if n := count(t, admin, `SELECT count(*) FROM pg_partition_tree('job_executions') p JOIN pg_index i ON i.indrelid = p.relid
		WHERE NOT i.indisvalid OR i.indexrelid::regclass::text LIKE '%\_key'`); n != 0 {
		t.Errorf("%d indexes are not valid, or are left", n)
	}
	if _, err := partition.Prepare(t.Context(), grown.OwnerURL, partition.Month, 3); err != nil {
		t.Error(err)
	}
	if done, err := postgres.IndexHistory(t.Context(), grown.OwnerURL, slog.New(slog.DiscardHandler)); done || err != nil {
		t.Errorf("it did so again: %v", err)
	}
}
