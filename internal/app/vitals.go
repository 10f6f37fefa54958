package app

import (
	"context"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
)

// vitals are the API process's: what GET /health and /health/ready tell.
type vitals struct {
	db     *postgres.DB
	hints  *queue.Publisher
	fleet  *fleet.Store
	locks  *lease.Store
	advice *advice
}

// Health looks at each dependency.
func (v vitals) Health(ctx context.Context) parts.Health {
	h := v.services(ctx)
	h.Database, h.Redis, h.JobQueue, h.DistributedLock = v.database(ctx), v.redis(ctx), v.jobQueue(ctx), v.distributedLock(ctx)
	return h
}

// services says whether the other processes live, and what they counted.
func (v vitals) services(ctx context.Context) (h parts.Health) {
	mark := clock.Start()
	gauges, err := v.fleet.Gauges(ctx)
	if err != nil {
		return h
	}
	h.ActiveJobs, h.Running = gauge(gauges.Values, fleet.GaugeActiveJobs), gauge(gauges.Values, fleet.GaugeRunning)
	h.QueueSize = gauge(gauges.Values, fleet.GaugeWaiting)
	workers, err := v.fleet.Alive(ctx)
	promotes := gauges.Counted >= 0 && gauges.Counted < silence
	h.Services = parts.Dependency{
		Healthy: err == nil && workers > 0 && promotes, Latency: mark.Elapsed(), Details: map[string]any{"workers": workers, "promoter": promotes},
	}
	return h
}

// silence is after how long without a number of theirs no promoter works. They count
// each 5 s, and more seldom where counting takes long.
const silence = 2 * time.Minute

// Ready lists why the process should get no requests. Redis is no reason: it
// carries hints, and the API answers without them.
func (v vitals) Ready(ctx context.Context) []string {
	if err := v.db.Ping(ctx); err != nil {
		return []string{"the database does not answer"}
	}
	if err := v.db.CheckSchema(ctx); err != nil {
		return []string{"the database's schema is older than this program: run the migrations"}
	}
	return nil
}

func (v vitals) database(ctx context.Context) parts.Dependency {
	mark := clock.Start()
	err := v.db.Ping(ctx)
	inUse, idle, most, _ := v.db.Connections()
	details := map[string]any{"totalConnections": inUse + idle, "idleConnections": idle, "maxConnections": most}
	if said := v.advice.list(); len(said) > 0 {
		details["advice"] = said
	}
	return parts.Dependency{Healthy: err == nil, Latency: mark.Elapsed(), Details: details}
}

// redis is well where there is none to depend on, and says so.
func (v vitals) redis(ctx context.Context) parts.Dependency {
	if v.hints.Silent() {
		return parts.Dependency{Healthy: true, Details: map[string]any{"used": false}}
	}
	s, err := v.hints.Stats(ctx)
	return parts.Dependency{Healthy: err == nil, Latency: s.Latency, Details: map[string]any{
		"used": true, "totalConnections": s.Total, "idleConnections": s.Idle, "staleConnections": s.Stale,
		"hits": s.Hits, "misses": s.Misses, "timeouts": s.Timeouts, "utilisation": s.Utilisation,
	}}
}

// jobQueue is what workers learn from what to run: without Redis, the database.
func (v vitals) jobQueue(ctx context.Context) parts.Dependency {
	mark := clock.Start()
	if v.hints.Silent() {
		err := v.db.Ping(ctx)
		return parts.Dependency{Healthy: err == nil, Latency: mark.Elapsed(), Details: map[string]any{"backend": "postgres"}}
	}
	depths, err := v.hints.Depth(ctx)
	d := parts.Dependency{Healthy: err == nil, Latency: mark.Elapsed(), Details: map[string]any{"backend": "redis"}}
	for lane, n := range depths {
		d.Details[fmt.Sprintf("%sHints", lane)] = n
	}
	return d
}

// distributedLock takes a lease and gives it back.
func (v vitals) distributedLock(ctx context.Context) parts.Dependency {
	mark := clock.Start()
	err := v.locks.Try(ctx)
	return parts.Dependency{Healthy: err == nil, Latency: mark.Elapsed()}
}

func gauge(gauges map[string]int64, name string) *int64 {
	if n, ok := gauges[name]; ok {
		return &n
	}
	return nil
}
