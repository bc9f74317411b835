package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Delivery are the counters of what the queue hands to a worker.
type Delivery struct {
	orders     prometheus.Histogram
	took       prometheus.Histogram
	messages   *prometheus.CounterVec
	unreadable prometheus.Counter
}

// NewDelivery registers the metrics.
func NewDelivery(registerer prometheus.Registerer) *Delivery {
	m := &Delivery{
		orders: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seckill_persist_group_size", Buckets: prometheus.ExponentialBuckets(1, 2, 10),
			Help: "Orders that were persisted together.",
		}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seckill_persist_seconds",
			Help: "How long it took to persist them and to tell the hot copies.",
			// From a lone order to a transaction that ran into its time limit (seconds).
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seckill_queue_messages_total",
			Help: "Messages of the queue, by what became of them: acked, delayed (they come again), redelivered (they came again).",
		}, []string{"result"}),
		unreadable: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seckill_queue_unreadable_total",
			Help: "Orders, or whole messages, that could not be read and went to the dead letters.",
		}),
	}
	registerer.MustRegister(m.orders, m.took, m.messages, m.unreadable)
	return m
}

// Persisted counts orders that were persisted together.
func (m *Delivery) Persisted(orders int, took time.Duration) {
	if orders > 0 {
		m.orders.Observe(float64(orders))
		m.took.Observe(took.Seconds())
	}
}

// Messages counts what became of messages.
func (m *Delivery) Messages(acked, delayed, redelivered int) {
	m.messages.WithLabelValues("acked").Add(float64(acked))
	m.messages.WithLabelValues("delayed").Add(float64(delayed))
	m.messages.WithLabelValues("redelivered").Add(float64(redelivered))
}

// Unreadable counts the parts of messages that could not be read.
func (m *Delivery) Unreadable(parts int) { m.unreadable.Add(float64(parts)) }
