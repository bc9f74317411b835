//go:build faults

//part:packaging

package deployments

import (
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
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
		Name        string
		Labels      map[string]string
		Annotations map[string]string
	}
	Data map[string]string
	Spec struct {
		Template struct {
			Metadata struct{ Annotations map[string]string }
			Spec     struct {
				Grace         int    `yaml:"terminationGracePeriodSeconds"`
				Account       string `yaml:"serviceAccountName"`
				PriorityClass string `yaml:"priorityClassName"`
				Affinity      map[string]any
				Containers    []container
			}
		}
		Endpoints []struct{ Path string }
		Groups    any // of a PrometheusRule
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
	return h.run(t, args...)
}

// run returns what helm makes, or what it says is wrong.
func (h helm) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), string(h), args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return string(out) + said.String(), err
	}
	return string(out), nil
}

// rendered are the objects that the chart makes of a file of values, and of more arguments.
func (h helm) rendered(t *testing.T, values string, more ...string) []manifest {
	t.Helper()
	text, err := h.template(t, values, more...)
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
	made := kubernetesSecret(t)
	for name, text := range map[string]string{ // which come in where the values name them
		"webhook_secrets": "0123456789abcdef0123456789abcdef", "code_key": "0123456789abcdef0123456789abcdef",
		"lock_redis_urls": "redis://lock-1,redis://lock-2,redis://lock-3",
	} {
		check.Must(t, os.WriteFile(filepath.Join(made, name), []byte(text), 0o600))
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
		"settings are accepted":      h.settingsAreAccepted,
		"wrong values are refused":   h.wrongValuesAreRefused,
		"settings open their ports":  h.settingsOpenTheirPorts,
		"probes find what is there":  h.probesFindWhatIsThere,
		"pods are confined":          h.podsAreConfined,
		"stops lose no request":      h.stopsLoseNoRequest,
		"monitoring is the files":    h.monitoringIsTheFiles,
		"pods are what is wanted":    h.podsAreWhatIsWanted,
		"lint says what is required": h.lintSaysWhatIsRequired,
		"notes say what is missing":  h.notesSayWhatIsMissing,
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

// What the settings name is reached through the NetworkPolicy, and the chart has the two fields that others' charts have.
func (h helm) settingsOpenTheirPorts(t *testing.T) {
	t.Helper()
	said, err := h.template(t, "helm/values/sync.yaml", "--set", "settings.SECKILL_JWT_JWKS_URL=shop=https://id.example:8444/keys",
		"--set", "settings.SECKILL_PAYMENT_URL=https://payments.example", "--set", "settings.SECKILL_PAYMENT_RETURN_URL=http://shop.example/orders",
		"--set", "service.type=NodePort", "--set", "ingress.enabled=true", "--set", "ingress.host=shop.example", "--set", "ingress.path=/api/v1")
	check.Must(t, err)
	for _, want := range []string{"- {port: 8444}", "- {port: 443}", "- {port: 80}", "type: NodePort", "- path: /api/v1"} {
		if !strings.Contains(said, want) {
			t.Errorf("the chart lacks %q", want)
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
		"prometheusRule.runbooks=runbooks.md":  "runbooks",
		"extraEnv[0].name=SECKILL_LOCK_MOOD":   "extraEnv", // where nobody would refuse it
		"extraEnv[0].value=without a name":     "name",
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

// The rules and the dashboard are those of the files beside the chart, where they are asked for.
func (h helm) monitoringIsTheFiles(t *testing.T) {
	t.Helper()
	const runbooks = "https://git.example/shop/seckill/blob/main/deployments/runbooks.md" // as the values say
	kinds := func(values string, more ...string) map[string]manifest {
		found := map[string]manifest{}
		for _, m := range h.rendered(t, values, more...) {
			found[m.Kind] = m
		}
		return found
	}
	groups := func(text string) any {
		var file struct{ Groups any }
		check.Must(t, yaml.Unmarshal([]byte(text), &file))
		return file.Groups
	}
	file := read(t, "prometheus/rules.yml")
	linked := strings.ReplaceAll(file, "{{ $externalLabels.runbooks }}", runbooks)

	all := kinds("helm/values/everything.yaml")
	if rule := all["PrometheusRule"]; !reflect.DeepEqual(rule.Spec.Groups, groups(linked)) || linked == file || rule.Metadata.Labels["release"] != "prometheus" {
		t.Errorf("the PrometheusRule is not prometheus/rules.yml with links to the runbooks: %+v", rule)
	}
	board := all["ConfigMap"]
	if len(board.Data) != 1 || board.Data["seckill.json"] != read(t, "grafana/seckill.json") {
		t.Error("the ConfigMap is not grafana/seckill.json")
	}
	check.Equal(t, "the label that Grafana's sidecar looks for", board.Metadata.Labels["grafana_dashboard"], "1")
	check.Equal(t, "the dashboard's folder", board.Metadata.Annotations["grafana_folder"], "Shop")

	unlinked := kinds("helm/values/sync.yaml", "--set", "prometheusRule.enabled=true")["PrometheusRule"]
	if !reflect.DeepEqual(unlinked.Spec.Groups, groups(file)) {
		t.Error("without an address of the runbooks the PrometheusRule is not prometheus/rules.yml")
	}
	for kind := range kinds("helm/values/sync.yaml") {
		if slices.Contains([]string{"PrometheusRule", "ConfigMap", "ServiceMonitor", "ServiceAccount"}, kind) {
			t.Errorf("nobody has asked for a %s", kind)
		}
	}
}

// Each pod is placed, ranked, annotated and has the variables as the values say. The account that the chart makes is there
// after the migration, which runs before everything, so that it has another one.
func (h helm) podsAreWhatIsWanted(t *testing.T) {
	t.Helper()
	pods := func(more ...string) (accounts map[string]string) {
		accounts = map[string]string{}
		for _, m := range h.rendered(t, "helm/values/everything.yaml", more...) {
			pod := m.Spec.Template
			for _, c := range pod.Spec.Containers {
				component := m.Metadata.Labels["app.kubernetes.io/component"]
				accounts[component] = pod.Spec.Account
				check.Equal(t, component+": its class", pod.Spec.PriorityClass, "sale")
				check.Equal(t, component+": its annotation", pod.Metadata.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"], "true")
				if pod.Spec.Affinity["nodeAffinity"] == nil {
					t.Errorf("%s goes anywhere: %+v", component, pod.Spec)
				}
				if !slices.Contains(environOf(t, c), "HTTPS_PROXY=http://proxy.internal:3128") {
					t.Errorf("%s lacks a variable", component)
				}
			}
			if m.Kind == "ServiceAccount" {
				accounts[m.Kind] = m.Metadata.Name
				check.Equal(t, "what the account is for", m.Metadata.Annotations["eks.amazonaws.com/role-arn"], "arn:aws:iam::123456789012:role/seckill")
			}
		}
		return accounts
	}
	for values, want := range map[string]map[string]string{
		"serviceAccount.name=":                                 {"api": "shop-seckill", "worker": "shop-seckill", "migrate": "", "ServiceAccount": "shop-seckill"},
		"serviceAccount.name=till":                             {"api": "till", "worker": "till", "migrate": "", "ServiceAccount": "till"},
		"serviceAccount.name=till,serviceAccount.create=false": {"api": "till", "worker": "till", "migrate": "till"},
		"serviceAccount.create=false":                          {"api": "", "worker": "", "migrate": ""},
	} {
		if got := pods("--set", values); !maps.Equal(got, want) {
			t.Errorf("%s: accounts are %v, want %v", values, got, want)
		}
	}
}

// The chart's linter names the required value that is missing, and an installation without it is refused.
func (h helm) lintSaysWhatIsRequired(t *testing.T) {
	t.Helper()
	const want = "secrets.existingSecret is required"
	out, err := exec.CommandContext(t.Context(), string(h), "lint", "--strict", "helm/seckill").CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) {
		t.Errorf("helm lint: %v\n%s", err, out)
	}
	if said, err := h.run(t, "template", "shop", "helm/seckill", "--kube-version", "1.30.0"); err == nil || !strings.Contains(said, want) {
		t.Errorf("helm template: %v\n%s", err, said)
	}
}

// The notes of an installation name commands for what it has, and what it lacks to sell. Only a cluster hears them, so that
// a copy of the chart makes them a manifest.
func (h helm) notesSayWhatIsMissing(t *testing.T) {
	t.Helper()
	chart := filepath.Join(t.TempDir(), "seckill")
	check.Must(t, exec.CommandContext(t.Context(), "cp", "-RL", "helm/seckill", chart).Run())
	check.Must(t, os.WriteFile(filepath.Join(chart, "templates/notes.yaml"), []byte(`said: {{ include "seckill/templates/NOTES.txt" . | quote }}`), 0o600))
	notes := func(values string, more ...string) string {
		args := []string{"template", "shop", chart, "--namespace", "fair", "--kube-version", "1.30.0", "--show-only", "templates/notes.yaml", "--values", values}
		text, err := h.run(t, append(args, more...)...)
		if err != nil {
			t.Fatalf("%s: %v\n%s", values, err, text)
		}
		var manifest struct{ Said string }
		check.Must(t, yaml.Unmarshal([]byte(text), &manifest))
		return manifest.Said
	}
	const proxies, provider, keptOut, job = "SECKILL_TRUSTED_PROXIES", "Nobody can pay", "keeps Prometheus out", "look for the job"
	for _, test := range []struct {
		values    string
		more      []string
		says, not []string
	}{
		{values: "sync", says: []string{
			"deploy/shop-seckill-api\n", "kubectl --namespace fair exec deploy/shop-seckill-api -- seckill audit", "port-forward service/shop-seckill 8080:80", provider,
		}, not: []string{"worker", proxies, keptOut, job}},
		{values: "async", says: []string{"deploy/shop-seckill-worker", "deploy/shop-seckill-worker -- seckill mode async", provider}, not: []string{keptOut, job}},
		{values: "everything", says: []string{"https://shop.example/api/v1/docs"}, not: []string{"port-forward", proxies, provider, keptOut, job}},
		{
			values: "sync", more: []string{"--set", "ingress.enabled=true,ingress.host=shop.example,serviceMonitor.enabled=true"},
			says: []string{"http://shop.example/", proxies, keptOut}, not: []string{job},
		},
		{values: "sync", more: []string{"--set", "prometheusRule.enabled=true"}, says: []string{job}},
	} {
		said := notes("helm/values/"+test.values+".yaml", test.more...)
		for _, text := range test.says {
			if !strings.Contains(said, text) {
				t.Errorf("%s %q: the notes do not say %q:\n%s", test.values, test.more, text, said)
			}
		}
		for _, text := range test.not {
			if strings.Contains(said, text) {
				t.Errorf("%s %q: the notes say %q:\n%s", test.values, test.more, text, said)
			}
		}
	}
}
