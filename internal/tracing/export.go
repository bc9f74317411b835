package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"seckill/internal/budget"
	"seckill/internal/telemetry"
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

// leaves reports whether an attribute may leave the process. The contributed instrumentations record more: paths,
// addresses, user agents and statements, in which anybody may write anything, a code or a password.
func leaves(a attribute.KeyValue) bool {
	switch a.Key {
	case attributeOrder, attributeVoucher, attributeOutcome, attributeOrders, attributeWork, attributeGroupTrace, attributeGroupSpan,
		"http.request.method", "http.route", "http.response.status_code", "http.response.body.size",
		"db.system", "db.system.name", "db.operation.name", "db.redis.num_cmd":
		return true
	default:
		return false
	}
}

// discreet is a span without what must not leave the process: attributes that are not listed, and the texts of
// errors, which quote keys and values. The log has those, with the trace's id.
type discreet struct{ sdk.ReadOnlySpan }

// Attributes implements sdk.ReadOnlySpan.
func (d discreet) Attributes() []attribute.KeyValue {
	var kept []attribute.KeyValue
	for _, a := range d.ReadOnlySpan.Attributes() {
		if leaves(a) {
			kept = append(kept, a)
		}
	}
	return kept
}

// Events implements sdk.ReadOnlySpan.
func (discreet) Events() []sdk.Event { return nil }

// Status implements sdk.ReadOnlySpan.
func (d discreet) Status() sdk.Status { return sdk.Status{Code: d.ReadOnlySpan.Status().Code} }

// outlet takes the spans that have ended to the exporter. It is the library's batch processor behind a count of what
// is in it: the library drops what its queue cannot hold as well, and does not tell.
type outlet struct {
	sdk.SpanProcessor

	held    *atomic.Int64
	metrics *telemetry.Counters
}

func newOutlet(o Options) outlet {
	held := new(atomic.Int64)
	export := &export{SpanExporter: o.Exporter, held: held, metrics: o.Metrics, log: o.Log}
	return outlet{
		SpanProcessor: sdk.NewBatchSpanProcessor(export,
			sdk.WithMaxQueueSize(maxSpans), sdk.WithMaxExportBatchSize(maxBatch), sdk.WithExportTimeout(budget.Step)),
		held: held, metrics: o.Metrics,
	}
}

// OnEnd implements sdk.SpanProcessor. It does not wait.
func (o outlet) OnEnd(span sdk.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	if o.held.Add(1) > maxSpans {
		o.held.Add(-1)
		o.metrics.WithLabelValues("dropped").Inc()
		return
	}
	o.SpanProcessor.OnEnd(span)
}

// export is the exporter as the outlet sees it.
type export struct {
	sdk.SpanExporter

	held    *atomic.Int64
	metrics *telemetry.Counters
	trouble telemetry.Trouble
	log     *slog.Logger
}

// ExportSpans implements sdk.SpanExporter.
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
	e.trouble.Note(ctx, e.log, err, "spans cannot be exported (OTEL_EXPORTER_OTLP_ENDPOINT)", "spans can be exported again")
	return nil // it is noted
}
