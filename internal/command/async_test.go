package command

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/config"
	"seckill/internal/api"
	"seckill/internal/app"
	"seckill/internal/redisdb"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/queue"
)

// asyncEnviron is an asynchronous deployment on the servers the tests share.
func asyncEnviron(t *testing.T) []string {
	t.Helper()
	return []string{
		"SECKILL_ORDER_MODE=async", "SECKILL_DATABASE_DSN=" + testserver.Schema(t), "SECKILL_REDIS_URL=" + testserver.SharedRedis(t),
		"SECKILL_NATS_URL=" + testserver.SharedNATS(t), "SECKILL_JWT_SECRET=a secret of the tests, 32 bytes or more", "SECKILL_RATE_USER=0", "SECKILL_RATE_ADDR=0",
	}
}

// counter is an instance as its clients see it.
type counter struct{ remote.Service }

func counterOf(t *testing.T, instance *app.Instance, cfg config.Config) counter {
	t.Helper()
	authority := check.Value(app.Tokens(t.Context(), cfg))(t)
	return counter{remote.Service{URL: instance.BaseURL(), Client: client(t), Tokens: authority}}
}

// putUp puts a voucher on sale.
func (s counter) putUp(t *testing.T, stock int64) string {
	t.Helper()
	return s.Create(t, map[string]any{"stock": stock}).ID
}

// buys asks until it is answered for good.
func (s counter) buys(t *testing.T, user, voucher string) api.Answer {
	t.Helper()
	return remote.Insist(t, user+" buys", func(int) (api.Answer, error) { return s.Place(t, voucher, user) })
}

// awaited is a user's order once it is not processing any more.
func (s counter) awaited(t *testing.T, user, id string) (order model.Order) {
	t.Helper()
	check.Eventually(t, "order "+id+" is decided", func() bool {
		got := s.Insist(t, http.MethodGet, "/orders/"+id+"?wait=10s", s.Token(t, user, model.RoleUser), nil)
		order = remote.Decode[model.Order](t, got)
		return order.Status != model.OrderProcessing
	})
	return order
}

// persisted buys one and waits until it is unpaid.
func (s counter) persisted(t *testing.T, user, voucher string) model.Order {
	t.Helper()
	got := s.buys(t, user, voucher)
	check.Equal(t, user+" buys", got.Status, http.StatusAccepted)
	order := s.awaited(t, user, remote.Decode[model.Order](t, got).ID)
	check.Equal(t, "the status of "+user+"'s order", order.Status, model.OrderUnpaid)
	return order
}

// drained waits until the queue has forgotten the orders of a voucher: a message is acknowledged after its buyer was told.
func (s counter) drained(t *testing.T, voucher string) {
	t.Helper()
	check.Eventually(t, "the queue is empty", func() bool { return s.Audit(t, voucher).Queue.Pending == 0 })
}

// ready is what an instance says of itself.
func ready(t *testing.T, base string) (status int, body string) {
	t.Helper()
	response, err := client(t).Get(base + "/readyz")
	check.Must(t, err)
	defer response.Body.Close()
	text := check.Value(io.ReadAll(response.Body))(t)
	return response.StatusCode, string(text)
}

func words(text string) string { return strings.Join(strings.Fields(text), " ") }

func TestAuditRepairsAHotCopyThatIsWrong(t *testing.T) {
	t.Parallel()
	environ := asyncEnviron(t)
	instance, cfg := started(t, environ...)
	s := counterOf(t, instance, cfg)
	if got := call(t, environ, "", "mode"); got.code != 0 || got.stdout != "async\n" {
		t.Errorf("mode: %+v", got)
	}
	if got := call(t, environ, "", "mode", "async"); got.code != 0 || !strings.Contains(got.stdout, "async already") {
		t.Errorf("mode async again: %+v", got)
	}
	for _, over := range [][]string{nil, {"--url", instance.BaseURL()}} {
		voucher := s.putUp(t, 5)
		s.persisted(t, "alice", voucher)
		s.drained(t, voucher)
		spoil(t, cfg, voucher)
		asked := append([]string{"audit", "--voucher", voucher}, over...)
		if got := call(t, environ, "", asked...); got.code != exitError || !strings.HasSuffix(strings.TrimSpace(got.stdout), "NO") {
			t.Errorf("%q of a wrong copy: %+v", asked, got)
		}
		repair := append(asked, "--repair")
		if got := call(t, environ, "", repair...); got.code != 0 || !strings.Contains(words(got.stdout), voucher+" 5 4 1 open 4 0 1 0 0s yes") {
			t.Errorf("%q: %+v", repair, got)
		}
		s.persisted(t, "bob", voucher)
	}
}

// spoil makes a hot copy believe in one unit too many.
func spoil(t *testing.T, cfg config.Config, voucher string) {
	t.Helper()
	rdb := check.Value(redisdb.NewClient(cfg.RedisURL, nil))(t)
	defer rdb.Close()
	head := "seckill:v1:{" + voucher + "}:head"
	if n, err := rdb.(redis.Cmdable).HIncrBy(t.Context(), head, "stock", 1).Result(); err != nil || n != 6 {
		t.Fatalf("%s: stock %d, %v", head, n, err)
	}
}

// bury puts letters into a deployment's queue.
func bury(t *testing.T, cfg config.Config, letters ...model.DeadLetter) {
	t.Helper()
	db := check.Value(app.OpenDatabase(t.Context(), cfg, Process{Stderr: os.Stderr}.newLogger(cfg)))(t)
	defer db.Close()
	mode := check.Value(db.Modes.Read(t.Context()))(t)
	q := check.Value(queue.Open(t.Context(), queue.Options{URL: cfg.NATSURL, Deployment: mode.Deployment, Log: slog.New(slog.DiscardHandler), Slack: check.Deadline}))(t)
	defer q.Close(context.Background())
	for _, letter := range letters {
		check.Must(t, q.Bury(t.Context(), letter))
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	environ := asyncEnviron(t)
	instance, cfg := started(t, environ...)
	s := counterOf(t, instance, cfg)
	voucher := s.putUp(t, 2)
	lost := func(id, user string) *model.Reservation {
		return &model.Reservation{Epoch: 1, Sequence: 7, Order: model.Order{
			ID: id + "." + voucher, VoucherID: voucher, UserID: user, Status: model.OrderProcessing,
			Price: 1000, Currency: "CNY", CreatedAt: time.Now(),
		}}
	}
	if got := call(t, environ, "", "deadletters", "list"); got.code != 0 || got.stdout != "0 dead letters\n" {
		t.Errorf("list of nothing: %+v", got)
	}
	bury(t, cfg,
		model.DeadLetter{Reason: "a column\nis missing", Reservation: lost("one", "alice")},
		model.DeadLetter{Reason: "no JSON", Raw: []byte("\x00garbage")},
		model.DeadLetter{Reason: "again", Reservation: lost("two", "alice")},
		model.DeadLetter{Reason: "and again", Reservation: lost("three", "bob")})

	got := call(t, environ, "", "deadletters", "list")
	rows := regexp.MustCompile(`(?m)^(\d+) .*$`).FindAllStringSubmatch(got.stdout, -1)
	if got.code != 0 || len(rows) != 5 || !strings.Contains(rows[0][0], "one."+voucher) || !strings.Contains(rows[0][0], `a column\nis missing`) ||
		!strings.Contains(got.stdout, "4 dead letters") {
		t.Fatalf("list: %+v", got)
	}
	first, raw := rows[0][1], rows[1][1]
	if got := call(t, environ, "", "deadletters", "show", first); got.code != 0 || !strings.Contains(words(got.stdout), "user alice price 1000 CNY") {
		t.Errorf("show: %+v", got)
	}
	if got := call(t, environ, "", "deadletters", "show", raw); got.code != 0 || !strings.Contains(got.stdout, `"\x00garbage"`) {
		t.Errorf("show raw: %+v", got)
	}
	if got := call(t, environ, "", "deadletters", "show", "999999999"); got.code != exitError || got.stderr == "" {
		t.Errorf("show nothing: %+v", got)
	}
	if got := call(t, environ, "", "deadletters", "replay", raw); got.code != exitError || !strings.Contains(got.stderr, "could not be read") {
		t.Errorf("replay raw: %+v", got)
	}
	got = call(t, environ, "", "deadletters", "replay", first)
	made := regexp.MustCompile(`new order (\S+)`).FindStringSubmatch(got.stdout)
	if got.code != 0 || made == nil || made[1] == "one."+voucher {
		t.Fatalf("replay: %+v", got)
	}
	if order := s.awaited(t, "alice", made[1]); order.Status != model.OrderUnpaid || order.UserID != "alice" {
		t.Errorf("the new order: %+v", order)
	}
	// Alice has an order now; Bob gets the last unit.
	got = call(t, environ, "", "deadletters", "replay", "--all")
	if got.code != exitError || !strings.Contains(got.stdout, "user bob has the new order") || !strings.Contains(got.stderr, "already") ||
		!strings.Contains(got.stdout, "1 of 2 dead letters were replayed") {
		t.Errorf("replay all: %+v", got)
	}
	if got := call(t, environ, "", "deadletters", "drop", raw); got.code != 0 || !strings.Contains(got.stdout, "was removed") {
		t.Errorf("drop: %+v", got)
	}
	if got := call(t, environ, "", "deadletters", "drop", raw); got.code != exitError || got.stderr == "" {
		t.Errorf("drop what is gone: %+v", got)
	}
	if got := call(t, environ, "", "deadletters", "list"); !strings.Contains(got.stdout, "1 dead letters") || strings.Contains(words(got.stdout), " bob ") {
		t.Errorf("list afterwards: %+v", got)
	}
}
