//go:build faults

//part:packaging

package deployments

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

// Prometheus itself reads the configuration and the rules, and tries each alert.
func TestPrometheusTriesTheRules(t *testing.T) {
	t.Parallel()
	promtool := check.Value(filepath.Abs("../bin/promtool"))(t)
	// In a module of its own, see its go.mod. The tags leave out the clients of every cloud, which
	// find targets there.
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "remove_all_sd,enable_dns_sd", "-o", promtool, "github.com/prometheus/prometheus/cmd/promtool")
	build.Dir = "tools/promtool"
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build promtool: %v\n%s", err, out)
	}
	for _, args := range []string{"check config --lint=all prometheus.yml", "test rules rules_test.yml rules_long_test.yml"} {
		cmd := exec.CommandContext(t.Context(), promtool, strings.Fields(args)...)
		cmd.Dir = "prometheus"
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
}
