package console_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/config"
	"seckill/internal/redisdb"
	"seckill/internal/version"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/queue"
	"seckill/repository/hotcopy"
)

func TestAuditInWords(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	id := b.create(t, "stock", "5")
	s.buy(t, "alice", id)
	want(t, b.page(t, "/console/vouchers/"+id+"/audit"), "Everything adds up",
		"The stock of 5 is the 4 that remain and 1 live orders.", "seckill audit --repair")
	for _, action := range []string{"repair", "rebuild"} {
		b.post(t, "/console/vouchers/"+id+"/"+action, nil).is(t, http.StatusConflict)
	}
	want(t, b.page(t, "/console/dead-letters"), "there is no queue")
	b.get(t, "/console/vouchers/unknown/audit").is(t, http.StatusNotFound)
}

// The page of the receivers says how each stands, and its button sends again and has one that had stopped go on.
func TestReceiversOfEvents(t *testing.T) {
	t.Parallel()
	var heard atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(map[bool]int{true: http.StatusGone, false: http.StatusNoContent}[heard.Add(1) == 1])
	}))
	t.Cleanup(receiver.Close)
	s := start(t, "SECKILL_EVENTS_URLS="+receiver.URL, "SECKILL_EVENTS_PRIVATE=on",
		"SECKILL_EVENTS_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	ada := s.signedIn(t, "ada")
	ada.create(t)
	shows := func(parts ...string) {
		t.Helper()
		check.Eventually(t, "the page shows "+strings.Join(parts, ", "), func() bool {
			page := ada.page(t, "/console/events")
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(page, part) })
		})
	}
	shows("<code>"+receiver.URL+"</code>", `">stopped</span>`, "(410)</code>", `data-label="Waiting">1<br>`)
	ada.post(t, "/console/events", url.Values{"within": {"long"}}).is(t, http.StatusUnprocessableEntity)
	ada.post(t, "/console/events", url.Values{"within": {"1h"}, "url": {"https://x/"}}).is(t, http.StatusUnprocessableEntity)
	want(t, ada.act(t, "/console/events", url.Values{"within": {"1h"}, "url": {receiver.URL}}), "The events are sent again.")
	shows(`">all is well</span>`, "<code>2xx</code>", `data-label="Waiting">0</td>`)
	want(t, ada.page(t, "/console/log"), "had events sent again", `href="/console/events"`, receiver.URL)
}

func TestSystemAndLog(t *testing.T) {
	t.Parallel()
	s := start(t)
	ada, eve := s.signedIn(t, "ada"), s.signedIn(t, "eve")
	want(t, ada.page(t, "/console/system"), "This instance is ready.", `<th scope="row">database</th>`,
		`<th scope="row">redis</th>`, "sync", "(commit "+version.Read().Commit+", "+runtime.Version()+")")
	check.Eventually(t, "it lists itself among the instances, with the Redis inside it, too", func() bool {
		return strings.Contains(ada.page(t, "/console/system"), `<span class="badge well">ready</span></td><td data-label="Role">all</td><td data-label="Order mode">sync</td>`)
	})
	id := ada.create(t)
	eve.act(t, "/console/vouchers/"+id+"/state", url.Values{"to": {"paused"}})
	page := eve.page(t, "/console/log")
	want(t, page, "created a voucher", "changed a voucher", `href="/console/vouchers/`+id+`"`,
		`State</span> published → paused`)
	_, rest, _ := strings.Cut(page, `href="/console/log?actor=`)
	actor, _, _ := strings.Cut(rest, `"`)
	only := eve.page(t, "/console/log?actor="+actor)
	want(t, only, "changed a voucher")
	lacks(t, only, "created a voucher")
}

// process is a console over a MariaDB and a Redis of its own, whose counters nobody else moves.
type process struct {
	*site
	pid             int
	database, redis *testserver.Server
	db              *sql.DB
	hot             *redis.Client
}

// serve starts the service until the test ends: the shipped program in its own process, or in this process.
func serve(t testing.TB, shipped bool, environ ...string) *process {
	t.Helper()
	p := &process{pid: os.Getpid(), redis: testserver.Redis(t)}
	if shipped {
		p.database = testserver.MariaDB(t, "--innodb-buffer-pool-size=512M", "--innodb-log-file-size=256M")
	} else {
		p.database = testserver.MariaDB(t)
	}
	settings := append([]string{
		"SECKILL_DATABASE_DSN=" + p.database.DSN(testserver.DefaultSchema), "SECKILL_REDIS_URL=" + p.redis.URL(),
		"SECKILL_CONSOLE=on", "SECKILL_LOG_LEVEL=warn",
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

func (p *process) run(t testing.TB, settings []string) {
	t.Helper()
	address := testserver.Address(t)
	settings = append([]string{
		"SECKILL_DATA_DIR=" + t.TempDir(), "SECKILL_JWT_SECRET=" + secret, "SECKILL_HTTP_ADDR=" + address,
		"SECKILL_OPS_ADDR=" + testserver.Address(t),
		"SECKILL_RATE_USER=0", "SECKILL_RATE_ADDR=0", "SECKILL_BACKLOG_MAX_AGE=1h",
	}, settings...)
	cfg, err := config.Load(settings)
	check.Must(t, err)
	p.site = &site{cfg: cfg, url: "http://" + address, sessions: map[string][]*http.Cookie{}}
	command := testserver.Run(t, append(os.Environ(), settings...), testserver.Program(t), "serve")
	p.pid = command.PID()
	check.Eventually(t, "the service is ready", func() bool {
		check.Need(t, !command.Ended(), "the service has ended")
		response, err := http.Get(p.url + "/readyz")
		if err != nil {
			return false
		}
		defer http.DefaultClient.CloseIdleConnections()
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// entries is how many of an index the database has ever read in turn.
func (p *process) entries(t testing.TB) float64 {
	t.Helper()
	return float64(testserver.Status(t, p.db, "Handler_read_next"))
}

func (p *process) calls(t testing.TB) map[string]float64 {
	t.Helper()
	calls := map[string]float64{}
	stats := check.Value(p.hot.Info(t.Context(), "commandstats").Result())(t)
	for _, line := range regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+)`).FindAllStringSubmatch(stats, -1) {
		calls[line[1]] = check.Value(strconv.ParseFloat(line[2], 64))(t)
	}
	return calls
}

func (p *process) cpu(t testing.TB) time.Duration {
	t.Helper()
	return testserver.CPU(t, p.pid) + testserver.CPU(t, p.database.PID()) + testserver.CPU(t, p.redis.PID())
}

func asyncOnServers(t testing.TB) []string {
	t.Helper()
	return []string{
		"SECKILL_DATABASE_DSN=" + testserver.Schema(t), "SECKILL_REDIS_URL=" + testserver.SharedRedis(t),
		"SECKILL_NATS_URL=" + testserver.SharedNATS(t),
		"SECKILL_CONSOLE=on", "SECKILL_ORDER_MODE=async",
	}
}

func (s *site) bury(t testing.TB, b *browser, letter model.DeadLetter) string {
	t.Helper()
	mode := check.Value(s.database(t).Modes.Read(t.Context()))(t)
	q := check.Value(queue.Open(t.Context(), queue.Options{
		URL: s.cfg.NATSURL, Deployment: mode.Deployment, Log: slog.New(slog.DiscardHandler), Slack: check.Deadline,
	}))(t)
	defer q.Close(context.Background())
	check.Must(t, q.Bury(t.Context(), letter))
	rows := regexp.MustCompile(`href="(/console/dead-letters/\d+)"`).FindAllStringSubmatch(b.page(t,
		"/console/dead-letters"), -1)
	check.Need(t, len(rows) > 0, "no letter is listed")
	return rows[len(rows)-1][1]
}

func lost(id, voucherID, user string) *model.Reservation {
	return &model.Reservation{Epoch: 1, Sequence: 7, Order: model.Order{
		ID: model.OrderID(id, voucherID), VoucherID: voucherID, UserID: user, Status: model.OrderProcessing,
		Price: 1000, Currency: "CNY", CreatedAt: time.Now(),
	}}
}

func TestWithAQueue(t *testing.T) { //nolint:tparallel // one shop, whose queue each step looks into
	t.Parallel()
	s := start(t, asyncOnServers(t)...)
	t.Run("dead letters", func(t *testing.T) { deadLettersAreReplayedAndDropped(t, s) })
	t.Run("a hot copy", func(t *testing.T) { aHotCopyIsRepairedAndRebuilt(t, s) })
}

// The administrators' log says who replayed or dropped a letter. What cannot be replayed stays.
func deadLettersAreReplayedAndDropped(t *testing.T, s *site) {
	t.Helper()
	b := s.signedIn(t, "ada")
	want(t, b.page(t, "/console/dead-letters"), "There are none.")
	for _, sequence := range []string{"1", "x"} {
		b.get(t, "/console/dead-letters/"+sequence).is(t, http.StatusNotFound)
	}
	voucher := b.create(t, "stock", "2")
	letter := s.bury(t, b, model.DeadLetter{Reason: "a column is missing", Reservation: lost("one", voucher, "alice")})
	want(t, b.page(t, letter), "a column is missing", "alice", "Replay the letter")

	path := b.post(t, letter+"/replay", nil).leads(t)
	made, isOrder := strings.CutPrefix(path, "/console/orders/")
	check.Need(t, isOrder && made != model.OrderID("one", voucher), "a replay leads to %s", path)
	want(t, b.page(t, path), "The letter was replayed as this order.", "alice")
	check.Eventually(t, "alice has an order to pay", func() bool {
		_, order := s.call(t, http.MethodGet, "/orders/"+made, s.token(t, "alice", model.RoleUser), nil)
		return order["status"] == "unpaid"
	})
	ada := s.account(t, "ada")
	logged := b.page(t, "/console/log?actor="+ada)
	want(t, logged, "asked for the replay of a dead letter", `Order</span> `, model.OrderID("one", voucher),
		"a column is missing")
	b.get(t, letter).is(t, http.StatusNotFound)
	b.post(t, letter+"/replay", nil).is(t, http.StatusNotFound)
	b.post(t, letter+"/drop", nil).is(t, http.StatusNotFound)
	after := b.page(t, "/console/log?actor="+ada)
	check.Equal(t, "entries of what was not there",
		strings.Count(after, "dead letter")-strings.Count(logged, "dead letter"), 0)

	letter = s.bury(t, b, model.DeadLetter{Reason: "again", Reservation: lost("two", voucher, "alice")})
	b.post(t, letter+"/replay", nil).is(t, http.StatusConflict)
	want(t, b.page(t, letter), "again")
	want(t, b.act(t, letter+"/drop", nil), "The letter was removed.", "There are none.")
	want(t, b.page(t, "/console/log"), "asked to drop a dead letter", model.OrderID("two", voucher))

	raw := s.bury(t, b, model.DeadLetter{Reason: "no JSON", Raw: []byte("\x00garbage<script>")})
	want(t, b.page(t, raw), "garbage&lt;script&gt;")
	b.post(t, raw+"/replay", nil).is(t, http.StatusConflict)
	b.act(t, raw+"/drop", nil)
	want(t, b.page(t, "/console/dead-letters"), "There are none.")
}

// The administrators' log says who asked, and of a repair only when there was something to repair.
func aHotCopyIsRepairedAndRebuilt(t *testing.T, s *site) {
	t.Helper()
	b := s.signedIn(t, "ada")
	want(t, b.page(t, "/console/system"), "This instance is ready.", "async", "queue")
	id := b.create(t, "stock", "5")
	path := "/console/vouchers/" + id
	check.Equal(t, "alice hears", s.buy(t, "alice", id), "OK")
	await(t, b.watch(t, id), "sold", func(r reading) bool {
		return r.Stock == 5 && r.Remaining == 4 && r.Sold == 1 &&
			r.Reserved == 0
	})
	want(t, b.page(t, path), "data-events", `data-live="sold">1</b>`, `data-live="reserved">0</span>`)
	const sums = "The hot copy is open: 4 remain, 0 are reserved, 1 buyers have a mark."
	check.Patiently(t, "the audit adds up", func() bool {
		page := b.page(t, path+"/audit")
		return strings.Contains(page, "Everything adds up") && strings.Contains(page, sums)
	})
	b.act(t, path+"/repair", nil)
	lacks(t, b.page(t, "/console/log"), "asked for a repair") // of nothing

	client := check.Value(redisdb.NewClient(s.cfg.RedisURL, nil))(t)
	defer client.Close()
	check.Must(t, client.HIncrBy(t.Context(), "seckill:v1:{"+id+"}:head", "stock", 1).Err())
	want(t, b.page(t, path+"/audit"), "It does not add up now.", "The hot copy is open: 5 remain")
	want(t, b.act(t, path+"/repair", nil), "What disagreed was repaired.", "Everything adds up", sums)
	ada := s.account(t, "ada")
	want(t, b.page(t, "/console/log?actor="+ada), "asked for a repair", `href="`+path+`"`)

	epochs := s.database(t).Epochs
	before := check.Value(epochs.Latest(t.Context(), []string{id}))(t)[id]
	want(t, b.act(t, path+"/rebuild", nil), "The hot copy is being rebuilt.")
	check.Patiently(t, "a later copy is open and adds up", func() bool {
		record := check.Value(epochs.Read(t.Context(), []string{id}))(t)[id]
		return record.OpenEpoch > before && strings.Contains(b.page(t, path+"/audit"), sums)
	})
	want(t, b.page(t, "/console/log?actor="+ada), "had the hot copy rebuilt")
	check.Equal(t, "bob hears", s.buy(t, "bob", id), "OK")
}

// The System page shows every instance that has not left. It is there without Redis too: this is when it is needed.
func TestInstancesAreListed(t *testing.T) {
	t.Parallel()
	redis := check.Value(url.Parse(testserver.SharedRedis(t)))(t)
	line := testserver.NewLine(t, redis.Host)
	redis.Host = line.Addr()
	environ := []string{
		"SECKILL_DATABASE_DSN=" + testserver.Schema(t), "SECKILL_REDIS_URL=" + redis.String(),
		"SECKILL_CONSOLE=on",
	}
	first := start(t, environ...)
	b := first.signedIn(t, "ada")
	port := func(s *site) string {
		at := check.Value(url.Parse(s.url))(t)
		return ":" + at.Port() + "</th>"
	}
	listed := func() string {
		page := b.page(t, "/console/system")
		_, page, _ = strings.Cut(page, "<h2>Instances</h2>")
		list, _, _ := strings.Cut(page, "</table>")
		return list
	}
	second, stop := launch(t, t.TempDir(), append(environ, "SECKILL_ROLE=worker")...)
	check.Patiently(t, "both are listed", func() bool {
		list := listed()
		return strings.Contains(list, port(first)) && strings.Contains(list, port(second))
	})
	want(t, listed(), `<td data-label="Role">worker</td><td data-label="Order mode">sync</td>`,
		`<td data-label="Role">all</td>`, "<time datetime=")
	stop()
	want(t, listed(), port(first))
	lacks(t, listed(), port(second))
	defer line.Heal()
	line.CutReplies()
	check.Patiently(t, "the page says what is wrong", func() bool { // the latest look at Redis is good for a moment
		page := b.page(t, "/console/system")
		return strings.Contains(page, "This instance is not ready.") &&
			strings.Contains(page, "Which instances there are cannot be learnt now.")
	})
}

// At either of two instances people see the sum of both.
func TestTwoInstancesAreSummed(t *testing.T) {
	t.Parallel()
	environ := []string{
		"SECKILL_DATABASE_DSN=" + testserver.Schema(t),
		"SECKILL_REDIS_URL=" + testserver.SharedRedis(t), "SECKILL_CONSOLE=on",
	}
	first, second := start(t, environ...), start(t, environ...)
	ada, eve := first.signedIn(t, "ada"), second.signedIn(t, "eve")
	id := ada.create(t, "stock", "12")
	for n := range 12 {
		s := first
		if n >= 7 {
			s = second
		}
		check.Equal(t, "what a buyer hears", s.buy(t, fmt.Sprint("buyer-", n), id), "OK")
	}
	client := check.Value(redisdb.NewClient(first.cfg.RedisURL, nil))(t)
	defer client.Close()
	mode := check.Value(first.database(t).Modes.Read(t.Context()))(t)
	tallies := hotcopy.NewTallies(client, func(context.Context) (string, error) { return mode.Deployment, nil },
		"nobody")
	check.Patiently(t, "each instance tells its own buyers", func() bool {
		var sold []uint64
		for _, tally := range check.Value(tallies.Read(t.Context(), id))(t) {
			sold = append(sold, tally.Placed["OK"])
		}
		slices.Sort(sold)
		return slices.Equal(sold, []uint64{5, 7})
	})
	for _, b := range []*browser{ada, eve} {
		await(t, b.watch(t, id), "what both instances have heard", func(r reading) bool {
			check.Equal(t, "what a buyer hears at the first", first.buy(t, "buyer-1", id), "ALREADY_ORDERED")
			check.Equal(t, "what a visitor hears at the second", second.buy(t, "visitor", id), "SOLD_OUT")
			return r.Sold == 12 && r.Counts.Unpaid == 12 && r.PerSecond["ALREADY_ORDERED"] > 0 &&
				r.PerSecond["SOLD_OUT"] > 0
		})
	}
}
