// Package telemetry holds what the service counts about itself.
package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the counters of one instance, apart from those of HTTP.
type Metrics struct {
	placed     *prometheus.CounterVec
	local      prometheus.Counter
	placing    *prometheus.HistogramVec
	batch      prometheus.Histogram
	lockWait   prometheus.Histogram
	unknown    prometheus.Counter
	cacheReads *prometheus.CounterVec
}

// New registers the metrics.
func New(registerer prometheus.Registerer) *Metrics {
	// From a local answer to the longest one the contract allows (seconds).
	buckets := []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 6}
	m := &Metrics{
		placed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seckill_orders_placed_total",
			Help: "Attempts to buy, by what became of them (OK or the problem's code).",
		}, []string{"outcome"}),
		local: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seckill_orders_answered_locally_total",
			Help: "Attempts to buy that were answered from this instance's memory.",
		}),
		placing: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "seckill_order_place_seconds", Buckets: buckets,
			Help: "How long an attempt to buy took, by what became of it.",
		}, []string{"outcome"}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seckill_order_batch_size", Buckets: prometheus.ExponentialBuckets(1, 2, 10),
			Help: "Orders that shared one transaction.",
		}),
		lockWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seckill_lock_wait_seconds", Buckets: buckets,
			Help: "How long the user's lock took to get.",
		}),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seckill_orders_unknown_total",
			Help: "Orders whose client was answered before it was known what became of them.",
		}),
		cacheReads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seckill_voucher_copy_reads_total",
			Help: "Reads of this instance's copies of vouchers, by hit or miss.",
		}, []string{"result"}),
	}
	registerer.MustRegister(m.placed, m.local, m.placing, m.batch, m.lockWait, m.unknown, m.cacheReads)
	return m
}

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

// CacheRead counts one read of a local copy.
func (m *Metrics) CacheRead(hit bool) {
	result := "miss"
	if hit {
		result = "hit"
	}
	m.cacheReads.WithLabelValues(result).Inc()
}
