package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
)

// door decides of each request whether it is recorded, by the traceparent (W3C Trace Context) that it brings and by
// chance. Anybody may send one, so it is believed within bounds. One that says "sampled" counts for clientTraces
// requests a second; of a crowd that all say so the ratio is recorded, in traces of their own. Chance is ours and not
// the trace's id, which the client makes up. So nobody can have everything recorded, or choose what is. Tracestate and
// baggage are not read: they are texts of any client's making, which would travel with every order.
type door struct {
	ratio       float64
	parentBased bool
	asked       *rate.Limiter
}

func newDoor(o Options) door {
	return door{ratio: o.Ratio, parentBased: o.ParentBased, asked: rate.NewLimiter(clientTraces, clientTraces)}
}

// enter returns a request's context with what it belongs to, and whether it is to be recorded. One that is not has ids
// for the log alone: to make a span of it would cost as much as the answer (see BenchmarkTracing).
func (d door) enter(ctx context.Context, header string) (_ context.Context, recorded bool) {
	parent := parse(header)
	chosen := d.chance()
	switch {
	case !parent.IsValid() || !d.parentBased:
	case !parent.IsSampled():
		chosen = false
	case d.asked.Allow():
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

// chance decides of what belongs to nothing yet.
func (d door) chance() bool { return rand.Float64() < d.ratio } //nolint:gosec // guards nothing

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

// sampler records what belongs to something that is recorded, a group one of whose orders is, and the requests and the
// work that the door has chosen. What belongs to none of them, such as a look at Redis every second, is not.
type sampler struct{}

// ShouldSample implements sdk.Sampler.
func (sampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	recorded := parent.IsSampled() || !parent.IsValid() && (p.Kind == trace.SpanKindServer || isWork(p.Attributes))
	for _, link := range p.Links {
		recorded = recorded || link.SpanContext.IsSampled()
	}
	if recorded {
		return sdk.SamplingResult{Decision: sdk.RecordAndSample}
	}
	return sdk.SamplingResult{Decision: sdk.Drop}
}

func isWork(attributes []attribute.KeyValue) bool {
	return slices.ContainsFunc(attributes, func(a attribute.KeyValue) bool { return a.Key == attributeWork })
}

// Description implements sdk.Sampler.
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
