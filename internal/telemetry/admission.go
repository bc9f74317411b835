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
	r := registry{registerer}
	return &Admission{
		reserved:  r.histogram("seckill_reserve_group_size", "Orders that shared one call to the hot copies.", sizes()),
		published: r.histogram("seckill_publish_group_size", "Orders that shared one message.", sizes()),
		failed: r.counter("seckill_orders_unpublished_total",
			"Reserved orders whose message was not acknowledged in time. They are published again."),
		replaced: r.counter("seckill_orders_unconfirmed_total",
			"Published orders that were not promised, because their hot copy was closed or replaced meanwhile."),
		closed: r.counter("seckill_orders_not_loaded_total", "Attempts to buy that met a closed hot copy."),
		marks: r.counters("seckill_stale_marks_total", "action",
			"Buyers' marks of closed orders that stood in somebody's way, by what was found: released, a unit that was given back; refused by the database, or lost there: the hot copy is stale.", "released", "refused", "lost"),
		age:      r.gauge("seckill_backlog_age_seconds", "How long the oldest message has been waiting in the queue, as last seen."),
		messages: r.gauge("seckill_backlog_messages", "Messages that wait in the queue, as last seen."),
		known:    r.gauge("seckill_backlog_known", "1 while the queue tells its backlog; 0 refuses orders before long."),
		refused: r.counter("seckill_orders_refused_for_backlog_total",
			"Attempts to buy that were refused because the backlog is too old, or not known."),
		waiting: r.gauge("seckill_order_waits", "Requests that wait for an order to leave processing."),
	}
}

// Reserved counts one call's orders.
func (m *Admission) Reserved(orders int) { m.reserved.Observe(float64(orders)) }

// Published counts one message's orders.
func (m *Admission) Published(orders int) { m.published.Observe(float64(orders)) }

// Unpublished counts orders whose message was not acknowledged.
func (m *Admission) Unpublished(orders int) { m.failed.Add(float64(orders)) }

// Unconfirmed counts published orders that were not promised, because their hot
// copy was closed or replaced meanwhile.
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

// BacklogUnknown says that the queue does not tell its backlog.
func (m *Admission) BacklogUnknown() { m.known.Set(0) }

// RefusedForBacklog counts an attempt that was refused for the backlog.
func (m *Admission) RefusedForBacklog() { m.refused.Inc() }

// Waits says that more (or fewer) requests wait for an order.
func (m *Admission) Waits(change int) { m.waiting.Add(float64(change)) }
