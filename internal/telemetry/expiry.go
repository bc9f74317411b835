package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Expiry counts the orders that were not paid in time.
type Expiry struct{ expired prometheus.Counter }

// NewExpiry registers the metrics.
func NewExpiry(registerer prometheus.Registerer) *Expiry {
	return &Expiry{registry{registerer}.counter("seckill_orders_expired_total", "Orders that were not paid in time.")}
}

// Expired counts orders.
func (m *Expiry) Expired(orders int) { m.expired.Add(float64(orders)) }
