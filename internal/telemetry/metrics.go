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
	activeJobs    prometheus.Gauge
	queueSize     *prometheus.GaugeVec
	backlog       *prometheus.GaugeVec
	oldestWait    *prometheus.GaugeVec
	dueLag        prometheus.Histogram
	lateness      prometheus.Histogram
	stale         prometheus.Counter
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
	m := &Metrics{}
	m.registerWork(promauto.With(reg))
	m.registerProtocol(promauto.With(reg))
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "scheduler_memory_usage_bytes",
		Help: "Memory that the Go runtime holds from the system.",
	}, memoryInUse)
	promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "scheduler_build_info",
		Help: "Always 1; the label says which version of the product this process is.",
	}, []string{"version"}).WithLabelValues(version.String()).Set(1)
	return m
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
	m.activeJobs = in.NewGauge(gauge("scheduler_active_jobs",
		"Executions that this process runs now."))
	m.queueSize = in.NewGaugeVec(gauge("scheduler_queue_size",
		"Hints that wait in a queue; every process that reports it sees the same queue, so take the maximum."), []string{"queue_name"})
	m.backlog = in.NewGaugeVec(gauge("scheduler_backlog_executions",
		"Active executions: state is running, waiting (they may start) or delayed (they may start later). Every promoter reports the same count, so take the maximum."),
		[]string{"state", "job_type", "queue_name"})
	m.oldestWait = in.NewGaugeVec(gauge("scheduler_backlog_oldest_seconds",
		"How long the first of the waiting executions has waited. Every promoter reports the same, so take the maximum."), []string{"job_type", "queue_name"})
}

// registerProtocol makes the metrics of the way from the scheduled time to the
// recorded outcome.
func (m *Metrics) registerProtocol(in promauto.Factory) {
	m.dueLag = in.NewHistogram(histogram("scheduler_due_lag_seconds",
		"From a scheduled time to the commit of its execution.", latenessBuckets()...))
	m.lateness = in.NewHistogram(histogram("scheduler_dispatch_lateness_seconds",
		"From the time at which an attempt may start to its start.", latenessBuckets()...))
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
	if ran > 0 {
		m.executionTime.Observe(ran.Seconds())
	}
}

// SetActiveJobs says how many executions this process runs now.
func (m *Metrics) SetActiveJobs(n int) { m.activeJobs.Set(float64(n)) }

// SetBacklog says how many active executions are in a state.
func (m *Metrics) SetBacklog(state, jobType, queue string, n int64) {
	m.backlog.WithLabelValues(state, jobType, queue).Set(float64(n))
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
