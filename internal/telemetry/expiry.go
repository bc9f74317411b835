package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Expiry counts the orders that were not paid in time, and who waits for their units.
type Expiry struct {
	expired       prometheus.Counter
	waiting, held prometheus.Gauge
}

// NewExpiry registers the metrics.
func NewExpiry(registerer prometheus.Registerer) *Expiry {
	r := registry{registerer}
	return &Expiry{
		expired: r.counter("seckill_orders_expired_total", "Orders that were not paid in time."),
		waiting: r.gauge("seckill_waitlist_waiting", "Users who wait for a unit of a sold-out voucher, as last seen."),
		held:    r.gauge("seckill_waitlist_held", "Units that came back a minute ago or more while users wait, and that no order has got or that no hot copy knows of, as last seen."),
	}
}

// Expired counts orders.
func (m *Expiry) Expired(orders int) { m.expired.Add(float64(orders)) }

// Waitlists says how many users wait, and how many units should be theirs by now.
func (m *Expiry) Waitlists(waiting, held int64) {
	m.waiting.Set(float64(waiting))
	m.held.Set(float64(held))
}
