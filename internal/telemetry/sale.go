package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Sale gathers what people watch a sale by: the attempts to buy, how long they take, and the
// backlog, which is nil where there is no queue. It reads memory alone: a gathering
// of all metrics asks every server whether it is ready (see NewChecks), and waits for the answers.
func Sale(attempts *Metrics, backlog *Admission) prometheus.Gatherer {
	shown := prometheus.NewRegistry()
	shown.MustRegister(attempts.placed, attempts.placing)
	if backlog != nil {
		shown.MustRegister(backlog.age, backlog.messages, backlog.known)
	}
	return shown
}
