package deployments

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/goccy/go-yaml"

	"seckill/config"
	"seckill/internal/workshop/check"
)

// What the chart installs is a version, by which an upgrade and a way back know it; another tag moves.
func TestTheChartNamesAVersion(t *testing.T) {
	t.Parallel()
	var chart struct {
		Version    string
		AppVersion string `yaml:"appVersion"`
	}
	check.Must(t, yaml.Unmarshal([]byte(read(t, "helm/seckill/Chart.yaml")), &chart))
	for what, version := range map[string]string{"version": chart.Version, "appVersion": chart.AppVersion} {
		if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(version) {
			t.Errorf("%s is %q", what, version)
		}
	}
}

// The schema of the values names the settings that the program has, but for those that the chart sets: no other is
// accepted, and none is missing.
func TestTheChartKnowsTheSettings(t *testing.T) {
	t.Parallel()
	var schema struct {
		Properties struct {
			Settings struct{ Properties map[string]any }
			Secrets  struct {
				Properties struct {
					Files struct{ Properties map[string]any }
				}
			}
		}
	}
	check.Must(t, json.Unmarshal([]byte(read(t, "helm/seckill/values.schema.json")), &schema))
	set := []string{
		"SECKILL_HTTP_ADDR", "SECKILL_OPS_ADDR", "SECKILL_DATA_DIR", "SECKILL_DRAIN_GRACE", "SECKILL_ORDER_MODE", "SECKILL_ROLE", "SECKILL_MIGRATE", "SECKILL_LOG_FORMAT",
	}
	var plain, secret []string
	for _, setting := range config.Table() {
		switch {
		case setting.Secret:
			secret = append(secret, setting.Variable)
		case !slices.Contains(set, setting.Variable):
			plain = append(plain, setting.Variable)
		}
	}
	for what, both := range map[string][2][]string{
		"settings":      {slices.Sorted(maps.Keys(schema.Properties.Settings.Properties)), slices.Sorted(slices.Values(plain))},
		"secrets.files": {slices.Sorted(maps.Keys(schema.Properties.Secrets.Properties.Files.Properties)), slices.Sorted(slices.Values(secret))},
	} {
		if !slices.Equal(both[0], both[1]) {
			t.Errorf("%s are %q, and the program's %q", what, both[0], both[1])
		}
	}
}
