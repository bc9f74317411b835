package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

func asyncEnviron(t *testing.T) []string {
	t.Helper()
	return []string{
		"SECKILL_ORDER_MODE=async", "SECKILL_DATABASE_DSN=" + testserver.Schema(t),
		"SECKILL_REDIS_URL=" + testserver.SharedRedis(t),
		"SECKILL_NATS_URL=" + testserver.SharedNATS(t), "SECKILL_JWT_SECRET=a secret of the tests, 32 bytes or more",
		"SECKILL_RATE_USER=0", "SECKILL_RATE_ADDR=0",
	}
}

type counter struct{ remote.Service }

func counterOf(t *testing.T, instance *app.Instance, cfg config.Config) counter {
	t.Helper()
	authority := check.Value(app.Tokens(t.Context(), cfg))(t)
	return counter{remote.Service{URL: instance.BaseURL(), Client: client(t), Tokens: authority}}
}

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

// drained waits until the queue has forgotten a voucher's orders: it acknowledges each after telling the buyer.
func (s counter) drained(t *testing.T, voucher string) {
	t.Helper()
	check.Eventually(t, "the queue is empty", func() bool { return s.Audit(t, voucher).Queue.Pending == 0 })
}

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
	call(t, environ, "", "mode").shows(exitOK, "async")
	call(t, environ, "", "mode", "async").shows(exitOK, "async already")
	for _, over := range [][]string{nil, {"--url", instance.BaseURL()}} {
		voucher := s.putUp(t, 5)
		s.persisted(t, "alice", voucher)
		s.drained(t, voucher)
		spoil(t, cfg, voucher)
		asked := append([]string{"audit", "--voucher", voucher}, over...)
		call(t, environ, "", asked...).shows(exitError, "NO")
		repair := append(asked, "--repair")
		call(t, environ, "", repair...).shows(exitOK, voucher+" 5 4 1 open 4 0 1 0 0s yes")
		s.persisted(t, "bob", voucher)
	}
}

func spoil(t *testing.T, cfg config.Config, voucher string) {
	t.Helper()
	rdb := check.Value(redisdb.NewClient(cfg.RedisURL, nil))(t)
	defer rdb.Close()
	head := "seckill:v1:{" + voucher + "}:head"
	n, err := rdb.(redis.Cmdable).HIncrBy(t.Context(), head, "stock", 1).Result()
	check.Need(t, err == nil && n == 6, "%s: stock %d, %v", head, n, err)
}

func bury(t *testing.T, cfg config.Config, letters ...model.DeadLetter) {
	t.Helper()
	db := check.Value(app.OpenDatabase(t.Context(), cfg, Process{Stderr: os.Stderr}.newLogger(cfg)))(t)
	defer db.Close()
	mode := check.Value(db.Modes.Read(t.Context()))(t)
	q := check.Value(queue.Open(t.Context(),
		queue.Options{
			URL: cfg.NATSURL, Deployment: mode.Deployment, Log: slog.New(slog.DiscardHandler),
			Slack: check.Deadline,
		}))(t)
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
	call(t, environ, "", "deadletters", "list").shows(exitOK, "0 dead letters")
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
	call(t, environ, "", "deadletters", "show", first).shows(exitOK, "user alice price 1000 CNY")
	call(t, environ, "", "deadletters", "show", raw).shows(exitOK, `"\x00garbage"`)
	call(t, environ, "", "deadletters", "show", "999999999").shows(exitError)
	call(t, environ, "", "deadletters", "replay", raw).shows(exitError, "could not be read")
	got = call(t, environ, "", "deadletters", "replay", first)
	made := regexp.MustCompile(`new order (\S+)`).FindStringSubmatch(got.stdout)
	check.Need(t, got.code == 0 && made != nil && made[1] != "one."+voucher, "replay: %+v", got)
	order := s.awaited(t, "alice", made[1])
	check.That(t, order.Status == model.OrderUnpaid && order.UserID == "alice", "the new order: %+v", order)
	// Alice has an order now; Bob gets the last unit.
	call(t, environ, "", "deadletters", "replay", "--all").
		shows(exitError, "user bob has the new order", "already", "1 of 2 dead letters were replayed")
	call(t, environ, "", "deadletters", "drop", raw).shows(exitOK, "was removed")
	call(t, environ, "", "deadletters", "drop", raw).shows(exitError)
	if got := call(t, environ, "", "deadletters", "list"); !strings.Contains(got.stdout, "1 dead letters") ||
		strings.Contains(words(got.stdout), " bob ") {
		t.Errorf("list afterwards: %+v", got)
	}
}

func ofDatabase(t *testing.T, cfg config.Config, statement string, args ...any) {
	t.Helper()
	db := check.Value(app.OpenDatabase(t.Context(), cfg, Process{Stderr: os.Stderr}.newLogger(cfg)))(t)
	defer func() { check.Must(t, db.Close()) }()
	check.Must(t, check.ErrorOf(db.SQL().ExecContext(t.Context(), statement, args...)))
}

func setRow(t *testing.T, cfg config.Config, assignments, voucher string) {
	t.Helper()
	ofDatabase(t, cfg, "UPDATE vouchers SET "+assignments+" WHERE id = ?", voucher)
}

func TestAudit(t *testing.T) {
	t.Parallel()
	instance, cfg := started(t)
	environ := in(cfg.DataDir)
	s := counterOf(t, instance, cfg)
	call(t, environ, "", "audit").shows(exitOK, "0 of 0")
	first, second := s.putUp(t, 7), s.putUp(t, 3)
	check.Equal(t, "alice buys", s.buys(t, "alice", first).Status, http.StatusCreated)
	for _, asked := range [][]string{
		{"audit"},
		{"audit", "--url", instance.BaseURL()},
		{"audit", "--url", instance.BaseURL() + "/", "--token", s.Admin(t)},
		{"audit", "--voucher", first},
		{"audit", "--repair"},
	} {
		got := call(t, environ, "", asked...)
		row := words(got.stdout)
		check.That(t, got.code == 0 && strings.Contains(row, first+" 7 6 1 yes"), "%q: %+v", asked, got)
		if both := strings.Contains(row, second+" 3 3 0 yes"); both == (len(asked) == 3 && asked[1] == "--voucher") {
			t.Errorf("%q: the second voucher is there: %v", asked, both)
		}
		if told := strings.Contains(got.stderr,
			"nothing to repair in sync mode"); told != (asked[len(asked)-1] == "--repair") {
			t.Errorf("%q: stderr %q", asked, got.stderr)
		}
	}

	setRow(t, cfg, "remaining = remaining - 1", second)
	for _, asked := range [][]string{{"audit"}, {"audit", "--url", instance.BaseURL()}, {"audit", "--voucher", second}} {
		got := call(t, environ, "", asked...)
		row := words(got.stdout)
		if got.code != exitError || !strings.Contains(row, second+" 3 2 0 NO") ||
			!strings.Contains(got.stderr, "not add up") {
			t.Errorf("%q of what does not add up: %+v", asked, got)
		}
	}
	call(t, environ, "", "audit", "--voucher", first).shows(exitOK)
	for _, asked := range [][]string{
		{"audit", "--voucher", "nope"},
		{"audit", "--voucher", "nope", "--url", instance.BaseURL()},
		{"audit", "--url", instance.BaseURL(), "--token", s.Token(t, "alice", model.RoleUser)},
		{"audit", "--url", instance.OpsURL()},
		{"audit", "--url", "http://127.0.0.1:1"},
		{"audit", "--data-dir", filepath.Join(cfg.DataDir, "missing")},
	} {
		if got := call(t, environ, "", asked...); got.code != exitError || got.stderr == "" || got.stdout != "" {
			t.Errorf("%q: %+v", asked, got)
		}
	}
	_, err := os.Stat(filepath.Join(cfg.DataDir, "missing"))
	check.That(t, os.IsNotExist(err), "an audit left a directory behind: %v", err)
}

// TestAuditRepairsTheStock: leaked units come back, invented units go, and the audit names an oversold voucher.
func TestAuditRepairsTheStock(t *testing.T) {
	t.Parallel()
	instance, cfg := started(t, in(t.TempDir())...)
	environ := in(cfg.DataDir)
	s := counterOf(t, instance, cfg)
	leaked, extra, oversold := s.putUp(t, 10), s.putUp(t, 10), s.putUp(t, 10)
	for i := range 3 {
		for _, voucher := range []string{leaked, extra, oversold} {
			if a := s.buys(t, fmt.Sprint("user", i), voucher); a.Status != http.StatusCreated {
				t.Fatalf("%+v", a)
			}
		}
	}
	setRow(t, cfg, "remaining = 2", leaked)
	setRow(t, cfg, "remaining = 10", extra)
	setRow(t, cfg, "stock = 2, remaining = 1", oversold)

	got := call(t, environ, "", "audit")
	for _, said := range []string{
		leaked + " 10 2 3 NO the database itself: stock 10, remaining 2, live orders 3, difference 5; --repair --stock",
		extra +
			" 10 10 3 NO the database itself: stock 10, remaining 10, live orders 3, difference -3; --repair --stock",
		oversold +
			" 2 1 3 NO the database itself: stock 2, remaining 1, live orders 3, difference -2; --repair --stock",
	} {
		check.That(t, got.code == exitError && strings.Contains(words(got.stdout), said),
			"audit: %+v, want %q", got, said)
	}
	call(t, environ, "", "audit", "--repair", "--voucher", leaked).shows(exitError, "without --stock")
	got = call(t, environ, "", "audit", "--repair", "--stock")
	for _, said := range []string{
		leaked + ": remaining was 2 and is 7 now, because of a stock of 10 units live orders hold 3",
		leaked + " 10 7 3 yes", extra + " 10 7 3 yes",
		oversold + ": it is oversold by 1",
		oversold + " 2 0 3 NO the database itself: stock 2, remaining 0, live orders 3, difference -1; oversold by 1,",
		"1 of 3",
	} {
		check.That(t, got.code == exitError && strings.Contains(words(got.stdout+got.stderr), said),
			"audit --repair --stock: %+v, want %q", got, said)
	}
	got = call(t, environ, "", "audit", "--repair", "--stock", "--voucher", leaked)
	check.That(t, got.code == 0 && !strings.Contains(got.stdout, "remaining was"), "repaired already: %+v", got)
	if a := s.buys(t, "late", leaked); a.Status != http.StatusCreated {
		t.Errorf("%+v", a)
	}
	for _, wrong := range [][]string{{"audit", "--stock"}, {"audit", "--repair", "--stock", "--url", instance.BaseURL()}} {
		call(t, environ, "", wrong...).shows(exitUsage, "--stock")
	}
}

// TestAuditRepairsTheStockInAsync: the hot copy is made anew from the repaired row.
func TestAuditRepairsTheStockInAsync(t *testing.T) {
	t.Parallel()
	environ := asyncEnviron(t)
	instance, cfg := started(t, environ...)
	s := counterOf(t, instance, cfg)
	for name, remaining := range map[string]int{"leaked": 1, "extra": 3} {
		voucher := s.putUp(t, 3)
		s.persisted(t, "alice", voucher)
		setRow(t, cfg, fmt.Sprint("remaining = ", remaining), voucher)
		call(t, environ, "", "audit", "--repair", "--stock", "--voucher", voucher).
			shows(exitOK, fmt.Sprintf("remaining was %d and is 2 now", remaining), voucher+" 3 2 1 open 2 0 1 ")
		s.persisted(t, "bob", voucher)
		s.persisted(t, "carol", voucher)
		if a := s.buys(t, "dave", voucher); a.Code() != model.CodeSoldOut {
			t.Errorf("%s: a fourth buyer of three units: %+v", name, a)
		}
		call(t, environ, "", "audit", "--voucher", voucher).shows(exitOK)
	}

	// The copy does not wait for an audit that finds it wrong, which cannot compare counts in a rush.
	voucher := s.putUp(t, 3)
	setRow(t, cfg, "remaining = 0", voucher)
	check.Must(t, Process{Stderr: os.Stderr}.withAsyncParts(t.Context(), cfg, func(a *app.AsyncParts) error {
		_, err := everything(a).repairStock(t.Context(), voucher)
		copies, readErr := a.Hot.Read(t.Context(), []string{voucher})
		if hot := copies[voucher]; hot.Epoch != 2 || hot.State != model.CopyOpen || hot.Voucher.Remaining != 3 {
			t.Errorf("the copy after the repair: %+v", hot)
		}
		return errors.Join(err, readErr)
	}))
}

// TestCommandsRefuseAnotherRedis than that of the instances, as an instance does: it knows none of the orders.
func TestCommandsRefuseAnotherRedis(t *testing.T) {
	t.Parallel()
	environ := asyncEnviron(t)
	instance, cfg := started(t, environ...)
	s := counterOf(t, instance, cfg)
	voucher := s.putUp(t, 2)
	s.persisted(t, "alice", voucher)
	other := append(slices.Clone(environ), "SECKILL_REDIS_URL="+testserver.Redis(t).URL())
	for _, asked := range [][]string{{"audit", "--repair"}, {"audit"}, {"audit", "--repair", "--stock"}, {"deadletters", "list"}} {
		if got := call(t, other, "", asked...); got.code != exitError ||
			!strings.Contains(got.stderr, "uses another Redis") || got.stdout != "" {
			t.Errorf("%q: %+v", asked, got)
		}
	}
	s.persisted(t, "bob", voucher)
	call(t, environ, "", "audit", "--repair").shows(exitOK)
}

// TestAShopThatDoesNotAddUpTells: a deleted order shows without an audit, until a repair.
func TestAShopThatDoesNotAddUpTells(t *testing.T) {
	t.Parallel()
	instance, cfg := started(t)
	s := counterOf(t, instance, cfg)
	voucher := s.putUp(t, 3)
	check.Equal(t, "alice buys", s.buys(t, "alice", voucher).Status, http.StatusCreated)
	visitor := client(t)
	told := func() bool {
		response, err := visitor.Get(instance.OpsURL() + "/metrics")
		check.Must(t, err)
		defer response.Body.Close()
		return strings.Contains(string(check.Value(io.ReadAll(response.Body))(t)), `seckill_voucher_units_off{voucher_id="`+voucher+`"} 1`)
	}
	ofDatabase(t, cfg, "DELETE FROM orders WHERE voucher_id = ?", voucher)
	check.Patiently(t, "it is told", told)
	call(t, in(cfg.DataDir), "", "audit", "--repair", "--stock").shows(exitOK)
	check.Patiently(t, "it is told no more", func() bool { return !told() })
}

func inAsync(dir string) []string { return append(in(dir), "SECKILL_ORDER_MODE=async") }

// A repair, and an embedded server's replay, need the server to be away. The next start knows the replayed order.
func TestEmbeddedReplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	instance, cfg := started(t, "SECKILL_DATA_DIR="+dir, "SECKILL_ORDER_MODE=async")
	s := counterOf(t, instance, cfg)
	voucher := s.putUp(t, 1)
	call(t, inAsync(dir), "", "audit", "--repair", "--stock", "--voucher", voucher).shows(exitError, "stopped first")
	halt(instance)
	lost := model.Reservation{Epoch: 1, Sequence: 1, Order: model.Order{
		ID: "lost." + voucher, VoucherID: voucher, UserID: "alice", Status: model.OrderProcessing,
		Price: 1000, Currency: "CNY", CreatedAt: time.Now(),
	}}
	p := Process{Stderr: os.Stderr}
	check.Must(t, p.withAsyncParts(t.Context(), cfg, func(a *app.AsyncParts) error {
		return a.Queue.Bury(t.Context(), model.DeadLetter{Reason: "lost", Reservation: &lost})
	}))
	call(t, inAsync(dir), "", "deadletters", "replay", "--all").shows(exitOK, "1 of 1 dead letters were replayed")
	call(t, inAsync(dir), "", "audit").shows(exitOK, voucher+" 1 0 1 yes")
}

func TestRoles(t *testing.T) {
	t.Parallel()
	environ := asyncEnviron(t)
	api, cfg := started(t, append(environ, "SECKILL_ROLE=api")...)
	s := counterOf(t, api, cfg)
	voucher := s.putUp(t, 2)
	id := remote.Decode[model.Order](t, s.buys(t, "alice", voucher)).ID
	now := s.Call(t, http.MethodGet, "/orders/"+id+"?wait=1s", s.Token(t, "alice", model.RoleUser), nil)
	check.Equal(t, "the order while nobody works", remote.Decode[model.Order](t, now).Status, model.OrderProcessing)
	secretless := slices.DeleteFunc(slices.Clone(environ),
		func(set string) bool { return strings.HasPrefix(set, "SECKILL_JWT_SECRET=") })
	worker, _ := started(t, append(secretless, "SECKILL_ROLE=worker")...)
	check.Equal(t, "the order once somebody does", s.awaited(t, "alice", id).Status, model.OrderUnpaid)
	if status, body := ready(t, worker.BaseURL()); status != http.StatusOK || !strings.Contains(body, "queue") {
		t.Errorf("the worker's health: %d %s", status, body)
	}
	visitor := client(t)
	for url, want := range map[string]string{
		worker.BaseURL() + "/livez": "200 ok", worker.BaseURL() + "/api/v1/vouchers": "404 NOT_FOUND",
		// The message is acknowledged, and counted, after the buyer has heard of the order.
		worker.OpsURL() + "/metrics":         `200 seckill_queue_messages_total{result="acked"} 1`,
		worker.OpsURL() + "/metrics?backlog": "200 seckill_backlog_known 1",
	} {
		check.Eventually(t, url+" says "+want, func() bool {
			response, err := visitor.Get(url)
			check.Must(t, err)
			body := check.Value(io.ReadAll(response.Body))(t)
			_ = response.Body.Close()
			status, part, _ := strings.Cut(want, " ")
			return strconv.Itoa(response.StatusCode) == status && strings.Contains(string(body), part)
		})
	}
}

// Embedded parts beside a real database allow one instance: a second is unready, sells nothing and spares hot copies.
func TestSecondInstanceWithEmbeddedPartsSellsNothing(t *testing.T) {
	t.Parallel()
	environ := []string{
		"SECKILL_ORDER_MODE=async", "SECKILL_DATABASE_DSN=" + testserver.Schema(t),
		"SECKILL_JWT_SECRET=a secret of the tests, 32 bytes or more",
	}
	first, cfg := started(t, environ...)
	s := counterOf(t, first, cfg)
	check.Eventually(t, "the first is ready",
		func() bool { status, _ := ready(t, first.BaseURL()); return status == http.StatusOK })
	voucher := s.putUp(t, 5)
	s.persisted(t, "alice", voucher)

	second, _ := started(t, environ...)
	status, body := ready(t, second.BaseURL())
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "SECKILL_REDIS_URL and SECKILL_NATS_URL") {
		t.Errorf("the second: %d %s", status, body)
	}
	stray := s
	stray.URL = second.BaseURL()
	for range 3 {
		check.Equal(t, "the second sells", check.Value(stray.Place(t, voucher, "bob"))(t).Status,
			http.StatusServiceUnavailable)
	}
	s.persisted(t, "carol", voucher)
	audit := s.Audit(t, voucher)
	check.That(t, audit.Balanced && audit.Redis.Buyers == 2, "the audit: %+v", audit)
}
