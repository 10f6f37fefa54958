package worker_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// A heartbeat renews the lease and reads nothing: what all workers run is read at
// a distance of its own.
func TestHeartbeatsDoNotReadWhatRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var beats, reads atomic.Int64
	beat, err := postgres.Open(t.Context(), postgres.Config{
		URL: b.database.URL, Role: postgres.Engine, Name: "test", MaxConns: 1,
		RoundTrip: func(statement string) {
			switch statement {
			case "RenewWorker":
				beats.Add(1)
			case "ListExecutionsOfWorker":
				reads.Add(1)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(beat.Close)
	b.beat = beat
	b.start(func(c *worker.Config) { c.Heartbeat, c.Compare = 10*time.Millisecond, 0 })
	eventually(t, "sixty heartbeats", func() bool { return beats.Load() >= 60 })
	if n, of := reads.Load(), beats.Load(); n > of/2 { // a busy machine is a reason to compare now and then
		t.Errorf("%d of %d heartbeats read all that runs", n, of)
	}
}

// After a request to the database failed, a worker soon finds and gives back what
// the database says it runs and it does not.
func TestAfterTroubleAWorkerCompares(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lost := b.pending(nil)
	b.hinted()
	b.start(func(c *worker.Config) { c.Compare = time.Hour })
	b.exec("UPDATE running_shards SET runs = 1, runs_by_type = jsonb_build_object('function', 1) WHERE shard = 0 AND tenant_id = $1", b.who.TenantID)
	b.exec(`UPDATE active_executions SET status = 'running', attempt = 1, worker_id = (SELECT id FROM workers), lease_token = gen_random_uuid(),
		attempt_started_at = now(), deadline_at = now() + interval '1 hour', sweep_at = now() WHERE id = $1`, lost.ID)
	tx := b.locked("workers")
	eventually(t, "a heartbeat was not answered, and the next one waits", func() (waits bool) {
		err := tx.QueryRow(t.Context(), "SELECT count(*) >= 2 FROM pg_locks WHERE NOT granted AND relation = 'workers'::regclass").Scan(&waits)
		return err == nil && waits
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.reaches(lost.ID, execution.Pending)
}
