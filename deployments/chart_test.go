package deployments

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"seckill/config"
	"seckill/internal/workshop/check"
)

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
	slices.Sort(plain)
	slices.Sort(secret)
	settings, files := schema.Properties.Settings.Properties, schema.Properties.Secrets.Properties.Files.Properties
	check.Equal(t, "settings", strings.Join(slices.Sorted(maps.Keys(settings)), " "), strings.Join(plain, " "))
	check.Equal(t, "secrets.files", strings.Join(slices.Sorted(maps.Keys(files)), " "), strings.Join(secret, " "))
	// What the chart installs is a version, by which an upgrade and a way back know it; another tag moves.
	versions := regexp.MustCompile(`(?m)^(version|appVersion): "?\d+\.\d+\.\d+"?$`).FindAllString(read(t, "helm/seckill/Chart.yaml"), -1)
	check.Equal(t, "versions that the chart names", len(versions), 2)
}

// kubernetesSecret makes the Secret of README.md with a kubectl that writes each of its keys into a file, and returns
// where.
func kubernetesSecret(t *testing.T) string {
	t.Helper()
	_, commands, _ := strings.Cut(read(t, "README.md"), "\n## Kubernetes\n")
	_, commands, _ = strings.Cut(commands, "```sh\n")
	commands, _, found := strings.Cut(commands, "helm install")
	if !found {
		t.Fatal("README.md has no installation")
	}
	made, checkout := t.TempDir(), filepath.Dir(secrets(t))
	check.Must(t, os.Symlink(".", filepath.Join(checkout, "deployments"))) // where secrets.sh was run already
	check.Must(t, os.WriteFile(filepath.Join(checkout, "kubectl"), []byte(`#!/usr/bin/env bash
		for a; do case $a in
			--from-env-file=*) while read -r line; do printf %s "${line#*=}" >"$MADE/${line%%=*}"; done <"${a#*=}" ;;
			--from-file=*) cp -r "${a#*=}"/. "$MADE" ;;
		esac; done`), 0o700))
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = checkout
	cmd.Env = append(os.Environ(), "MADE="+made, "PATH="+checkout+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return made
}

// The Secret of an installation has what instances read and nothing else: no password of a server's own administrator, no
// key of the proxy's.
func TestTheSecretHasWhatInstancesRead(t *testing.T) {
	t.Parallel()
	var values struct {
		Secrets struct {
			Files map[string]string
			Async map[string]map[string]string
		}
	}
	check.Must(t, yaml.Unmarshal([]byte(read(t, "helm/seckill/values.yaml")), &values))
	var want, has []string
	for _, files := range append(slices.Collect(maps.Values(values.Secrets.Async)), values.Secrets.Files) {
		want = slices.AppendSeq(want, maps.Values(files))
	}
	for _, file := range check.Value(os.ReadDir(kubernetesSecret(t)))(t) {
		has = append(has, file.Name())
	}
	slices.Sort(want)
	check.Equal(t, "the keys of the Secret", strings.Join(has, " "), strings.Join(want, " "))
}
