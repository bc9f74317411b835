package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Expiry counts the orders that were not paid in time, and who waits for their units.
type Expiry struct {
	expired       prometheus.Counter
	waiting, held prometheus.Gauge
	paused        prometheus.Counter
}

// NewExpiry registers the metrics.
func NewExpiry(registerer prometheus.Registerer) *Expiry {
	r := registry{registerer}
	return &Expiry{
		expired: r.counter("seckill_orders_expired_total", "Orders that were not paid in time."),
		paused:  r.counter("seckill_expiry_paused_total", "Times an overdue order was left alone, because the database's clock has leapt ahead by more than its payment window."),
		waiting: r.gauge("seckill_waitlist_waiting", "Users who wait for a unit of a sold-out voucher, as last seen."),
		held:    r.gauge("seckill_waitlist_held", "Units that came back a minute ago or more while users wait, and that no order has got or that no hot copy knows of, as last seen."),
	}
}

// Expired counts orders.
func (m *Expiry) Expired(orders int) { m.expired.Add(float64(orders)) }

// Paused counts overdue orders that were left alone.
func (m *Expiry) Paused(orders int) { m.paused.Add(float64(orders)) }

// Clocks compares the clocks of servers with that of this instance.
type Clocks struct{ offset *prometheus.GaugeVec }

// NewClocks registers the metrics.
func NewClocks(registerer prometheus.Registerer) *Clocks {
	return &Clocks{registry{registerer}.gauges("seckill_clock_offset_seconds", "server", "By how much the clock of the database, or of Redis, is ahead of this instance's.")}
}

// Offset says by how much a server's clock is ahead.
func (m *Clocks) Offset(server string, ahead time.Duration) {
	m.offset.WithLabelValues(server).Set(ahead.Seconds())
}

// Waitlists says how many users wait, and how many units should be theirs by now.
func (m *Expiry) Waitlists(waiting, held int64) {
	m.waiting.Set(float64(waiting))
	m.held.Set(float64(held))
}
