package e2e_test

import (
	"database/sql"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/overlay"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

type direction int

const (
	up   direction = iota // to the server
	down                  // to the client
)

// wire is a proxy that makes a server look slow or dead when a test wants. Held data arrives late, unless it is cut.
type wire struct {
	*testserver.Proxy

	mu   sync.Mutex
	held [2]chan struct{} // closed when the direction may go on; nil: nothing is held
	// answer answers in the server's place what is not to reach it; nil: everything does.
	answer func(data []byte) []byte
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	w := &wire{}
	w.Proxy = testserver.NewProxy(t, target, func(client, server net.Conn) {
		over := make(chan struct{})
		end := sync.OnceFunc(func() {
			close(over)
			_, _ = client.Close(), server.Close()
		})
		var answers sync.WaitGroup
		answers.Go(func() { defer end(); w.carry(down, over, client, server) })
		w.carry(up, over, server, client)
		end()
		answers.Wait()
	})
	return w
}

func (w *wire) carry(d direction, over <-chan struct{}, to, from net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		w.mu.Lock()
		gate, answer := w.held[d], w.answer
		w.mu.Unlock()
		if gate != nil {
			select {
			case <-gate:
			case <-over:
				return
			}
		}
		var reply []byte // to bytes that the server shall not see
		if d == up && answer != nil {
			reply = answer(buffer[:n])
		}
		if reply == nil {
			_, err = to.Write(buffer[:n])
		} else {
			_, err = from.Write(reply)
		}
		if err != nil {
			return
		}
	}
}

// answers gives answers in the server's place, or to nil none any more.
func (w *wire) answers(answer func(data []byte) []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

// hold keeps everything of a direction back until the returned function is called; twice does no harm.
func (w *wire) hold(d direction) (release func()) {
	gate := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[d] = gate
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.held[d] = nil
		close(gate)
	})
}

// throughNATS is a deployment that reaches NATS through a wire.
func throughNATS(t *testing.T, s settings) (*wire, settings) {
	t.Helper()
	w := newWire(t, strings.TrimPrefix(s["SECKILL_NATS_URL"], "nats://"))
	return w, s.with(settings{"SECKILL_NATS_URL": "nats://" + w.Addr()})
}

// collecting is a collector: what OTLP over HTTP brought it, by trace.
type collecting struct {
	url string

	mu     sync.Mutex
	traces map[string][]*tracepb.Span
	spans  int
	text   strings.Builder // everything
}

func collect(t *testing.T) *collecting {
	c := &collecting{traces: map[string][]*tracepb.Span{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var export collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &export) != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("an export to %s of %d bytes: %v", r.URL.Path, len(body), err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		fmt.Fprintln(&c.text, export.String())
		for _, resource := range export.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					id := hex.EncodeToString(span.GetTraceId())
					c.traces[id] = append(c.traces[id], span)
					c.spans++
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *collecting) named(trace, name string) (found []*tracepb.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, span := range c.traces[trace] {
		if span.GetName() == name {
			found = append(found, span)
		}
	}
	return found
}

func (c *collecting) one(t *testing.T, trace, name string) *tracepb.Span {
	t.Helper()
	var found []*tracepb.Span
	check.Eventually(t, "the span "+name+" of the trace "+trace, func() bool {
		found = c.named(trace, name)
		return len(found) > 0
	})
	check.That(t, len(found) == 1, "the trace %s has %d spans %s", trace, len(found), name)
	return found[0]
}

func about(span *tracepb.Span, key string) string {
	for _, a := range span.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

func tracedTo(c *collecting) settings {
	return settings{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.url, "OTEL_TRACES_SAMPLER": "parentbased_always_on", "OTEL_BSP_SCHEDULE_DELAY": "50",
		"SECKILL_LOG_LEVEL": "debug",
	}
}

const (
	clientTrace = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "b7ad6b7169203331"
	traceHeader = "traceparent: 00-" + clientTrace + "-" + clientSpan + "-01"
	purchase    = "POST /api/v1/vouchers/:id/seckill"
)

// after demands that a step follows another, names its order, outcome and group. (internal/tracing has the links.)
func (c *collecting) after(
	t *testing.T, before *tracepb.Span, step string, order model.Order, asked string,
) *tracepb.Span {
	t.Helper()
	span := c.one(t, clientTrace, step)
	said := about(span, "seckill.order.id") + " " + about(span, "seckill.voucher.id") + " " +
		about(span, "seckill.outcome")
	check.Equal(t, step+" says", said, order.ID+" "+order.VoucherID+" OK")
	check.Equal(t, step+" follows", string(span.GetParentSpanId()), string(before.GetSpanId()))
	trace := about(span, "seckill.group.trace_id")
	c.one(t, trace, step+" group")
	check.Eventually(t, "what was asked in the group of "+step,
		func() bool { return asked == "" || len(c.named(trace, asked)) > 0 })
	return span
}

// buysTraced buys in the client's trace. A purchase that is told to come again is not the only one of its trace.
func (a *app) buysTraced(t *testing.T, voucherID, user string) model.Order {
	t.Helper()
	got := a.Call(t, http.MethodPost, "/vouchers/"+voucherID+"/seckill", a.as(t, user), nil, traceHeader)
	check.Need(t, got.Sells() && got.Header.Get("traceparent") == "", "%d %s %v", got.Status, got.Body, got.Header)
	return remote.Decode[model.Order](t, got)
}

// An order is one trace, from its buyer's request through Redis, queue and worker to the settling. Log lines name it.
func TestAnOrderIsOneTrace(t *testing.T) {
	t.Parallel()
	t.Run("async", func(t *testing.T) {
		t.Parallel()
		c := collect(t)
		s := asyncOnServers(t).with(tracedTo(c))
		front := launch(t, s.with(settings{"SECKILL_ROLE": "api"}))
		voucher := front.onSale(t, 5)
		user := front.user(1)
		order := front.buysTraced(t, voucher.ID, user)
		body := streamOf(t, s).last(t)
		check.That(t, strings.Contains(body, `"trace":"00-`+clientTrace), "the message says %s", body)
		launch(t, s.with(settings{"SECKILL_ROLE": "worker"}))
		front.becomes(t, order, model.OrderUnpaid)

		request := c.one(t, clientTrace, purchase)
		check.Equal(t, "the parent of the request", hex.EncodeToString(request.GetParentSpanId()), clientSpan)
		c.after(t, request, "reserve", order, "redis.pipeline evalsha")
		published := c.after(t, request, "publish", order, "")
		persisted := c.after(t, published, "persist", order, "")
		c.after(t, persisted, "commit", order, "sql.tx.commit")
		c.after(t, persisted, "settle", order, "")
		c.tellsNothing(t, user)
		if said := front.output.String(); !strings.Contains(said, `"trace_id":"`+clientTrace+`"`) {
			t.Errorf("the log does not name the trace: %s", tail(said, 5))
		}
	})
	for name, s := range map[string]settings{"sync": onServers(t), "embedded": embeddedSettings(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := collect(t)
			a := launch(t, s.with(tracedTo(c)))
			voucher := a.onSale(t, 5)
			user := a.user(1)
			order := a.buysTraced(t, voucher.ID, user)
			request := c.one(t, clientTrace, purchase)
			c.after(t, request, "commit", order, "sql.tx.commit")
			lock := c.one(t, clientTrace, "lock")
			check.That(t, string(lock.GetParentSpanId()) == string(request.GetSpanId()),
				"the lock is not the request's")
			c.tellsNothing(t, user)
		})
	}
}

// tellsNothing demands that the collector was told no user, token, address or statement.
func (c *collecting) tellsNothing(t *testing.T, user string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, secret := range []string{user, "eyJ", "127.0.0.1", "Go-http-client", "INSERT", "SELECT", secret} {
		check.That(t, !strings.Contains(c.text.String(), secret), "the collector was told %q", secret)
	}
	check.That(t, strings.Contains(c.text.String(), `"seckill"`), "the collector was not told the service's name")
}

// Without the variable nothing is traced, and a client's traceparent changes nothing.
func TestWithoutACollectorNothingIsTraced(t *testing.T) {
	t.Parallel()
	c := collect(t)
	s := asyncOnServers(t).with(tracedTo(c)).with(settings{"OTEL_EXPORTER_OTLP_ENDPOINT": ""})
	a := launch(t, s.with(settings{"SECKILL_ROLE": "api"}))
	voucher := a.onSale(t, 5)
	order := a.buysTraced(t, voucher.ID, a.user(1))
	body := streamOf(t, s).last(t)
	check.That(t, !strings.Contains(body, "trace") && strings.Contains(body, voucher.ID), "the message says %s", body)
	launch(t, s.with(settings{"SECKILL_ROLE": "worker"}))
	a.becomes(t, order, model.OrderUnpaid)
	a.stops(t)
	if said := a.output.String(); strings.Contains(said, "trace_id") || !strings.Contains(said, voucher.ID) {
		t.Errorf("the log says %s", tail(said, 20))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	check.Equal(t, "spans", c.spans, 0)
}

func redisOf(t testing.TB, s settings) *redis.Client {
	t.Helper()
	client := redis.NewClient(check.Value(redis.ParseURL(s["SECKILL_REDIS_URL"]))(t))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// refusing is a trigger that refuses a voucher's orders with a signal, and lets those through that have failed.
func refusing(name, voucherID, signal string) string {
	return "CREATE TRIGGER " + name + " BEFORE INSERT ON orders FOR EACH ROW IF NEW.voucher_id = '" + voucherID +
		"' AND NEW.status = 'unpaid' THEN " + signal + "; END IF"
}

// behind is a way to change a database behind everybody's back.
func behind(t testing.TB, s settings) *sql.DB {
	t.Helper()
	return patient(t, s["SECKILL_DATABASE_DSN"])
}

func execute(t *testing.T, s settings, statement string) {
	t.Helper()
	check.Must(t, check.ErrorOf(behind(t, s).ExecContext(t.Context(), statement)))
}

// deploymentOf is the name by which a database is known to queues.
func deploymentOf(t testing.TB, s settings) string {
	t.Helper()
	db := check.Value(sqldb.Open(t.Context(),
		sqldb.Options{DSN: s["SECKILL_DATABASE_DSN"], Log: slog.New(slog.DiscardHandler), Slack: check.Deadline}))(t)
	defer db.Close()
	return check.Value((&repository.Modes{DB: db}).Read(t.Context()))(t).Deployment
}

// rawStream is the queue of a deployment, as somebody sees it who knows nothing of its contents.
type rawStream struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

func streamOf(t *testing.T, s settings) rawStream {
	t.Helper()
	conn := check.Value(nats.Connect(s["SECKILL_NATS_URL"]))(t)
	t.Cleanup(conn.Close)
	js := check.Value(jetstream.New(conn))(t)
	return rawStream{js, check.Value(js.Stream(t.Context(), ordersStream(t, s)))(t)}
}

func (r rawStream) last(t *testing.T) string {
	t.Helper()
	info := check.Value(r.stream.Info(t.Context()))(t)
	return string(check.Value(r.stream.GetMsg(t.Context(), info.State.LastSeq))(t).Data)
}

// ordersStream is the stream of a deployment that has started.
func ordersStream(t *testing.T, s settings) string {
	t.Helper()
	return "SECKILL_ORDERS_" + strings.ToUpper(deploymentOf(t, s))
}

// publishUndoes gives units back after a publish that failed, although the message may be in the queue.
func publishUndoes() overlay.Change {
	const failed = "\t\ts.async.Admission.Unpublished.Add(float64(len(reservations)))\n"
	return overlay.Change{File: "service/sale/order_async.go", Old: failed, New: failed + `
		for _, r := range reservations {
			undo, done := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			_, _ = s.async.Hot.ReleaseAll(undo, r.VoucherID, []model.Release{{OrderID: r.ID, VoucherID: r.VoucherID, UserID: r.UserID}})
			done()
		}
`}
}

// missingIsSoldOut takes a hot copy that is not loaded for an empty one.
func missingIsSoldOut() overlay.Change {
	return overlay.Change{
		File: "service/sale/order_async.go",
		Old:  `return model.Unavailable("The sale is being loaded.", model.ErrCopyClosed)`,
		New:  `return model.SoldOut()`,
	}
}

// handedToAnybody frees a unit in the hot copy that is an order of who waited for it.
func handedToAnybody() overlay.Change {
	return overlay.Change{
		File: "repository/hotcopy/lua/handover.lua",
		Old:  "    if heir ~= '' then after[heirUser] = heir end\n", New: "",
	}
}

// The faults build the program with these defects; that their texts still stand in the product is looked at always.
func TestDefectsFitTheProduct(t *testing.T) {
	t.Parallel()
	for _, defect := range []overlay.Change{publishUndoes(), missingIsSoldOut(), handedToAnybody()} {
		check.Must(t, check.ErrorOf(defect.Text("../../..")))
	}
}
