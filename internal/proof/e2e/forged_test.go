package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// A process that can write to Redis can make workers poll, and nothing else:
// forged hints start nothing early, nothing again, nothing that a limit or a
// cancellation holds back, and of another tenant nothing that was not due.
func TestForgedHintsStartNothing(t *testing.T) {
	t.Parallel()
	s := start(t, hinted, 0)
	target, calls := sink(t)
	call := func(name string) api.JobSpec {
		return api.JobSpec{Name: name, JobType: api.JobTypeHTTP, Config: config(t, map[string]any{"url": target, "method": "POST", "body": name})}
	}
	over := s.trigger(s.create(call("over")).ID)
	worker := s.worker()
	s.eventually("the first is finished", func() bool { return s.execution(over.ID).Status == api.ExecutionStatusCompleted })
	worker.stop() // what follows is made while nobody can start it

	// Held back: not due for an hour, and of another tenant the same; waiting
	// for the only slot of its job, which a run with an hour to go has.
	later := s.trigger(s.create(call("later")).ID)
	other := &installation{t: t, database: s.database, backend: s.backend, url: s.url, tenant: uuid.New()}
	other.client = other.clientOf(other.tenant, identity.Admin)
	foreign := other.trigger(other.create(call("foreign")).ID)
	spec := call("gated")
	spec.MaxConcurrent = ptr(1)
	job := s.create(spec)
	holder, gated := s.trigger(job.ID), s.trigger(job.ID)
	s.exec("UPDATE active_executions SET available_at = now() + interval '1 hour' WHERE id = ANY ($1)",
		[]uuid.UUID{later.ID, foreign.ID, holder.ID})
	scheduled := call("due in half a year")
	scheduled.CronExpression = new(fmt.Sprintf("0 0 0 1 %d *", s.now().AddDate(0, 6, 0).Month()))
	s.create(scheduled)

	s.worker()
	forge(t, s, over.ID, later.ID, foreign.ID, holder.ID, gated.ID, uuid.New(), job.ID)
	last := s.trigger(s.create(call("last")).ID)
	s.eventually("the last is finished", func() bool { return s.execution(last.ID).Status == api.ExecutionStatusCompleted })
	forge(t, s, over.ID, later.ID, foreign.ID, holder.ID, gated.ID)
	again := s.trigger(s.create(call("again")).ID)
	s.eventually("one more is finished", func() bool { return s.execution(again.ID).Status == api.ExecutionStatusCompleted })

	want := []string{"over", "last", "again"}
	for i := 0; len(calls) > 0; i++ {
		if got := <-calls; i >= len(want) || got.body != want[i] {
			t.Errorf("call %d is %q, want %v", i+1, got.body, want)
		}
	}
	for name, e := range map[string]api.Execution{
		"later": s.execution(later.ID), "holder": s.execution(holder.ID), "gated": s.execution(gated.ID), "foreign": other.execution(foreign.ID),
	} {
		if e.Status != api.ExecutionStatusPending || e.StartedAt != nil {
			t.Errorf("%s is %s", name, e.Status)
		}
	}
	if e := s.execution(over.ID); e.RetryCount != 0 || len(e.Attempts) != 1 {
		t.Errorf("a finished execution ran again: %+v", e)
	}
}

// forge writes hints of all the ids, in every lane, as a process of ours would.
func forge(t *testing.T, s *installation, ids ...uuid.UUID) {
	t.Helper()
	publisher, err := queue.NewPublisher(queue.Config{URL: s.redis.URL}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = publisher.Close() }()
	for _, lane := range []queue.Lane{queue.High, queue.Normal, queue.Low} {
		if err := publisher.Publish(context.WithoutCancel(t.Context()), lane, ids); err != nil {
			t.Fatal(err)
		}
	}
}

func ptr[T any](v T) *T { return &v }
