package remote_test

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/remote"
	"github.com/scheduler-service/scheduler/internal/trace"
)

// claimAs claims under an id.
func (b *bundle) claimAs(w remote.Worker, id uuid.UUID, most int) []remote.Assignment {
	b.t.Helper()
	got, err := b.desk.Claim(b.t.Context(), b.ours.TenantID, remote.Request{Worker: w.ID, ID: id, Most: most}, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

// A claim whose answer was lost is repeated under its id: it costs no attempt, brings the same
// executions with tokens that open them, and nothing else.
func TestARepeatedClaimBringsTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w, other := b.register(b.ours, "invoice"), b.register(b.ours, "invoice")
	made, id := b.job(b.ours, "invoice", func(s *job.Spec) { s.MaxConcurrent, s.Timeout = 10, 100 }), uuid.New()
	for range 3 {
		b.trigger(b.ours, made, "")
	}
	var lost []remote.Assignment
	for range 200 { // what waits for a slot is read from a place on that is chosen at random
		if lost = b.claimAs(w, id, 2); len(lost) > 0 {
			break
		}
	}
	if len(lost) == 0 {
		t.Fatal("nothing was claimed")
	}
	b.exec("UPDATE active_executions SET attempt_started_at = now() - interval '40 seconds', last_heartbeat_at = now() - interval '40 seconds' WHERE status = 'running'")
	again := b.claimAs(w, id, 2)
	if len(again) != len(lost) {
		t.Fatalf("claimed %d, and then %d", len(lost), len(again))
	}
	of := map[uuid.UUID]remote.Assignment{}
	for _, a := range lost {
		of[a.ID] = a
	}
	for _, a := range again {
		if before, ok := of[a.ID]; !ok || a.Attempt != 1 || a.Token != before.Token || a.Timeout > 60*time.Second || a.Timeout < 30*time.Second {
			t.Errorf("the repeated claim brings %+v in the place of %+v", a, before)
		}
	}
	if ended := b.endOverdue(5 * time.Second); ended != 0 {
		t.Errorf("%d attempts ended although their claim was repeated", ended)
	}
	for _, a := range again {
		if status, err := b.complete(a, callback.Report{}); err != nil || status != "completed" {
			t.Errorf("completed: %s, %v", status, err)
		}
		if e := b.get(b.ours, a.ID); e.Status != execution.Completed || e.Attempt != 1 {
			t.Errorf("stored: %+v", e)
		}
	}
	// Nothing of it runs any more, so the id is free; another worker's claim of this id is its own.
	ids := map[uuid.UUID]bool{}
	for i := 0; len(ids) < 3-len(lost) && i < 200; i++ {
		for _, a := range append(b.claimAs(w, id, 1), b.claimAs(other, id, 1)...) {
			if ids[a.ID] = true; a.Attempt != 1 || of[a.ID].ID == a.ID {
				t.Errorf("claimed %+v", a)
			}
		}
	}
}

// Claims under one id at the same time bring one set of executions.
func TestClaimsUnderOneIDAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w, id := b.register(b.ours, "invoice"), uuid.New()
	made := b.job(b.ours, "invoice", func(s *job.Spec) { s.MaxConcurrent = 10 })
	for range 8 {
		b.trigger(b.ours, made, "")
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	got := map[uuid.UUID]uuid.UUID{}
	for range 4 {
		running.Go(func() {
			for range 5 {
				claimed, err := b.desk.Claim(t.Context(), b.ours.TenantID, remote.Request{Worker: w.ID, ID: id, Most: 1}, nil)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, a := range claimed {
					got[a.ID] = a.Token
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	if len(got) > 1 {
		t.Errorf("claims of one id brought %d executions: %v", len(got), got)
	}
}

// An execution that is claimed names its trace, to go on with.
func TestAnAssignmentNamesItsTrace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tracer, err := trace.New(t.Context(), trace.Config{URL: "http://127.0.0.1:1", Log: slog.New(slog.DiscardHandler), Share: 0})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tracer.Close)
	b.desk = remote.NewDesk(remote.Config{DB: b.engine, Keys: b.keys, Callbacks: b.callbacks, Log: slog.New(slog.DiscardHandler), Traces: tracer})
	w := b.register(b.ours, "invoice")
	e := b.trigger(b.ours, b.job(b.ours, "invoice"), "")
	a := b.claimOne(b.ours, w)
	if want := "00-" + trace.IDOf(e.ID) + "-"; len(a.Traced) != 55 || a.Traced[:36] != want {
		t.Errorf("the traceparent is %q, want %s…", a.Traced, want)
	}
}
