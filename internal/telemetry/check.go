package telemetry

import "github.com/prometheus/client_golang/prometheus"

// checks tells at each scrape what the readiness checks say at that moment.
type checks struct {
	ready *prometheus.Desc
	ask   func() map[string]error
}

// NewChecks makes the metric of the readiness checks. The function asks all of them, by name,
// and bounds itself: a scrape waits for it.
func NewChecks(ask func() map[string]error) prometheus.Collector {
	return checks{ask: ask, ready: prometheus.NewDesc("seckill_check_ready",
		"1 for each readiness check that passes as the metrics are read, else 0.", []string{"check"}, nil)}
}

// Describe implements prometheus.Collector.
func (c checks) Describe(ch chan<- *prometheus.Desc) { ch <- c.ready }

// Collect implements prometheus.Collector.
func (c checks) Collect(ch chan<- prometheus.Metric) {
	for name, err := range c.ask() {
		ready := 1.0
		if err != nil {
			ready = 0
		}
		ch <- prometheus.MustNewConstMetric(c.ready, prometheus.GaugeValue, ready, name)
	}
}
