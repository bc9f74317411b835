package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"seckill/internal/budget"
	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
)

func begin(t testing.TB, o Options) (*Tracer, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	o.Metrics, o.Log = telemetry.NewTracing(registry), slog.New(slog.DiscardHandler)
	tracer := check.Value(Start(t.Context(), o))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), check.Deadline)
		defer cancel()
		tracer.Stop(ctx)
	})
	return tracer, registry
}

func recorded(t testing.TB, tracer *Tracer, exporter *tracetest.InMemoryExporter) map[string]tracetest.SpanStubs {
	t.Helper()
	check.Must(t, tracer.provider.ForceFlush(t.Context()))
	spans := map[string]tracetest.SpanStubs{}
	for _, span := range exporter.GetSpans() {
		spans[span.Name] = append(spans[span.Name], span)
	}
	return spans
}

// asks makes a request of the API through the middleware, and returns the trace that it belongs to.
func asks(tracer *Tracer, path string, headers ...string) (of trace.SpanContext, answer http.Header) {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Use(tracer.HTTP())
	see := func(c *gin.Context) {
		of = trace.SpanContextFromContext(c.Request.Context())
		_ = c.Error(errors.New("a text with 'secret'"))
		c.Status(http.StatusInternalServerError)
	}
	engine.POST("/api/v1/vouchers/:id/seckill", see)
	engine.GET("/livez", see)
	r := httptest.NewRequest(http.MethodPost, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	engine.ServeHTTP(w, r)
	return of, w.Header()
}

const (
	purchase = "/api/v1/vouchers/v-1/seckill"
	sampled  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ignored  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// A client's trace goes on, within bounds: of one that marks all, or picks ids, clientTraces are recorded, not more.
func TestAClientCannotHaveEverythingRecorded(t *testing.T) {
	t.Parallel()
	tracer, _ := begin(t, Options{Exporter: tracetest.NewInMemoryExporter(), Ratio: 0, ParentBased: true})
	client := parse(sampled)
	continued := 0
	const requests = 20 * clientTraces
	began := time.Now()
	for range requests {
		of, _ := asks(tracer, purchase, traceparent, sampled)
		if !of.IsValid() || of.IsSampled() != (of.TraceID() == client.TraceID()) {
			t.Errorf("a request is recorded: %v, in the trace %v", of.IsSampled(), of.TraceID())
		}
		if of.IsSampled() {
			continued++
		}
	}
	most := clientTraces * (2 + int(time.Since(began)/time.Second))
	if continued < clientTraces || continued > most {
		t.Errorf("%d of %d requests are recorded because their client says so, want %d to %d", continued, requests,
			clientTraces, most)
	}

	always, _ := begin(t, Options{Exporter: tracetest.NewInMemoryExporter(), Ratio: 1, ParentBased: true})
	if of, _ := asks(always, purchase, traceparent, ignored); of.IsSampled() || of.TraceID() != client.TraceID() {
		t.Errorf("a request that is not to be recorded is %v, in the trace %v", of.IsSampled(), of.TraceID())
	}
	for ratio, recorded := range map[float64]bool{0: false, 1: true} {
		alone, _ := begin(t, Options{Exporter: tracetest.NewInMemoryExporter(), Ratio: ratio})
		for _, header := range []string{sampled, ignored} {
			of, _ := asks(alone, purchase, traceparent, header)
			if of.IsSampled() != recorded || of.TraceID() != client.TraceID() {
				t.Errorf("whatever its client says, %s: a request is recorded: %v, in the trace %v", header,
					of.IsSampled(), of.TraceID())
			}
		}
	}
	for _, odd := range []string{"", "00", strings.Repeat("0", 1<<14), "00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01", sampled + "-"} {
		if of, _ := asks(always, purchase, traceparent, odd); !of.IsSampled() || of.TraceID() == client.TraceID() {
			t.Errorf("%.60q: it is recorded: %v, in the trace %v", odd, of.IsSampled(), of.TraceID())
		}
	}
	of, answer := asks(always, purchase, traceparent, sampled, "Tracestate", "a=b", "Baggage", "a=b")
	check.Equal(t, "the trace's state", of.TraceState().Len(), 0)
	check.Equal(t, "headers of the answer", len(answer), 0)
	if of, _ := asks(always, "/nowhere", traceparent, sampled); of.IsValid() {
		t.Error("a path that there is not is traced")
	}
}

// Nothing that a client writes, and no text of an error, leaves the process.
func TestNoTextLeaves(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	tracer, _ := begin(t, Options{Exporter: exporter, Ratio: 1, ParentBased: true})
	asks(tracer, "/api/v1/vouchers/secret/seckill?secret=secret", "User-Agent", "secret", "Authorization",
		"Bearer secret", "X-Forwarded-For", "secret")
	_, span := tracer.spans.Start(t.Context(), "odd", trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("db.statement", "secret"), attribute.String("db.system", "redis")))
	span.RecordError(errors.New("secret"))
	span.SetStatus(codes.Error, "secret")
	span.End()
	spans := recorded(t, tracer, exporter)
	check.Need(t, len(spans["POST /api/v1/vouchers/:id/seckill"]) == 1 && len(spans["odd"]) == 1,
		"there are the spans %v", spans)
	for name, all := range spans {
		for _, span := range all {
			check.Equal(t, "the events of "+name, len(span.Events), 0)
			check.Equal(t, "the status of "+name, span.Status, sdk.Status{Code: codes.Error})
			check.That(t, len(span.Attributes) > 0, "%s has no attribute", name)
			for _, a := range span.Attributes {
				check.That(t, !strings.Contains(a.Value.String(), "secret"),
					"%s tells %s=%s", name, a.Key, a.Value.String())
			}
		}
	}
}

type hung struct{ sdk.SpanExporter }

func (hung) ExportSpans(ctx context.Context, _ []sdk.ReadOnlySpan) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hung) Shutdown(context.Context) error { return nil }

// A collector that hangs holds up nobody. What there is no room for is counted.
func TestACollectorThatHangsHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tracer, registry := begin(t, Options{Exporter: hung{}, Ratio: 1, ParentBased: true})
		began := time.Now()
		for range maxSpans + 1000 {
			_, span := tracer.spans.Start(context.Background(), "x", trace.WithSpanKind(trace.SpanKindServer))
			span.End()
		}
		check.Equal(t, "how long spans wait for the collector", time.Since(began), 0)
		check.Equal(t, "spans that were dropped", counted(t, registry, "dropped"), 1000.0)
		const patience = time.Second
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		tracer.Stop(ctx)
		check.Equal(t, "how long the stop took", time.Since(began), patience)
		time.Sleep(2 * maxSpans / maxBatch * budget.Step) // the last exports run out
		check.Equal(t, "spans that were not exported", counted(t, registry, "failed"), float64(maxSpans))
	})
}

func counted(t *testing.T, registry *prometheus.Registry, result string) float64 {
	t.Helper()
	for _, family := range check.Value(registry.Gather())(t) {
		for _, metric := range family.GetMetric() {
			if metric.GetLabel()[0].GetValue() == result {
				return metric.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("nothing is counted as %s", result)
	return 0
}

// A group has a trace of its own and is linked with each of its orders, as many as there may be.
func TestAGroupIsLinkedWithItsOrders(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	tracer, registry := begin(t, Options{Exporter: exporter, Ratio: 0, ParentBased: true})
	orders := make([]model.Order, maxLinks+100)
	for i := range orders {
		orders[i] = model.Order{ID: "o" + strconv.Itoa(i), VoucherID: "v-1"}
	}
	at := func(i int) model.Order { return orders[i] }
	ctx, none := tracer.Group(t.Context(), "commit", len(orders), at)
	check.That(t, none == nil && ctx == t.Context(), "there is a group of orders that are not traced")
	check.Equal(t, "what goes on of orders that are not traced", none.Next([]model.Reservation{{}})[0].Trace, "")
	none.End(nil, nil)
	for i := 1; i < len(orders); i++ { // all but the first
		orders[i].Trace = "00-" + strings.Repeat("0", 28) + strconv.Itoa(1000+i) + "-b7ad6b7169203331-01"
	}
	ctx, group := tracer.Group(t.Context(), "commit", len(orders), at)
	check.Equal(t, "what is traced of an order that is not", Within(ctx, "o0"), "")
	inner, settling := tracer.Group(ctx, "settle", 1,
		func(int) model.Order { return model.Order{ID: "o1", Trace: Within(ctx, "o1")} })
	settling.End(nil, nil)
	group.End(nil, func(i int) error {
		if i == 1 {
			return model.SoldOut()
		}
		return nil
	})
	_ = inner
	spans := recorded(t, tracer, exporter)
	shared := spans["commit group"][0]
	check.Equal(t, "links of the group", len(shared.Links), maxLinks)
	check.Equal(t, "spans of orders", len(spans["commit"]), len(orders)-1)
	check.Equal(t, "the trace of the group inside", spans["settle group"][0].SpanContext.TraceID(),
		shared.SpanContext.TraceID())
	for _, span := range spans["commit"] {
		about := attribute.NewSet(span.Attributes...)
		id, _ := about.Value(attributeOrder)
		n := check.Value(strconv.Atoi(strings.TrimPrefix(id.AsString(), "o")))(t)
		before := parse(orders[n].Trace)
		if span.SpanContext.TraceID() != before.TraceID() || span.Parent.SpanID() != before.SpanID() {
			t.Errorf("order %d is in the trace %v behind %v", n, span.SpanContext.TraceID(), span.Parent.SpanID())
		}
		named, _ := about.Value(attributeGroupTrace)
		outcome, _ := about.Value(attributeOutcome)
		if named.AsString() != shared.SpanContext.TraceID().String() || (outcome.AsString() == "OK") != (n != 1) {
			t.Errorf("order %d: %v", n, span.Attributes)
		}
		if n == 1 && spans["settle"][0].Parent.SpanID() != span.SpanContext.SpanID() {
			t.Error("the settling does not follow the commit")
		}
	}
	check.Equal(t, "spans that were exported", counted(t, registry, "exported"), float64(len(orders)+2))
}

// What no request has asked for is a trace of its own, recorded by the ratio; inside a request it is as that is.
func TestWork(t *testing.T) {
	t.Parallel()
	for ratio, recordings := range map[float64]int{0: 0, 1: 1} {
		exporter := tracetest.NewInMemoryExporter()
		tracer, _ := begin(t, Options{Exporter: exporter, Ratio: ratio, ParentBased: true})
		work := func(ctx context.Context, step string, failure error) {
			ctx, end := tracer.Work(ctx, step, 3)
			_, inside := tracer.spans.Start(ctx, "inside "+step)
			inside.End()
			end(failure)
		}
		work(t.Context(), "alone", model.SoldOut())
		work(trace.ContextWithSpanContext(t.Context(), parse(ignored)), "in a request", nil)
		work(trace.ContextWithSpanContext(t.Context(), parse(sampled)), "in a trace", nil)
		spans := recorded(t, tracer, exporter)
		for name, want := range map[string]int{"alone": recordings, "in a request": 0, "in a trace": 1} {
			check.Equal(t, "spans "+name, len(spans[name]), want)
			check.Equal(t, "spans inside "+name, len(spans["inside "+name]), want)
		}
		check.Equal(t, "the trace", spans["in a trace"][0].SpanContext.TraceID(), parse(sampled).TraceID())
		for _, span := range spans["alone"] {
			check.Equal(t, "what it tells", attribute.NewSet(span.Attributes...), attribute.NewSet(
				attribute.Int(attributeWork, 3), attribute.String(attributeOutcome, string(model.CodeSoldOut))))
			check.Equal(t, "what it belongs to", span.Parent.IsValid(), false)
		}
	}
}

func TestLogLinesTellTheirTrace(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(Handler(slog.NewTextHandler(&out, nil))).With(slog.String("a", "b"))
	log.InfoContext(trace.ContextWithRemoteSpanContext(t.Context(), parse(ignored)), "inside")
	log.InfoContext(t.Context(), "outside")
	lines := strings.Split(out.String(), "\n")
	if !strings.HasSuffix(lines[0], "msg=inside a=b trace_id=0af7651916cd43dd8448eb211c80319c") ||
		strings.Contains(lines[1], "trace_id") {
		t.Errorf("the log says %q", lines)
	}
}
