package e2e_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/testserver"
	"seckill/model"
)

// The queue has stored the order, and its answer is lost with the connection.
// Whoever asks again, the service or the buyer, has that order, and there is no
// other.
func TestLostAckMakesOneOrder(t *testing.T) {
	t.Parallel()
	w, s := throughNATS(t, asyncOnServers(t))
	a := start(t, s)
	voucher := a.onSale(t, 5)
	user := a.user(1)
	came, _ := w.holdAt(down, user)
	bought := a.later(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.token(t, user, model.RoleUser))
	happens(t, "the message", came)
	w.cut()
	if got := <-bought; got.status != http.StatusAccepted && (got.code() != model.CodeUnavailable || got.header.Get("Retry-After") == "") {
		t.Errorf("without an ack: %d %s", got.status, got.body)
	}
	var again answer
	until(t, 10*time.Second, "he hears of his order", func() bool {
		var err error
		again, err = a.place(t, voucher.ID, user)
		return err == nil && again.code() == model.CodeAlreadyOrdered
	})
	id := decode[problem](t, again).OrderID
	orders := a.conserved(t, voucher.ID, map[string]string{id: user})
	if len(orders) != 1 || orders[id].Status != model.OrderUnpaid {
		t.Errorf("orders %+v, want %s alone", orders, id)
	}
	a.sellsOn(t, voucher.ID, 10)
}

// A message that is stored twice, the second time when the queue has forgotten
// its id long ago, makes one order, also if that is canceled in between.
func TestRepeatedMessageMakesOneOrder(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	api := start(t, s.with(settings{"SECKILL_ROLE": "api"}))
	voucher := api.onSale(t, 5)
	stream := streamOf(t, s)
	order := api.accepted(t, voucher.ID, api.user(1))
	message := stream.last(t)
	for range 3 {
		stream.repeat(t, message)
	}
	start(t, s.with(settings{"SECKILL_ROLE": "worker"}))
	api.becomes(t, order, model.OrderUnpaid)
	if orders := api.conserved(t, voucher.ID, map[string]string{order.ID: order.UserID}); len(orders) != 1 {
		t.Errorf("%d orders, want 1", len(orders))
	}
	if got := api.call(t, http.MethodPost, "/orders/"+order.ID+"/cancel", api.token(t, order.UserID, model.RoleUser), nil); got.status != http.StatusOK {
		t.Fatalf("cancel: %d %s", got.status, got.body)
	}
	stream.repeat(t, message)
	orders := api.conserved(t, voucher.ID, map[string]string{order.ID: order.UserID})
	if orders[order.ID].Status != model.OrderCanceled {
		t.Errorf("a late message revived %+v", orders[order.ID])
	}
	if bought := api.sellsOn(t, voucher.ID, 10); len(bought) != 5 {
		t.Errorf("%d were sold after the cancel, want 5", len(bought))
	}
}

// A full queue refuses. Nothing that is in it is discarded, nobody is promised
// anything, and what is reserved becomes an order once there is room.
func TestFullQueueRefusesAndDiscardsNothing(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	s["SECKILL_NATS_URL"] = testserver.NATS(t, "max_file_store: 64KB").URL()
	s["SECKILL_BACKLOG_MAX_AGE"] = "1h" // it is the room that is wanting here
	api := launch(t, s.with(settings{"SECKILL_ROLE": "api"}))
	const stock = 2000
	voucher := api.onSale(t, stock)
	promised, refused, next := map[string]string{}, map[string]bool{}, 0
	for ; len(refused) < 5 && next < stock; next++ {
		user := api.user(next)
		got, err := api.place(t, voucher.ID, user)
		switch {
		case err == nil && got.status == http.StatusAccepted:
			promised[decode[model.Order](t, got).ID] = user
		case err == nil && got.code() == model.CodeUnavailable && got.header.Get("Retry-After") != "":
			refused[user] = true
		default:
			t.Fatalf("%s: %d %s %v", user, got.status, got.body, err)
		}
	}
	if len(refused) < 5 {
		t.Fatalf("the queue was never full: %d orders", len(promised))
	}
	worker := prepare(t, api.path, s.with(settings{"SECKILL_ROLE": "worker"}))
	worker.start(t)
	worker.awaitReady(t)
	orders := api.conserved(t, voucher.ID, promised)
	unbroken(t, orders, promised)
	late := 0
	for _, order := range orders {
		if refused[order.UserID] && order.Status == model.OrderUnpaid {
			late++
		}
	}
	t.Logf("%d promised, %d refused, of whom %d have an order now", len(promised), len(refused), late)
	if reserved := stats(t, api.app, voucher.ID).Reserved; reserved != 0 {
		t.Errorf("%d reservations leaked", reserved)
	}
	for user := range refused {
		if got, err := api.place(t, voucher.ID, user); err != nil || got.status != http.StatusAccepted && got.code() != model.CodeAlreadyOrdered {
			t.Errorf("%s asks again: %d %s %v", user, got.status, got.body, err)
		}
	}
	unbroken(t, api.conserved(t, voucher.ID, promised), promised)
}

// NATS is away for a while. Who buys meanwhile hears 503, and everything that
// was promised before is kept.
func TestQueueAwayPromisesNothing(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	server := testserver.NATS(t)
	s["SECKILL_NATS_URL"] = server.URL()
	a := launch(t, s)
	voucher := a.onSale(t, 10)
	promised := map[string]string{}
	for n := range 3 {
		promised[a.accepted(t, voucher.ID, a.user(n)).ID] = a.user(n)
	}
	server.Kill()
	for n := range 3 {
		got, err := a.place(t, voucher.ID, a.user(10+n))
		if err != nil || got.code() != model.CodeUnavailable || got.header.Get("Retry-After") == "" {
			t.Errorf("without a queue: %d %s %v", got.status, got.body, err)
		}
	}
	until(t, 10*time.Second, "readyz tells", func() bool { return a.status(t, "/readyz") == http.StatusServiceUnavailable })
	server.Start()
	until(t, 20*time.Second, "readyz recovers", func() bool { return a.status(t, "/readyz") == http.StatusOK })
	unbroken(t, a.conserved(t, voucher.ID, promised), promised)
	a.sellsOn(t, voucher.ID, 100)
}

// Older than the setting allows, the backlog stops new promises, which could not
// be kept soon, and says when to come again.
func TestOldBacklogStopsPromises(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t).with(settings{"SECKILL_BACKLOG_MAX_AGE": "1s"})
	api := start(t, s.with(settings{"SECKILL_ROLE": "api"}))
	voucher := api.onSale(t, 10)
	promised := map[string]string{}
	order := api.accepted(t, voucher.ID, api.user(0))
	promised[order.ID] = order.UserID
	var got answer
	n := 0
	until(t, 5*time.Second, "the backlog is too old", func() bool {
		n++
		var err error
		got, err = api.place(t, voucher.ID, api.user(n))
		if err == nil && got.status == http.StatusAccepted {
			promised[decode[model.Order](t, got).ID] = api.user(n)
			<-time.After(200 * time.Millisecond)
		}
		return err == nil && got.code() == model.CodeUnavailable
	})
	if seconds, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || seconds < 1 {
		t.Errorf("Retry-After %q", got.header.Get("Retry-After"))
	}
	start(t, s.with(settings{"SECKILL_ROLE": "worker"}))
	unbroken(t, api.conserved(t, voucher.ID, promised), promised)
	api.sellsOn(t, voucher.ID, 100)
}

// rawStream is the queue of a deployment, as somebody sees it who knows nothing
// of its contents.
type rawStream struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

func streamOf(t *testing.T, s settings) rawStream {
	t.Helper()
	conn, err := nats.Connect(s["SECKILL_NATS_URL"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "SECKILL_ORDERS_"+strings.ToUpper(deployment(t, s)))
	if err != nil {
		t.Fatal(err)
	}
	return rawStream{js, stream}
}

// last is the newest message, without the id by which the queue would know it
// again: as if the window for that had passed.
func (r rawStream) last(t *testing.T) *nats.Msg {
	t.Helper()
	info, err := r.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	message, err := r.stream.GetMsg(t.Context(), info.State.LastSeq)
	if err != nil {
		t.Fatal(err)
	}
	message.Header.Del(nats.MsgIdHdr)
	return &nats.Msg{Subject: message.Subject, Header: message.Header, Data: message.Data}
}

func (r rawStream) repeat(t *testing.T, message *nats.Msg) {
	t.Helper()
	if _, err := r.js.PublishMsg(t.Context(), message); err != nil {
		t.Fatal(err)
	}
}
