package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Tracing counts spans.
type Tracing struct{ spans *prometheus.CounterVec }

// NewTracing registers the metrics.
func NewTracing(registerer prometheus.Registerer) *Tracing {
	return &Tracing{registry{registerer}.counters("seckill_trace_spans_total", "result",
		"Spans of traces that ended, by what became of them: exported, dropped (too many waited), failed (the collector did not take them).",
		"exported", "dropped", "failed")}
}

// Dropped counts a span for which there was no room.
func (m *Tracing) Dropped() { m.spans.WithLabelValues("dropped").Inc() }

// Exported counts spans that the collector has taken, or with an error has not.
func (m *Tracing) Exported(spans int, err error) {
	result := "exported"
	if err != nil {
		result = "failed"
	}
	m.spans.WithLabelValues(result).Add(float64(spans))
}
