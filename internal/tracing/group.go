package tracing

import (
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"seckill/model"
)

// maxLinks of a group are recorded, those of its first orders: as many as OpenTelemetry allows by default. Each of its
// orders names the group all the same.
const maxLinks = 128

// Group is one step of several orders. A nil Group is one none of whose orders is traced.
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
	if t == nil {
		return ctx, nil
	}
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

// End ends the step. An order did not get through it when the whole failed, or when its own failure is not nil; without
// own, the orders have the fate of the whole.
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
func (t *Tracer) Step(ctx context.Context, step string, options ...trace.SpanStartOption) (_ context.Context, end func(failure error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	ctx, span := t.spans.Start(ctx, step, options...)
	return ctx, func(failure error) {
		span.SetAttributes(outcome(failure))
		span.End()
	}
}

// Work begins a step that no request has asked for, on so many orders or what belongs to them: of these the ratio is
// recorded, as of requests. Inside something that is traced, or is not to be, it is a part of that. The function ends
// it.
func (t *Tracer) Work(ctx context.Context, step string, orders int) (_ context.Context, end func(failure error)) {
	if t == nil || !trace.SpanContextFromContext(ctx).IsValid() && !t.door.chance() {
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
