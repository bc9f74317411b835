package telemetry

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/model"
)

// Worker are the counters of what happens behind the requests: persisting, settling,
// reconciling and rebuilding.
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
	waiting    prometheus.Gauge
	drift      *prometheus.GaugeVec

	mu      sync.Mutex
	drifted map[string]bool // the vouchers that have a series of it
}

// NewWorker registers the metrics.
func NewWorker(registerer prometheus.Registerer) *Worker {
	r := registry{registerer}
	return &Worker{
		persisted: r.counters("seckill_reservations_persisted_total", "status", "Reservations that became a row, by its status.",
			string(model.OrderUnpaid), string(model.OrderFailed)),
		failed: r.counters("seckill_orders_failed_total", "reason", "Orders that were admitted and then failed.",
			model.ReasonSoldOut, model.ReasonAlreadyOrdered, model.ReasonSuperseded, model.ReasonUnprocessable),
		buried: r.counter("seckill_orders_buried_total", "Orders that went to the dead letters."),
		stuck: r.counter("seckill_orders_buried_stuck_total",
			"Dead letters whose failed row could not be written: their messages come again, and an operator must look."),
		unsettled: r.counter("seckill_settle_failures_total", "Calls to hot copies that failed after a commit; the reconciler repeats them."),
		reconciled: r.counters("seckill_reconciled_total", "action",
			"What the reconciler put right, by what it did: settled, republished, relayed, applied, intent, rebuild.",
			"settled", "republished", "relayed", "applied", "intent", "rebuild"),
		rebuilds:   r.counters("seckill_rebuilds_total", "result", "Rebuilds of hot copies, by result: done, superseded, failed.", "done", "superseded", "failed"),
		rebuilding: r.gauge("seckill_rebuilding", "Rebuilds under way on this instance."),
		rebuildFor: r.histogram("seckill_rebuild_seconds", "How long a voucher's rebuild took.",
			// From an empty voucher to one that waits for a long queue (seconds).
			[]float64{.01, .05, .1, .25, .5, 1, 2, 3, 5, 10, 30, 60, 300}),
		waiting: r.gauge("seckill_releases_waiting", "Returned units that a hot copy does not know of yet, as last seen."),
		drifted: map[string]bool{},
		drift: r.gauges("seckill_drifted_orders", "voucher_id",
			"Orders that did not add up at the latest check of a voucher, where there were any."),
	}
}

// Persisted counts reservations that have a row now.
func (m *Worker) Persisted(status string, orders int) {
	m.persisted.WithLabelValues(status).Add(float64(orders))
}

// Failed counts an order that was admitted and then failed.
func (m *Worker) Failed(reason string) { m.failed.WithLabelValues(reason).Inc() }

// Buried counts a dead letter.
func (m *Worker) Buried() { m.buried.Inc() }

// Stuck counts a dead letter without a failed row, once: the row could not be written.
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

// NoDrift forgets what did not add up.
func (m *Worker) NoDrift() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drift.Reset()
	clear(m.drifted)
}

// ReleasesWaiting says how many returned units wait for their hot copies.
func (m *Worker) ReleasesWaiting(releases int) { m.waiting.Set(float64(releases)) }

// Drift says how many orders of a voucher do not add up. A voucher without such
// orders has no series, so that the number of series stays small.
func (m *Worker) Drift(voucherID string, orders int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if orders == 0 {
		m.drift.DeleteLabelValues(voucherID)
		delete(m.drifted, voucherID)
		return
	}
	m.drift.WithLabelValues(voucherID).Set(float64(orders))
	m.drifted[voucherID] = true
}

// Drifted are the vouchers with orders that do not add up, as the one that reconciles has found, by id.
func (m *Worker) Drifted() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.drifted))
}

// Delivery are the counters of what the queue hands to a worker.
type Delivery struct {
	orders     prometheus.Histogram
	took       prometheus.Histogram
	messages   *prometheus.CounterVec
	unreadable prometheus.Counter
}

// NewDelivery registers the metrics.
func NewDelivery(registerer prometheus.Registerer) *Delivery {
	r := registry{registerer}
	return &Delivery{
		orders: r.histogram("seckill_persist_group_size", "Orders that were persisted together.", sizes()),
		took: r.histogram("seckill_persist_seconds", "How long it took to persist them and to tell the hot copies.",
			// From a lone order to a transaction that ran into its time limit (seconds).
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}),
		messages: r.counters("seckill_queue_messages_total", "result",
			"Messages of the queue, by what became of them: acked, moved (their orders wait in messages of their voucher), delayed (they come again), redelivered (they came again).",
			"acked", "moved", "delayed", "redelivered"),
		unreadable: r.counter("seckill_queue_unreadable_total",
			"Orders, or whole messages, that could not be read and went to the dead letters."),
	}
}

// Persisted counts orders that were persisted together.
func (m *Delivery) Persisted(orders int, took time.Duration) {
	if orders > 0 {
		m.orders.Observe(float64(orders))
		m.took.Observe(took.Seconds())
	}
}

// Messages counts what became of messages.
func (m *Delivery) Messages(acked, moved, delayed, redelivered int) {
	m.messages.WithLabelValues("acked").Add(float64(acked))
	m.messages.WithLabelValues("moved").Add(float64(moved))
	m.messages.WithLabelValues("delayed").Add(float64(delayed))
	m.messages.WithLabelValues("redelivered").Add(float64(redelivered))
}

// Unreadable counts the parts of messages that could not be read.
func (m *Delivery) Unreadable(parts int) { m.unreadable.Add(float64(parts)) }

// Elections tell who does what one instance does at a time.
type Elections struct{ elected *prometheus.GaugeVec }

// NewElections registers the metrics.
func NewElections(registerer prometheus.Registerer) *Elections {
	return &Elections{registry{registerer}.gauges("seckill_elected", "job",
		"1 on the instance that does a job for all: reconciler, expiry, draw, events, samples.")}
}

// Elected says whether this instance does a job.
func (m *Elections) Elected(job string, elected bool) {
	if elected {
		m.elected.WithLabelValues(job).Set(1)
	} else {
		m.elected.WithLabelValues(job).Set(0)
	}
}
