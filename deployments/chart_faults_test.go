//go:build faults

//part:packaging

package deployments

import (
	"fmt"
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

type manifest struct {
	Kind     string
	Metadata struct {
		Name                string
		Labels, Annotations map[string]string
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

func (m manifest) component() string { return m.Metadata.Labels["app.kubernetes.io/component"] }

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

// helm is what helm (installed by `make deps-chart`) renders, or its error. Spaces separate the arguments.
func helm(t *testing.T, args string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../bin/helm", strings.Fields(args)...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("helm %s: %w\n%s", args, err, said.String())
	}
	return string(out), err
}

func rendering(values string, more ...string) string {
	args := "template shop helm/seckill --namespace fair --kube-version 1.30.0 --values helm/values/" + values +
		".yaml "
	return args + strings.Join(more, " ")
}

func rendered(t *testing.T, args string) (all []manifest) {
	t.Helper()
	for text := range strings.SplitSeq(check.Value(helm(t, args))(t), "\n---\n") {
		var m manifest
		check.Must(t, yaml.Unmarshal([]byte(text+"\n"), &m))
		all = append(all, m)
	}
	return all
}

// The program takes every container's settings. Whoever breaks out is nobody and changes nothing. Probes ask for what
// the program answers, which serves until they have noticed its stop, and is not killed before.
func TestTheChartsContainers(t *testing.T) {
	t.Parallel()
	const stop = 10 * time.Second // what the service takes at most, behind the grace
	secrets := kubernetesSecret(t)
	files := check.Value(filepath.Glob("helm/values/*.yaml"))(t)
	check.That(t, len(files) >= 4, "%d files of values were found", len(files))
	for _, file := range files {
		values, pods := strings.TrimSuffix(filepath.Base(file), ".yaml"), 0
		var given struct {
			Secrets struct{ Files map[string]string } // which come in only where values name them
		}
		check.Must(t, yaml.Unmarshal([]byte(read(t, file)), &given))
		for setting, name := range given.Secrets.Files {
			text := "0123456789abcdef0123456789abcdef"
			if setting == "SECKILL_LOCK_REDIS_URLS" {
				text = "redis://lock-1,redis://lock-2,redis://lock-3"
			}
			check.Must(t, os.WriteFile(filepath.Join(secrets, name), []byte(text), 0o600))
		}
		for _, m := range rendered(t, rendering(values)) {
			for _, endpoint := range m.Spec.Endpoints {
				check.Equal(t, "where Prometheus asks", endpoint.Path, "/metrics")
			}
			for _, c := range m.Spec.Template.Spec.Containers {
				pods++
				what, migrates := values+", "+m.Metadata.Name, m.component() == "migrate"
				s := c.SecurityContext
				check.That(t, s.ReadOnly && s.Escalation != nil && !*s.Escalation &&
					slices.Equal(s.Capabilities.Drop, []string{"ALL"}),
					"%s is not confined: %+v", what, s)
				var environ []string
				for _, variable := range c.Env {
					environ = append(environ, variable.Name+"="+
						strings.ReplaceAll(variable.Value, "/run/secrets", secrets))
				}
				var options []config.Option
				if migrates {
					options = append(options, config.WithoutTokens()) // as the command itself does
				}
				cfg, err := config.Load(environ, options...)
				if err != nil {
					t.Errorf("%s: %v", what, err)
					continue
				}
				check.That(t, cfg.DatabaseDSN != "", "%s runs embedded", what)
				// Where the values name a collector everybody who serves or works has it, and nobody else.
				check.Equal(t, what+" traces", cfg.Tracing.On && cfg.Tracing.Ratio == 0.1, values == "everything" &&
					!migrates)
				if migrates {
					continue
				}
				role := config.RoleAll
				if cfg.Async() {
					role = config.Role(m.component())
				}
				check.Equal(t, what+" has the role", cfg.Role, role)
				check.Equal(t, what+" is asked whether it lives", c.Startup.HTTP.Path+c.Liveness.HTTP.Path,
					"/livez/livez")
				check.Equal(t, what+" is asked whether it is ready", c.Readiness.HTTP.Path, "/readyz")
				killed := time.Duration(m.Spec.Template.Spec.Grace) * time.Second
				check.That(t, killed > cfg.DrainGrace+stop, "%s is killed after %s with a grace of %s", what, killed,
					cfg.DrainGrace)
				noticed := time.Duration(c.Readiness.Period*c.Readiness.Failures+c.Readiness.Timeout) * time.Second
				check.That(t, m.component() == "worker" || noticed > 0 && cfg.DrainGrace >= noticed,
					"%s serves on for %s, and is left out after %s", what, cfg.DrainGrace, noticed)
			}
		}
		check.That(t, pods > 0, "%s makes no containers", values)
	}
}

func TestTheChartRefusesWrongValues(t *testing.T) {
	t.Parallel()
	for wrong, named := range map[string]string{
		"settings.SECKILL_LOCK_MOOD=redis": "SECKILL_LOCK_MOOD",
		"settings.SECKILL_LOCK_MODE=mood":  "SECKILL_LOCK_MODE",
		// The secret would be in the values, and in the cluster's history.
		"settings.SECKILL_JWT_SECRET=0123":     "SECKILL_JWT_SECRET",
		"settings.SECKILL_BACKLOG_MAX_AGE=30":  "SECKILL_BACKLOG_MAX_AGE",
		"secrets.files.SECKILL_REDIS_URL=a/b":  "SECKILL_REDIS_URL",
		"secrets.existingSecret=":              "secrets.existingSecret is required",
		"orderMode=both":                       "orderMode",
		"api.replicas=0":                       "replicas",
		"tracing.endpoint=http://collector":    "endpoint", // the port is what the NetworkPolicy lets through
		"tracing.ratio=2":                      "ratio",
		"worker.keda.prometheus=prometheus:90": "prometheus",
		"prometheusRule.runbooks=runbooks.md":  "runbooks",
		"extraEnv[0].name=SECKILL_LOCK_MOOD":   "extraEnv", // where nobody would refuse it
		"extraEnv[0].value=unnamed":            "name",
	} {
		_, err := helm(t, rendering("sync", "--set", wrong))
		check.That(t, err != nil && strings.Contains(err.Error(), named), "%s: %v", wrong, err)
	}
	said, err := exec.CommandContext(t.Context(), "../bin/helm", "lint", "--strict", "helm/seckill").CombinedOutput()
	check.That(t, err == nil && strings.Contains(string(said), "secrets.existingSecret is required"),
		"helm lint: %v\n%s", err, said)
}

// The objects have what values ask for; the notes name commands for it. (Only a cluster prints notes, so a copy does.)
func TestTheChartDoesWhatValuesAskFor(t *testing.T) {
	t.Parallel()
	chart := filepath.Join(t.TempDir(), "seckill")
	check.Must(t, exec.CommandContext(t.Context(), "cp", "-RL", "helm/seckill", chart).Run())
	notes := []byte(`said: |{{ include "seckill/templates/NOTES.txt" . | nindent 2 }}`)
	check.Must(t, os.WriteFile(filepath.Join(chart, "templates/notes.yaml"), notes, 0o600))
	const proxies, provider, keptOut, job = "SECKILL_TRUSTED_PROXIES", "Nobody can pay", "keeps Prometheus out",
		"look for the job"
	none := []string{"kind: PrometheusRule", "kind: ConfigMap", "kind: ServiceMonitor", "kind: ServiceAccount"}
	for _, test := range []struct {
		args      string
		says, not []string
	}{
		{"sync", []string{
			"deploy/shop-seckill-api\n", "kubectl --namespace fair exec deploy/shop-seckill-api -- seckill audit",
			"port-forward service/shop-seckill 8080:80", provider,
		}, append(none, "deploy/shop-seckill-worker", proxies, keptOut, job)},
		{"async", []string{"deploy/shop-seckill-worker -- seckill mode async", provider}, []string{keptOut, job}},
		{"everything", []string{"https://shop.example/api/v1/docs"}, []string{"port-forward", provider, keptOut, job}},
		{
			"sync --set ingress.enabled=true,ingress.host=shop.example,serviceMonitor.enabled=true",
			[]string{"http://shop.example/", proxies, keptOut},
			[]string{job},
		},
		{"sync --set prometheusRule.enabled=true", []string{job}, nil},
		{
			"sync --set settings.SECKILL_JWT_JWKS_URL=shop=https://id.example:8444/keys,settings.SECKILL_PAYMENT_URL=https://a.example" +
				",settings.SECKILL_PAYMENT_RETURN_URL=http://shop.example/orders,service.type=NodePort" +
				",ingress.enabled=true,ingress.host=shop.example,ingress.path=/api/v1",
			[]string{"- {port: 8444}", "- {port: 443}", "- {port: 80}", "type: NodePort", "- path: /api/v1"},
			nil,
		},
	} {
		values, more, _ := strings.Cut(test.args, " ")
		said := check.Value(helm(t, strings.Replace(rendering(values, more), "helm/seckill", chart, 1)))(t)
		for _, text := range test.says {
			check.That(t, strings.Contains(said, text), "%s: lacks %q", test.args, text)
		}
		for _, text := range test.not {
			check.That(t, !strings.Contains(said, text), "%s: has %q", test.args, text)
		}
	}
}

func TestTheChartsMonitoringIsTheFiles(t *testing.T) {
	t.Parallel()
	const runbooks = "https://git.example/shop/seckill/blob/main/deployments/runbooks.md" // as the values say
	object := func(kind, args string) manifest {
		all := rendered(t, args)
		return all[slices.IndexFunc(all, func(m manifest) bool { return m.Kind == kind })]
	}
	groups := func(text string) any {
		var file struct{ Groups any }
		check.Must(t, yaml.Unmarshal([]byte(text), &file))
		return file.Groups
	}
	file := read(t, "prometheus/rules.yml")
	linked := strings.ReplaceAll(file, "{{ $externalLabels.runbooks }}", runbooks)
	rule := object("PrometheusRule", rendering("everything"))
	check.That(t, linked != file && reflect.DeepEqual(rule.Spec.Groups, groups(linked)),
		"the rules are not those of the file: %+v", rule)
	check.Equal(t, "the label that Prometheus looks for", rule.Metadata.Labels["release"], "prometheus")
	unlinked := object("PrometheusRule", rendering("sync", "--set prometheusRule.enabled=true"))
	check.That(t, reflect.DeepEqual(unlinked.Spec.Groups, groups(file)),
		"without runbooks the rules are not those of the file")
	board := object("ConfigMap", rendering("everything"))
	check.That(t, board.Data["seckill.json"] == read(t, "grafana/seckill.json"),
		"the ConfigMap is not grafana/seckill.json")
	check.Equal(t, "the label that Grafana's sidecar looks for", board.Metadata.Labels["grafana_dashboard"], "1")
	check.Equal(t, "the dashboard's folder", board.Metadata.Annotations["grafana_folder"], "Shop")
}

// Placement, rank, annotations and variables follow the values. The migration runs first, so the account comes after.
func TestTheChartsPods(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"serviceAccount.name=":                                 "shop-seckill for api, shop-seckill for worker,  for migrate, made",
		"serviceAccount.name=till":                             "till for api, till for worker,  for migrate, made",
		"serviceAccount.name=till,serviceAccount.create=false": "till for api, till for worker, till for migrate",
		"serviceAccount.create=false":                          " for api,  for worker,  for migrate",
	} {
		var accounts []string
		made := false
		for _, m := range rendered(t, rendering("everything", "--set", set)) {
			made = made || m.Kind == "ServiceAccount" && m.Metadata.Annotations["eks.amazonaws.com/role-arn"] != ""
			pod := m.Spec.Template
			for _, c := range pod.Spec.Containers {
				accounts = append(accounts, pod.Spec.Account+" for "+m.component())
				placed := pod.Spec.Affinity["nodeAffinity"] != nil && pod.Spec.PriorityClass == "sale"
				noted := pod.Metadata.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "true"
				proxied := slices.Contains(c.Env, struct{ Name, Value string }{
					"HTTPS_PROXY",
					"http://proxy.internal:3128",
				})
				check.That(t, placed && noted && proxied, "%s is not as the values say: %+v", m.component(), pod)
			}
		}
		if made {
			accounts = append(accounts, "made")
		}
		check.Equal(t, set, strings.Join(accounts, ", "), want)
	}
}
