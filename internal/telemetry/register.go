package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// registerWork makes the metrics of what the service does for its users.
func (m *Metrics) registerWork(in promauto.Factory) {
	m.operations = in.NewCounterVec(counter("scheduler_operations_total",
		"Operations done, such as requests and passes, by how they ended."), []string{"operation", "outcome"})
	m.operationTime = in.NewHistogramVec(histogram("scheduler_operation_duration_seconds",
		"How long an operation took.", .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10), []string{"operation"})
	m.errors = in.NewCounterVec(counter("scheduler_errors_total",
		"Operations that failed, by kind of fault."), []string{"operation", "kind"})
	m.executions = in.NewCounterVec(counter("scheduler_executions_total",
		"Finished executions, by how they ended."), []string{"job_type", "status"})
	m.jobExecutions = in.NewCounterVec(counter("scheduler_job_executions_total",
		"The same count as scheduler_executions_total, under the name that some dashboards use."), []string{"job_type", "status"})
	m.executionTime = in.NewHistogram(histogram("scheduler_execution_duration_seconds",
		"How long the last attempt of an execution ran.", .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300))
	m.jobs = in.NewCounterVec(counter("scheduler_jobs_total",
		"Jobs that were created."), []string{"job_type"})
	m.failedJobs = in.NewCounterVec(counter("scheduler_failed_jobs_total",
		"Executions that failed for good: nothing tries them again by itself."), []string{"job_type"})
	m.activeJobs = in.NewGauge(gauge("scheduler_active_jobs",
		"Jobs that are active, of all tenants, as counted each half minute. Every promoter reports the same, so take the maximum."))
	m.running = in.NewGauge(gauge("scheduler_running_executions",
		"Executions that this process runs now."))
	m.queueSize = in.NewGaugeVec(gauge("scheduler_queue_size",
		"Hints that wait in a queue; every process that reports it sees the same queue, so take the maximum."), []string{"queue_name"})
	m.backlog = in.NewGaugeVec(gauge("scheduler_backlog_executions",
		"Active executions: state is running, waiting (they may start) or delayed (they may start later). Every promoter reports the same count, so take the maximum."),
		[]string{"state", "job_type", "queue_name"})
	m.wantedSlots = in.NewGaugeVec(gauge("scheduler_wanted_slots",
		"Slots that the executions of a job type could use: those that run or may start, and jobs due within a minute. Each promoter shows the same number; fleets follow it."), []string{"job_type"})
	m.oldestWait = in.NewGaugeVec(gauge("scheduler_backlog_oldest_seconds",
		"How long the first of the waiting executions has waited. Every promoter reports the same, so take the maximum."), []string{"job_type", "queue_name"})
}

// registerBreakers makes the metrics of circuit breakers.
func (m *Metrics) registerBreakers(in promauto.Factory) {
	m.circuits = in.NewCounterVec(counter("scheduler_circuit_breakers_total",
		"Circuit breakers of tenants' hosts that opened, and that closed because a probe succeeded."), []string{"change"})
	m.heldRuns = in.NewCounter(counter("scheduler_held_executions_total",
		"Claimed executions that were given back because a circuit breaker held their calls back."))
}

// registerNotifications makes the metrics of what tenants are told.
func (m *Metrics) registerNotifications(in promauto.Factory) {
	m.events = in.NewCounterVec(counter("scheduler_notification_events_total",
		"Events for notifications: told, or dropped because too many messages of the tenant wait."), []string{"outcome"})
	m.notifications = in.NewCounterVec(counter("scheduler_notification_attempts_total",
		"Attempts to send a message, by what became of it: delivered, pending (it is tried again) or failed."), []string{"kind", "result"})
	m.oldestNotice = in.NewGauge(gauge("scheduler_notification_oldest_seconds",
		"How long the first of the messages has waited that are to be sent now. Every promoter reports the same, so take the maximum."))
}

// registerDeadLetters makes the metrics of executions that failed and wait for somebody, and of
// objectives that failures endanger.
func (m *Metrics) registerDeadLetters(in promauto.Factory) {
	m.deadLetters = in.NewGauge(gauge("scheduler_dead_letters",
		"Dead letters that wait for a replay or a discard, counted each minute. Every promoter reports the same, so take the maximum."))
	m.deadLetterBy = in.NewCounterVec(counter("scheduler_dead_letters_total",
		"Dead letters by what became of them: made, replayed, discarded, or dropped because their tenant had too many."), []string{"event"})
	m.monitors = in.NewGaugeVec(gauge("scheduler_monitors",
		"Monitors of tenants by status, counted each half minute. Every promoter reports the same, so take the maximum."), []string{"status"})
	m.monitorHold = in.NewGauge(gauge("scheduler_monitor_hold_seconds",
		"For how long alerts of monitors are held back, because pings may be lost by our fault: looked at each half minute, 0 while they are not. Every promoter reports the same, so take the maximum."))
	m.pings = in.NewCounterVec(counter("scheduler_pings_total", "Pings of monitors that were stored, by what they say."), []string{"signal"})
	m.objectives = in.NewGaugeVec(gauge("scheduler_objectives",
		"Objectives of tenants in danger, counted each half minute: fast_burn (over an hour), slow_burn (over six) and exhausted. Every promoter reports the same, so take the maximum."), []string{"state"})
}

// registerProtocol makes the metrics of the way from the scheduled time to the
// recorded outcome.
func (m *Metrics) registerProtocol(in promauto.Factory) {
	m.dueLag = in.NewHistogram(histogram("scheduler_due_lag_seconds",
		"From a scheduled time to the commit of its execution.", latenessBuckets()...))
	m.lateness = in.NewHistogram(histogram("scheduler_dispatch_lateness_seconds",
		"From the time at which an attempt may start to its start.", latenessBuckets()...))
	m.outputDropped = in.NewCounter(counter("scheduler_output_dropped_lines_total",
		"Lines of output that were not kept, because their attempt wrote more than is kept of one, or because the worker held too much."))
	m.stale = in.NewCounter(counter("scheduler_stale_completions_total",
		"Results refused because the execution had been reassigned."))
	m.reclaimed = in.NewCounterVec(counter("scheduler_reclaimed_total",
		"Executions taken from a worker."), []string{"reason"})
	m.redispatched = in.NewCounterVec(counter("scheduler_redispatched_total",
		"Executions that workers look for because their hint did not come or is lost."), []string{"reason"})
	m.parked = in.NewGauge(gauge("scheduler_parked_executions",
		"Executions whose end the database refuses to store; every process that reports it sees the same, so take the maximum."))
	m.oldSnapshot = in.NewGauge(gauge("scheduler_oldest_snapshot_transactions",
		"Transactions that began since the oldest snapshot that keeps PostgreSQL from removing dead rows; every promoter sees the same, so take the maximum."))
	m.disowned = in.NewCounter(counter("scheduler_disowned_total",
		"Executions that the database gave to a worker which does not run them."))
	m.selfFence = in.NewCounter(counter("scheduler_self_fence_total",
		"Times a worker stopped itself because its heartbeats went unanswered."))
	m.strays = in.NewGauge(gauge("scheduler_stray_runs",
		"Runs that did not end when they had to, were given up and still go on: restart the worker when it grows."))
	m.generations = in.NewCounter(counter("scheduler_redis_generation_changes_total",
		"Times Redis was found to have lost what it held."))
	m.missed = in.NewCounter(counter("scheduler_missed_total",
		"Scheduled times recorded as missed instead of run."))
	m.parkedJobs = in.NewCounterVec(counter("scheduler_parked_jobs_total",
		"Jobs made inactive because they cannot be promoted: their status says why."), []string{"reason"})
	m.reconciled = in.NewCounter(counter("scheduler_reconciled_jobs_total",
		"Jobs whose scheduled times of the last hour were compared with their rows."))
	m.differing = in.NewCounter(counter("scheduler_reconcile_differences_total",
		"Of those, jobs with more or fewer rows than scheduled times: a defect."))
	m.halted = in.NewGauge(gauge("scheduler_promotion_halted",
		"1 while promotion stands still because clocks disagree."))
	m.disagreement = in.NewGauge(gauge("scheduler_clock_disagreement_seconds",
		"The database's clock minus this process's."))
	m.batchSize = in.NewHistogramVec(histogram("scheduler_batch_size",
		"Rows written by one statement.", 1, 2, 4, 8, 16, 32, 64, 128, 256, 512), []string{"kind"})
	m.roundTrips = in.NewCounterVec(counter("scheduler_database_round_trips_total",
		"Round trips of promoters and workers to the database, by the statement that leads."), []string{"statement"})
	m.locks = in.NewCounterVec(counter("scheduler_lock_acquisitions_total",
		"Attempts to take a lease: acquired, held by another, or error."), []string{"result"})
	m.lockTimeouts = in.NewCounter(counter("scheduler_lock_timeouts_total",
		"Attempts to take a lease that the database did not answer in time, and leases that ran out while they were held."))
}

// latenessBuckets run from 1 ms to 60 s, close together where the targets
// stand (25 and 50 ms, 100 ms, 1 s).
func latenessBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60}
}

func counter(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Name: name, Help: help}
}

func gauge(name, help string) prometheus.GaugeOpts {
	return prometheus.GaugeOpts{Name: name, Help: help}
}

func histogram(name, help string, buckets ...float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
}
