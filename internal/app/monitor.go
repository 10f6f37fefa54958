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
	db, err := postgres.Open(ctx, postgres.Config{
		URL: c.DatabaseURL.Reveal(), Role: postgres.Engine, Name: "scheduler-api-pings", MaxConns: pingConns, RoundTrip: p.metrics.RoundTrip, Spans: p.traces != nil,
	})
	if err != nil {
		return nil, nil, err
	}
	p.metrics.WatchPool("postgres", "scheduler-api-pings", connections(db))
	return intake.New(db, p.log), db.Close, nil
}
