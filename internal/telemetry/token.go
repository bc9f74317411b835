package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/token"
)

// Tokens counts the tokens that are refused.
type Tokens struct{ refused *prometheus.CounterVec }

// NewTokens registers the counter, which begins at zero for each issuer and reason.
func NewTokens(registerer prometheus.Registerer, issuers ...string) *Tokens {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "seckill_tokens_refused_total",
		Help: "Tokens that were refused, by the issuer that they name and the step or claim that was wrong.",
	}, []string{"issuer", "reason"})
	for _, issuer := range append(issuers, token.Stranger) {
		for _, reason := range token.Reasons() {
			refused.WithLabelValues(issuer, string(reason))
		}
	}
	return &Tokens{registered(registry{registerer}, refused)}
}

// Refused counts one token.
func (t *Tokens) Refused(issuer string, why token.Reason) {
	t.refused.WithLabelValues(issuer, string(why)).Inc()
}
