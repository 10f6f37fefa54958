package parts

import (
	"context"
	"time"
)

// Vitals knows how the process and what it depends on are. Its methods end
// with their context, which has two seconds, and are not called at the same
// time as themselves.
type Vitals interface {
	// Health looks at each dependency.
	Health(ctx context.Context) Health
	// Ready lists why the process should get no requests, such as a database
	// that does not answer or an older schema; none when it should.
	Ready(ctx context.Context) []string
}

// Health is how the dependencies are.
type Health struct {
	Database, Redis, JobQueue, DistributedLock Dependency
	// Services are the other processes: whether a promoter and a worker live.
	Services Dependency
	// ActiveJobs are the jobs of all tenants that are active, Running and QueueSize
	// the executions that run and that wait; nil where they are not known.
	ActiveJobs, Running, QueueSize *int64
}

// Dependency is how one of them is.
type Dependency struct {
	Healthy bool
	Latency time.Duration // of its answer
	// Details holds what else is known, under the names that the answer shows.
	// Anybody can read them: no addresses, no errors' texts.
	Details map[string]any
}
