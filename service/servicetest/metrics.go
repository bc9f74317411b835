package servicetest

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Counted is the value of a counter, over all its labels.
func Counted(t *testing.T, metrics *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			sum := 0.0
			for _, metric := range family.GetMetric() {
				sum += metric.GetCounter().GetValue()
			}
			return sum
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
