package tracing

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"seckill/model"
)

// maxLinks of a group are recorded, those of its first orders: as many as OpenTelemetry allows by default. Each of its
// orders names the group all the same.
const maxLinks = 128

// Group is one step of several orders. A nil one is of orders none of which is traced.
type Group struct {
	span    trace.Span
	members []member
	byID    map[string]int // of members
}

// member is an order of a group that is traced.
type member struct {
	index int
	span  trace.Span
}

// Group begins a step of n orders, of which order returns each, with the Trace of the step before. A step inside
// another one's context is a part of it.
func (t *Tracer) Group(ctx context.Context, step string, n int, order func(i int) model.Order) (context.Context, *Group) {
	var traced []model.Order
	var parents []trace.SpanContext
	var members []member
	for i := range n {
		o := order(i)
		if parent := parse(o.Trace); parent.IsSampled() {
			traced, parents, members = append(traced, o), append(parents, parent), append(members, member{index: i})
		}
	}
	if len(traced) == 0 {
		return ctx, nil
	}
	g := &Group{members: members, byID: make(map[string]int, len(members))}
	links := make([]trace.Link, min(len(parents), maxLinks))
	for i := range links {
		links[i] = trace.Link{SpanContext: parents[i]}
	}
	ctx, g.span = t.spans.Start(ctx, step+" group", trace.WithLinks(links...), trace.WithAttributes(attribute.Int(attributeOrders, n)))
	own := g.span.SpanContext()
	for i, o := range traced {
		g.byID[o.ID] = i
		before := trace.ContextWithRemoteSpanContext(context.Background(), parents[i])
		_, g.members[i].span = t.spans.Start(before, step, trace.WithLinks(trace.Link{SpanContext: own}), trace.WithAttributes(
			attribute.String(attributeOrder, o.ID), attribute.String(attributeVoucher, o.VoucherID),
			attribute.String(attributeGroupTrace, own.TraceID().String()), attribute.String(attributeGroupSpan, own.SpanID().String())))
	}
	return context.WithValue(ctx, groupKey{}, g), g
}

// Each calls yield with the place of each order that is traced, and the Trace for its next step.
func (g *Group) Each(yield func(i int, trace string)) {
	if g == nil {
		return
	}
	for _, m := range g.members {
		yield(m.index, format(m.span.SpanContext()))
	}
}

// End ends the step. Failure is why an order did not get through it; nil: it did.
func (g *Group) End(failure func(i int) error) {
	if g == nil {
		return
	}
	for _, m := range g.members {
		m.span.SetAttributes(outcome(failure(m.index)))
		m.span.End()
	}
	g.span.End()
}

// Step begins a step of one request. The function ends it.
func (t *Tracer) Step(ctx context.Context, step string, options ...trace.SpanStartOption) (_ context.Context, end func(failure error)) {
	ctx, span := t.spans.Start(ctx, step, options...)
	return ctx, func(failure error) {
		span.SetAttributes(outcome(failure))
		span.End()
	}
}

// Work begins a step that no request has asked for, on so many orders or what belongs to them: of these the ratio is
// recorded, as of requests. Inside something that is traced, or is not to be, it is a part of that. The function ends it.
func (t *Tracer) Work(ctx context.Context, step string, orders int) (_ context.Context, end func(failure error)) {
	if !trace.SpanContextFromContext(ctx).IsValid() && !t.door.chance() {
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
	case errors.Is(failure, model.ErrUnknownOutcome), errors.Is(failure, model.ErrCopyClosed), errors.Is(failure, model.ErrNotTried):
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
