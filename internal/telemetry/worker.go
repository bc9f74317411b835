package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Worker are the counters of what happens behind the buyers' backs: persisting,
// settling, reconciling and rebuilding.
type Worker struct {
	persisted  *prometheus.CounterVec
	failed     *prometheus.CounterVec
	buried     prometheus.Counter
	stuck      prometheus.Counter
	unsettled  prometheus.Counter
	reconciled *prometheus.CounterVec
	rebuilds   *prometheus.CounterVec
	rebuilding prometheus.Gauge
	rebuildFor prometheus.Histogram
	elected    prometheus.Gauge
	waiting    prometheus.Gauge
	drift      *prometheus.GaugeVec
}

// NewWorker registers the metrics.
func NewWorker(registerer prometheus.Registerer) *Worker {
	counters := func(name, label, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &Worker{
		persisted: counters("seckill_reservations_persisted_total", "status", "Reservations that became a row, by its status."),
		failed:    counters("seckill_orders_failed_total", "reason", "Orders that were admitted and then failed."),
		buried:    counter("seckill_orders_buried_total", "Orders that went to the dead letters."),
		stuck:     counter("seckill_orders_buried_stuck_total", "Dead letters whose failed row could not be written: their messages come again, and an operator must look."),
		unsettled: counter("seckill_settle_failures_total", "Calls to hot copies that failed after a commit; the reconciler repeats them."),
		reconciled: counters("seckill_reconciled_total", "action",
			"What the reconciler put right, by what it did: settled, released, republished, relayed, applied, intent, rebuild."),
		rebuilds:   counters("seckill_rebuilds_total", "result", "Rebuilds of hot copies, by result: done, superseded, failed."),
		rebuilding: gauge("seckill_rebuilding", "Rebuilds under way on this instance."),
		rebuildFor: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seckill_rebuild_seconds", Help: "How long a voucher's rebuild took.",
			// From an empty voucher to one that waits for a long queue (seconds).
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2, 3, 5, 10, 30, 60, 300},
		}),
		elected: gauge("seckill_reconciler_elected", "1 on the instance that reconciles."),
		waiting: gauge("seckill_releases_waiting", "Returned units that a hot copy does not know of yet, as last seen."),
		drift: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "seckill_drifted_orders", Help: "Orders that did not add up at the latest check of a voucher, where there were any.",
		}, []string{"voucher_id"}),
	}
	registerer.MustRegister(m.persisted, m.failed, m.buried, m.stuck, m.unsettled, m.reconciled, m.rebuilds,
		m.rebuilding, m.rebuildFor, m.elected, m.waiting, m.drift)
	return m
}

// Persisted counts reservations that have a row now.
func (m *Worker) Persisted(status string, orders int) {
	m.persisted.WithLabelValues(status).Add(float64(orders))
}

// Failed counts an order that was admitted in vain.
func (m *Worker) Failed(reason string) { m.failed.WithLabelValues(reason).Inc() }

// Buried counts a dead letter.
func (m *Worker) Buried() { m.buried.Inc() }

// Stuck counts a dead letter whose failed row could not be written, once.
func (m *Worker) Stuck() { m.stuck.Inc() }

// Unsettled counts a call to a hot copy that failed after a commit.
func (m *Worker) Unsettled() { m.unsettled.Inc() }

// Reconciled counts what the reconciler did.
func (m *Worker) Reconciled(action string, times int) {
	m.reconciled.WithLabelValues(action).Add(float64(times))
}

// RebuildBegan counts a rebuild under way; the function ends it.
func (m *Worker) RebuildBegan() func(result string) {
	began := time.Now()
	m.rebuilding.Inc()
	return func(result string) {
		m.rebuilding.Dec()
		m.rebuilds.WithLabelValues(result).Inc()
		if result == "done" {
			m.rebuildFor.Observe(time.Since(began).Seconds())
		}
	}
}

// Elected says whether this instance reconciles.
func (m *Worker) Elected(elected bool) {
	if elected {
		m.elected.Set(1)
		return
	}
	m.elected.Set(0)
}

// ReleasesWaiting says how many returned units wait for their hot copies.
func (m *Worker) ReleasesWaiting(releases int) { m.waiting.Set(float64(releases)) }

// Drift says how many orders of a voucher do not add up. Vouchers without any
// have no series, so that their number does not grow without end.
func (m *Worker) Drift(voucherID string, orders int) {
	if orders == 0 {
		m.drift.DeleteLabelValues(voucherID)
		return
	}
	m.drift.WithLabelValues(voucherID).Set(float64(orders))
}
