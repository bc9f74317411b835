// Package telemetry holds what the service counts about itself.
package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the counters of one instance, without those of HTTP.
type Metrics struct {
	placed   *prometheus.CounterVec
	local    prometheus.Counter
	placing  *prometheus.HistogramVec
	batch    prometheus.Histogram
	lockWait prometheus.Histogram
	unknown  prometheus.Counter
	reads    *prometheus.CounterVec
}

// New registers the metrics.
func New(registerer prometheus.Registerer) *Metrics {
	// From a local answer to the longest one the contract allows (seconds).
	buckets := []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 6}
	r := registry{registerer}
	m := &Metrics{
		placed:   r.counters("seckill_orders_placed_total", "outcome", "Attempts to buy, by what became of them (OK or the problem's code).", "OK"),
		local:    r.counter("seckill_orders_answered_locally_total", "Attempts to buy that were answered from this instance's memory."),
		placing:  r.histograms("seckill_order_place_seconds", "outcome", "How long an attempt to buy took, by what became of it.", buckets),
		batch:    r.histogram("seckill_order_batch_size", "Orders that shared one transaction.", sizes()),
		lockWait: r.histogram("seckill_lock_wait_seconds", "How long the user's lock took to get.", buckets),
		unknown:  r.counter("seckill_orders_unknown_total", "Orders whose client was answered before it was known what became of them."),
		reads:    r.counters("seckill_voucher_copy_reads_total", "result", "Reads of this instance's copies of vouchers, by hit or miss.", "hit", "miss"),
	}
	m.placing.WithLabelValues("OK") // from zero, see registry.counters
	return m
}

// registry makes metrics and registers them.
type registry struct{ prometheus.Registerer }

func (r registry) counter(name, help string) prometheus.Counter {
	return registered(r, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

// counters makes a counter for each value of a label. Those that are known begin at zero: of a
// series that is born with 1, Prometheus sees no increase.
func (r registry) counters(name, label, help string, known ...string) *prometheus.CounterVec {
	vec := registered(r, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label}))
	for _, value := range known {
		vec.WithLabelValues(value)
	}
	return vec
}

func (r registry) gauge(name, help string) prometheus.Gauge {
	return registered(r, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

func (r registry) gauges(name, label, help string) *prometheus.GaugeVec {
	return registered(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label}))
}

func (r registry) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return registered(r, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}))
}

func (r registry) histograms(name, label, help string, buckets []float64) *prometheus.HistogramVec {
	return registered(r, prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{label}))
}

func registered[C prometheus.Collector](r registry, metric C) C {
	r.MustRegister(metric)
	return metric
}

// sizes are the buckets of orders that were handled together: 500 at the most.
func sizes() []float64 { return prometheus.ExponentialBuckets(1, 2, 10) }

// Placed counts one attempt to buy by its outcome.
func (m *Metrics) Placed(outcome string, took time.Duration) {
	m.placed.WithLabelValues(outcome).Inc()
	m.placing.WithLabelValues(outcome).Observe(took.Seconds())
}

// AnsweredLocally counts an attempt that needed no network.
func (m *Metrics) AnsweredLocally() { m.local.Inc() }

// Batch counts one transaction's orders.
func (m *Metrics) Batch(orders int) { m.batch.Observe(float64(orders)) }

// LockWaited counts the wait for one user's lock.
func (m *Metrics) LockWaited(took time.Duration) { m.lockWait.Observe(took.Seconds()) }

// Unknown counts an order that was answered before it was decided.
func (m *Metrics) Unknown() { m.unknown.Inc() }

// CacheRead counts one read of a cache entry.
func (m *Metrics) CacheRead(hit bool) {
	result := "miss"
	if hit {
		result = "hit"
	}
	m.reads.WithLabelValues(result).Inc()
}
