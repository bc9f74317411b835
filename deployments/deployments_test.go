// Package deployments has no code. Its test holds the files together: mounts, settings, the proxy and the service fit.
package deployments

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	nats "github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"

	"seckill/config"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func TestMain(m *testing.M) { testserver.Main(m) }

type composition struct {
	Services map[string]service
	Networks map[string]any
	Volumes  map[string]any
	Secrets  map[string]struct{ File string }
}

type service struct {
	Image string
	Build struct {
		Inline string `yaml:"dockerfile_inline"`
	}
	User        string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	CapAdd      []string `yaml:"cap_add"`
	Privileged  bool
	SecurityOpt []string `yaml:"security_opt"`
	MemLimit    string   `yaml:"mem_limit"`
	PidsLimit   int      `yaml:"pids_limit"`
	Tmpfs       []string
	Command     []string
	Profiles    []string
	Ports       []string
	Environment map[string]string
	Secrets     []string
	Volumes     []string
	Healthcheck map[string]any
	DependsOn   map[string]struct {
		Condition string
		Required  *bool // nil: it is
	} `yaml:"depends_on"`
	// Networks is a list of names or a map with an address for each.
	Networks any
}

func (s service) address(network string) string {
	networks, _ := s.Networks.(map[string]any)
	settings, _ := networks[network].(map[string]any)
	address, _ := settings["ipv4_address"].(string)
	return address
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	check.Must(t, err)
	return string(text)
}

func compose(t *testing.T) composition {
	t.Helper()
	var c composition
	err := yaml.UnmarshalWithOptions([]byte(read(t, "docker-compose.yml")), &c, yaml.AllowDuplicateMapKey())
	check.Need(t, err == nil, "parse docker-compose.yml: %v", err)
	return c
}

// secrets runs secrets.sh in a directory of its own and returns where the files are.
func secrets(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := filepath.Join(dir, "secrets.sh")
	check.Must(t, os.WriteFile(script, []byte(read(t, "secrets.sh")), 0o700))
	out, err := exec.CommandContext(t.Context(), "bash", script).CombinedOutput()
	check.Need(t, err == nil, "secrets.sh: %v\n%s", err, out)
	return filepath.Join(dir, "secrets")
}

// Whoever breaks out is nobody, changes nothing lasting, cannot exhaust memory. Docker sees the health; mounts exist.
func TestContainersAreConfined(t *testing.T) {
	t.Parallel()
	c := compose(t)
	for name, s := range c.Services {
		user, _, _ := strings.Cut(s.User, ":")
		id, err := strconv.Atoi(user)
		check.That(t, err == nil && id != 0, "%s runs as the user %q; want a number that is not root's", name, s.User)
		confined := s.ReadOnly && slices.Equal(s.CapDrop, []string{"ALL"}) && len(s.CapAdd) == 0 && !s.Privileged
		check.That(t, confined && slices.Contains(s.SecurityOpt, "no-new-privileges:true"), "%s is not confined: %+v",
			name, s)
		check.That(t, s.MemLimit != "" && s.PidsLimit > 0, "%s has no limit of its memory or its processes", name)
		// The service's image brings a check of its own.
		check.That(t, s.Healthcheck != nil || strings.HasPrefix(s.Image, "seckill:"), "%s has no health check", name)
		for _, volume := range s.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			_, declared := c.Volumes[source]
			check.That(t, declared || check.ErrorOf(os.Stat(source)) == nil, "%s mounts %s, which is not there", name,
				source)
		}
	}
}

// Each error page of nginx and HAProxy is a problem document with a code of the API. TestShippedProxies meets some.
func TestProxyAnswersInProblems(t *testing.T) {
	t.Parallel()
	for file, of := range map[string]struct{ pattern, types string }{
		"nginx.conf":  {`return (\d+) '(\{.*\})\\n';`, "include /etc/nginx/problem.conf;"},
		"haproxy.cfg": {`status (\d+) content-type application/problem\+json string '(\{.*\})' hdr`, "application/problem+json"},
	} {
		answers := regexp.MustCompile(of.pattern).FindAllStringSubmatch(read(t, file), -1)
		check.That(t, len(answers) >= 5, "%d answers in %s", len(answers), file)
		check.Equal(t, "types in "+file, strings.Count(read(t, file), of.types), len(answers))
		for _, answer := range answers {
			var problem struct {
				Type, Title, Detail, Code string
				Status                    int
			}
			check.Must(t, json.Unmarshal([]byte(answer[2]), &problem))
			codes := []model.Code{
				model.CodeValidation, model.CodePayloadTooLarge, model.CodeRateLimited,
				model.CodeUnavailable,
			}
			kind := "/problems/" + strings.ReplaceAll(strings.ToLower(problem.Code), "_", "-")
			check.That(t, strconv.Itoa(problem.Status) == answer[1] &&
				slices.Contains(codes, model.Code(problem.Code)) &&
				problem.Title != "" && problem.Detail != "" && problem.Type == kind, "%s is no problem of the API",
				answer[2])
		}
	}
	says(t, "problem.conf", "default_type application/problem+json;")
}

// natsForRoles runs the NATS of the compose file in this process: its files, where its container has them.
func natsForRoles(t *testing.T) (url func(role string) string) {
	made, container := secrets(t), t.TempDir()
	for name, text := range map[string]string{
		"etc/nats/nats.conf":         read(t, "nats.conf"),
		"etc/nats/nats-users.conf":   read(t, "nats-users.conf"),
		"run/secrets/nats_passwords": read(t, filepath.Join(made, "nats_passwords")),
	} {
		path := filepath.Join(container, name)
		check.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	options, err := nats.ProcessConfigFile(filepath.Join(container, "etc/nats/nats-users.conf"))
	check.Must(t, err)
	options.Host, options.Port, options.HTTPPort, options.StoreDir = "127.0.0.1", -1, 0, t.TempDir()
	options.NoLog, options.NoSigs = true, true
	server, err := nats.NewServer(options)
	check.Must(t, err)
	server.Start()
	t.Cleanup(func() {
		server.Shutdown()
		server.WaitForShutdown()
	})
	check.Need(t, server.ReadyForConnections(check.Deadline), "the server does not start")
	return func(role string) string {
		if role == "" {
			return server.ClientURL()
		}
		return strings.Replace(strings.TrimSpace(read(t, filepath.Join(made, "nats_"+role+"_url"))), "nats:4222",
			strings.TrimPrefix(server.ClientURL(), "nats://"), 1)
	}
}

// A public instance can only put orders in. The worker takes orders, publishes events and purges a voucher's messages,
// as the runbook says. Nobody gets in without a password. TestComposeAsShipped sells with both.
func TestNATSKnowsTheRoles(t *testing.T) {
	t.Parallel()
	url := natsForRoles(t)
	check.That(t, check.ErrorOf(client.Connect(url(""), client.Timeout(check.Deadline))) != nil,
		"who has no password is let in")
	const stream, voucher = "SECKILL_ORDERS_D", `{"filter":"seckill.d.orders"}`
	takes := []string{
		"$JS.API.STREAM.DELETE." + stream, "$JS.API.STREAM.PURGE." + stream, "$JS.API.STREAM.MSG.DELETE." + stream,
		"$JS.API.CONSUMER.MSG.NEXT." + stream + ".worker", "$JS.API.CONSUMER.DELETE." + stream + ".worker",
	}
	for _, role := range []struct {
		name         string
		may, mustNot []string
	}{
		{
			"api",
			[]string{"seckill.d.orders", "$JS.API.STREAM.CREATE." + stream, "$JS.API.STREAM.INFO." + stream},
			takes,
		},
		{"worker", []string{"seckill.d.events.order", "$JS.API.STREAM.PURGE." + stream, takes[3]}, nil},
	} {
		heard := make(chan error, 1) // a refusal, or nil for an answer
		conn := check.Value(client.Connect(url(role.name), client.Timeout(check.Deadline),
			client.ErrorHandler(func(_ *client.Conn, _ *client.Subscription, err error) { heard <- err })))(t)
		defer conn.Close()
		answers := conn.NewInbox()
		check.Value(conn.Subscribe(answers, func(*client.Msg) { heard <- nil }))(t)
		ask := func(subject string) error {
			check.Must(t, conn.PublishRequest(subject, answers, []byte(voucher)))
			return check.Receive(t, "what becomes of "+subject, heard)
		}
		for _, subject := range role.may {
			check.Must(t, ask(subject))
		}
		for _, subject := range role.mustNot {
			err := ask(subject)
			refused := errors.Is(err, client.ErrPermissionViolation) && strings.Contains(err.Error(), subject)
			check.That(t, refused, "the role %s may ask for %s: %v", role.name, subject, err)
		}
	}
}

// interpolated is an instance's environment as compose passes it, with an env file's values and other secrets.
func interpolated(t *testing.T, s service, envFile, secrets string) []string {
	t.Helper()
	values := map[string]string{}
	if envFile != "" {
		for line := range strings.Lines(read(t, envFile)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
				values[name] = value
			}
		}
	}
	var environ []string
	for name, value := range s.Environment {
		value = regexp.MustCompile(`\$\{\w+:-[^}]*\}`).ReplaceAllStringFunc(value, func(reference string) string {
			variable, otherwise, _ := strings.Cut(strings.Trim(reference, "${}"), ":-")
			return cmp.Or(values[variable], otherwise)
		})
		environ = append(environ, name+"="+strings.ReplaceAll(value, "/run/secrets", secrets))
	}
	return environ
}

// Spans go where an env file says, and nowhere without.
func TestComposeTraces(t *testing.T) {
	t.Parallel()
	c, made := compose(t), secrets(t)
	tracing := filepath.Join(t.TempDir(), "tracing.env")
	check.Must(t, os.WriteFile(tracing, []byte("OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318\n"), 0o600))
	for _, instance := range []string{"seckill-1", "seckill-2", "worker-1", "worker-2"} {
		cfg := check.Value(config.Load(interpolated(t, c.Services[instance], tracing, made)))(t)
		check.Equal(t, "what "+instance+" traces", cfg.Tracing,
			config.Tracing{On: true, Ratio: 0.01, ParentBased: true})
	}
	check.That(t, !check.Value(config.Load(interpolated(t, c.Services["seckill-1"], "", made)))(t).Tracing.On,
		"it traces by itself")
}

// An instance believes only the proxy about a client's address, and is reached only through it.
func TestProxyAndInstancesMeanEachOther(t *testing.T) {
	t.Parallel()
	c := compose(t)
	proxy := c.Services["proxy"].address("inside")
	for _, instance := range []string{"seckill-1", "seckill-2"} {
		s := c.Services[instance]
		check.Equal(t, "whom "+instance+" trusts", s.Environment["SECKILL_TRUSTED_PROXIES"], proxy+"/32")
		check.That(t, len(s.Ports) == 0, "%s publishes %v past the proxy", instance, s.Ports)
		says(t, "nginx.conf", "server "+s.address("inside")+s.Environment["SECKILL_HTTP_ADDR"]+" ")
	}
	says(t, "nginx.conf",
		"proxy_set_header X-Forwarded-For $remote_addr;", `proxy_set_header X-Real-IP "";`, `proxy_set_header Forwarded "";`,
		"listen 8080 ", "ssl_protocols TLSv1.2 TLSv1.3;", "Strict-Transport-Security", "limit_req zone=", "limit_conn ")
}

func says(t *testing.T, file string, texts ...string) {
	t.Helper()
	said := read(t, file)
	for _, text := range texts {
		check.That(t, strings.Contains(said, text), "%s lacks %q", file, text)
	}
}

// The server itself reads the file: it refuses what it does not know.
func TestEveryMessageIsFlushed(t *testing.T) {
	t.Parallel()
	options := check.Value(nats.ProcessConfigFile("nats.conf"))(t)
	check.That(t, options.JetStream && options.SyncAlways, "a message is not flushed: a 202 would be an empty promise")
	image, version := compose(t).Services["nats"], regexp.MustCompile(`^\d+\.\d+`).FindString(nats.VERSION)
	check.That(t, strings.Contains(image.Build.Inline, "FROM nats:"+version+"-") &&
		image.Image == "seckill-nats:"+version,
		"%s (%s) is another version than the embedded server, %s", image.Image, image.Build.Inline, nats.VERSION)
}

// The chart, compose and the newest entry of the changelog name one version, by which an upgrade and a way back know it.
func TestOneVersionIsNamed(t *testing.T) {
	t.Parallel()
	version := regexp.MustCompile(`\n## (\d+\.\d+\.\d+) `).FindStringSubmatch(read(t, "../CHANGELOG.md"))[1]
	says(t, "helm/seckill/Chart.yaml", "\nversion: "+version+"\n", "\nappVersion: "+version+"\n")
	says(t, "docker-compose.yml", "  image: seckill:"+version+"\n")
}

func statements(t *testing.T, page string) (blocks []string) {
	t.Helper()
	for _, match := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(read(t, page), -1) {
		blocks = append(blocks, match[1])
	}
	return blocks
}

// The accounts of operating.md suffice for the service. backup.md's statements keep a sale closed until payments agree.
func TestTheDatabaseOfThePages(t *testing.T) {
	t.Parallel()
	server := testserver.MariaDB(t)
	const secret = "a secret of the tests, 32 bytes or more"
	run := func(dsn string, blocks ...string) {
		db := check.Value(sql.Open("mysql", dsn))(t)
		defer db.Close()
		for _, block := range blocks {
			for statement := range strings.SplitSeq(block, ";\n") {
				if strings.TrimSpace(statement) != "" {
					check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), statement)))
				}
			}
		}
	}
	run(server.AdminDSN(""),
		"DROP DATABASE IF EXISTS seckill;\nDROP USER IF EXISTS seckill@'127.0.0.1', seckill@localhost")
	grants := statements(t, "operating.md")
	check.Equal(t, "blocks of SQL in operating.md", len(grants), 2)
	run(server.AdminDSN(""), grants...)
	account := func(name string) string { return name + ":PASSWORD@tcp(" + server.Addr() + ")/seckill" }
	main, settings := testserver.Address(t),
		append(os.Environ(), "SECKILL_REDIS_URL="+testserver.SharedRedis(t), "SECKILL_JWT_SECRET="+secret)
	migrate := exec.CommandContext(t.Context(), testserver.Program(t), "migrate")
	migrate.Env = append(settings, "SECKILL_DATABASE_DSN="+account("seckill"))
	out, err := migrate.CombinedOutput()
	check.Need(t, err == nil, "migrate: %v\n%s", err, out)
	testserver.Run(t, append(settings, "SECKILL_DATABASE_DSN="+account("seckill_serve"), "SECKILL_MIGRATE=off",
		"SECKILL_HTTP_ADDR="+main, "SECKILL_OPS_ADDR="+testserver.Address(t)), testserver.Program(t), "serve")
	shop := remote.Service{
		URL: "http://" + main, Client: remote.Client(t, "", 2),
		Tokens: check.Value(remote.Authority(secret))(t),
	}
	check.Patiently(t, "the service is ready with these rights",
		func() bool { return shop.Status("/readyz") == http.StatusOK })
	voucher := shop.Create(t, map[string]any{"stock": 3})
	buys := func(user string) int {
		got := check.Value(shop.Send(http.MethodPost, "/vouchers/"+voucher.ID+"/seckill",
			shop.Token(t, user, model.RoleUser), nil))(t)
		return got.Status
	}
	check.Equal(t, "a purchase", buys("u1"), http.StatusCreated)

	restore := statements(t, "backup.md")
	check.Equal(t, "blocks of SQL in backup.md", len(restore), 2)
	run(account("seckill"), "UPDATE orders SET expires_at = UTC_TIMESTAMP(6) + INTERVAL 10 SECOND", restore[0])
	check.Patiently(t, "the sale is closed", func() bool { return buys("u2") == http.StatusConflict })
	kept := check.Value(sql.Open("mysql", account("seckill")))(t)
	defer kept.Close()
	var held int
	check.Must(t, kept.QueryRowContext(t.Context(),
		"SELECT COUNT(*) FROM orders WHERE status = 'unpaid' AND expires_at > UTC_TIMESTAMP(6) + INTERVAL 23 HOUR").Scan(&held))
	check.Equal(t, "orders that do not expire", held, 1)
	run(account("seckill"), restore[1])
	check.Patiently(t, "the sale is open again", func() bool { return buys("u3") == http.StatusCreated })
}

// The schema of the values has exactly the program's settings, but for those that the chart sets.
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
		"SECKILL_HTTP_ADDR", "SECKILL_OPS_ADDR", "SECKILL_DATA_DIR", "SECKILL_DRAIN_GRACE", "SECKILL_ORDER_MODE",
		"SECKILL_ROLE", "SECKILL_MIGRATE", "SECKILL_LOG_FORMAT",
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
}

// kubernetesSecret makes the Secret of README.md with a kubectl that writes each key into a file, and returns where.
func kubernetesSecret(t *testing.T) string {
	t.Helper()
	_, commands, _ := strings.Cut(read(t, "README.md"), "\n## Kubernetes\n")
	_, commands, _ = strings.Cut(commands, "```sh\n")
	commands, _, found := strings.Cut(commands, "helm install")
	check.Need(t, found, "README.md has no installation")
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
	out, err := cmd.CombinedOutput()
	check.Need(t, err == nil, "%s: %v\n%s", commands, err, out)
	return made
}

// An installation's Secret has only what instances read: no administrator's password of a server, no key of the proxy.
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
