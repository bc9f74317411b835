package tracing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
)

// sampler decides what is recorded. A request is, by chance or because what it belongs to is. A group is when one of
// its orders is. What belongs to neither, such as a look at Redis every second, is not.
type sampler struct{ sdk.Sampler }

func newSampler(o Options) sdk.Sampler {
	chosen := sdk.TraceIDRatioBased(o.Ratio)
	if o.ParentBased {
		chosen = sdk.ParentBased(chosen)
	}
	return sampler{chosen}
}

// ShouldSample implements sdk.Sampler.
func (s sampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if !trace.SpanContextFromContext(p.ParentContext).IsValid() {
		for _, link := range p.Links {
			if link.SpanContext.IsSampled() {
				return sdk.SamplingResult{Decision: sdk.RecordAndSample}
			}
		}
		if p.Kind != trace.SpanKindServer {
			return sdk.SamplingResult{Decision: sdk.Drop}
		}
	}
	return s.Sampler.ShouldSample(p)
}

// door reads the traceparent (W3C Trace Context) that a client sends. Anybody may send one, so it is believed within
// bounds. One that says "sampled" counts for clientTraces requests a second; a crowd that all say so gets traces of its
// own, of which the ratio is recorded, so that nobody can have everything recorded or choose what is. Tracestate and
// baggage are not read: they are texts of any client's making, which would travel with every order.
type door struct{ asked *rate.Limiter }

func newDoor() door { return door{rate.NewLimiter(clientTraces, clientTraces)} }

const traceparent = "traceparent"

// Extract implements propagation.TextMapPropagator.
func (d door) Extract(ctx context.Context, carrier propagation.TextMapCarrier) context.Context {
	of := parse(carrier.Get(traceparent))
	if !of.IsValid() || of.IsSampled() && !d.asked.Allow() {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, of)
}

// Inject implements propagation.TextMapPropagator: the client is told nothing.
func (door) Inject(context.Context, propagation.TextMapCarrier) {}

// Fields implements propagation.TextMapPropagator.
func (door) Fields() []string { return []string{traceparent} }

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
