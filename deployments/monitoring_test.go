package deployments

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
)

type ruleFile struct {
	Groups []struct {
		Rules []struct {
			Record, Alert, Expr string
			Annotations         map[string]string
		}
	}
}

type board struct {
	Panels []struct {
		Type, Title string
		Targets     []struct{ Expr string }
	}
}

func rules(t *testing.T) (f ruleFile) {
	t.Helper()
	check.Must(t, yaml.Unmarshal([]byte(read(t, "prometheus/rules.yml")), &f))
	return f
}

func dashboard(t *testing.T) (b board) {
	t.Helper()
	check.Must(t, json.Unmarshal([]byte(read(t, "grafana/seckill.json")), &b))
	return b
}

func families(t *testing.T) map[string]*dto.MetricFamily {
	main, ops := testserver.Address(t), testserver.Address(t)
	testserver.Run(t, append(os.Environ(), "SECKILL_DATA_DIR="+t.TempDir(), "SECKILL_ORDER_MODE=async",
		"SECKILL_REDIS_URL="+testserver.SharedRedis(t),
		"SECKILL_HTTP_ADDR="+main, "SECKILL_OPS_ADDR="+ops), testserver.Program(t), "serve")
	client, text := remote.Client(t, "", 2), ""
	check.Eventually(t, "the server has compared its clock with others, which begins behind its start", func() bool {
		asked := remote.Service{URL: "http://" + main, Client: client}.Status("/readyz") != 0
		got, _ := remote.Service{URL: "http://" + ops, Client: client}.Get("/metrics")
		text = string(got.Body)
		return asked && strings.Contains(text, "\nseckill_clock_offset_seconds{")
	})
	parser := expfmt.NewTextParser(model.UTF8Validation)
	found, err := parser.TextToMetricFamilies(strings.NewReader(text))
	check.Must(t, err)

	// A voucher has a series of these only while it does not add up.
	registry := prometheus.NewRegistry()
	telemetry.NewWorker(registry).Drift.Set("a", 1)
	telemetry.NewSamples(registry).Set("a", 1)
	for _, family := range check.Value(registry.Gather())(t) {
		if name := family.GetName(); name == "seckill_drifted_orders" || name == "seckill_voucher_units_off" {
			found[family.GetName()] = family
		}
	}
	return found
}

var (
	metricName   = regexp.MustCompile(`\b(?:seckill|go|process)_[a-z0-9_]+\b`)
	recordedName = regexp.MustCompile(`\bseckill:[a-z0-9_:]+\b`)
)

// named are the documented metrics in an expression: a histogram's parts count as the histogram.
func named(expr string, families map[string]*dto.MetricFamily) []string {
	names := metricName.FindAllString(expr, -1)
	for i, name := range names {
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if base, is := strings.CutSuffix(name, part); is && families[base] != nil {
				names[i] = base
			}
		}
	}
	return names
}

func TestMonitoring(t *testing.T) {
	t.Parallel()
	families := families(t)
	t.Run("it names only what there is", func(t *testing.T) {
		t.Parallel()
		monitoringNamesOnlyWhatThereIs(t, families)
	})
	t.Run("every metric is documented", func(t *testing.T) {
		t.Parallel()
		everyMetricIsDocumented(t, families)
	})
}

// A metric that no server has leaves a panel empty, or an alert silent for ever.
func monitoringNamesOnlyWhatThereIs(t *testing.T, families map[string]*dto.MetricFamily) {
	recorded := map[string]bool{}
	exprs := map[string]string{}
	for _, group := range rules(t).Groups {
		for _, rule := range group.Rules {
			exprs["rule "+rule.Record+rule.Alert] = rule.Expr
			if rule.Record != "" {
				recorded[rule.Record] = true
			}
		}
	}
	for _, panel := range dashboard(t).Panels {
		for n, target := range panel.Targets {
			exprs[fmt.Sprintf("panel %s, %d", panel.Title, n)] = target.Expr
		}
		check.That(t, panel.Type == "row" || len(panel.Targets) != 0, "the panel %s shows nothing", panel.Title)
	}
	check.Need(t, len(exprs) >= 100, "%d expressions were found: the files are not read as they are", len(exprs))
	used := map[string]bool{}
	for where, expr := range exprs {
		for _, name := range named(expr, families) {
			used[name] = true
			check.That(t, families[name] != nil, "%s names %s, which no server tells", where, name)
		}
		for _, name := range recordedName.FindAllString(expr, -1) {
			check.That(t, recorded[name], "%s names %s, which no rule records", where, name)
		}
	}
	for name := range families {
		check.That(t, !strings.HasPrefix(name, "seckill_") || used[name], "%s is on no panel and in no rule", name)
	}
}

// The list of metrics is that of a running server. To update it, replace the table with what this test prints.
func everyMetricIsDocumented(t *testing.T, families map[string]*dto.MetricFamily) {
	var table strings.Builder
	table.WriteString("| metric | kind | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if !strings.HasPrefix(name, "seckill_") {
			continue
		}
		family := families[name]
		var labels []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+label.GetName()+"`")
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", name, strings.ToLower(family.GetType().String()),
			strings.Join(labels, ", "), family.GetHelp())
	}
	_, shown, _ := strings.Cut(read(t, "prometheus/metrics.md"), "<!-- metrics: a test compares -->\n")
	check.That(t, shown == table.String(), "the table of prometheus/metrics.md is not\n%s", table.String())
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "seckill_") {
			continue
		}
		for _, problem := range check.Value(promlint.NewWithMetricFamilies([]*dto.MetricFamily{family}).Lint())(t) {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
}

// Every alert of operating.md exists, is tried by the rules' tests, and is a symptom in its runbook.
func TestAlertsAreComplete(t *testing.T) {
	t.Parallel()
	tests := read(t, "prometheus/rules_test.yml") + read(t, "prometheus/rules_long_test.yml")
	runbooks, places := read(t, "runbooks.md"), map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(runbooks, -1) {
		places["#"+strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")] = true
	}
	exprs, alerts := "", 0
	for _, group := range rules(t).Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			alerts++
			exprs += rule.Expr + "\n"
			tried := `alertname: ` + rule.Alert + `\n\s+exp_alerts:`
			check.That(t, regexp.MustCompile(tried+`\n`).MatchString(tests), "no test of the rules shows that %s fires",
				rule.Alert)
			check.That(t, regexp.MustCompile(tried+` \[\]\n`).MatchString(tests),
				"no test of the rules shows that %s is silent", rule.Alert)
			place := strings.TrimPrefix(rule.Annotations["runbook"], "deployments/runbooks.md")
			check.That(t, places[place], "%s leads to %q, which is no runbook", rule.Alert, rule.Annotations["runbook"])
			// What notifications make a link of: where the page is, somebody says who runs Prometheus.
			check.Equal(t, rule.Alert+"'s runbook_url", rule.Annotations["runbook_url"],
				"{{ $externalLabels.runbooks }}"+place)
			shown := regexp.MustCompile(`\d[hd]$`).ReplaceAllString(rule.Alert, "")
			check.That(t, strings.Contains(runbooks, shown), "no runbook names %s as its symptom", rule.Alert)
		}
	}
	_, asked, _ := strings.Cut(read(t, "operating.md"), "Alert on any of ")
	asked, _, _ = strings.Cut(asked, "\n\n")
	names := metricName.FindAllString(asked, -1)
	check.That(t, alerts >= 20 && len(names) >= 5, "%d alerts, and operating.md asks for alerts on %q", alerts, names)
	for _, name := range names {
		check.That(t, strings.Contains(exprs, name), "operating.md asks for an alert on %s, and none is there", name)
	}
}

// NOTICE names every Go module and npm package in the program, so that no licence is missed. "make notice" writes it.
func TestNoticeNamesEveryModule(t *testing.T) {
	t.Parallel()
	built, err := buildinfo.ReadFile(testserver.Program(t))
	check.Must(t, err)
	want := []string{"std " + strings.TrimPrefix(built.GoVersion, "go")}
	for _, module := range built.Deps {
		want = append(want, module.Path+" "+module.Version)
	}
	var lock struct {
		Packages map[string]struct {
			Version      string
			Dependencies map[string]string
		}
	}
	check.Must(t, json.Unmarshal([]byte(read(t, "tools/assets/package-lock.json")), &lock))
	for name := range lock.Packages[""].Dependencies { // what pages are made with
		want = append(want, name+" "+lock.Packages["node_modules/"+name].Version)
	}
	check.That(t, len(want) > 20, "the program has %d modules", len(want))
	have := regexp.MustCompile(`(?m)^\n(\S+ v?[0-9]\S+)\n  [A-Z]`).FindAllStringSubmatch(read(t, "../NOTICE"), -1)
	// An entry is a module, or a part of one that has a licence of its own. Another patch of Go has the same licence.
	of := func(entry, module string) bool {
		name, version, _ := strings.Cut(entry, " ")
		path, known, _ := strings.Cut(module, " ")
		return strings.HasPrefix(name+"/", path+"/") && (version == known || path == "std")
	}
	for _, module := range want {
		named := slices.ContainsFunc(have, func(entry []string) bool { return of(entry[1], module) })
		check.That(t, named, "NOTICE lacks %s: run make notice", module)
	}
	for _, entry := range have {
		needed := slices.ContainsFunc(want, func(module string) bool { return of(entry[1], module) })
		check.That(t, needed, "NOTICE names %s, which is not in the program: run make notice", entry[1])
	}
	check.That(t, strings.Contains(read(t, "../LICENSE"), "The seckill authors"), "LICENSE names no holder")
}

func script(t *testing.T, name, says string, files ...string) (dir string, environ []string) {
	t.Helper()
	dir = t.TempDir()
	for _, file := range files {
		check.Must(t, os.WriteFile(filepath.Join(dir, filepath.Base(file)), []byte(read(t, file)), 0o700))
	}
	programs := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+says+"\n"), 0o700))
	return dir, append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"))
}

// Every image gets its registry's digest, also twice in a row; without one nothing changes.
func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	const digest = `printf 'sha256:%s' "$(printf '%s' "$4" | sha256sum | cut -c1-64)"`
	dir, environ := script(t, "docker", digest, "pin", "docker-compose.yml")
	pinned := func() string {
		cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "pin"))
		cmd.Env = environ
		out, err := cmd.CombinedOutput()
		check.Need(t, err == nil, "pin: %v\n%s", err, out)
		return read(t, filepath.Join(dir, "docker-compose.yml"))
	}
	first := pinned()
	again := pinned()
	check.That(t, again == first, "a second time it changes what it had pinned:\n%s", again)
	bases := regexp.MustCompile(`(?m)^\s*(?:FROM|image:) +(\S+)`).FindAllStringSubmatch(first, -1)
	for _, base := range bases {
		if image := base[1]; !strings.HasPrefix(image, "seckill") && !regexp.MustCompile(`^\S+:[^@\s]+@sha256:[0-9a-f]{64}$`).MatchString(image) {
			t.Errorf("%s is not pinned", image)
		}
	}
	check.That(t, len(bases) >= 8, "%d images were found:\n%s", len(bases), first)

	dir, environ = script(t, "docker", "echo no such image", "pin", "docker-compose.yml")
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "pin"))
	cmd.Env = environ
	if out, err := cmd.CombinedOutput(); err == nil ||
		read(t, filepath.Join(dir, "docker-compose.yml")) != read(t, "docker-compose.yml") {
		t.Errorf("without a digest it went on: %v\n%s", err, out)
	}
}

func TestVulnerabilitiesAreNotOverlooked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		govulncheck, offline string
		code                 int
		says                 string
	}{
		"none":                  {"echo No vulnerabilities found.", "", 0, "No vulnerabilities"},
		"some":                  {"echo Vulnerability; exit 3", "skip", 3, "Vulnerability"},
		"no database":           {"echo govulncheck: fetching vulnerabilities: 403 Forbidden >&2; exit 1", "", 2, "NOTHING WAS CHECKED"},
		"no database, accepted": {"echo govulncheck: fetching vulnerabilities: 403 Forbidden >&2; exit 1", "skip", 0, "NOTHING WAS CHECKED"},
		"it does not compile":   {"echo undefined: x >&2; exit 1", "skip", 1, "undefined"},
	} {
		dir, environ := script(t, "govulncheck", test.govulncheck, "tools/vuln")
		cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "vuln"), "govulncheck", "./...")
		cmd.Env = append(environ, "VULN_OFFLINE="+test.offline)
		out, _ := cmd.CombinedOutput() // the exit code tells
		if got := cmd.ProcessState.ExitCode(); got != test.code || !strings.Contains(string(out), test.says) {
			t.Errorf("%s: exit %d, want %d: %s", name, got, test.code, out)
		}
	}
}
