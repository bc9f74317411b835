//part:races
package e2e_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestVouchers(t *testing.T) { t.Parallel(); anywhere(t, checkVouchers) }

func checkVouchers(t *testing.T, a shop) {
	admin, began := a.Admin(t), time.Now()
	body := `{"title":"茶 & <cake>","description":"for two","price":1000,"face_value":1e12,"stock":5,` +
		`"begin_at":"2020-01-01T08:00:00.5+08:00","end_at":"2099-01-01T00:00:00-05:00"}`
	created := a.once(t, "POST /admin/vouchers", admin, body)
	v := object(t, created, http.StatusCreated)
	id, _ := v["id"].(string)
	path := "/admin/vouchers/" + id
	want := map[string]any{
		"id": id, "title": "茶 & <cake>", "description": "for two", "price": 1000.0, "face_value": 1e12, "currency": "EUR",
		"allocation": "first_come", "stock": 5.0, "remaining": 5.0, "state": "published", "phase": "live",
		"begin_at": v["begin_at"], "end_at": v["end_at"], "server_time": v["server_time"],
	}
	check.That(t, maps.Equal(v, want) && model.ValidID(id) && created.Header.Get("Location") == "/api/v1"+path, "%v", v)
	check.That(t, strings.Contains(string(created.Body), "茶 & <cake>"), "the title is escaped: %s", created.Body)
	for member, want := range map[string]time.Time{
		"begin_at": time.Date(2020, 1, 1, 0, 0, 0, 5e8, time.UTC), "end_at": time.Date(2099, 1, 1, 5, 0, 0, 0, time.UTC),
	} {
		check.That(t, instant(t, v, member).Equal(want), "%s = %s", member, v[member])
	}
	at := instant(t, v, "server_time")
	check.That(t, at.After(began.Add(-time.Minute)) && at.Before(time.Now().Add(time.Minute)), "server_time is %s", at)
	as := func(got map[string]any) map[string]any { // but for the time
		instant(t, got, "server_time")
		got["server_time"] = v["server_time"]
		return got
	}
	for call, token := range map[string]string{"GET /vouchers/" + id: "", "GET " + path: admin, "PATCH " + path: admin} {
		body := map[bool]any{true: "{}"}[strings.HasPrefix(call, "PATCH")]
		got := as(object(t, a.once(t, call, token, body), http.StatusOK))
		check.That(t, maps.Equal(got, v), "%s: %v, want %v", call, got, v)
	}
	patched := as(object(t, a.once(t, "PATCH "+path, admin,
		`{"title":"Coffee","description":"","price":3,"face_value":7,`+
			`"end_at":"2021-01-01T00:00:00Z","state":"paused"}`), http.StatusOK))
	maps.Copy(want, map[string]any{
		"title": "Coffee", "description": "", "price": 3.0, "face_value": 7.0, "state": "paused", "phase": "ended", "end_at": patched["end_at"],
	})
	check.That(t, maps.Equal(patched, want), "%v", patched)
	for _, one := range []string{`{"end_at":"2019-01-01T00:00:00Z"}`, `{"begin_at":"2021-01-01T00:00:00Z"}`} {
		p := refused(t, a.once(t, "PATCH "+path, admin, one), model.CodeValidation)
		check.That(t, len(p.Errors) != 1 || strings.HasPrefix(p.Errors[0].Location, "body."), "%s: %v", one, p.Errors)
	}
}

func TestStockChanges(t *testing.T) { t.Parallel(); everywhere(t, checkStockChanges) }

func checkStockChanges(t *testing.T, a shop) {
	admin, voucher := a.Admin(t), a.onSale(t, 3)
	call := "POST /admin/vouchers/" + voucher.ID + "/stock"
	for n := range 2 {
		a.buys(t, voucher.ID, a.user(n))
	}
	for _, change := range []struct {
		body             string
		stock, remaining float64
	}{{`{"delta":5}`, 8, 6}, {`{"delta":-6}`, 2, 0}, {`{"stock":4}`, 4, 2}, {`{"delta":0}`, 4, 2}, {`{"stock":2}`, 2, 0}} {
		got := object(t, a.does(t, call, admin, change.body), http.StatusOK)
		check.That(t, got["stock"] == change.stock && got["remaining"] == change.remaining, "%s: %v", change.body, got)
	}
	for body, code := range map[string]model.Code{
		`{"stock":1}`: model.CodeConflict, `{"delta":-1}`: model.CodeConflict,
		`{}`: model.CodeValidation, `{"stock":2,"delta":1}`: model.CodeValidation, `{"stock":-1}`: model.CodeValidation,
		`{"stock":1000000000001}`: model.CodeValidation, `{"delta":1.5}`: model.CodeValidation,
		`{"delta":1.0000000000000000000001}`: model.CodeValidation, `{"stock":null}`: model.CodeValidation,
	} {
		refused(t, a.once(t, call, admin, body), code)
	}
	more := a.once(t, call, admin, `{"delta":1000000000000}`)
	check.That(t, more.Code() == model.CodeValidation || more.Code() == model.CodeConflict, "10^12: %s", more.Body)
	check.Equal(t, "the stock", a.quiet(t, voucher.ID).Database.Stock, 2)

	// Administrators change one stock at once: each change counts once. Who meets another repeats with the same key.
	voucher = a.onSale(t, 100)
	check.Volley(12, func(i int) {
		body := []string{`{"delta":-2}`, `{"delta":3}`}[i%2]
		got := a.does(t, "POST /admin/vouchers/"+voucher.ID+"/stock", admin, body,
			"Idempotency-Key: change "+strconv.Itoa(i))
		check.That(t, got.Status == http.StatusOK, "%s: %d %s", body, got.Status, got.Body)
	})
	now := a.Audit(t, voucher.ID).Database
	check.That(t, now.Stock == 106 && now.Remaining == 106, "%+v", now)
}

func TestOrders(t *testing.T) { t.Parallel(); everywhere(t, checkOrders) }

func checkOrders(t *testing.T, a shop) {
	voucher := a.Create(t, map[string]any{"stock": 3, "price": 4200})
	user, admin := "auth0|"+a.user(1)+"@shop.example", a.Admin(t) // as an identity provider makes it
	token := a.as(t, user)
	async := a.mode == model.ModeAsync
	bought := a.once(t, "POST /vouchers/"+voucher.ID+"/seckill", token, "{}")
	order := object(t, bought, map[bool]int{false: http.StatusCreated, true: http.StatusAccepted}[async])
	id, _ := order["id"].(string)
	read := func(path string, token string) map[string]any {
		return object(t, a.once(t, "GET "+path, token, nil), http.StatusOK)
	}
	want := map[string]any{
		"id": id, "voucher_id": voucher.ID, "user_id": user, "status": "processing", "price": 4200.0, "currency": "EUR",
		"created_at": order["created_at"],
	}
	moves := []string{"unpaid"}
	if async {
		check.That(t, maps.Equal(order, want), "%v", order)
		a.becomes(t, model.Order{ID: id, UserID: user}, model.OrderUnpaid)
		order, moves = read("/orders/"+id, token), []string{"processing", "unpaid"}
	}
	want["status"], want["expires_at"] = "unpaid", order["expires_at"]
	check.That(t, maps.Equal(order, want) && bought.Header.Get("Location") == "/api/v1/orders/"+id, "%v", order)
	of, _ := model.VoucherOf(id)
	check.Equal(t, "the voucher that the order's id tells", of, voucher.ID)
	for _, query := range []string{"", "?wait=30s"} {
		got := read("/orders/"+id+query, token)
		check.That(t, maps.Equal(got, order), "%s: %v", query, got)
	}
	detail := read("/admin/orders/"+id, admin)
	history, _ := detail["history"].([]any)
	delete(detail, "history")
	check.Need(t, maps.Equal(detail, order) && len(history) == len(moves), "%v %v", detail, history)
	creation, _ := history[0].(map[string]any)
	made := map[string]any{"at": order["created_at"], "from": nil, "to": moves[0], "by": user}
	check.That(t, maps.Equal(creation, made), "%v, want %v", creation, made)
	unpaid, _ := history[len(moves)-1].(map[string]any)
	check.Equal(t, "from unpaid to the expiry", instant(t, order, "expires_at").Sub(instant(t, unpaid, "at")),
		7*time.Minute)
	a.patch(t, voucher.ID, `{"price":1}`)
	check.Equal(t, "the price, which is the one of the purchase", read("/orders/"+id, token)["price"], any(4200.0))

	stats := read("/admin/vouchers/"+voucher.ID+"/stats", admin)
	byStatus, _ := stats["orders_by_status"].(map[string]any)
	delete(stats, "orders_by_status")
	wanted := map[string]any{"stock": 3.0, "remaining": 2.0, "reserved": 0.0, "sold": 1.0}
	check.That(t, maps.Equal(stats, wanted) && byStatus["unpaid"] == 1.0, "%v %v", stats, byStatus)
	a.quiet(t, voucher.ID)
	audit := a.once(t, "GET /admin/vouchers/"+voucher.ID+"/audit", admin, nil)
	copies := map[bool]string{
		false: `"redis":null,"queue":null`,
		true:  `"redis":{"state":"open","remaining":2,"reserved":0,"buyers":1},"queue":{"pending":0,"oldest_age_ms":0}`,
	}[async]
	check.Equal(t, "the audit", strings.TrimSpace(string(audit.Body)),
		`{"voucher_id":"`+voucher.ID+`","mode":"`+string(a.mode)+
			`","balanced":true,"database":{"stock":3,"remaining":2,"live_orders":1},`+copies+`,"drift":[]}`)
}

// TestReturnedUnitIsSoldOnce: twenty cancellations return one unit, one of six who wait gets it, its giver buys again.
func TestReturnedUnitIsSoldOnce(t *testing.T) { t.Parallel(); everywhere(t, checkReturnedUnit) }

func checkReturnedUnit(t *testing.T, a shop) {
	const waiting = 6
	voucher := a.onSale(t, 1)
	first := a.buys(t, voucher.ID, a.user(0))
	tries := func(user string) bool {
		got, err := a.Place(t, voucher.ID, user)
		_, sold := orderOf(t, got, voucher.ID, user)
		return err == nil && sold
	}
	// Each tries again and again until there is a unit, or somebody else has it.
	over, left := make(chan struct{}), make(chan struct{})
	won, asked := make(chan string, waiting), make(chan struct{}, waiting)
	go func() {
		defer close(left)
		check.Volley(waiting, func(n int) {
			for looks := 0; !isClosed(over); looks++ {
				if tries(a.user(n + 1)) {
					won <- a.user(n + 1)
					return
				}
				if looks == 0 {
					asked <- struct{}{}
				}
			}
		})
	}()
	for range waiting {
		check.Receive(t, "an answer to each who waits", asked)
	}
	check.Volley(20, func(int) { a.cancels(t, first) })
	winner := check.Receive(t, "one who has the unit", won)
	for range waiting - 1 { // the others go on trying
		check.Equal(t, "one more", a.buy(t, voucher.ID, a.user(7)).Code(), model.CodeSoldOut)
	}
	close(over)
	check.Receive(t, "the end of the others", left)
	check.Equal(t, "more who bought one unit", len(won), 0)
	mine := a.mine(t, voucher.ID, winner)
	check.Need(t, len(mine) == 1, "%+v", mine)
	a.cancels(t, a.becomes(t, mine[0], model.OrderUnpaid))
	check.Patiently(t, "who gave the unit back has it again", func() bool { return tries(first.UserID) })
	check.Patiently(t, "it adds up", func() bool {
		d := a.Audit(t, voucher.ID).Database
		return d.LiveOrders == 1 && d.Remaining == 0
	})
}

func newStream() string { return "EVENTS_" + rand.Text() }

type eventRead struct {
	SpecVersion string         `json:"specversion"`
	ID          string         `json:"id"`
	Source      string         `json:"source"`
	Type        string         `json:"type"`
	Subject     string         `json:"subject"`
	Time        time.Time      `json:"time"`
	Data        map[string]any `json:"data"`
}

// readEvents reads a stream from its start until enough is true, and returns each subject's event types in order.
func readEvents(t *testing.T, url, stream string, enough func(told map[string][]string) bool) map[string][]string {
	t.Helper()
	conn := check.Value(nats.Connect(url))(t)
	defer conn.Close()
	js := check.Value(jetstream.New(conn))(t)
	ctx := check.Context(t)
	consumer := check.Value(js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{}))(t)
	told, seen := map[string][]string{}, map[string]bool{}
	for !enough(told) {
		message, err := consumer.Next(jetstream.FetchMaxWait(check.Deadline))
		check.Need(t, err == nil, "after %v: %v", told, err)
		var event eventRead
		err = json.Unmarshal(message.Data(), &event)
		check.Need(t, err == nil, "%s: %v", message.Data(), err)
		published := check.Value(message.Metadata())(t).Timestamp
		if event.SpecVersion != "1.0" || event.Source == "" || published.Sub(event.Time).Abs() > time.Minute ||
			len(event.Data) == 0 ||
			message.Headers().Get("Content-Type") != "application/cloudevents+json" ||
			message.Headers().Get(nats.MsgIdHdr) != event.ID {
			t.Errorf("%s %v", message.Data(), message.Headers())
		}
		check.That(t, !seen[event.ID], "event %s is in the stream twice", event.ID)
		seen[event.ID] = true
		told[event.Subject] = append(told[event.Subject], event.Type)
	}
	return told
}

// eventSecret signs events over HTTPS.
const eventSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// listener is a receiver of events over HTTP. It verifies each as the library of Standard Webhooks does.
type listener struct {
	url   string
	taken atomic.Int64 // events that it has heard

	mu    sync.Mutex
	told  map[string][]string // types by subject, each event when it came first
	times map[string]int      // by event
}

// listens is a listener that answers as it is told; it has heard what it answers with 2xx.
func listens(t testing.TB, answer func() int) *listener {
	t.Helper()
	l := &listener{told: map[string][]string{}, times: map[string]int{}}
	hook := check.Value(standardwebhooks.NewWebhook(eventSecret))(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the sender was killed
		}
		var event eventRead
		if err = errors.Join(hook.Verify(body, r.Header), json.Unmarshal(body, &event)); err != nil ||
			event.ID == "" || event.ID != r.Header.Get("Webhook-Id") || event.SpecVersion != "1.0" ||
			len(event.Data) == 0 || r.Header.Get("Content-Type") != "application/cloudevents+json" {
			t.Errorf("%v: %s %v", err, body, r.Header)
		}
		status := answer()
		if status/100 == 2 {
			l.mu.Lock()
			if l.times[event.ID]++; l.times[event.ID] == 1 {
				l.taken.Add(1)
				l.told[event.Subject] = append(l.told[event.Subject], event.Type)
			}
			l.mu.Unlock()
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	l.url = server.URL + "/events"
	return l
}

func (l *listener) heard(t testing.TB, subject string) string {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.told[subject], " ")
}

// all reports whether it has heard so many events, each at least so often.
func (l *listener) all(events, times int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.times) == events && !slices.ContainsFunc(slices.Collect(maps.Values(l.times)), func(n int) bool { return n < times })
}

func hearing(listeners ...*listener) settings {
	var urls []string
	for _, l := range listeners {
		urls = append(urls, l.url)
	}
	return settings{
		"SECKILL_EVENTS_URLS": strings.Join(urls, ","), "SECKILL_EVENTS_SECRET": eventSecret,
		"SECKILL_EVENTS_PRIVATE": "on",
	}
}

func (a *app) receivers(t testing.TB) []model.EventReceiver {
	t.Helper()
	return reads[model.EventReceivers](t, a, "/admin/events/receivers").Items
}

func (a *app) replays(t testing.TB, body map[string]any, want int) {
	t.Helper()
	got := a.does(t, "POST /admin/events/replay", a.Admin(t), body)
	check.Need(t, got.Status == want, "replay of %v: %d %s", body, got.Status, got.Body)
}

// A receiver hears of every change, signed, over HTTP; again with the same ids when somebody asks for that; and no more
// behind its 410, until somebody restarts it.
func TestEventsOverHTTPS(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, _ string, s settings) {
		var status atomic.Int64
		status.Store(http.StatusNoContent)
		l := listens(t, func() int { return int(status.Load()) })
		s = s.with(hearing(l))
		a := start(t, s)
		voucher := a.onSale(t, 2)
		order := a.buys(t, voucher.ID, a.user(1))
		a.cancels(t, order)
		check.Patiently(t, "it has heard of the order", func() bool { return l.all(3, 1) })
		check.Equal(t, "of the order", l.heard(t, order.ID), "order.unpaid order.canceled")
		check.Equal(t, "of the voucher", l.heard(t, voucher.ID), "voucher.create")
		var has model.EventReceiver
		check.Patiently(t, "that is noted", func() bool { has = a.receivers(t)[0]; return has.Waiting == 0 })
		check.That(t, has.URL == l.url && has.Delivered >= 3 && has.LastAnswer == "2xx" && !has.Stopped && has.NextAt == nil,
			"it is shown as %+v", has)

		a.replays(t, map[string]any{"since": time.Now(), "url": "https://other.example/"}, http.StatusUnprocessableEntity)
		a.replays(t, map[string]any{}, http.StatusUnprocessableEntity)
		a.replays(t, map[string]any{"since": time.Now().Add(-time.Hour), "url": l.url}, http.StatusAccepted)
		check.Patiently(t, "it has heard all of it again", func() bool { return l.all(3, 2) })
		said, err := runs(t, s, "events", "replay", "--since", time.Now().Add(-time.Hour).Format(time.RFC3339))
		check.Need(t, err == nil, "%s %v", said, err)
		check.Patiently(t, "it has heard all of it a third time", func() bool { return l.all(3, 3) })

		status.Store(http.StatusGone)
		again := a.buys(t, voucher.ID, a.user(1))
		check.Patiently(t, "it is stopped", func() bool { has = a.receivers(t)[0]; return has.Stopped })
		check.That(t, has.Waiting == 1 && has.OldestAt != nil && strings.Contains(has.LastAnswer, "410"), "it is shown as %+v", has)
		status.Store(http.StatusOK)
		check.Equal(t, "of an order while it is stopped", l.heard(t, again.ID), "")
		a.replays(t, map[string]any{"since": time.Now().Add(time.Hour)}, http.StatusAccepted)
		check.Patiently(t, "it goes on", func() bool { return l.heard(t, again.ID) == "order.unpaid" })
	})
}
