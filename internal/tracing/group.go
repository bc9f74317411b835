package tracing

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"seckill/model"
)

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
