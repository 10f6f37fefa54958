// Package hint tells workers which executions to claim.
//
// It owns what becomes of an execution whose hint cannot be sent: it goes into
// the pool, where workers poll for it. It refuses to decide what is hinted, and
// to carry hints (package queue).
package hint

import (
	"context"
	"log/slog"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// publisher carries hints. The database holds every fact, so a hint that is not
// sent costs time and nothing else.
type publisher interface {
	Publish(ctx context.Context, lane queue.Lane, ids []uuid.UUID) error
	PublishTogether(ctx context.Context, lane queue.Lane, ids []uuid.UUID) error
}

// Config says where hints go.
type Config struct {
	DB    *postgres.DB // acting as postgres.Engine
	Queue publisher
	Log   *slog.Logger
}

// Sender sends hints. Any number of goroutines may use it.
type Sender struct {
	c     Config
	store *dispatch.Store
}

// New makes a sender.
func New(c Config) *Sender { return &Sender{c: c, store: dispatch.NewStore(c.DB, dispatch.Config{})} }

// Send sends a hint for each execution, in the lane of its priority.
func (s *Sender) Send(ctx context.Context, executions []dispatch.Waiting) {
	lanes := map[queue.Lane][]uuid.UUID{}
	for _, e := range executions {
		lane := queue.LaneFor(e.Priority)
		lanes[lane] = append(lanes[lane], e.ID)
	}
	for lane, ids := range lanes {
		s.SendLane(ctx, lane, ids)
	}
}

// SendLane sends hints in one lane, and pools the executions where that fails.
// Where pooling fails too, a later sweep does it.
func (s *Sender) SendLane(ctx context.Context, lane queue.Lane, ids []uuid.UUID) {
	s.sent(ctx, ids, s.c.Queue.Publish(ctx, lane, ids))
}

// SendTogether is SendLane for executions that call somebody and wait, see
// queue.Publisher.PublishTogether.
func (s *Sender) SendTogether(ctx context.Context, lane queue.Lane, ids []uuid.UUID) {
	s.sent(ctx, ids, s.c.Queue.PublishTogether(ctx, lane, ids))
}

// sent pools executions whose hints were not sent.
func (s *Sender) sent(ctx context.Context, ids []uuid.UUID, err error) {
	if err == nil {
		return
	}
	s.c.Log.DebugContext(ctx, "hints not sent, workers poll for the executions", "error", err, "executions", len(ids))
	if err := s.store.Pool(ctx, ids); err != nil {
		s.c.Log.WarnContext(ctx, "executions without a hint are not in the pool yet; a sweep pools them", "error", err, "executions", len(ids))
	}
}
