package app

import (
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/retention"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// backlog is how much may wait of tenants that have no limits of their own.
func (p process) backlog() func() tenant.Backlog {
	all, ofJob := p.live.Int("TENANT_MAX_WAITING"), p.live.Int("JOB_MAX_WAITING")
	return func() tenant.Backlog { return tenant.Backlog{Max: all(), MaxPerJob: ofJob()} }
}

// term is how long executions are kept.
func (p process) term() func() partition.Term {
	months, days := p.live.Int("RETENTION_MONTHS"), p.live.Int("RETENTION_DAYS")
	return func() partition.Term { return partition.Term{Months: months(), Days: days()} }
}

// spans are what their partitions hold.
func (p process) spans() partition.Spans {
	term := p.term()
	return func() partition.Span { return term().Span() }
}

// kept sets how long things are kept.
func (p process) kept(c *retention.Config) {
	c.Executions, c.MetricDays = p.term()(), p.live.Int("METRICS_RETENTION_DAYS")()
	c.OutputDays, c.AuditDays = p.live.Int("OUTPUT_RETENTION_DAYS")(), p.live.Int("AUDIT_RETENTION_DAYS")()
}

// defaultLimits are those of tenants that have none of their own.
func (p process) defaultLimits() func() tenant.Limits {
	requests, quotas := p.live.Int("TENANT_REQUESTS_PER_SECOND"), tenant.DefaultQuotas()
	jobs, running := p.live.Int("TENANT_MAX_JOBS"), p.live.Int("TENANT_MAX_RUNNING")
	backlog := p.backlog()
	return func() tenant.Limits {
		limits, most, waiting := quotas, requests(), backlog()
		limits.RequestsPerSecond = &most
		limits.MaxJobs, limits.MaxRunning = bound(jobs()), bound(running())
		limits.MaxWaiting, limits.MaxWaitingPerJob = bound(waiting.Max), bound(waiting.MaxPerJob)
		return limits
	}
}

// bound is a limit of the configuration, where 0 is any number.
func bound(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}
