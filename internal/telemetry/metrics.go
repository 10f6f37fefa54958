package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/scheduler-service/scheduler/internal/version"
)

// Metrics is every number that the processes count, one method per event. All
// processes make the whole of it, so that one dashboard and one set of rules
// fits each; what a process never does stays at zero.
//
// No label takes a tenant, a job or any other text that a caller chose: each
// has a handful of values that the code names.
type Metrics struct {
	operations    *prometheus.CounterVec
	operationTime *prometheus.HistogramVec
	errors        *prometheus.CounterVec
	executions    *prometheus.CounterVec
	jobExecutions *prometheus.CounterVec
	executionTime prometheus.Histogram
	jobs          *prometheus.CounterVec
	failedJobs    *prometheus.CounterVec
	activeJobs    prometheus.Gauge
	running       prometheus.Gauge
	queueSize     *prometheus.GaugeVec
	backlog       *prometheus.GaugeVec
	wantedSlots   *prometheus.GaugeVec
	oldestWait    *prometheus.GaugeVec
	dueLag        prometheus.Histogram
	lateness      prometheus.Histogram
	stale         prometheus.Counter
	outputDropped prometheus.Counter
	reclaimed     *prometheus.CounterVec
	redispatched  *prometheus.CounterVec
	parked        prometheus.Gauge
	oldSnapshot   prometheus.Gauge
	disowned      prometheus.Counter
	selfFence     prometheus.Counter
	strays        prometheus.Gauge
	generations   prometheus.Counter
	missed        prometheus.Counter
	halted        prometheus.Gauge
	disagreement  prometheus.Gauge
	parkedJobs    *prometheus.CounterVec
	reconciled    prometheus.Counter
	differing     prometheus.Counter
	batchSize     *prometheus.HistogramVec
	roundTrips    *prometheus.CounterVec
	locks         *prometheus.CounterVec
	lockTimeouts  prometheus.Counter
	events        *prometheus.CounterVec
	notifications *prometheus.CounterVec
	oldestNotice  prometheus.Gauge
	deadLetters   prometheus.Gauge
	deadLetterBy  *prometheus.CounterVec
	objectives    *prometheus.GaugeVec
	monitors      *prometheus.GaugeVec
	monitorHold   prometheus.Gauge
	pings         *prometheus.CounterVec
	circuits      *prometheus.CounterVec
	heldRuns      prometheus.Counter
	pools         *pools
}

// Registry is where the metrics of a process stand.
type Registry = prometheus.Registry

// NewRegistry makes an empty registry with the numbers of the Go runtime and
// of the process itself.
func NewRegistry() *Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return reg
}

// NewMetrics registers the metrics. It panics when the registry has them
// already, since two sets in one process would each count half.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{pools: &pools{}}
	m.registerWork(promauto.With(reg))
	m.registerProtocol(promauto.With(reg))
	m.registerNotifications(promauto.With(reg))
	m.registerDeadLetters(promauto.With(reg))
	m.registerBreakers(promauto.With(reg))
	m.fromZero()
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "scheduler_memory_usage_bytes",
		Help: "Memory that the Go runtime holds from the system.",
	}, memoryInUse)
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "scheduler_cpu_usage_percent",
		Help: "Share of one core that the process took since it was asked last; more than 100 where it took several.",
	}, (&cpu{}).percent)
	reg.MustRegister(m.pools)
	promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "scheduler_build_info",
		Help: "Always 1; the label says which version of the product this process is.",
	}, []string{"version"}).WithLabelValues(version.String()).Set(1)
	return m
}

// KnowTypes has counters by type begin at zero. A counter that begins at one has never
// increased, as rules of Prometheus see it.
func (m *Metrics) KnowTypes(types []string) {
	for _, jobType := range types {
		m.jobs.WithLabelValues(jobType)
		m.failedJobs.WithLabelValues(jobType)
		for _, status := range []string{"completed", "failed", "cancelled"} {
			m.executions.WithLabelValues(jobType, status)
			m.jobExecutions.WithLabelValues(jobType, status)
		}
	}
}

// fromZero has counters begin at zero whose labels are known.
func (m *Metrics) fromZero() {
	for counters, labels := range map[*prometheus.CounterVec][]string{
		m.reclaimed:    {"worker_dead", "deadline"},
		m.redispatched: {"lost", "redis_generation"},
		m.parkedJobs:   {"refused", "slow", "schedule", "panic"},
		m.locks:        {"acquired", "held", "error"},
		m.events:       {"told", "dropped"},
		m.deadLetterBy: {"made", "replayed", "discarded", "dropped"},
		m.circuits:     {"opened", "closed"},
	} {
		for _, label := range labels {
			counters.WithLabelValues(label)
		}
	}
}

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

// Operation counts one operation, such as a request or a pass, how it ended
// ("ok", "error") and how long it took.
func (m *Metrics) Operation(operation, outcome string, took time.Duration) {
	m.operations.WithLabelValues(operation, outcome).Inc()
	m.operationTime.WithLabelValues(operation).Observe(took.Seconds())
}

// Failure counts an operation that failed, by the name of its fault.Kind.
func (m *Metrics) Failure(operation, kind string) {
	m.errors.WithLabelValues(operation, kind).Inc()
}

// ExecutionFinished counts an execution that reached a terminal status. ran is
// how long its last attempt took, zero if it never started.
func (m *Metrics) ExecutionFinished(jobType, status string, ran time.Duration) {
	m.executions.WithLabelValues(jobType, status).Inc()
	m.jobExecutions.WithLabelValues(jobType, status).Inc()
	if status == "failed" {
		m.failedJobs.WithLabelValues(jobType).Inc()
	}
	if ran > 0 {
		m.executionTime.Observe(ran.Seconds())
	}
}

// JobCreated counts a new job.
func (m *Metrics) JobCreated(jobType string) { m.jobs.WithLabelValues(jobType).Inc() }

// SetActiveJobs says how many jobs are active.
func (m *Metrics) SetActiveJobs(n int64) { m.activeJobs.Set(float64(n)) }

// SetRunning says how many executions this process runs now.
func (m *Metrics) SetRunning(n int) { m.running.Set(float64(n)) }

// SetBacklog says how many active executions are in a state.
func (m *Metrics) SetBacklog(state, jobType, queue string, n int64) {
	m.backlog.WithLabelValues(state, jobType, queue).Set(float64(n))
}

// SetWantedSlots says how many slots the executions of a type could use.
func (m *Metrics) SetWantedSlots(jobType string, n int64) {
	m.wantedSlots.WithLabelValues(jobType).Set(float64(n))
}

// SetOldestWait says how long the first waiting execution has waited.
func (m *Metrics) SetOldestWait(jobType, queue string, waited time.Duration) {
	m.oldestWait.WithLabelValues(jobType, queue).Set(waited.Seconds())
}

// SetQueueSize says how many hints wait in a queue.
func (m *Metrics) SetQueueSize(queue string, n int) {
	m.queueSize.WithLabelValues(queue).Set(float64(n))
}

// DueLag notes how long after its scheduled time an execution was committed.
func (m *Metrics) DueLag(lag time.Duration) { m.dueLag.Observe(lag.Seconds()) }

// DispatchLateness notes how long after it was allowed to an attempt started.
func (m *Metrics) DispatchLateness(late time.Duration) { m.lateness.Observe(late.Seconds()) }

// CircuitOpened counts a circuit breaker that opened.
func (m *Metrics) CircuitOpened() { m.circuits.WithLabelValues("opened").Inc() }

// CircuitClosed counts a circuit breaker that a probe closed.
func (m *Metrics) CircuitClosed() { m.circuits.WithLabelValues("closed").Inc() }

// ExecutionsHeld counts executions that circuit breakers held back.
func (m *Metrics) ExecutionsHeld(n int) { m.heldRuns.Add(float64(n)) }

// OutputDropped counts lines of output that were not kept.
func (m *Metrics) OutputDropped(n int) { m.outputDropped.Add(float64(n)) }

// StaleCompletions counts results that the fence refused.
func (m *Metrics) StaleCompletions(n int) { m.stale.Add(float64(n)) }

// Reclaimed counts executions taken from a worker ("worker_dead", "deadline").
func (m *Metrics) Reclaimed(reason string, n int) {
	m.reclaimed.WithLabelValues(reason).Add(float64(n))
}

// Redispatched counts executions that went to the pool, where workers look for
// them, because their hint did not come ("lost") or went with Redis
// ("redis_generation").
func (m *Metrics) Redispatched(reason string, n int) {
	m.redispatched.WithLabelValues(reason).Add(float64(n))
}

// SetParked says how many executions are parked.
func (m *Metrics) SetParked(n int) { m.parked.Set(float64(n)) }

// SetOldestSnapshot says how many transactions began since the oldest snapshot.
func (m *Metrics) SetOldestSnapshot(transactions int64) { m.oldSnapshot.Set(float64(transactions)) }

// Disowned counts rows given back because the worker named in them does not
// run them.
func (m *Metrics) Disowned(n int) { m.disowned.Add(float64(n)) }

// SetStrays tells how many runs go on that were given up.
func (m *Metrics) SetStrays(n int) { m.strays.Set(float64(n)) }

// SelfFenced counts that this worker stopped itself.
func (m *Metrics) SelfFenced() { m.selfFence.Inc() }

// RedisGenerationChanged counts that Redis was found empty.
func (m *Metrics) RedisGenerationChanged() { m.generations.Inc() }

// Missed counts scheduled times recorded as missed.
func (m *Metrics) Missed(n int) { m.missed.Add(float64(n)) }

// JobParked counts a job that was made inactive because it cannot be promoted: the
// database refuses its rows (refused), it takes too long (slow), its schedule
// cannot be read (schedule) or makes the promoter panic (panic).
func (m *Metrics) JobParked(reason string) { m.parkedJobs.WithLabelValues(reason).Inc() }

// Reconciled counts jobs whose scheduled times were compared with their rows, and
// how many of them differed.
func (m *Metrics) Reconciled(jobs, differing int) {
	m.reconciled.Add(float64(jobs))
	m.differing.Add(float64(differing))
}

// SetPromotionHalted says whether promotion stands still.
func (m *Metrics) SetPromotionHalted(halted bool) {
	if halted {
		m.halted.Set(1)
		return
	}
	m.halted.Set(0)
}

// SetClockDisagreement notes the database's clock minus this process's.
func (m *Metrics) SetClockDisagreement(d time.Duration) { m.disagreement.Set(d.Seconds()) }

// Batch notes how many rows one statement wrote ("promote", "claim",
// "complete").
func (m *Metrics) Batch(kind string, rows int) {
	m.batchSize.WithLabelValues(kind).Observe(float64(rows))
}

// RoundTrip counts a round trip to the database, by the name of the statement.
func (m *Metrics) RoundTrip(statement string) { m.roundTrips.WithLabelValues(statement).Inc() }

// LockAcquired counts an attempt to take a lease ("acquired", "held", "error").
func (m *Metrics) LockAcquired(result string) { m.locks.WithLabelValues(result).Inc() }

// LockTimedOut counts an attempt to take a lease that the database did not
// answer in time, or a lease that ran out while it was held.
func (m *Metrics) LockTimedOut() { m.lockTimeouts.Inc() }

// EventsTold counts events for notifications.
func (m *Metrics) EventsTold(told, dropped int) {
	m.events.WithLabelValues("told").Add(float64(told))
	m.events.WithLabelValues("dropped").Add(float64(dropped))
}

// NotificationSent counts an attempt to send a message. Both labels are words of ours.
func (m *Metrics) NotificationSent(kind, result string) {
	m.notifications.WithLabelValues(kind, result).Inc()
}

// SetOldestNotification says how long the first message has waited that is to be sent now.
func (m *Metrics) SetOldestNotification(age time.Duration) { m.oldestNotice.Set(age.Seconds()) }

// SetDeadLetters says how many dead letters wait.
func (m *Metrics) SetDeadLetters(n int64) { m.deadLetters.Set(float64(n)) }

// SetMonitors says how many monitors have a status.
func (m *Metrics) SetMonitors(status string, n int64) {
	m.monitors.WithLabelValues(status).Set(float64(n))
}

// SetMonitorHold says for how many seconds alerts of monitors are held back.
func (m *Metrics) SetMonitorHold(seconds int64) { m.monitorHold.Set(float64(seconds)) }

// Ping counts a ping that was stored.
func (m *Metrics) Ping(signal string) { m.pings.WithLabelValues(signal).Inc() }

// SetObjectives says how many objectives burn their budgets fast and slowly, and have none left.
func (m *Metrics) SetObjectives(fast, slow, exhausted int64) {
	m.objectives.WithLabelValues("fast_burn").Set(float64(fast))
	m.objectives.WithLabelValues("slow_burn").Set(float64(slow))
	m.objectives.WithLabelValues("exhausted").Set(float64(exhausted))
}

// DeadLetters counts what became of dead letters ("made", "replayed", "discarded", "dropped").
func (m *Metrics) DeadLetters(event string, n int) {
	m.deadLetterBy.WithLabelValues(event).Add(float64(n))
}
