package root_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/tenant"
	"github.com/scheduler-service/scheduler/internal/trace"
	"github.com/scheduler-service/scheduler/internal/trace/root"
	"github.com/scheduler-service/scheduler/internal/trace/tracetest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

var (
	at     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	who    = uuid.MustParse("11111111-1111-4111-8111-111111111111")
	failed = uuid.MustParse("019a2f00-1c2d-8f3a-9b4c-5d6e7f801234")
	gone   = uuid.MustParse("019a2f00-1c2d-8f3a-9b4c-5d6e7f805678")
)

func after(ms int) *time.Time {
	t := at.Add(time.Duration(ms) * time.Millisecond)
	return &t
}

// timeline is that of an execution which waited for everything and failed.
func timeline(_ context.Context, actor tenant.Actor, id uuid.UUID) (execution.Timeline, error) {
	if id != failed || actor.TenantID != who {
		return execution.Timeline{}, errors.New("there is none")
	}
	return execution.Timeline{
		Execution: execution.Execution{
			ID: id, TenantID: who, JobType: "http", Trigger: execution.Scheduled, Status: execution.Failed, ScheduledAt: at, StartedAt: after(300), CompletedAt: after(900),
			Attempt: 2, Error: &execution.Failure{Type: "TIMEOUT", Message: "hunter2"}, RetryOf: &gone,
		},
		Phases: []execution.Phase{
			{Kind: execution.PhasePromotion, From: at, To: after(40)},
			{Kind: execution.PhaseLimit, From: *after(40), To: after(290), Limit: execution.WaitTenant},
			{Kind: execution.PhaseQueue, From: *after(290), To: after(300)},
			{Kind: execution.PhaseAttempt, From: *after(300), To: after(500), Attempt: 1},
			{Kind: execution.PhaseRetry, From: *after(500), To: after(800), Attempt: 2},
			{Kind: execution.PhaseAttempt, From: *after(800), To: after(900), Attempt: 2},
		},
	}, nil
}

// The last of a process that ends are written too, and an execution that cannot be read
// holds up none of the others.
func TestRootsHaveTheTimeline(t *testing.T) {
	t.Parallel()
	c := tracetest.New(t)
	traces, err := trace.New(t.Context(), trace.Config{URL: c.URL, Share: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w := root.New(root.Config{Traces: traces, Read: timeline, Log: slog.New(slog.DiscardHandler)})
	w.Finished(who, gone)
	w.Finished(who, failed)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := w.Run(ctx); err != nil {
		t.Error(err)
	}
	traces.Close()

	id := trace.IDOf(failed)
	tracetest.Comes(t, func() bool { return len(c.Spans()) >= 5 })
	whole, ok := tracetest.Find(c.Spans(), id, "execution")
	if !ok {
		t.Fatalf("spans %+v", c.Spans())
	}
	if !whole.Start.Equal(at) || !whole.End.Equal(*after(900)) || !whole.Failed || whole.Parent != "" || len(whole.Links) != 1 {
		t.Errorf("the root: %+v", whole)
	}
	for key, want := range map[string]string{
		"scheduler.promotion_ms": "40", "scheduler.limit_ms": "250", "scheduler.backlog_ms": "0", "scheduler.queue_ms": "10", "scheduler.retry_ms": "300",
		"scheduler.late_ms": "300", "scheduler.status": "failed", "scheduler.attempts": "2", "error.type": "TIMEOUT",
	} {
		if got := whole.Attributes[key]; got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	limit, _ := tracetest.Find(c.Spans(), id, "limit")
	if !limit.Start.Equal(*after(40)) || !limit.End.Equal(*after(290)) || limit.Parent != whole.ID || limit.Attributes["scheduler.limit"] != "tenant_limit" {
		t.Errorf("the limit: %+v", limit)
	}
	if got := len(c.Spans()); got != 5 { // attempts have theirs from their workers
		t.Errorf("%d spans: %+v", got, c.Spans())
	}
}

// However many finish at once, nobody waits.
func TestFinishedDoesNotWait(t *testing.T) {
	t.Parallel()
	c := tracetest.New(t)
	traces, err := trace.New(t.Context(), trace.Config{URL: c.URL, Share: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer traces.Close()
	w := root.New(root.Config{Traces: traces, Read: timeline, Log: slog.New(slog.DiscardHandler)})
	var finishing sync.WaitGroup
	for range 8 {
		finishing.Go(func() {
			for range 1000 {
				w.Finished(who, gone)
			}
		})
	}
	finishing.Wait()
	none := root.New(root.Config{Read: timeline})
	none.Finished(who, failed) // there are no traces
}
