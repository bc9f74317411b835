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
