package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Accounts are the counters of accounts.
type Accounts struct{ attempts *prometheus.CounterVec }

// NewAccounts registers the metrics.
func NewAccounts(registerer prometheus.Registerer) *Accounts {
	attempts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "seckill_account_attempts_total",
		Help: "Calls that hash a password (login, register, password), by what became of them (OK or the problem's code).",
	}, []string{"action", "outcome"})
	for _, action := range []string{"login", "register", "password"} {
		attempts.WithLabelValues(action, "OK") // from zero, see registry.counters
	}
	return &Accounts{attempts: registered(registry{registerer}, attempts)}
}

// Attempt counts one call by what it was for and what became of it.
func (m *Accounts) Attempt(action, outcome string) {
	m.attempts.WithLabelValues(action, outcome).Inc()
}
