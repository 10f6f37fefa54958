package app

import (
	"context"

	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/monitor/intake"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// pings makes the desk that stores what monitors tell. A ping names its monitor by a key
// alone, before any tenant is known, so it acts as postgres.Engine.
func (p process) pings(ctx context.Context, c config.API) (desk *intake.Desk, closeDesk func(), err error) {
	db, err := p.engine(ctx, c, "api-pings", pingConns)
	if err != nil {
		return nil, nil, err
	}
	return intake.New(db, hostname(), p.log), db.Close, nil
}

// takesPings is the desk at work. Where the public address is known it pings that, too.
func takesPings(desk *intake.Desk, c config.API) func(context.Context) error {
	public := c.PublicURL.Reveal()
	if public == "" {
		return desk.Run
	}
	return func(ctx context.Context) error {
		return together(ctx, desk.Run, func(ctx context.Context) error { return desk.Knock(ctx, public) })
	}
}

// engine is a pool of an API process that acts as postgres.Engine.
func (p process) engine(ctx context.Context, c config.API, name string, conns int) (*postgres.DB, error) {
	name = "scheduler-" + name
	db, err := postgres.Open(ctx, postgres.Config{
		URL: c.Engine(), Pooled: c.Pooled(), Role: postgres.Engine, Name: name, MaxConns: conns, RoundTrip: p.metrics.RoundTrip, Spans: p.traces != nil,
	})
	if err != nil {
		return nil, err
	}
	p.metrics.WatchPool("postgres", name, connections(db))
	return db, nil
}
