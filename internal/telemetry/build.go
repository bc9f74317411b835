package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/version"
)

// NewBuild registers a gauge that is always 1: its labels say which build runs.
func NewBuild(registerer prometheus.Registerer, build version.Build) {
	registered(registry{registerer}, prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "seckill_build_info", Help: "1 for the build that runs, with its version, the commit of its source, and the version of Go.",
		ConstLabels: prometheus.Labels{"version": build.Version, "revision": build.Commit, "goversion": build.Go},
	})).Set(1)
}
