package service

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/sale/cache"
	"seckill/service/servicetest"
)

// refundDesk is a store of refunds that gives one answer.
type refundDesk struct {
	RefundStore // of the rest nothing is called

	asked []string
	err   error
}

func (d *refundDesk) Request(ctx context.Context, orderID, newID, adminID string) (model.Refund, model.Order, error) {
	d.asked = append(d.asked, orderID+" "+adminID)
	if d.err == nil {
		d.err = ctx.Err()
	}
	return model.Refund{ID: newID, OrderID: orderID, Actor: adminID}, model.Order{ID: orderID}, d.err
}

// TestRefundRequest: the instances hear of the unit that came back, or that may have, and
// of no other; a client that hangs up changes nothing.
func TestRefundRequest(t *testing.T) {
	t.Parallel()
	processing := model.OrderDetail{Order: model.Order{ID: "o1.v1", Status: model.OrderProcessing}}
	for name, test := range map[string]struct {
		err      error
		detail   model.OrderDetail
		notFound error
		want     model.Code // empty: refunded
		told     int
	}{
		"paid":               {told: 1},
		"not paid":           {err: &model.Error{Code: model.CodeIllegalState}, want: model.CodeIllegalState},
		"unknown outcome":    {err: model.Unavailable("x", model.ErrUnknownOutcome), want: model.CodeUnavailable, told: 1},
		"database away":      {err: model.Unavailable("x", nil), want: model.CodeUnavailable},
		"absent":             {err: model.NotFound("order"), notFound: model.NotFound("order"), want: model.CodeNotFound},
		"without a row yet":  {err: model.NotFound("order"), detail: processing, want: model.CodeIllegalState},
		"nobody can tell it": {err: model.NotFound("order"), notFound: model.Unavailable("x", nil), want: model.CodeUnavailable},
	} {
		servicetest.Bubble(t, name, func(t *testing.T) {
			desk, told := &refundDesk{err: test.err}, 0
			log := slog.New(slog.DiscardHandler)
			entries := check.Value(cache.OfDatabase(servicetest.NewTable(), telemetry.New(prometheus.NewRegistry()), log))(t)
			defer entries.Close(context.Background())
			s := NewRefunds(RefundDeps{
				Store: desk, Cache: entries, Log: log,
				Announce: func(context.Context, string) error { told++; return nil },
				Detail:   func(context.Context, string) (model.OrderDetail, error) { return test.detail, test.notFound },
			})
			gone, hangUp := context.WithCancel(t.Context())
			hangUp()
			refund, err := s.Request(gone, "boss", "o1.v1")
			check.That(t, test.want != "" || (err == nil && refund.OrderID == "o1.v1" && refund.ID != "" && refund.Actor == "boss"), "%+v, %v", refund, err)
			check.That(t, test.want == "" || model.CodeOf(err) == test.want, "%v, want %s", err, test.want)
			if e, ok := errors.AsType[*model.Error](err); name == "without a row yet" && (!ok || e.OrderStatus != model.OrderProcessing) {
				t.Errorf("%v", err)
			}
			check.Equal(t, "how often the instances were told", told, test.told)
			_, err = s.Request(t.Context(), "boss", "impossible")
			check.Equal(t, "an id that cannot exist", model.CodeOf(err), model.CodeNotFound)
			check.Equal(t, "orders asked for", len(desk.asked), 1)
		})
	}
}
