package rest_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// well is a dependency that answers.
var well = parts.Dependency{Healthy: true}

// withVitals is an API without any store: enough for the health checks.
func withVitals(t *testing.T, v *vitals) *bundle {
	t.Helper()
	b := &bundle{vitals: v, spec: described(t)}
	b.handler = newHandler(t, parts.Deps{
		Vitals: v, CursorSecret: secret, Port: 3009, Clock: func() time.Time { return b.now },
		Log: discard(), Metrics: telemetry.NewMetrics(telemetry.NewRegistry()),
	})
	return b
}

func TestHealth(t *testing.T) {
	t.Parallel()
	n := int64(7)
	well := parts.Dependency{Healthy: true, Latency: 1500 * time.Microsecond}
	away := parts.Dependency{Latency: 2 * time.Second}
	for _, test := range []struct {
		name   string
		health parts.Health
		status int
		says   string
	}{
		{"all is well", parts.Health{Database: well, Redis: well, JobQueue: well, DistributedLock: well, Services: well, ActiveJobs: &n, QueueSize: &n}, 200, "healthy"},
		{"Redis is away", parts.Health{Database: well, Redis: away, JobQueue: away, DistributedLock: well, Services: well}, 200, "degraded"},
		{"the queue is away", parts.Health{Database: well, Redis: well, JobQueue: away, DistributedLock: well, Services: well}, 200, "degraded"},
		{"the database is away", parts.Health{Database: away, Redis: well, JobQueue: well, DistributedLock: well, Services: well}, 503, "unhealthy"},
		{"no worker lives", parts.Health{Database: well, Redis: well, JobQueue: well, DistributedLock: well, Services: away}, 200, "degraded"},
		{"leases do not work", parts.Health{Database: well, Redis: well, JobQueue: well, DistributedLock: away, Services: well}, 200, "degraded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := withVitals(t, &vitals{health: test.health}).do(t, request{method: "GET", path: "/health"})
			said := read[map[string]any](t, got, test.status)
			metrics, _ := said["metrics"].(map[string]any)
			if bytes, _ := metrics["memoryUsage"].(float64); bytes < 1<<20 {
				t.Errorf("memoryUsage is %v bytes", metrics["memoryUsage"])
			}
			delete(metrics, "memoryUsage")
			var count any
			if test.health.ActiveJobs != nil {
				count = 7.0
			}
			detail := func(d parts.Dependency) map[string]any {
				return map[string]any{"healthy": d.Healthy, "latencyMs": float64(d.Latency.Microseconds()) / 1000}
			}
			want := map[string]any{
				"status": test.says, "service": "scheduler-service", "port": 3009.0,
				"dependencies": map[string]any{"database": test.health.Database.Healthy, "redis": test.health.Redis.Healthy, "jobQueue": test.health.JobQueue.Healthy, "distributedLock": test.health.DistributedLock.Healthy, "services": test.health.Services.Healthy},
				"details":      map[string]any{"database": detail(test.health.Database), "redis": detail(test.health.Redis), "jobQueue": detail(test.health.JobQueue), "distributedLock": detail(test.health.DistributedLock), "services": detail(test.health.Services)},
				"metrics":      map[string]any{"activeJobs": count, "queueSize": count},
			}
			if diff := cmp.Diff(want, said); diff != "" {
				t.Errorf("health differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDetailsAreShownBesideTheRest(t *testing.T) {
	t.Parallel()
	v := &vitals{health: parts.Health{Redis: parts.Dependency{Details: map[string]any{"idle": 3}}}}
	if got := withVitals(t, v).do(t, request{method: "GET", path: "/health"}); !strings.Contains(got.body, `"redis":{"healthy":false,"idle":3,"latencyMs":0}`) {
		t.Errorf("answered %s", got.body)
	}
}

func TestLivenessAndReadiness(t *testing.T) {
	t.Parallel()
	v := &vitals{reasons: []string{"the database does not answer", "the schema is too old"}}
	b := withVitals(t, v)
	if got := b.do(t, request{method: "GET", path: "/health/live"}); got.status != 200 || strings.TrimSpace(got.body) != `{"status":"alive"}` || v.asked != 0 {
		t.Errorf("answered %d %s and asked %d times", got.status, got.body, v.asked)
	}
	if got := b.do(t, request{method: "GET", path: "/health/ready"}); got.status != 503 || strings.TrimSpace(got.body) != `{"reasons":["the database does not answer","the schema is too old"],"status":"not_ready"}` {
		t.Errorf("answered %d %s", got.status, got.body)
	}
	if got := withVitals(t, &vitals{}).do(t, request{method: "GET", path: "/health/ready"}); got.status != 200 || strings.TrimSpace(got.body) != `{"reasons":[],"status":"ready"}` {
		t.Errorf("answered %d %s", got.status, got.body)
	}
}

// Anybody may ask, so asking often must not ask the dependencies often; and an
// answer does not grow old.
func TestHealthIsRememberedForASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &vitals{}
		b := withVitals(t, v)
		for range 100 {
			b.send(request{method: "GET", path: "/health"})
			b.send(request{method: "GET", path: "/health/ready"})
		}
		if v.asked != 2 {
			t.Errorf("200 requests asked %d times", v.asked)
		}
		<-time.After(time.Second + time.Millisecond)
		v.reasons = []string{"away"}
		if got := b.send(request{method: "GET", path: "/health/ready"}); got.status != http.StatusServiceUnavailable {
			t.Errorf("after a second the answer is still %d", got.status)
		}
	})
}

// slow blocks until its context ends.
type slow struct{}

func (slow) Health(ctx context.Context) parts.Health {
	<-ctx.Done()
	return parts.Health{}
}

func (slow) Ready(ctx context.Context) []string {
	<-ctx.Done()
	return []string{"nothing answers"}
}

func TestAHealthCheckEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := withVitals(t, nil)
		b.handler = newHandler(t, parts.Deps{
			Vitals: slow{}, CursorSecret: secret, Clock: func() time.Time { return b.now }, Log: discard(), Metrics: telemetry.NewMetrics(telemetry.NewRegistry()),
		})
		for _, path := range []string{"/health", "/health/ready"} {
			began := clock.Start()
			if got := b.do(t, request{method: "GET", path: path}); got.status != http.StatusServiceUnavailable || began.Elapsed() > 2*time.Second {
				t.Errorf("%s answered %d after %s", path, got.status, began.Elapsed())
			}
		}
	})
}

// hasty gives up with its context.
type hasty struct{}

func (hasty) Health(ctx context.Context) parts.Health {
	return parts.Health{Database: parts.Dependency{Healthy: ctx.Err() == nil}}
}

func (hasty) Ready(context.Context) []string { return nil }

// One who hangs up does not spoil the answer of all others.
func TestACallerWhoLeavesSpoilsNothing(t *testing.T) {
	t.Parallel()
	b := withVitals(t, nil)
	b.handler = newHandler(t, parts.Deps{
		Vitals: hasty{}, CursorSecret: secret, Clock: func() time.Time { return b.now }, Log: discard(), Metrics: telemetry.NewMetrics(telemetry.NewRegistry()),
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	b.sendWith(gone, request{method: "GET", path: "/health"})
	if got := b.do(t, request{method: "GET", path: "/health"}); got.status != http.StatusOK {
		t.Errorf("the next one is answered %d %s", got.status, got.body)
	}
}
