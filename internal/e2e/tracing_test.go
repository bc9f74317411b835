package e2e_test

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// collecting is a collector: what OTLP over HTTP brought it, by trace.
type collecting struct {
	url string

	mu     sync.Mutex
	traces map[string][]*tracepb.Span
	spans  int
	text   strings.Builder // everything
}

func collect(t *testing.T) *collecting {
	t.Helper()
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

// named are the spans of a trace with a name.
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

// one waits for the only span of a trace with a name.
func (c *collecting) one(t *testing.T, trace, name string) *tracepb.Span {
	t.Helper()
	var found []*tracepb.Span
	until(t, 20*time.Second, "the span "+name+" of the trace "+trace, func() bool {
		found = c.named(trace, name)
		return len(found) > 0
	})
	if len(found) != 1 {
		t.Errorf("the trace %s has %d spans %s", trace, len(found), name)
	}
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

// tracedTo are settings with which the requests of the tests are traced.
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

// after demands that a step of an order follows another one, names its order and what became of it, and is linked with
// the group that shared it, whose trace has what the servers were asked.
func (c *collecting) after(t *testing.T, before *tracepb.Span, step string, order model.Order, asked string) *tracepb.Span {
	t.Helper()
	span := c.one(t, clientTrace, step)
	if string(span.GetParentSpanId()) != string(before.GetSpanId()) {
		t.Errorf("%s does not follow %s", step, before.GetName())
	}
	if about(span, "seckill.order.id") != order.ID || about(span, "seckill.voucher.id") != order.VoucherID || about(span, "seckill.outcome") != "OK" {
		t.Errorf("%s says %v", step, span.GetAttributes())
	}
	trace := about(span, "seckill.group.trace_id")
	group := c.one(t, trace, step+" group")
	if trace == clientTrace || about(span, "seckill.group.span_id") != hex.EncodeToString(group.GetSpanId()) {
		t.Errorf("%s names the group %s in the trace %s", step, about(span, "seckill.group.span_id"), trace)
	}
	linked := slices.ContainsFunc(group.GetLinks(), func(l *tracepb.Span_Link) bool {
		return hex.EncodeToString(l.GetTraceId()) == clientTrace && string(l.GetSpanId()) == string(before.GetSpanId())
	})
	if !linked {
		t.Errorf("the group of %s has the links %v", step, group.GetLinks())
	}
	until(t, 10*time.Second, "what was asked in the group of "+step, func() bool { return asked == "" || len(c.named(trace, asked)) > 0 })
	return span
}

// An order is one trace, that of its buyer's request, from there through Redis, the queue and another process to the
// commit and the settling. The lines of the log name it.
func TestAnOrderIsOneTrace(t *testing.T) {
	t.Parallel()
	t.Run("async", func(t *testing.T) {
		t.Parallel()
		c := collect(t)
		s := asyncOnServers(t).with(tracedTo(c))
		api := launch(t, s.with(settings{"SECKILL_ROLE": "api"}))
		voucher := api.onSale(t, 5)
		user := api.user(1)
		got := api.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", api.token(t, user, model.RoleUser), nil, traceHeader)
		if got.status != http.StatusAccepted {
			t.Fatalf("%d %s", got.status, got.body)
		}
		order := decode[model.Order](t, got)
		if body := streamOf(t, s).last(t).Data; !strings.Contains(string(body), `"trace":"00-`+clientTrace) {
			t.Errorf("the message says %s", body)
		}
		launch(t, s.with(settings{"SECKILL_ROLE": "worker"}))
		api.becomes(t, order, model.OrderUnpaid)

		request := c.one(t, clientTrace, purchase)
		check.Equal(t, "the parent of the request", hex.EncodeToString(request.GetParentSpanId()), clientSpan)
		c.after(t, request, "reserve", order, "redis.pipeline evalsha")
		published := c.after(t, request, "publish", order, "")
		persisted := c.after(t, published, "persist", order, "")
		c.after(t, persisted, "commit", order, "sql.tx.commit")
		c.after(t, persisted, "settle", order, "")
		c.tellsNothing(t, user)
		if said := api.output.String(); !strings.Contains(said, `"trace_id":"`+clientTrace+`"`) {
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
			got := a.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.token(t, user, model.RoleUser), nil, traceHeader)
			if got.status != http.StatusCreated {
				t.Fatalf("%d %s", got.status, got.body)
			}
			request := c.one(t, clientTrace, purchase)
			c.after(t, request, "commit", decode[model.Order](t, got), "sql.tx.commit")
			if lock := c.one(t, clientTrace, "lock"); string(lock.GetParentSpanId()) != string(request.GetSpanId()) {
				t.Error("the lock is not the request's")
			}
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
		if strings.Contains(c.text.String(), secret) {
			t.Errorf("the collector was told %q", secret)
		}
	}
	if !strings.Contains(c.text.String(), `"seckill"`) {
		t.Error("the collector was not told the service's name")
	}
}

// Orders that were committed together are in traces of their own, and the commit is linked from each of them.
func TestAGroupCommitIsLinkedFromItsOrders(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]settings{"sync": onServers(t), "async": asyncOnServers(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := collect(t)
			a := launch(t, s.with(tracedTo(c)))
			const buyers, rounds = 40, 10
			voucher := a.onSale(t, buyers*rounds)
			for round := range rounds {
				var buying sync.WaitGroup
				for n := range buyers {
					buying.Go(func() {
						if got, err := a.place(t, voucher.ID, a.user(round*buyers+n)); err != nil || got.status/100 != 2 {
							t.Errorf("%d %s %v", got.status, got.body, err)
						}
					})
				}
				buying.Wait()
				orders := map[string]bool{} // the traces
				until(t, 20*time.Second, "every order has its commit", func() bool {
					_, commits := c.commits()
					for _, commit := range commits {
						orders[hex.EncodeToString(commit.GetTraceId())] = true
					}
					return len(orders) >= (round+1)*buyers
				})
				if c.shared(t) {
					return
				}
			}
			t.Errorf("no two of %d orders were committed together", buyers*rounds)
		})
	}
}

// commits are the spans of all groups and of all orders.
func (c *collecting) commits() (groups, orders []*tracepb.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, spans := range c.traces {
		for _, span := range spans {
			switch span.GetName() {
			case "commit group":
				groups = append(groups, span)
			case "commit":
				orders = append(orders, span)
			}
		}
	}
	return groups, orders
}

// shared looks for a commit of several orders, each of which names it and is linked from it.
func (c *collecting) shared(t *testing.T) bool {
	t.Helper()
	groups, orders := c.commits()
	several := false
	for _, group := range groups {
		linked, naming := map[string]bool{}, map[string]bool{}
		for _, link := range group.GetLinks() {
			linked[hex.EncodeToString(link.GetTraceId())] = true
		}
		for _, order := range orders {
			if about(order, "seckill.group.span_id") == hex.EncodeToString(group.GetSpanId()) {
				naming[hex.EncodeToString(order.GetTraceId())] = true
			}
		}
		if len(naming) != len(linked) {
			t.Errorf("a commit is linked with %d traces, and %d name it", len(linked), len(naming))
		}
		for trace := range naming {
			if !linked[trace] {
				t.Errorf("the order of the trace %s names a commit that is not linked with it", trace)
			}
		}
		several = several || len(linked) > 1
	}
	return several
}

// What is done behind the requests is in traces of its own, with what it asked the database.
func TestExpiryIsATraceOfItsOwn(t *testing.T) {
	t.Parallel()
	c := collect(t)
	a := launch(t, onServers(t).with(tracedTo(c)).with(settings{"SECKILL_PAYMENT_WINDOW": "1s"}))
	voucher := a.onSale(t, 5)
	user := a.user(1)
	got := a.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.token(t, user, model.RoleUser), nil, traceHeader)
	if got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	until(t, 20*time.Second, "the expiry with its commit", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, spans := range c.traces {
			names := map[string]bool{}
			for _, span := range spans {
				names[span.GetName()] = len(span.GetParentSpanId()) == 0 || span.GetName() != "expire"
			}
			if names["expire"] && names["sql.tx.commit"] {
				return true
			}
		}
		return false
	})
	c.tellsNothing(t, user)
}

// A collector that hangs neither refuses nor delays an order, nor the stop.
func TestACollectorThatHangsCostsNoOrder(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	asked := make(chan struct{}, 1000)
	hung := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-release
	}))
	t.Cleanup(hung.Close)
	t.Cleanup(func() { close(release) })
	a := launch(t, asyncOnServers(t).with(tracedTo(&collecting{url: hung.URL})))
	voucher := a.onSale(t, 60)
	promised := map[string]string{}
	for n := range 60 {
		order := a.accepted(t, voucher.ID, a.user(n))
		promised[order.ID] = order.UserID
		if n == 0 {
			happens(t, "an export", asked)
		}
	}
	unbroken(t, a.conserved(t, voucher.ID, promised), promised)
	ends(t, a)
}

// ends asks the program to end, and waits until it has.
func ends(t *testing.T, p *process) {
	t.Helper()
	check.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	happens(t, "the end of the program", p.exited)
}

// Without the variable nothing is traced, and a client's traceparent changes nothing.
func TestWithoutACollectorNothingIsTraced(t *testing.T) {
	t.Parallel()
	c := collect(t)
	s := asyncOnServers(t).with(tracedTo(c)).with(settings{"OTEL_EXPORTER_OTLP_ENDPOINT": ""})
	a := launch(t, s.with(settings{"SECKILL_ROLE": "api"}))
	voucher := a.onSale(t, 5)
	got := a.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.token(t, a.user(1), model.RoleUser), nil, traceHeader)
	if got.status != http.StatusAccepted || got.header.Get("traceparent") != "" {
		t.Fatalf("%d %s %v", got.status, got.body, got.header)
	}
	if body := string(streamOf(t, s).last(t).Data); strings.Contains(body, "trace") || !strings.Contains(body, voucher.ID) {
		t.Errorf("the message says %s", body)
	}
	launch(t, s.with(settings{"SECKILL_ROLE": "worker"}))
	a.becomes(t, decode[model.Order](t, got), model.OrderUnpaid)
	ends(t, a)
	if said := a.output.String(); strings.Contains(said, "trace_id") || !strings.Contains(said, voucher.ID) {
		t.Errorf("the log says %s", tail(said, 20))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	check.Equal(t, "spans", c.spans, 0)
}
