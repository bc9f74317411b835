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

// prometheusProgram builds one of Prometheus' programs, which are in a module of their own, see its go.mod. The tags leave out the
// clients of every cloud, which find targets there.
func prometheusProgram(t *testing.T, name string) string {
	t.Helper()
	program := check.Value(filepath.Abs("../bin/" + name))(t)
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "remove_all_sd,enable_dns_sd", "-o", program, "github.com/prometheus/prometheus/cmd/"+name)
	build.Dir = "tools/promtool"
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return program
}

// Prometheus itself reads the configuration and the rules, and tries each alert.
func TestPrometheusTriesTheRules(t *testing.T) {
	t.Parallel()
	promtool := prometheusProgram(t, "promtool")
	for _, args := range []string{"check config --lint=all prometheus.yml", "test rules rules_test.yml rules_long_test.yml"} {
		cmd := exec.CommandContext(t.Context(), promtool, strings.Fields(args)...)
		cmd.Dir = "prometheus"
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
}
