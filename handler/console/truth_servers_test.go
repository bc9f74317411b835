package console_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/redisdb"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/queue"
	"seckill/repository/hotcopy"
)

// asyncOnServers are the settings of an asynchronous deployment on MariaDB, Redis and NATS.
func asyncOnServers(t testing.TB) []string {
	t.Helper()
	return []string{
		"SECKILL_DATABASE_DSN=" + testserver.Schema(t), "SECKILL_REDIS_URL=" + testserver.SharedRedis(t), "SECKILL_NATS_URL=" + testserver.SharedNATS(t),
		"SECKILL_CONSOLE=on", "SECKILL_ORDER_MODE=async",
	}
}

// bury puts a letter among the dead ones, and returns its page.
func (s *site) bury(t testing.TB, b *browser, letter model.DeadLetter) string {
	t.Helper()
	mode := check.Value(s.database(t).Modes.Read(t.Context()))(t)
	q := check.Value(queue.Open(t.Context(), queue.Options{
		URL: s.cfg.NATSURL, Deployment: mode.Deployment, Log: slog.New(slog.DiscardHandler), Slack: check.Deadline,
	}))(t)
	defer q.Close(context.Background())
	check.Must(t, q.Bury(t.Context(), letter))
	rows := regexp.MustCompile(`href="(/console/dead-letters/\d+)"`).FindAllStringSubmatch(b.page(t, "/console/dead-letters"), -1)
	if len(rows) == 0 {
		t.Fatal("no letter is listed")
	}
	return rows[len(rows)-1][1]
}

// lost is an order that could not be stored.
func lost(id, voucherID, user string) *model.Reservation {
	return &model.Reservation{Epoch: 1, Sequence: 7, Order: model.Order{
		ID: model.OrderID(id, voucherID), VoucherID: voucherID, UserID: user, Status: model.OrderProcessing,
		Price: 1000, Currency: "CNY", CreatedAt: time.Now(),
	}}
}

// In the order mode async an administrator looks after hot copies, and after what could not be stored.
func TestWithAQueue(t *testing.T) { //nolint:tparallel // one shop, whose queue each step looks into
	t.Parallel()
	s := start(t, asyncOnServers(t)...)
	t.Run("dead letters", func(t *testing.T) { deadLettersAreReplayedAndDropped(t, s) })
	t.Run("a hot copy", func(t *testing.T) { aHotCopyIsRepairedAndRebuilt(t, s) })
}

// A dead letter is replayed as an order of its buyer, or dropped, and the administrators' log
// says who asked. What cannot be replayed stays.
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

	got := b.post(t, letter+"/replay", nil)
	path, _, _ := strings.Cut(got.header.Get("Location"), "?")
	made, isOrder := strings.CutPrefix(path, "/console/orders/")
	if got.status != http.StatusSeeOther || !isOrder || made == model.OrderID("one", voucher) {
		t.Fatalf("replay: %d to %q: %s", got.status, path, got.body)
	}
	want(t, b.page(t, got.header.Get("Location")), "The letter was replayed as this order.", "alice")
	check.Eventually(t, "alice has an order to pay", func() bool {
		_, order := s.call(t, http.MethodGet, "/orders/"+made, s.token(t, "alice", model.RoleUser), nil)
		return order["status"] == "unpaid"
	})
	ada := s.account(t, "ada")
	logged := b.page(t, "/console/log?actor="+ada)
	want(t, logged, "asked for the replay of a dead letter", `Order</span> `, model.OrderID("one", voucher), "a column is missing")
	for _, action := range []string{"", "/replay", "/drop"} {
		answer := b.get(t, letter)
		if action != "" {
			answer = b.post(t, letter+action, nil)
		}
		answer.is(t, http.StatusNotFound)
	}
	if after := b.page(t, "/console/log?actor="+ada); strings.Count(after, "dead letter") != strings.Count(logged, "dead letter") {
		t.Error("what was not there is in the log")
	}

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

// A hot copy that is wrong is repaired, and one is rebuilt, by the forms of the audit. The
// administrators' log says who asked, and of a repair only when there was something to repair.
func aHotCopyIsRepairedAndRebuilt(t *testing.T, s *site) {
	t.Helper()
	b := s.signedIn(t, "ada")
	want(t, b.page(t, "/console/system"), "This instance is ready.", "async", "queue")
	id := b.create(t, "stock", "5")
	path := "/console/vouchers/" + id
	check.Equal(t, "alice hears", s.buy(t, "alice", id), "OK")
	await(t, b.watch(t, id), "sold", func(r reading) bool { return r.Stock == 5 && r.Remaining == 4 && r.Sold == 1 && r.Reserved == 0 })
	want(t, b.page(t, path), "data-events", `data-live="sold">1</b>`, `data-live="reserved">0</span>`)
	const sums = "The hot copy is open: 4 remain, 0 are reserved, 1 buyers have a mark."
	check.Patiently(t, "the audit adds up", func() bool {
		page := b.page(t, path+"/audit")
		return strings.Contains(page, "Everything adds up") && strings.Contains(page, sums)
	})
	b.act(t, path+"/repair", nil)
	if page := b.page(t, "/console/log"); strings.Contains(page, "asked for a repair") {
		t.Error("a repair of nothing is in the log")
	}

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

// The System page shows every instance of the deployment, and one that has left no more. It is there without Redis,
// too: this is when it is needed.
func TestInstancesAreListed(t *testing.T) {
	t.Parallel()
	redis := check.Value(url.Parse(testserver.SharedRedis(t)))(t)
	line := testserver.NewLine(t, redis.Host)
	redis.Host = line.Addr()
	environ := []string{"SECKILL_DATABASE_DSN=" + testserver.Schema(t), "SECKILL_REDIS_URL=" + redis.String(), "SECKILL_CONSOLE=on"}
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
	want(t, listed(), `<td data-label="Role">worker</td><td data-label="Order mode">sync</td>`, `<td data-label="Role">all</td>`, "<time datetime=")
	stop()
	if list := listed(); strings.Contains(list, port(second)) || !strings.Contains(list, port(first)) {
		t.Errorf("after the second has stopped: %s", list)
	}
	defer line.Heal()
	line.CutReplies()
	check.Patiently(t, "the page says what is wrong", func() bool { // the latest look at Redis is good for a moment
		page := b.page(t, "/console/system")
		return strings.Contains(page, "This instance is not ready.") && strings.Contains(page, "Which instances there are cannot be learnt now.")
	})
}

// What people see of a sale at either of two instances is the sum of both: what one alone has heard is in it, and what
// both have adds up.
func TestTwoInstancesAreSummed(t *testing.T) {
	t.Parallel()
	environ := []string{"SECKILL_DATABASE_DSN=" + testserver.Schema(t), "SECKILL_REDIS_URL=" + testserver.SharedRedis(t), "SECKILL_CONSOLE=on"}
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
	tallies := hotcopy.NewTallies(client, func(context.Context) (string, error) { return mode.Deployment, nil }, "nobody")
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
			return r.Sold == 12 && r.Counts.Unpaid == 12 && r.PerSecond["ALREADY_ORDERED"] > 0 && r.PerSecond["SOLD_OUT"] > 0
		})
	}
}
