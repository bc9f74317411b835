package console_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/config"
	"seckill/internal/version"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

func TestAuditInWords(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	id := b.create(t, "stock", "5")
	s.buy(t, "alice", id)
	want(t, b.page(t, "/console/vouchers/"+id+"/audit"), "Everything adds up", "The stock of 5 is the 4 that remain and 1 live orders.", "seckill audit --repair")
	for _, action := range []string{"repair", "rebuild"} {
		b.post(t, "/console/vouchers/"+id+"/"+action, nil).is(t, http.StatusConflict)
	}
	want(t, b.page(t, "/console/dead-letters"), "there is no queue")
	b.get(t, "/console/vouchers/unknown/audit").is(t, http.StatusNotFound)
}

func TestSystemAndLog(t *testing.T) {
	t.Parallel()
	s := start(t)
	ada, eve := s.signedIn(t, "ada"), s.signedIn(t, "eve")
	want(t, ada.page(t, "/console/system"), "This instance is ready.", `<th scope="row">database</th>`, `<th scope="row">redis</th>`, "sync", "(commit "+version.Read().Commit+", "+runtime.Version()+")")
	check.Eventually(t, "it lists itself among the instances, with the Redis inside it, too", func() bool {
		return strings.Contains(ada.page(t, "/console/system"), `<span class="badge well">ready</span></td><td data-label="Role">all</td><td data-label="Order mode">sync</td>`)
	})
	id := ada.create(t)
	eve.act(t, "/console/vouchers/"+id+"/state", url.Values{"to": {"paused"}})
	page := eve.page(t, "/console/log")
	want(t, page, "created a voucher", "changed a voucher", `href="/console/vouchers/`+id+`"`, `State</span> published → paused`)
	_, rest, _ := strings.Cut(page, `href="/console/log?actor=`)
	actor, _, _ := strings.Cut(rest, `"`)
	if only := eve.page(t, "/console/log?actor="+actor); strings.Contains(only, "created a voucher") || !strings.Contains(only, "changed a voucher") {
		t.Errorf("the log of %s: %s", actor, only)
	}
}

// process is a console over a MariaDB and a Redis of its own, whose counters nobody else moves.
type process struct {
	*site
	pid             int
	database, redis *testserver.Server
	db              *sql.DB
	hot             *redis.Client
}

// serve starts the service until the test ends: as the program that is shipped, in a process of its own, or in this
// process.
func serve(t testing.TB, shipped bool, environ ...string) *process {
	t.Helper()
	p := &process{pid: os.Getpid(), redis: testserver.Redis(t)}
	if shipped {
		p.database = testserver.MariaDB(t, "--innodb-buffer-pool-size=512M", "--innodb-log-file-size=256M")
	} else {
		p.database = testserver.MariaDB(t)
	}
	settings := append([]string{
		"SECKILL_DATABASE_DSN=" + p.database.DSN(testserver.DefaultSchema), "SECKILL_REDIS_URL=" + p.redis.URL(), "SECKILL_CONSOLE=on", "SECKILL_LOG_LEVEL=warn",
	}, environ...)
	if shipped {
		p.run(t, settings)
	} else {
		p.site = start(t, settings...)
	}
	p.db = check.Value(sql.Open("mysql", p.database.DSN(testserver.DefaultSchema)+"?parseTime=true"))(t)
	t.Cleanup(func() { check.Must(t, p.db.Close()) })
	p.hot = redis.NewClient(&redis.Options{Addr: p.redis.Addr()})
	t.Cleanup(func() { check.Must(t, p.hot.Close()) })
	return p
}

// run starts the program and returns when it is ready.
func (p *process) run(t testing.TB, settings []string) {
	t.Helper()
	address := testserver.Address(t)
	settings = append([]string{
		"SECKILL_DATA_DIR=" + t.TempDir(), "SECKILL_JWT_SECRET=" + secret, "SECKILL_HTTP_ADDR=" + address, "SECKILL_OPS_ADDR=" + testserver.Address(t),
		"SECKILL_RATE_USER=0", "SECKILL_RATE_ADDR=0", "SECKILL_BACKLOG_MAX_AGE=1h",
	}, settings...)
	cfg, err := config.Load(settings)
	check.Must(t, err)
	p.site = &site{cfg: cfg, url: "http://" + address}
	command := testserver.Run(t, append(os.Environ(), settings...), testserver.Program(t), "serve")
	p.pid = command.PID()
	check.Eventually(t, "the service is ready", func() bool {
		if command.Ended() {
			t.Fatal("the service has ended")
		}
		response, err := http.Get(p.url + "/readyz")
		if err != nil {
			return false
		}
		defer http.DefaultClient.CloseIdleConnections()
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// statements is how many the database was ever asked, and entries how many of an index it has read in turn for them.
func (p *process) statements(t testing.TB) (asked, entries float64) {
	t.Helper()
	return float64(testserver.Status(t, p.db, "Questions")), float64(testserver.Status(t, p.db, "Handler_read_next"))
}

// calls is how often Redis was ever asked for each command.
func (p *process) calls(t testing.TB) map[string]float64 {
	t.Helper()
	calls := map[string]float64{}
	stats := check.Value(p.hot.Info(t.Context(), "commandstats").Result())(t)
	for _, line := range regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+)`).FindAllStringSubmatch(stats, -1) {
		calls[line[1]] = check.Value(strconv.ParseFloat(line[2], 64))(t)
	}
	return calls
}

// commands is how many Redis was ever asked, but for this question itself.
func (p *process) commands(t testing.TB) (asked float64) {
	t.Helper()
	for name, calls := range p.calls(t) {
		if name != "info" {
			asked += calls
		}
	}
	return asked
}

// cpu is what the service and its servers have computed.
func (p *process) cpu(t testing.TB) time.Duration {
	t.Helper()
	return testserver.CPU(t, p.pid) + testserver.CPU(t, p.database.PID()) + testserver.CPU(t, p.redis.PID())
}

// setting is a number of the environment, which the targets of the Makefile name.
func setting(t testing.TB, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	return check.Value(strconv.Atoi(text))(t)
}

// table lays rows out in columns; the cells of a row are separated by tabs.
func table(rows []string) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, row+"\t") // into memory
	}
	_ = w.Flush()
	return "\n" + text.String()
}

func milliseconds(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64)
}
