package bench

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// One publish of so few ids makes a hint of each; of so many, hints of
// queue.MaxIDs.
const (
	singles = 16
	chunks  = 64 * queue.MaxIDs
)

// queueLimits measures asynq and this Redis by themselves: publishing and
// consuming side by side in one process, with handlers that do nothing.
func queueLimits(ctx context.Context, s *stack) ([]row, error) {
	hints := &hints{arrived: make(chan struct{}, 1)}
	stop, err := hints.open(ctx, s.redis.ClientURL+"?db=1") // apart from the product's
	if err != nil {
		return nil, err
	}
	defer stop()
	parts := 1
	if s.Repeats == 1 {
		parts = 3
	}
	s.say("the queue alone")
	from, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	single, err := hints.median(ctx, s.Repeats, 12_000/parts, singles)
	if err != nil {
		return nil, err
	}
	chunked, err := hints.median(ctx, s.Repeats, 400_000/parts, chunks)
	if err != nil {
		return nil, err
	}
	to, err := s.read(ctx)
	return []row{
		{key: singleKey, what: limitWord + "asynq alone, one id a task", perSecond: single, backlog: none, others: others(from, to)},
		{key: chunkedKey, what: limitWord + "asynq alone, 64 ids a task", perSecond: chunked, backlog: none, others: others(from, to)},
	}, err
}

// hints is a publisher and a consumer.
type hints struct {
	publisher *queue.Publisher
	left      atomic.Int64 // ids that have not arrived
	arrived   chan struct{}
}

func (h *hints) open(ctx context.Context, url string) (stop func(), err error) {
	quiet := slog.New(slog.DiscardHandler)
	c := queue.Config{URL: url}
	if h.publisher, err = queue.NewPublisher(c, quiet); err != nil {
		return nil, err
	}
	consumer, err := queue.NewConsumer(c, h.handle, quiet)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = consumer.Run(ctx) }()
	return func() { cancel(); <-done; _ = h.publisher.Close() }, nil
}

func (h *hints) handle(_ context.Context, _ queue.Lane, ids []uuid.UUID) error {
	if h.left.Add(-int64(len(ids))) == 0 {
		h.arrived <- struct{}{}
	}
	return nil
}

// median is how many ids a second go through, of so many repetitions.
func (h *hints) median(ctx context.Context, repeats, total, burst int) (float64, error) {
	var all []float64
	for range repeats {
		perSecond, err := h.through(ctx, total-total%burst, burst)
		if err != nil {
			return 0, err
		}
		all = append(all, perSecond)
	}
	return median(all, cmp.Compare), nil
}

func (h *hints) through(ctx context.Context, total, burst int) (perSecond float64, err error) {
	ids := make([]uuid.UUID, burst)
	for i := range ids {
		ids[i] = uuid.New()
	}
	h.left.Store(int64(total))
	took := clock.Start()
	for range total / burst {
		if err := h.publisher.Publish(ctx, queue.Normal, ids); err != nil {
			return 0, err
		}
	}
	select {
	case <-h.arrived:
		return float64(total) / took.Elapsed().Seconds(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
