//go:build faults

//part:packaging

package deployments

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"seckill/config"
	"seckill/internal/workshop/check"
)

// manifest is the part of a Kubernetes object that is looked at.
type manifest struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		Template struct {
			Spec struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []container
			}
		}
		Endpoints []struct{ Path string }
	}
}

type container struct {
	Env             []struct{ Name, Value string }
	Startup         probe `yaml:"startupProbe"`
	Liveness        probe `yaml:"livenessProbe"`
	Readiness       probe `yaml:"readinessProbe"`
	SecurityContext struct {
		ReadOnly     bool  `yaml:"readOnlyRootFilesystem"`
		Escalation   *bool `yaml:"allowPrivilegeEscalation"`
		Capabilities struct{ Drop []string }
	} `yaml:"securityContext"`
}

type probe struct {
	HTTP     struct{ Path string } `yaml:"httpGet"`
	Period   int                   `yaml:"periodSeconds"`
	Timeout  int                   `yaml:"timeoutSeconds"`
	Failures int                   `yaml:"failureThreshold"`
}

// helm is the program, of the version that deployments/tools/chart pins.
type helm string

func buildHelm(t *testing.T) helm {
	t.Helper()
	program := check.Value(filepath.Abs("../bin/helm"))(t)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "helm.sh/helm/v3/cmd/helm")
	build.Dir = "tools/chart"
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build helm: %v\n%s", err, out)
	}
	return helm(program)
}

// template renders the chart with a file of values, and returns what comes out or what is wrong.
func (h helm) template(t *testing.T, values string, more ...string) (string, error) {
	t.Helper()
	args := append([]string{"template", "shop", "helm/seckill", "--kube-version", "1.30.0", "--values", values}, more...)
	out, err := exec.CommandContext(t.Context(), string(h), args...).CombinedOutput()
	return string(out), err
}

// rendered are the objects that the chart makes of a file of values.
func (h helm) rendered(t *testing.T, values string) []manifest {
	t.Helper()
	text, err := h.template(t, values)
	if err != nil {
		t.Fatalf("%s: %v\n%s", values, err, text)
	}
	var all []manifest
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var m manifest
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return all
		}
		check.Must(t, err)
		all = append(all, m)
	}
}

// environOf is the environment of a container, with its secrets in a directory that has every one of them.
func environOf(t *testing.T, c container) []string {
	t.Helper()
	made := secrets(t)
	for _, name := range []string{"webhook_secrets", "code_key"} { // which secrets.sh does not make
		check.Must(t, os.WriteFile(filepath.Join(made, name), []byte("0123456789abcdef0123456789abcdef"), 0o600))
	}
	var environ []string
	for _, variable := range c.Env {
		environ = append(environ, variable.Name+"="+strings.ReplaceAll(variable.Value, "/run/secrets", made))
	}
	return environ
}

// chartValues are the files that `make chart` renders the chart with.
func chartValues(t *testing.T) []string {
	t.Helper()
	files := check.Value(filepath.Glob("helm/values/*.yaml"))(t)
	if len(files) < 4 {
		t.Fatalf("%d files of values were found", len(files))
	}
	return files
}

func TestTheChart(t *testing.T) {
	t.Parallel()
	h := buildHelm(t)
	for name, test := range map[string]func(*testing.T){
		"settings are accepted":     h.settingsAreAccepted,
		"wrong values are refused":  h.wrongValuesAreRefused,
		"probes find what is there": h.probesFindWhatIsThere,
		"pods are confined":         h.podsAreConfined,
		"stops lose no request":     h.stopsLoseNoRequest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// The program takes the settings of every container of the chart, knows each of them, and is what the chart means it to be.
func (h helm) settingsAreAccepted(t *testing.T) {
	t.Helper()
	for _, values := range chartValues(t) {
		pods := 0
		for _, m := range h.rendered(t, values) {
			for _, c := range m.Spec.Template.Spec.Containers {
				pods++
				component := m.Metadata.Labels["app.kubernetes.io/component"]
				var options []config.Option
				if component == "migrate" {
					options = append(options, config.WithoutTokens()) // as the command itself does
				}
				environ := environOf(t, c)
				cfg, err := config.Load(environ, options...)
				if err != nil {
					t.Errorf("%s, %s: %v", values, m.Metadata.Name, err)
					continue
				}
				if cfg.DatabaseDSN == "" {
					t.Errorf("%s, %s runs embedded", values, m.Metadata.Name)
				}
				// Where the values name a collector everybody who serves or works has it, and nobody else.
				if want := strings.HasSuffix(values, "everything.yaml") && component != "migrate"; cfg.Tracing.On != want || want && cfg.Tracing.Ratio != 0.1 {
					t.Errorf("%s, %s traces: %+v", values, m.Metadata.Name, cfg.Tracing)
				}
				role := config.RoleAll
				if cfg.Async() {
					role = config.Role(component)
				}
				if component != "migrate" && cfg.Role != role {
					t.Errorf("%s, %s has the role %s, want %s", values, m.Metadata.Name, cfg.Role, role)
				}
				// What this test is made of would find a variable that is none.
				if _, err := config.Load(append(environ, "SECKILL_LOCK_MOOD=redis"), options...); err == nil || !strings.Contains(err.Error(), "SECKILL_LOCK_MOOD") {
					t.Errorf("a variable that is none is not found: %v", err)
				}
			}
		}
		if pods == 0 {
			t.Errorf("%s makes no containers", values)
		}
	}
}

// A wrong value stops the installation, with its name.
func (h helm) wrongValuesAreRefused(t *testing.T) {
	t.Helper()
	for wrong, named := range map[string]string{
		"settings.SECKILL_LOCK_MOOD=redis":     "SECKILL_LOCK_MOOD",
		"settings.SECKILL_LOCK_MODE=mood":      "SECKILL_LOCK_MODE",
		"settings.SECKILL_JWT_SECRET=0123":     "SECKILL_JWT_SECRET", // it would be in the values, and in the cluster's history
		"settings.SECKILL_BACKLOG_MAX_AGE=30":  "SECKILL_BACKLOG_MAX_AGE",
		"secrets.files.SECKILL_REDIS_URL=a/b":  "SECKILL_REDIS_URL",
		"secrets.existingSecret=":              "existingSecret",
		"orderMode=both":                       "orderMode",
		"api.replicas=0":                       "replicas",
		"tracing.endpoint=http://collector":    "endpoint", // the port is what the NetworkPolicy lets through
		"tracing.ratio=2":                      "ratio",
		"worker.keda.prometheus=prometheus:90": "prometheus",
	} {
		said, err := h.template(t, "helm/values/sync.yaml", "--set", wrong)
		if err == nil || !strings.Contains(said, named) {
			t.Errorf("%s: %v\n%s", wrong, err, said)
		}
	}
}

// The probes, and Prometheus, ask for what a running server answers.
func (h helm) probesFindWhatIsThere(t *testing.T) {
	t.Helper()
	main, ops := serving(t)
	asked := 0
	for _, m := range h.rendered(t, "helm/values/everything.yaml") {
		for _, endpoint := range m.Spec.Endpoints {
			asked++
			check.Must(t, check.ErrorOf(ask(t, "http://"+ops+endpoint.Path)))
		}
		for _, c := range m.Spec.Template.Spec.Containers {
			for _, p := range []probe{c.Startup, c.Liveness, c.Readiness} {
				if p.HTTP.Path == "" {
					continue
				}
				asked++
				check.Must(t, check.ErrorOf(ask(t, "http://"+main+p.HTTP.Path)))
			}
		}
	}
	check.Equal(t, "paths that were asked for", asked, 7)
}

// Who serves goes on for longer than the probe takes to find out that it is about to stop, and is not killed before the end.
func (h helm) stopsLoseNoRequest(t *testing.T) {
	t.Helper()
	const stop = 10 * time.Second // what the service takes at most, behind the grace
	for _, values := range chartValues(t) {
		for _, m := range h.rendered(t, values) {
			if m.Kind != "Deployment" {
				continue
			}
			for _, c := range m.Spec.Template.Spec.Containers {
				grace := check.Value(config.Load(environOf(t, c)))(t).DrainGrace
				if killed := time.Duration(m.Spec.Template.Spec.Grace) * time.Second; killed <= grace+stop {
					t.Errorf("%s, %s is killed after %s with a grace of %s", values, m.Metadata.Name, killed, grace)
				}
				noticed := time.Duration(c.Readiness.Period*c.Readiness.Failures+c.Readiness.Timeout) * time.Second
				if worker := m.Metadata.Labels["app.kubernetes.io/component"] == "worker"; !worker && (noticed == 0 || grace < noticed) {
					t.Errorf("%s, %s serves on for %s, and is left out after %s", values, m.Metadata.Name, grace, noticed)
				}
			}
		}
	}
}

// Whoever breaks out of the program is nobody and can change nothing.
func (h helm) podsAreConfined(t *testing.T) {
	t.Helper()
	for _, values := range chartValues(t) {
		for _, m := range h.rendered(t, values) {
			for _, c := range m.Spec.Template.Spec.Containers {
				s := c.SecurityContext
				if !s.ReadOnly || s.Escalation == nil || *s.Escalation || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) {
					t.Errorf("%s, %s is not confined: %+v", values, m.Metadata.Name, s)
				}
			}
		}
	}
}
