package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// A stream of the most urgent that is more than the worker can do leaves the
// least urgent its share: one of each ten turns. And within a lane waiting
// counts, ten seconds for each step of priority.
func TestNothingStarves(t *testing.T) {
	t.Parallel()
	// Of six runs each, within which the single one has begun. Looks shuffle what
	// stands close together, so that workers ask for different runs: it may miss
	// a few, and without its share or its age it would miss all.
	const rounds = 15
	for _, test := range []struct {
		name     string
		priority int // of the stream
		age      time.Duration
	}{
		{"beside another lane's stream", 9, 0},
		{"beside a stream of its lane, after it waited", 2, 21 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.run = func(context.Context, executor.Run) executor.Outcome { return executor.Outcome{} }
			w := b.start(func(c *worker.Config) { c.Slots = 6 })
			like := b.pending(nil)
			b.exec("UPDATE active_executions SET available_at = now() + interval '1 hour'")
			single := b.pending(nil)
			b.exec("UPDATE active_executions SET pooled = true, available_at = now() - $1::interval WHERE id = $2", test.age, single.ID)
			for round := 1; ; round++ {
				b.many(like, 12, test.priority, 0)
				b.poll(w)
				if b.reached(single.ID) != execution.Pending {
					break
				}
				if round == rounds {
					t.Fatalf("not begun after %d rounds", round)
				}
				eventually(t, "the slots are free", func() bool { return len(b.ids("SELECT id FROM active_executions WHERE status = 'running'")) == 0 })
			}
		})
	}
}
