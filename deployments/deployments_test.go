// Package deployments has no code. Its test holds the files of the deployment together: what the compose
// file mounts exists, what it sets is a setting, and the proxy and the service mean each other.
package deployments

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	nats "github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/config"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/queue"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// composition is the part of docker-compose.yml that is looked at.
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

// ours is the image of the service.
const ours = "seckill:latest"

// address is the fixed address of the service in a network, or empty.
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
	if err := yaml.UnmarshalWithOptions([]byte(read(t, "docker-compose.yml")), &c, yaml.AllowDuplicateMapKey()); err != nil {
		t.Fatalf("parse docker-compose.yml: %v", err)
	}
	return c
}

// secrets runs secrets.sh in a directory of its own and returns where the files are.
func secrets(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := filepath.Join(dir, "secrets.sh")
	check.Must(t, os.WriteFile(script, []byte(read(t, "secrets.sh")), 0o700))
	if out, err := exec.CommandContext(t.Context(), "bash", script).CombinedOutput(); err != nil {
		t.Fatalf("secrets.sh: %v\n%s", err, out)
	}
	return filepath.Join(dir, "secrets")
}

func TestComposeNamesOnlyWhatIsThere(t *testing.T) {
	t.Parallel()
	c := compose(t)
	made := secrets(t)
	for name, s := range c.Services {
		if !regexp.MustCompile(`^seckill:latest$|^[a-z/.-]+:v?\d+\.\d+`).MatchString(s.Image) {
			t.Errorf("%s: image %q names no version", name, s.Image)
		}
		if s.Healthcheck == nil && s.Image != ours { // whose image brings its own
			t.Errorf("%s has no health check", name)
		}
		for _, volume := range s.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			_, declared := c.Volumes[source]
			if _, err := os.Stat(source); err != nil && !declared {
				t.Errorf("%s mounts what is not there: %v", name, err)
			}
		}
		for _, secret := range s.Secrets {
			if _, err := os.Stat(filepath.Join(made, filepath.Base(c.Secrets[secret].File))); err != nil {
				t.Errorf("%s: secret %s is not made by secrets.sh: %v", name, secret, err)
			}
		}
	}
}

// Whoever breaks out of a program is nobody, can change nothing that stays, and cannot take the machine's memory.
func TestContainersAreConfined(t *testing.T) {
	t.Parallel()
	for name, s := range compose(t).Services {
		user, _, _ := strings.Cut(s.User, ":")
		if id, err := strconv.Atoi(user); err != nil || id == 0 {
			t.Errorf("%s runs as the user %q; want a number that is not root's", name, s.User)
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 || s.Privileged ||
			!slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s is not confined: %+v", name, s)
		}
		if s.MemLimit == "" || s.PidsLimit == 0 {
			t.Errorf("%s may take memory %q and %d processes; want a limit of both", name, s.MemLimit, s.PidsLimit)
		}
	}
}

// Every error of nginx's own that a location answers, and of HAProxy's own, is a problem document with a code of the API.
func TestProxyAnswersInProblems(t *testing.T) {
	t.Parallel()
	nginx := read(t, "nginx.conf")
	answers := regexp.MustCompile(`return (\d+) '(\{.*\})\\n';`).FindAllStringSubmatch(nginx, -1)
	if len(answers) != 5 || strings.Count(nginx, "include /etc/nginx/problem.conf;") != len(answers) {
		t.Errorf("%d answers, and problem.conf in %d places; want both in 5", len(answers), strings.Count(nginx, "include /etc/nginx/problem.conf;"))
	}
	others := regexp.MustCompile(`status (\d+) content-type application/problem\+json string '(\{.*\})' hdr`).FindAllStringSubmatch(read(t, "haproxy.cfg"), -1)
	check.Equal(t, "answers of HAProxy", len(others), 6)
	for _, answer := range append(answers, others...) {
		var problem struct {
			Type, Title, Detail, Code string
			Status                    int
		}
		if err := json.Unmarshal([]byte(answer[2]), &problem); err != nil {
			t.Errorf("%s: %v", answer[2], err)
		}
		codes := []model.Code{model.CodeValidation, model.CodePayloadTooLarge, model.CodeRateLimited, model.CodeUnavailable}
		if strconv.Itoa(problem.Status) != answer[1] || !slices.Contains(codes, model.Code(problem.Code)) || problem.Title == "" ||
			problem.Detail == "" || problem.Type != "/problems/"+strings.ReplaceAll(strings.ToLower(problem.Code), "_", "-") {
			t.Errorf("%s is no problem of the API: %+v", answer[2], problem)
		}
	}
	if !strings.Contains(read(t, "problem.conf"), "default_type application/problem+json;") {
		t.Error("problem.conf does not set the type of a problem document")
	}
}

// natsForRoles runs the NATS of the compose file in this process: its files, where its container has them.
func natsForRoles(t *testing.T) (url func(role string) string) {
	t.Helper()
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
	if !server.ReadyForConnections(check.Deadline) {
		t.Fatal("the server does not start")
	}
	return func(role string) string {
		if role == "" {
			return server.ClientURL()
		}
		return strings.Replace(strings.TrimSpace(read(t, filepath.Join(made, "nats_"+role+"_url"))), "nats:4222", strings.TrimPrefix(server.ClientURL(), "nats://"), 1)
	}
}

// An instance that faces the public can put orders in and never take one out, and nobody gets in without a
// password.
func TestNATSKnowsTheRoles(t *testing.T) {
	t.Parallel()
	url := natsForRoles(t)
	open := func(role string) (*queue.Queue, error) {
		return queue.Open(t.Context(), queue.Options{URL: url(role), Deployment: "d", Log: slog.New(slog.DiscardHandler), Slack: check.Deadline})
	}
	if q, err := open(""); err == nil {
		q.Close(t.Context())
		t.Error("the server lets in who has no password")
	}
	api, err := open("api") // makes the streams, as the first instance does
	check.Must(t, err)
	defer api.Close(t.Context())
	worker, err := open("worker")
	check.Must(t, err)
	defer worker.Close(t.Context())
	order := model.Reservation{Order: model.Order{ID: model.OrderID("o1", "v1"), VoucherID: "v1", UserID: "u1", Currency: "CNY", CreatedAt: time.Now()}, Epoch: 1}
	check.Must(t, api.Publish(t.Context(), []model.Reservation{order}))
	if backlog, err := api.Backlog(t.Context()); err != nil || backlog.Messages != 1 {
		t.Errorf("the role api sees a backlog of %+v, %v; want one message", backlog, err)
	}

	heard := make(chan error, 1) // a refusal, or nil for an answer
	conn, err := client.Connect(url("api"), client.Timeout(check.Deadline), client.ErrorHandler(func(_ *client.Conn, _ *client.Subscription, err error) {
		heard <- err
	}))
	check.Must(t, err)
	defer conn.Close()
	answers := conn.NewInbox()
	check.Value(conn.Subscribe(answers, func(*client.Msg) { heard <- nil }))(t)
	for _, subject := range []string{
		"$JS.API.STREAM.DELETE.SECKILL_ORDERS_D", "$JS.API.STREAM.PURGE.SECKILL_ORDERS_D", "$JS.API.STREAM.MSG.DELETE.SECKILL_ORDERS_D",
		"$JS.API.CONSUMER.MSG.NEXT.SECKILL_ORDERS_D.worker", "$JS.API.CONSUMER.DELETE.SECKILL_ORDERS_D.worker",
	} {
		check.Must(t, conn.PublishRequest(subject, answers, []byte(`{"seq":1}`)))
		if err := check.Receive(t, "what becomes of "+subject, heard); !errors.Is(err, client.ErrPermissionViolation) || !strings.Contains(err.Error(), subject) {
			t.Errorf("the role api may ask for %s: %v", subject, err)
		}
	}
	if backlog, err := api.Backlog(t.Context()); err != nil || backlog.Messages != 1 {
		t.Errorf("after the attacks the backlog is %+v, %v; want one message", backlog, err)
	}

	got := make(chan model.Reservation, 1)
	ctx, stop := context.WithCancel(t.Context())
	consumed := make(chan error, 1)
	go func() {
		consumed <- worker.Consume(ctx, func(_ context.Context, orders []model.Reservation) []error {
			for _, order := range orders {
				got <- order
			}
			return make([]error, len(orders))
		}, queue.ConsumeOptions{})
	}()
	check.Equal(t, "the worker's order", check.Receive(t, "an order for the worker", got).ID, model.OrderID("o1", "v1"))
	check.Eventually(t, "the order is out of the queue", func() bool {
		backlog, err := worker.Backlog(t.Context())
		return err == nil && backlog.Messages == 0
	})
	stop()
	<-consumed

	// The worker publishes events, and an operator purges the messages of one voucher, as the runbook says.
	events, err := queue.OpenEvents(t.Context(), queue.EventOptions{URL: url("worker"), Stream: "EVENTS", Deployment: "d", Log: slog.New(slog.DiscardHandler)})
	check.Must(t, err)
	defer events.Close()
	published, err := events.Publish(t.Context(), []model.Event{{ID: 1, Type: "order.paid", Subject: "o1", Data: `{}`, HappenedAt: time.Now()}})
	check.Must(t, err)
	check.Equal(t, "published events", published, 1)
	check.Must(t, api.Publish(t.Context(), []model.Reservation{order}))
	operator, err := client.Connect(url("worker"))
	check.Must(t, err)
	defer operator.Close()
	streams := check.Value(jetstream.New(operator))(t)
	stream := check.Value(streams.Stream(t.Context(), "SECKILL_ORDERS_D"))(t)
	check.Must(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject("seckill.d.orders")))
	check.Equal(t, "messages behind the purge", check.Value(api.Backlog(t.Context()))(t).Messages, 0)
}

// interpolated is the environment of an instance as compose would pass it, with an env file's values and
// the secrets at another place.
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
		check.Equal(t, "what "+instance+" traces", cfg.Tracing, config.Tracing{On: true, Ratio: 0.01, ParentBased: true})
	}
	check.That(t, !check.Value(config.Load(interpolated(t, c.Services["seckill-1"], "", made)))(t).Tracing.On, "it traces by itself")
}

func TestProxyAndInstancesMeanEachOther(t *testing.T) {
	t.Parallel()
	c, nginx := compose(t), read(t, "nginx.conf")
	proxy := c.Services["proxy"].address("inside")
	if proxy == "" {
		t.Fatal("the proxy has no fixed address")
	}
	for _, instance := range []string{"seckill-1", "seckill-2"} {
		s := c.Services[instance]
		if got := s.Environment["SECKILL_TRUSTED_PROXIES"]; got != proxy+"/32" {
			t.Errorf("%s trusts %q, want the proxy alone, %s/32", instance, got, proxy)
		}
		upstream := "server " + s.address("inside") + s.Environment["SECKILL_HTTP_ADDR"] + " "
		if s.address("inside") == "" || !strings.Contains(nginx, upstream) {
			t.Errorf("nginx.conf lacks %q", upstream)
		}
		if len(s.Ports) > 0 {
			t.Errorf("%s publishes %v past the proxy", instance, s.Ports)
		}
	}
	for _, want := range []string{
		"proxy_set_header X-Forwarded-For $remote_addr;", `proxy_set_header X-Real-IP "";`, `proxy_set_header Forwarded "";`,
		"listen 8080 ", "listen 8443 ssl ", "ssl_protocols TLSv1.2 TLSv1.3;", "Strict-Transport-Security", "limit_req zone=", "limit_conn ",
	} {
		if !strings.Contains(nginx, want) {
			t.Errorf("nginx.conf lacks %q", want)
		}
	}
}

// The server itself reads the file: what it does not know it refuses.
func TestEveryMessageIsFlushed(t *testing.T) {
	t.Parallel()
	options, err := nats.ProcessConfigFile("nats.conf")
	check.Must(t, err)
	if !options.JetStream || !options.SyncAlways {
		t.Errorf("nats.conf: JetStream %v, every message flushed %v: a 202 would be an empty promise",
			options.JetStream, options.SyncAlways)
	}
	ours := compose(t).Services["nats"]
	version := regexp.MustCompile(`^\d+\.\d+`).FindString(nats.VERSION)
	if !strings.Contains(ours.Build.Inline, "FROM nats:"+version+"-") || ours.Image != "seckill-nats:"+version {
		t.Errorf("the image %s (%s) is another version than the embedded server, %s", ours.Image, ours.Build.Inline, nats.VERSION)
	}
}

func TestImageIsStaticAndRunByNobody(t *testing.T) {
	t.Parallel()
	dockerfile := read(t, "Dockerfile")
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))
	if version == nil {
		t.Fatal("go.mod names no Go version")
	}
	for _, want := range []string{"CGO_ENABLED=0", "FROM golang:" + version[1] + "-", "USER 65532:65532", "HEALTHCHECK ", `ENTRYPOINT ["/usr/local/bin/seckill"]`} {
		if !strings.Contains(dockerfile, want) {
			t.Errorf("Dockerfile lacks %q", want)
		}
	}
}

// statements are the SQL of a page, one string for each block.
func statements(t *testing.T, page string) (blocks []string) {
	t.Helper()
	for _, match := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(read(t, page), -1) {
		blocks = append(blocks, match[1])
	}
	return blocks
}

// The accounts of operating.md can do all that the service does, and the statements of backup.md keep a sale closed and its orders
// unpaid until payments were compared.
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
	run(server.AdminDSN(""), "DROP DATABASE IF EXISTS seckill;\nDROP USER IF EXISTS seckill@'127.0.0.1', seckill@localhost")
	grants := statements(t, "operating.md")
	check.Equal(t, "blocks of SQL in operating.md", len(grants), 2)
	run(server.AdminDSN(""), grants...)
	account := func(name string) string { return name + ":PASSWORD@tcp(" + server.Addr() + ")/seckill" }
	main, settings := testserver.Address(t), append(os.Environ(), "SECKILL_REDIS_URL="+testserver.SharedRedis(t), "SECKILL_JWT_SECRET="+secret)
	migrate := exec.CommandContext(t.Context(), testserver.Program(t), "migrate")
	migrate.Env = append(settings, "SECKILL_DATABASE_DSN="+account("seckill"))
	if out, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
	testserver.Run(t, append(settings, "SECKILL_DATABASE_DSN="+account("seckill_serve"), "SECKILL_MIGRATE=off",
		"SECKILL_HTTP_ADDR="+main, "SECKILL_OPS_ADDR="+testserver.Address(t)), testserver.Program(t), "serve")
	shop := remote.Service{URL: "http://" + main, Client: remote.Client(t, "", 2), Tokens: check.Value(remote.Authority(secret))(t)}
	check.Patiently(t, "the service is ready with these rights", func() bool { return shop.Status("/readyz") == http.StatusOK })
	voucher := shop.Create(t, map[string]any{"stock": 3})
	buys := func(user string) int {
		got := check.Value(shop.Send(http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", shop.Token(t, user, model.RoleUser), nil))(t)
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
	check.Must(t, kept.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders WHERE status = 'unpaid' AND expires_at > UTC_TIMESTAMP(6) + INTERVAL 23 HOUR").Scan(&held))
	check.Equal(t, "orders that do not expire", held, 1)
	run(account("seckill"), restore[1])
	check.Patiently(t, "the sale is open again", func() bool { return buys("u3") == http.StatusCreated })
}
