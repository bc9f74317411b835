package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"seckill/model"
)

// Payments are the counters of payments and refunds.
type Payments struct{ notices, refunds *prometheus.CounterVec }

// UnknownType is the outcome of a webhook of a type that is not known, which changes nothing.
const UnknownType = "UNKNOWN_TYPE"

// UsedUnpaid is the outcome of news that the money of a used order went back, or is disputed.
const UsedUnpaid = "USED_UNPAID"

// NewPayments registers the metrics.
func NewPayments(registerer prometheus.Registerer) *Payments {
	r := registry{registerer}
	m := &Payments{
		notices: registered(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seckill_payment_notices_total",
			Help: "What the payment provider said, by webhook or when it was asked, by what became of it (OK, UNKNOWN_TYPE, USED_UNPAID or the problem's code).",
		}, []string{"source", "outcome"})),
		refunds: r.counters("seckill_refund_attempts_total", "outcome", "Attempts to refund, by what became of them: done, later or failed for good.", "done", "later", "failed"),
	}
	for _, source := range []string{"webhook", "question"} {
		for _, outcome := range []string{"OK", UsedUnpaid, string(model.CodeValidation)} {
			m.notices.WithLabelValues(source, outcome)
		}
	}
	for _, outcome := range []string{UnknownType, string(model.CodeUnauthenticated)} {
		m.notices.WithLabelValues("webhook", outcome)
	}
	return m
}

// Notice counts something that the provider said.
func (m *Payments) Notice(source, outcome string) { m.notices.WithLabelValues(source, outcome).Inc() }

// Refund counts an attempt.
func (m *Payments) Refund(outcome string) { m.refunds.WithLabelValues(outcome).Inc() }
