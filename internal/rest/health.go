package rest

import (
	"context"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
)

const (
	// healthAge is how old an answer about dependencies may be. Nobody has to
	// show a token to ask, so asking must not cost the dependencies anything.
	healthAge = time.Second
	// probePatience bounds one look at all dependencies.
	probePatience = 2 * time.Second
)

// GetHealth is GET /health.
func (s *server) GetHealth(ctx context.Context, _ api.GetHealthRequestObject) (api.GetHealthResponseObject, error) {
	h := s.health.get(ctx, s.Vitals.Health)
	answer := api.Health{Service: api.HealthServiceSchedulerService, Port: s.Port}
	answer.Dependencies.Database, answer.Details.Database = h.Database.Healthy, details(h.Database)
	answer.Dependencies.Redis, answer.Details.Redis = h.Redis.Healthy, details(h.Redis)
	answer.Dependencies.JobQueue, answer.Details.JobQueue = h.JobQueue.Healthy, details(h.JobQueue)
	answer.Dependencies.DistributedLock, answer.Details.DistributedLock = h.DistributedLock.Healthy, details(h.DistributedLock)
	answer.Dependencies.Services, answer.Details.Services = h.Services.Healthy, details(h.Services)
	answer.Metrics.ActiveJobs, answer.Metrics.QueueSize = h.ActiveJobs, h.QueueSize
	answer.Metrics.MemoryUsage = memoryInUse()
	if answer.Status = statusOf(h); !h.Database.Healthy {
		return api.GetHealth503JSONResponse(answer), nil
	}
	return api.GetHealth200JSONResponse(answer), nil
}

func statusOf(h parts.Health) api.HealthStatus {
	switch {
	case !h.Database.Healthy:
		return api.HealthStatusUnhealthy
	case !h.Redis.Healthy || !h.JobQueue.Healthy || !h.DistributedLock.Healthy || !h.Services.Healthy:
		return api.HealthStatusDegraded
	default:
		return api.HealthStatusHealthy
	}
}

// GetLiveness is GET /health/live.
func (s *server) GetLiveness(context.Context, api.GetLivenessRequestObject) (api.GetLivenessResponseObject, error) {
	return api.GetLiveness200JSONResponse{Status: api.LivenessStatusAlive}, nil
}

// GetReadiness is GET /health/ready.
func (s *server) GetReadiness(ctx context.Context, _ api.GetReadinessRequestObject) (api.GetReadinessResponseObject, error) {
	reasons := s.ready.get(ctx, s.Vitals.Ready)
	if draining(ctx) {
		reasons = append([]string{"the process is stopping"}, reasons...)
	}
	if len(reasons) > 0 {
		return api.GetReadiness503JSONResponse{Status: api.ReadinessStatusNotReady, Reasons: reasons}, nil
	}
	return api.GetReadiness200JSONResponse{Status: api.ReadinessStatusReady, Reasons: []string{}}, nil
}

func details(d parts.Dependency) api.DependencyDetails {
	return api.DependencyDetails{
		Healthy: d.Healthy, LatencyMs: float64(d.Latency.Microseconds()) / 1000, AdditionalProperties: d.Details,
	}
}

// memoryInUse is what the Go runtime has from the system and has not given
// back, in bytes.
func memoryInUse() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}

// cached remembers an answer for healthAge. Those who ask while it is being
// found wait for it.
type cached[T any] struct {
	mu    sync.Mutex
	known bool
	at    clock.Mark
	value T
}

func (c *cached[T]) get(ctx context.Context, find func(context.Context) T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || c.at.Elapsed() > healthAge {
		// Not the caller's own context: one who hangs up must not make the
		// answer of all others a failure.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probePatience)
		defer cancel()
		c.value = find(ctx)
		c.known, c.at = true, clock.Start()
	}
	return c.value
}
