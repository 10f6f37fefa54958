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
