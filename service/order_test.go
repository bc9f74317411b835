package service

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/budget"
	"seckill/internal/telemetry"
	"seckill/internal/vouchercode"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/sale/cache"
	"seckill/service/servicetest"
)

// codebook is a store of orders by their codes.
type codebook map[string]*model.Order

func (b codebook) Redeem(_ context.Context, hash []byte, _ string) (model.Order, error) {
	order := b[string(hash)]
	if order == nil {
		return model.Order{}, model.NotFound("code")
	}
	move, err := model.Move(order.Status, model.OrderRedeemed, model.MoverAdmin)
	if err != nil {
		return model.Order{}, err
	}
	*order = move.Apply(*order, time.Now())
	return *order, nil
}

// till is a service of redemptions with one paid order, and its code.
func till(t *testing.T) (*Redemptions, string) {
	t.Helper()
	keys := check.Value(vouchercode.NewKeys("a secret that has more than 32 bytes"))(t)
	codes := NewCodes(keys, slog.New(slog.DiscardHandler))
	sealed := codes.New("o1.v1")
	order := model.Order{ID: "o1.v1", UserID: "alice", Status: model.OrderPaid, SealedCode: string(sealed.Sealed)}
	s := NewRedemptions(codebook{string(sealed.Hash): &order}, codes)
	return s, codes.Show(t.Context(), order).Code
}

func TestRedeem(t *testing.T) {
	t.Parallel()
	s, code := till(t)
	order, err := s.Redeem(t.Context(), "boss", " "+code+" ")
	check.That(t, err == nil && order.Status == model.OrderRedeemed && order.Code == code, "%+v, %v", order, err)
	_, err = s.Redeem(t.Context(), "boss", code)
	check.Equal(t, "a code that was used", model.CodeOf(err), model.CodeIllegalState)
	_, err = s.Redeem(t.Context(), "boss", vouchercode.New().Reveal())
	check.Equal(t, "a code that no order has", model.CodeOf(err), model.CodeNotFound)
	_, err = s.Redeem(t.Context(), "boss", "7K3M")
	check.Equal(t, "a code that was mistyped", model.CodeOf(err), model.CodeValidation)
	none := NewRedemptions(codebook{}, nil)
	_, err = none.Redeem(t.Context(), "boss", code)
	check.Equal(t, "without a key", model.CodeOf(err), model.CodeUnavailable)
}

// Wrong codes slow an administrator down, also for the right one, and nobody else. Codes that were used are no guesses.
func TestWrongCodesAreSlowedDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, code := till(t)
		refused := 0
		for range 60 {
			_, err := s.Redeem(t.Context(), "mallory", vouchercode.New().Reveal())
			if model.CodeOf(err) == model.CodeRateLimited {
				refused++
			}
		}
		check.That(t, refused >= 30, "%d of 60 wrong codes were refused", refused)
		_, err := s.Redeem(t.Context(), "mallory", code)
		check.Equal(t, "the right code, after that", model.CodeOf(err), model.CodeRateLimited)
		if _, err := s.Redeem(t.Context(), "boss", code); err != nil {
			t.Errorf("another administrator: %v", err)
		}
		for range 60 {
			_, err := s.Redeem(t.Context(), "boss", code)
			check.Equal(t, "a used code, again and again", model.CodeOf(err), model.CodeIllegalState)
		}
		servicetest.Pass(budget.Settled)
		_, err = s.Redeem(t.Context(), "mallory", code)
		check.Equal(t, "after a while", model.CodeOf(err), model.CodeIllegalState)
	})
}

// slowBook answers after a second, as a database in trouble.
type slowBook struct{ codebook }

func (b slowBook) Redeem(ctx context.Context, hash []byte, adminID string) (model.Order, error) {
	servicetest.Pass(time.Second)
	return b.codebook.Redeem(ctx, hash, adminID)
}

// The tills of a shop may share one account: right codes are no wrong ones, however many are used at once.
func TestManyRightCodesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys := check.Value(vouchercode.NewKeys("a secret that has more than 32 bytes"))(t)
		codes := NewCodes(keys, slog.New(slog.DiscardHandler))
		book := codebook{}
		s := NewRedemptions(slowBook{book}, codes)
		var right []string
		for range 100 {
			sealed := codes.New("o1.v1")
			order := model.Order{ID: "o1.v1", Status: model.OrderPaid, SealedCode: string(sealed.Sealed)}
			book[string(sealed.Hash)] = &order
			right = append(right, codes.Show(t.Context(), order).Code)
		}
		var tills sync.WaitGroup
		for _, code := range right {
			tills.Go(func() {
				if _, err := s.Redeem(t.Context(), "boss", code); err != nil {
					t.Errorf("a right code: %v", err)
				}
			})
		}
		tills.Wait()
	})
}

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
