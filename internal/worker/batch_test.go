package worker

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// TestOutcomesAreDue holds slots as a worker would and asks when outcomes are
// written.
func TestOutcomesAreDue(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		slots int
		taken int // of them, by what waits here and by what still runs or is claimed
		n     int // outcomes that wait
		age   time.Duration
		want  bool
	}{
		{name: "others still run", slots: 10, taken: 5, n: 4, age: completeStep},
		{name: "long enough", slots: 10, taken: 5, n: 4, age: completeLinger, want: true},
		{name: "nothing else runs", slots: 10, taken: 5, n: 5, want: true},
		{name: "no slot is free", slots: 10, taken: 10, n: 4, age: completeStep, want: true},
		{name: "no slot is free, and they came just now", slots: 10, taken: 10, n: 4},
		{name: "a single one", slots: 10, taken: 1, n: 1, want: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := &Worker{slots: newSlots(test.slots)}
			w.slots.take(t.Context(), test.taken)
			if got := w.outcomesDue(test.n, test.age); got != test.want {
				t.Errorf("due: %v, want %v", got, test.want)
			}
		})
	}
}

// TestBatchIsFlushed lets items come and wants them together, no later than
// they are due, and what is left when the batch ends.
func TestBatchIsFlushed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const linger = 10 * time.Millisecond
		b := newBatch[int](3, linger/2, func(n int, age time.Duration) bool { return age >= linger })
		flushed := make(chan []int, 10)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.run(ctx, func(items []int) { flushed <- append([]int{}, items...) })
		}()
		for i := range 4 { // the first three fill a batch
			b.in <- i
		}
		synctest.Wait()
		if diff := cmp.Diff([]int{0, 1, 2}, <-flushed); diff != "" {
			t.Errorf("the full batch (-want +got)\n%s", diff)
		}
		<-time.After(linger - 1)
		synctest.Wait()
		if len(flushed) > 0 {
			t.Errorf("flushed %v before it was due", <-flushed)
		}
		b.in <- 4
		<-time.After(1)
		synctest.Wait()
		if diff := cmp.Diff([]int{3, 4}, <-flushed); diff != "" {
			t.Errorf("the batch that is due (-want +got)\n%s", diff)
		}
		b.in <- 5
		cancel()
		<-done
		if diff := cmp.Diff([]int{5}, <-flushed); diff != "" {
			t.Errorf("what was left (-want +got)\n%s", diff)
		}
	})
}

// TestBatchIsBoundedInBytes brings 256 of the largest outcomes at once. On the
// commit before they were one batch, a statement of 66 MB.
func TestBatchIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	w := New(Config{Slots: 256, DB: &postgres.DB{}, Beat: &postgres.DB{}, Executor: executor.NewRegistry(nil)})
	largest := ended{outcome: dispatch.Outcome{
		Result: strings.Repeat("r", executor.MaxResult), Message: strings.Repeat("m", 4<<10), Stack: strings.Repeat("s", 16<<10),
	}}
	for range completeBatch {
		w.outcomes.in <- largest
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.slots.take(t.Context(), 256)
	written := 0
	w.outcomes.run(ctx, func(batch []ended) {
		size := 0
		for _, e := range batch {
			size += e.size()
		}
		if size > completeBytes+largest.size() {
			t.Errorf("a batch of %d has %d bytes", len(batch), size)
		}
		written += len(batch)
	})
	if written != completeBatch {
		t.Errorf("%d are written", written)
	}
}
