package telemetry

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// everything calls every method once, so that each metric has a value.
func everything(m *Metrics) {
	m.Operation("promote", "ok", 3*time.Millisecond)
	m.Failure("promote", "unavailable")
	m.ExecutionFinished("http", "completed", 200*time.Millisecond)
	m.ExecutionFinished("http", "cancelled", 0)
	m.KnowTypes([]string{"http"})
	m.JobCreated("http")
	m.SetActiveJobs(4)
	m.SetRunning(3)
	m.WatchPool("redis", "hints", func() Pool { return Pool{InUse: 3, Max: 20} })
	m.SetQueueSize("high", 12)
	m.SetBacklog("waiting", "http", "high", 7)
	m.SetWantedSlots("http", 7)
	m.SetOldestWait("http", "high", 1500*time.Millisecond)
	m.DueLag(4 * time.Millisecond)
	m.DispatchLateness(30 * time.Millisecond)
	m.StaleCompletions(2)
	m.OutputDropped(1)
	m.Reclaimed("worker_dead", 3)
	m.Redispatched("lost", 5)
	m.Disowned(1)
	m.SelfFenced()
	m.RedisGenerationChanged()
	m.JobParked("refused")
	m.Missed(7)
	m.SetPromotionHalted(true)
	m.SetClockDisagreement(-1500 * time.Millisecond)
	m.Batch("claim", 128)
	m.RoundTrip("ClaimExecutions")
	m.LockAcquired("held")
	m.LockTimedOut()
	m.EventsTold(3, 1)
	m.NotificationSent("webhook", "delivered")
	m.SetOldestNotification(2 * time.Second)
	m.SetDeadLetters(4)
	m.SetObjectives(1, 2, 3)
	m.SetMonitors("down", 1)
	m.Ping("start")
	m.DeadLetters("made", 4)
	m.CircuitOpened()
	m.CircuitClosed()
	m.ExecutionsHeld(2)
}

func TestMetricsAreWellFormed(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	everything(NewMetrics(reg))
	found, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range found {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}

func TestMetricsCountWhatHappened(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	everything(NewMetrics(reg))
	want := `
# HELP scheduler_executions_total Finished executions, by how they ended.
# TYPE scheduler_executions_total counter
scheduler_executions_total{job_type="http",status="cancelled"} 1
scheduler_executions_total{job_type="http",status="completed"} 1
scheduler_executions_total{job_type="http",status="failed"} 0
# HELP scheduler_job_executions_total The same count as scheduler_executions_total, under the name that some dashboards use.
# TYPE scheduler_job_executions_total counter
scheduler_job_executions_total{job_type="http",status="cancelled"} 1
scheduler_job_executions_total{job_type="http",status="completed"} 1
scheduler_job_executions_total{job_type="http",status="failed"} 0
# HELP scheduler_active_jobs Jobs that are active, of all tenants, as counted each half minute. Every promoter reports the same, so take the maximum.
# TYPE scheduler_active_jobs gauge
scheduler_active_jobs 4
# HELP scheduler_active_connections Connections of a pool that are in use.
# TYPE scheduler_active_connections gauge
scheduler_active_connections{pool="hints",store="redis"} 3
# HELP scheduler_running_executions Executions that this process runs now.
# TYPE scheduler_running_executions gauge
scheduler_running_executions 3
# HELP scheduler_clock_disagreement_seconds The database's clock minus this process's.
# TYPE scheduler_clock_disagreement_seconds gauge
scheduler_clock_disagreement_seconds -1.5
# HELP scheduler_promotion_halted 1 while promotion stands still because clocks disagree.
# TYPE scheduler_promotion_halted gauge
scheduler_promotion_halted 1
# HELP scheduler_queue_size Hints that wait in a queue; every process that reports it sees the same queue, so take the maximum.
# TYPE scheduler_queue_size gauge
scheduler_queue_size{queue_name="high"} 12
# HELP scheduler_reclaimed_total Executions taken from a worker.
# TYPE scheduler_reclaimed_total counter
scheduler_reclaimed_total{reason="deadline"} 0
scheduler_reclaimed_total{reason="worker_dead"} 3
# HELP scheduler_missed_total Scheduled times recorded as missed instead of run.
# TYPE scheduler_missed_total counter
scheduler_missed_total 7
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "scheduler_executions_total", "scheduler_job_executions_total",
		"scheduler_active_jobs", "scheduler_active_connections", "scheduler_running_executions", "scheduler_clock_disagreement_seconds", "scheduler_promotion_halted", "scheduler_queue_size",
		"scheduler_reclaimed_total", "scheduler_missed_total"); err != nil {
		t.Error(err)
	}
}

// TestEveryMetricOfTheContractExists lists the names that dashboards, alert
// rules and the specification rely on, and the edges of their buckets.
func TestEveryMetricOfTheContractExists(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	everything(NewMetrics(reg))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	edges := make(map[string][2]float64)
	for _, family := range families {
		edges[family.GetName()] = [2]float64{}
		for _, metric := range family.GetMetric() {
			if buckets := metric.GetHistogram().GetBucket(); len(buckets) > 0 {
				edges[family.GetName()] = [2]float64{buckets[0].GetUpperBound(), buckets[len(buckets)-1].GetUpperBound()}
			}
			for _, label := range metric.GetLabel() {
				if strings.Contains(label.GetName(), "tenant") || label.GetName() == "job_id" {
					t.Errorf("%s has the unbounded label %s", family.GetName(), label.GetName())
				}
			}
		}
	}
	want := map[string][2]float64{
		"scheduler_operations_total": {}, "scheduler_operation_duration_seconds": {.001, 10}, "scheduler_errors_total": {},
		"scheduler_jobs_total": {}, "scheduler_failed_jobs_total": {}, "scheduler_cpu_usage_percent": {}, "scheduler_active_connections": {},
		"scheduler_max_connections": {}, "scheduler_pool_timeouts_total": {}, "scheduler_running_executions": {}, "scheduler_active_jobs": {}, "scheduler_executions_total": {}, "scheduler_job_executions_total": {},
		"scheduler_execution_duration_seconds": {.1, 300}, "scheduler_queue_size": {}, "scheduler_backlog_executions": {}, "scheduler_wanted_slots": {}, "scheduler_backlog_oldest_seconds": {}, "scheduler_memory_usage_bytes": {},
		"scheduler_due_lag_seconds": {.001, 60}, "scheduler_dispatch_lateness_seconds": {.001, 60},
		"scheduler_stale_completions_total": {}, "scheduler_output_dropped_lines_total": {}, "scheduler_reclaimed_total": {}, "scheduler_redispatched_total": {}, "scheduler_parked_executions": {}, "scheduler_oldest_snapshot_transactions": {},
		"scheduler_disowned_total": {}, "scheduler_stray_runs": {}, "scheduler_self_fence_total": {}, "scheduler_redis_generation_changes_total": {},
		"scheduler_missed_total": {}, "scheduler_promotion_halted": {}, "scheduler_clock_disagreement_seconds": {},
		"scheduler_batch_size": {1, 512}, "scheduler_build_info": {}, "scheduler_database_round_trips_total": {},
		"scheduler_parked_jobs_total": {}, "scheduler_reconciled_jobs_total": {}, "scheduler_reconcile_differences_total": {},
		"scheduler_lock_acquisitions_total": {}, "scheduler_lock_timeouts_total": {},
		"scheduler_notification_events_total": {}, "scheduler_notification_attempts_total": {}, "scheduler_notification_oldest_seconds": {},
		"scheduler_dead_letters": {}, "scheduler_dead_letters_total": {},
		"scheduler_circuit_breakers_total": {}, "scheduler_objectives": {}, "scheduler_monitors": {}, "scheduler_monitor_hold_seconds": {}, "scheduler_pings_total": {}, "scheduler_held_executions_total": {},
	}
	for name, edge := range want {
		if got, ok := edges[name]; !ok || got != edge {
			t.Errorf("%s: got %v (there: %v), want %v", name, got, ok, edge)
		}
	}
	if len(edges) != len(want) {
		t.Errorf("%d metrics are registered and %d are listed here: %v", len(edges), len(want), edges)
	}
}

func TestMemoryIsPlausible(t *testing.T) {
	t.Parallel()
	if got := memoryInUse(); got < 1<<20 || got > 8<<30 {
		t.Errorf("memory in use is %v bytes", got)
	}
}
