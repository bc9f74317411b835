// Package tracing follows orders through the service, from the request to the row, with OpenTelemetry. A traced order
// carries the traceparent of its latest step, through group commits and the queue. A step that many orders share is a
// span in a trace of its own: it links to a span of each of its orders, and each of those names it. Whether anything of
// an order is recorded is decided once, at its request. Nobody waits for a span: it goes into a bounded queue or is
// dropped, and is exported behind the sale. Listed attributes (see leaves) leave the process, and no texts: no code,
// token, password or user.
package tracing

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/XSAM/otelsql"
	"github.com/gin-gonic/gin"
	"github.com/go-logr/logr"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/contrib/instrumentation/github.com/gin-gonic/gin/otelgin"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	metrics "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"seckill/internal/budget"
	"seckill/internal/telemetry"
	"seckill/internal/version"
	"seckill/model"
)

const service = "seckill" // where OTEL_SERVICE_NAME gives none

// Options say what is traced.
type Options struct {
	Ratio       float64          // the share of requests that belong to no trace yet which is traced, from 0 to 1
	ParentBased bool             // a request which is traced already, or is not to be, stays so
	Exporter    sdk.SpanExporter // nil: over OTLP/HTTP, as OpenTelemetry's variables of the process say
	Metrics     *telemetry.Counters
	Log         *slog.Logger
}

// Tracer records spans. It is safe for concurrent use. A nil Tracer records none and costs nothing.
type Tracer struct {
	provider *sdk.TracerProvider
	spans    trace.Tracer
	asked    *rate.Limiter // of requests that are traced because their client says so
	options  Options
}

// Start begins to trace. It asks no collector whether it is there.
func Start(ctx context.Context, o Options) (*Tracer, error) {
	if o.Exporter == nil {
		var err error
		if o.Exporter, err = otlptracehttp.New(ctx); err != nil {
			return nil, fmt.Errorf("prepare the export of spans: %w", err)
		}
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service),
		attribute.String("service.version", version.Read().Version)), resource.WithTelemetrySDK(),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe the service to the collector (OTEL_RESOURCE_ATTRIBUTES): %w", err)
	}
	export := &export{SpanExporter: o.Exporter, metrics: o.Metrics, log: o.Log}
	provider := sdk.NewTracerProvider(sdk.WithResource(about), sdk.WithSampler(sampler{}),
		sdk.WithSpanProcessor(outlet{sdk.NewBatchSpanProcessor(export, sdk.WithMaxQueueSize(maxSpans),
			sdk.WithMaxExportBatchSize(maxBatch), sdk.WithExportTimeout(budget.Step)), export}))
	return &Tracer{
		provider: provider, spans: provider.Tracer("seckill"),
		asked: rate.NewLimiter(clientTraces, clientTraces), options: o,
	}, nil
}

// Stop exports what is left, as long as ctx lasts.
func (t *Tracer) Stop(ctx context.Context) {
	if err := t.provider.Shutdown(ctx); err != nil {
		t.options.Log.DebugContext(ctx, "the last spans were not exported", slog.Any("error", err))
	}
}

// LogTo passes on what the library has to say of its variables, which would go to standard error with their values.
func LogTo(log *slog.Logger) {
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("tracing is in trouble", slog.Any("error", err))
	}))
}

// HTTP makes the middleware that records the requests of the API; nil where none are. It comes first in the chain.
func (t *Tracer) HTTP() gin.HandlerFunc {
	if t == nil {
		return nil
	}
	record := otelgin.Middleware(service,
		otelgin.WithTracerProvider(t.provider), otelgin.WithMeterProvider(metrics.NewMeterProvider()),
		otelgin.WithPropagators(propagation.NewCompositeTextMapPropagator()), // of none: enter has read what there is
		otelgin.WithSpanNameFormatter(func(c *gin.Context) string { return c.Request.Method + " " + c.FullPath() }),
	)
	return func(c *gin.Context) {
		// A path that there is not, and a health check, are no work of ours. Of the others the method is known, too.
		if !strings.HasPrefix(c.FullPath(), "/api/") {
			return
		}
		ctx, recorded := t.enter(c.Request.Context(), c.GetHeader(traceparent))
		c.Request = c.Request.WithContext(ctx)
		if recorded {
			record(c)
		}
	}
}

// Redis records the commands of a client, without their arguments.
func (t *Tracer) Redis(client redis.UniversalClient) error {
	if t == nil {
		return nil
	}
	err := redisotel.InstrumentTracing(client,
		redisotel.WithTracerProvider(t.provider), redisotel.WithDBStatement(false), redisotel.WithCallerEnabled(false))
	if err != nil {
		return fmt.Errorf("trace Redis: %w", err)
	}
	return nil
}

// OpenDB is sql.OpenDB of a pool whose statements are recorded, without their texts.
func (t *Tracer) OpenDB(connector driver.Connector) *sql.DB {
	if t == nil {
		return sql.OpenDB(connector)
	}
	return otelsql.OpenDB(connector,
		otelsql.WithTracerProvider(t.provider), otelsql.WithMeterProvider(metrics.NewMeterProvider()),
		otelsql.WithSpanOptions(otelsql.SpanOptions{
			DisableQuery: true, DisableErrSkip: true, OmitConnResetSession: true, OmitRows: true,
			SpanFilter: func(ctx context.Context, _ otelsql.Method, _ string, _ []driver.NamedValue) bool {
				return trace.SpanContextFromContext(ctx).IsSampled()
			},
			RecordError: func(err error) bool { return !errors.Is(err, driver.ErrSkip) },
		}))
}

const (
	maxSpans     = 4096 // wait for export: 8 MB, the spans of 80 traced orders a second in the 5 s between two
	maxBatch     = 512  // spans of one export
	clientTraces = 10   // requests a second traced because their client says so: enough to look into something
)

// Attributes of ours.
const (
	attributeOrder      = "seckill.order.id"
	attributeVoucher    = "seckill.voucher.id"
	attributeOutcome    = "seckill.outcome" // OK or the problem's code
	attributeOrders     = "seckill.group.orders"
	attributeWork       = "seckill.work.orders"
	attributeGroupTrace = "seckill.group.trace_id"
	attributeGroupSpan  = "seckill.group.span_id"
)

// leaves reports whether an attribute may leave the process. Others may hold a code or a password of anybody's.
func leaves(a attribute.KeyValue) bool {
	switch a.Key {
	case attributeOrder, attributeVoucher, attributeOutcome, attributeOrders, attributeWork, attributeGroupTrace,
		attributeGroupSpan,
		"http.request.method", "http.route", "http.response.status_code", "http.response.body.size",
		"db.system", "db.system.name", "db.operation.name", "db.redis.num_cmd":
		return true
	default:
		return false
	}
}

// discreet is a span without attributes that are not listed, and without the texts of errors, which the log has.
type discreet struct{ sdk.ReadOnlySpan }

func (d discreet) Attributes() []attribute.KeyValue {
	return slices.DeleteFunc(slices.Clone(d.ReadOnlySpan.Attributes()),
		func(a attribute.KeyValue) bool { return !leaves(a) })
}

func (discreet) Events() []sdk.Event { return nil }

func (d discreet) Status() sdk.Status { return sdk.Status{Code: d.ReadOnlySpan.Status().Code} }

// outlet takes ended spans to the exporter, and counts those that the library would drop without a word.
type outlet struct {
	sdk.SpanProcessor

	export *export
}

// OnEnd implements sdk.SpanProcessor. It does not wait.
func (o outlet) OnEnd(span sdk.ReadOnlySpan) {
	if o.export.held.Add(1) > maxSpans {
		o.export.held.Add(-1)
		o.export.metrics.WithLabelValues("dropped").Inc()
		return
	}
	o.SpanProcessor.OnEnd(span)
}

type export struct {
	sdk.SpanExporter

	held    atomic.Int64 // spans that wait
	metrics *telemetry.Counters
	trouble telemetry.Trouble
	log     *slog.Logger
}

func (e *export) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	kept := make([]sdk.ReadOnlySpan, len(spans))
	for i, span := range spans {
		kept[i] = discreet{span}
	}
	err := e.SpanExporter.ExportSpans(ctx, kept)
	e.held.Add(-int64(len(spans)))
	result := "exported"
	if err != nil {
		result = "failed"
	}
	e.metrics.WithLabelValues(result).Add(float64(len(spans)))
	e.trouble.Note(ctx, e.log, err, "spans cannot be exported (OTEL_EXPORTER_OTLP_ENDPOINT)",
		"spans can be exported again")
	return nil // it is noted
}

// Handler adds trace_id to each record that is written with the context of a trace, recorded or not.
func Handler(next slog.Handler) slog.Handler { return handler{next} }

type handler struct{ slog.Handler }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		r = r.Clone() // its attributes may be shared
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs)}
}

func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }

const maxLinks = 128 // of a group, OpenTelemetry's default; each order names the group all the same

// Group is one step of several orders. A nil Group is one none of whose orders is traced.
type Group struct {
	span    trace.Span
	members []member
	byID    map[string]int // of members
}

type member struct {
	index int
	span  trace.Span
}

// Group begins a step of n orders, which order returns with the Trace before. An inner step is a part of the outer.
func (t *Tracer) Group(
	ctx context.Context, step string, n int, order func(i int) model.Order,
) (context.Context, *Group) {
	if t == nil {
		return ctx, nil
	}
	var members []member
	var links []trace.Link // to their orders
	for i := range n {
		if parent := parse(order(i).Trace); parent.IsSampled() {
			members, links = append(members, member{index: i}), append(links, trace.Link{SpanContext: parent})
		}
	}
	if members == nil {
		return ctx, nil
	}
	g := &Group{members: members, byID: make(map[string]int, len(members))}
	ctx, g.span = t.spans.Start(ctx, step+" group", trace.WithLinks(links[:min(len(links), maxLinks)]...),
		trace.WithAttributes(attribute.Int(attributeOrders, n)))
	own := g.span.SpanContext()
	for i := range members {
		o := order(members[i].index)
		g.byID[o.ID] = i
		before := trace.ContextWithRemoteSpanContext(context.Background(), links[i].SpanContext)
		_, members[i].span = t.spans.Start(before, step, trace.WithLinks(trace.Link{SpanContext: own}),
			trace.WithAttributes(
				attribute.String(attributeOrder, o.ID), attribute.String(attributeVoucher, o.VoucherID),
				attribute.String(attributeGroupTrace, own.TraceID().String()),
				attribute.String(attributeGroupSpan, own.SpanID().String())))
	}
	return context.WithValue(ctx, groupKey{}, g), g
}

// Reservations begins a step of reservations, as Group does.
func (t *Tracer) Reservations(ctx context.Context, step string, of []model.Reservation) (context.Context, *Group) {
	return t.Group(ctx, step, len(of), func(i int) model.Order { return of[i].Order })
}

// Next are the reservations of the group as they go on: their next step follows this one.
func (g *Group) Next(reservations []model.Reservation) []model.Reservation {
	if g == nil {
		return reservations
	}
	next := slices.Clone(reservations)
	for _, m := range g.members {
		next[m.index].Trace = format(m.span.SpanContext())
	}
	return next
}

// End ends the step. An order failed with the whole, or by its own error; without own, it shares the whole's fate.
func (g *Group) End(whole error, own func(i int) error) {
	if g == nil {
		return
	}
	for _, m := range g.members {
		failure := whole
		if failure == nil && own != nil {
			failure = own(m.index)
		}
		m.span.SetAttributes(outcome(failure))
		m.span.End()
	}
	g.span.End()
}

// Step begins a step of one request. The function ends it.
func (t *Tracer) Step(
	ctx context.Context, step string, options ...trace.SpanStartOption,
) (_ context.Context, end func(failure error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	ctx, span := t.spans.Start(ctx, step, options...)
	return ctx, func(failure error) {
		span.SetAttributes(outcome(failure))
		span.End()
	}
}

// Work begins a step on orders without a request, recorded by the ratio or as what it is inside of. end ends it.
func (t *Tracer) Work(ctx context.Context, step string, orders int) (_ context.Context, end func(failure error)) {
	if t == nil || !trace.SpanContextFromContext(ctx).IsValid() && !t.chance() {
		return ctx, func(error) {}
	}
	return t.Step(ctx, step, trace.WithAttributes(attribute.Int(attributeWork, orders)))
}

// outcome tells of a failure no more than the code that a client would hear.
func outcome(failure error) attribute.KeyValue {
	said := "OK"
	switch {
	case failure == nil:
	case errors.Is(failure, model.ErrLockBusy), errors.Is(failure, model.ErrUserLocked):
		said = string(model.CodeLockBusy)
	case errors.Is(failure, model.ErrUnknownOutcome), errors.Is(failure, model.ErrCopyClosed),
		errors.Is(failure, model.ErrNotTried):
		said = string(model.CodeUnavailable)
	default:
		said = string(model.CodeOf(failure))
	}
	return attribute.String(attributeOutcome, said)
}

type groupKey struct{}

// Within is the Trace of an order in the group that ctx belongs to; empty: there is none, or it is not traced.
func Within(ctx context.Context, orderID string) string {
	if g, ok := ctx.Value(groupKey{}).(*Group); ok {
		if i, traced := g.byID[orderID]; traced {
			return format(g.members[i].span.SpanContext())
		}
	}
	return ""
}

// enter decides whether a request is recorded, and returns its context with what it belongs to: else its ids are for the
// log. Anybody may send a traceparent (W3C Trace Context), so that "sampled" counts for clientTraces a second. Of the
// others the ratio is recorded, in new traces, by our chance, not by an id that the client makes up. Tracestate and
// baggage, texts of any client's making, are not read.
func (t *Tracer) enter(ctx context.Context, header string) (_ context.Context, recorded bool) {
	parent := parse(header)
	chosen := t.chance()
	switch {
	case !parent.IsValid() || !t.options.ParentBased:
	case !parent.IsSampled():
		chosen = false
	case t.asked.Allow():
		chosen = true
	default:
		parent = trace.SpanContext{}
	}
	if chosen {
		if !parent.IsValid() {
			return ctx, true
		}
		return trace.ContextWithRemoteSpanContext(ctx, parent.WithTraceFlags(trace.FlagsSampled)), true
	}
	return trace.ContextWithSpanContext(ctx, unrecorded(parent.TraceID())), false
}

func (t *Tracer) chance() bool { return rand.Float64() < t.options.Ratio } //nolint:gosec // guards nothing

// unrecorded is a span that is not recorded, of a new trace where there is none.
func unrecorded(of trace.TraceID) trace.SpanContext {
	if !of.IsValid() {
		binary.NativeEndian.PutUint64(of[:8], rand.Uint64()) //nolint:gosec // a name in the log
		binary.NativeEndian.PutUint64(of[8:], rand.Uint64()) //nolint:gosec // likewise
	}
	var span trace.SpanID
	binary.NativeEndian.PutUint64(span[:], rand.Uint64()) //nolint:gosec // likewise
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: of, SpanID: span})
}

// sampler records what belongs to something that is recorded, or was chosen by enter; a look at Redis alone is not.
type sampler struct{}

func (sampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	work := slices.ContainsFunc(p.Attributes, func(a attribute.KeyValue) bool { return a.Key == attributeWork })
	recorded := parent.IsSampled() || !parent.IsValid() && (p.Kind == trace.SpanKindServer || work)
	for _, link := range p.Links {
		recorded = recorded || link.SpanContext.IsSampled()
	}
	if recorded {
		return sdk.SamplingResult{Decision: sdk.RecordAndSample}
	}
	return sdk.SamplingResult{Decision: sdk.Drop}
}

func (sampler) Description() string { return "by the request" }

const traceparent = "traceparent"

// parse reads a traceparent of version 00; what is none is an invalid span context.
func parse(text string) trace.SpanContext {
	if len(text) != len("00-")+32+len("-")+16+len("-01") {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: text})
	return trace.SpanContextFromContext(ctx)
}

// format writes a traceparent; empty for a span that is not recorded.
func format(span trace.SpanContext) string {
	if !span.IsSampled() {
		return ""
	}
	return "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-01"
}

// Of is the traceparent of what ctx belongs to; empty where nothing of it is recorded.
func Of(ctx context.Context) string { return format(trace.SpanContextFromContext(ctx)) }
