package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Draws tells of draws that are to be done.
type Draws struct{ overdue prometheus.Gauge }

// NewDraws registers the metrics.
func NewDraws(registerer prometheus.Registerer) *Draws {
	return &Draws{registry{registerer}.gauge("seckill_draw_overdue_seconds", "How long ago the sale ended whose draw is to be done; 0: none is.")}
}

// Overdue says how long the draw that is due longest has waited.
func (m *Draws) Overdue(wait time.Duration) { m.overdue.Set(wait.Seconds()) }

// Samples tells of vouchers that do not add up in the database.
type Samples struct{ off *prometheus.GaugeVec }

// NewSamples registers the metrics.
func NewSamples(registerer prometheus.Registerer) *Samples {
	return &Samples{registry{registerer}.gauges("seckill_voucher_units_off", "voucher_id",
		"Stock less what remains less live orders of a voucher in the database, where that is not 0.")}
}

// Off says by how many units a voucher is off.
func (m *Samples) Off(voucherID string, units int64) {
	if units == 0 {
		m.off.DeleteLabelValues(voucherID)
		return
	}
	m.off.WithLabelValues(voucherID).Set(float64(units))
}

// Forget says that nobody looks here any more.
func (m *Samples) Forget() { m.off.Reset() }

// Events are the metrics of publishing events.
type Events struct{ waiting prometheus.Gauge }

// NewEvents registers them.
func NewEvents(registerer prometheus.Registerer) *Events {
	return &Events{registry{registerer}.gauge("seckill_events_waiting_seconds", "How long ago the oldest event happened that its stream does not take; 0: none is.")}
}

// Waiting says how long the oldest event that could not be published has waited.
func (m *Events) Waiting(wait time.Duration) { m.waiting.Set(wait.Seconds()) }
