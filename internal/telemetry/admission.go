package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Admission are the counters of asynchronous orders on their way into the queue.
type Admission struct {
	reserved  prometheus.Histogram
	published prometheus.Histogram
	failed    prometheus.Counter
	replaced  prometheus.Counter
	closed    prometheus.Counter
	marks     *prometheus.CounterVec
	age       prometheus.Gauge
	messages  prometheus.Gauge
	known     prometheus.Gauge
	refused   prometheus.Counter
	waiting   prometheus.Gauge
}

// NewAdmission registers the metrics.
func NewAdmission(registerer prometheus.Registerer) *Admission {
	sizes := prometheus.ExponentialBuckets(1, 2, 10) // orders; a group has 500 at the most
	m := &Admission{
		reserved: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seckill_reserve_group_size", Buckets: sizes,
			Help: "Orders that shared one call to the hot copies.",
		}),
		published: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seckill_publish_group_size", Buckets: sizes,
			Help: "Orders that shared one message.",
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seckill_orders_unpublished_total",
			Help: "Reserved orders whose message was not acknowledged in time. They are published again.",
		}),
		replaced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seckill_orders_unconfirmed_total",
			Help: "Published orders that were not promised, because their hot copy was closed or replaced meanwhile.",
		}),
		closed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seckill_orders_not_loaded_total",
			Help: "Attempts to buy that met a closed hot copy.",
		}),
		marks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seckill_stale_marks_total",
			Help: "Buyers' marks of closed orders that stood in somebody's way, by what was done: released, corrected, lost.",
		}, []string{"action"}),
		age: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "seckill_backlog_age_seconds", Help: "How long the oldest message has been waiting in the queue, as last seen.",
		}),
		messages: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "seckill_backlog_messages", Help: "Messages that wait in the queue, as last seen.",
		}),
		known: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "seckill_backlog_known", Help: "1 while the queue tells its backlog; 0 refuses orders before long.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seckill_orders_refused_for_backlog_total",
			Help: "Attempts to buy that were refused because the backlog is too old, or not known.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "seckill_order_waits", Help: "Requests that wait for an order to leave processing.",
		}),
	}
	registerer.MustRegister(m.reserved, m.published, m.failed, m.replaced, m.closed, m.marks,
		m.age, m.messages, m.known, m.refused, m.waiting)
	return m
}

// Reserved counts one call's orders.
func (m *Admission) Reserved(orders int) { m.reserved.Observe(float64(orders)) }

// Published counts one message's orders.
func (m *Admission) Published(orders int) { m.published.Observe(float64(orders)) }

// Unpublished counts orders whose message was not acknowledged.
func (m *Admission) Unpublished(orders int) { m.failed.Add(float64(orders)) }

// Unconfirmed counts orders that were published in vain, as far as is known.
func (m *Admission) Unconfirmed(orders int) { m.replaced.Add(float64(orders)) }

// NotLoaded counts an attempt that met a closed hot copy.
func (m *Admission) NotLoaded() { m.closed.Inc() }

// StaleMark counts a buyer's mark that named no live order.
func (m *Admission) StaleMark(action string) { m.marks.WithLabelValues(action).Inc() }

// Backlog says what waits in the queue.
func (m *Admission) Backlog(age time.Duration, messages int64) {
	m.age.Set(age.Seconds())
	m.messages.Set(float64(messages))
	m.known.Set(1)
}

// BacklogUnknown says that the queue does not tell.
func (m *Admission) BacklogUnknown() { m.known.Set(0) }

// RefusedForBacklog counts an attempt that was refused for the backlog.
func (m *Admission) RefusedForBacklog() { m.refused.Inc() }

// Waits says that more (or fewer) requests wait for an order.
func (m *Admission) Waits(change int) { m.waiting.Add(float64(change)) }
