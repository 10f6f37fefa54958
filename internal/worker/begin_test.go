package worker_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// While the definitions of one claim are read, one more claim is made, and no third. Where
// they cannot be read they are read again, and each run is made once.
func TestOneClaimIsMadeWhileTheRunsOfAnotherBegin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ran := b.instantly()
	w := b.start(func(c *worker.Config) { c.Slots = 2000 })
	first := b.pending(nil)
	b.poll(w) // it found something: the next one claims in turn
	b.reaches(first.ID, execution.Completed)
	b.many(b.pending(nil), 999, 5, time.Second)

	tx := b.locked("job_versions")
	ctx, stop := context.WithCancel(t.Context())
	var polling sync.WaitGroup
	polling.Go(func() { _ = w.PollLoop(ctx) })
	defer polling.Wait()
	defer stop()
	claimed := func() int {
		return b.counts("SELECT 1, count(*) FROM active_executions WHERE status = 'running'")[1]
	}
	eventually(t, "two claims are made", func() bool { return claimed() == 512 })
	if ended := b.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%ListDefinitions%'"); ended != 1 {
		t.Errorf("%d statements read definitions, want 1", ended)
	}
	if n := claimed(); n != 512 {
		t.Errorf("%d are claimed while no definition can be read, want 512", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are finished", func() bool { return len(ran()) >= 1001 && claimed() == 0 })
	all := ran()
	slices.SortFunc(all, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	if once := len(slices.Compact(all)); once != 1001 || len(all) != 1001 {
		t.Errorf("%d runs of %d executions, want one of each of 1001", len(all), once)
	}
}
