package telemetry

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Pool is how many connections of a pool are in use, how many may be, and how often,
// since the start, none was to be had in time.
type Pool struct{ InUse, Max, Timeouts int }

// WatchPool has the connections of a pool counted at each scrape. store is postgres or
// redis, pool says whose it is.
func (m *Metrics) WatchPool(store, pool string, read func() Pool) {
	m.pools.mu.Lock()
	defer m.pools.mu.Unlock()
	m.pools.all = append(m.pools.all, watched{store, pool, read})
}

// pools are the pools of a process. It has as many as its parts open.
type pools struct {
	mu  sync.Mutex
	all []watched
}

type watched struct {
	store, pool string
	read        func() Pool
}

func (p *pools) descriptions() (inUse, most, late *prometheus.Desc) {
	labels := []string{"store", "pool"}
	return prometheus.NewDesc("scheduler_active_connections", "Connections of a pool that are in use.", labels, nil),
		prometheus.NewDesc("scheduler_max_connections", "Connections that a pool may have at the moment.", labels, nil),
		prometheus.NewDesc("scheduler_pool_timeouts_total", "Times that a pool gave no connection, or the store no answer, in time.", labels, nil)
}

// Describe implements prometheus.Collector.
func (p *pools) Describe(to chan<- *prometheus.Desc) {
	inUse, most, late := p.descriptions()
	to <- inUse
	to <- most
	to <- late
}

// Collect implements prometheus.Collector.
func (p *pools) Collect(to chan<- prometheus.Metric) {
	inUse, most, late := p.descriptions()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.all {
		now := w.read()
		to <- prometheus.MustNewConstMetric(inUse, prometheus.GaugeValue, float64(now.InUse), w.store, w.pool)
		to <- prometheus.MustNewConstMetric(most, prometheus.GaugeValue, float64(now.Max), w.store, w.pool)
		to <- prometheus.MustNewConstMetric(late, prometheus.CounterValue, float64(now.Timeouts), w.store, w.pool)
	}
}
