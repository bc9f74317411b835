package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
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

type codebook struct {
	orders map[string]*model.Order
	took   time.Duration // of a redemption
}

func (b *codebook) Redeem(_ context.Context, hash []byte, _ model.Till) (model.Order, error) {
	<-time.After(b.took)
	order := b.orders[string(hash)]
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

func (b *codebook) Unredeem(_ context.Context, undo model.Undo) (model.Order, error) {
	return model.Order{}, model.NotFound("order " + undo.OrderID)
}

// Detail has one order, without a row.
func (*codebook) Detail(_ context.Context, orderID string) (d model.OrderDetail, err error) {
	if orderID != "o2.v1" {
		return d, model.NotFound("order")
	}
	d.Status = model.OrderProcessing
	return d, nil
}

func till(t *testing.T, orders int, took time.Duration) (*Redemptions, []string) {
	t.Helper()
	keys := check.Value(vouchercode.NewKeys("a secret that has more than 32 bytes"))(t)
	codes := NewCodes(keys, slog.New(slog.DiscardHandler))
	book, right := &codebook{map[string]*model.Order{}, took}, []string{}
	for range orders {
		sealed := codes.New("o1.v1")
		order := model.Order{ID: "o1.v1", UserID: "alice", Status: model.OrderPaid, SealedCode: string(sealed.Sealed)}
		book.orders[string(sealed.Hash)] = &order
		right = append(right, codes.Show(t.Context(), order).Code)
	}
	return NewRedemptions(book, codes, book.Detail), right
}

func TestRedeem(t *testing.T) {
	t.Parallel()
	s, codes := till(t, 1, 0)
	for id, code := range map[string]model.Code{"o2.v1": model.CodeIllegalState, "o3.v1": model.CodeNotFound} {
		_, err := s.Unredeem(t.Context(), model.Undo{OrderID: id})
		check.Equal(t, "the undo of an order without a row", model.CodeOf(err), code)
	}
	code := codes[0]
	order, err := s.Redeem(t.Context(), model.Till{By: "boss"}, " "+code+" ")
	check.That(t, err == nil && order.Status == model.OrderRedeemed && order.Code == code, "%+v, %v", order, err)
	_, err = s.Redeem(t.Context(), model.Till{By: "boss"}, code)
	check.Equal(t, "a code that was used", model.CodeOf(err), model.CodeIllegalState)
	_, err = s.Redeem(t.Context(), model.Till{By: "boss"}, vouchercode.New().Reveal())
	check.Equal(t, "a code that no order has", model.CodeOf(err), model.CodeNotFound)
	_, err = s.Redeem(t.Context(), model.Till{By: "boss"}, "7K3M")
	check.Equal(t, "a code that was mistyped", model.CodeOf(err), model.CodeValidation)
	none := NewRedemptions(&codebook{}, nil, nil)
	_, err = none.Redeem(t.Context(), model.Till{By: "boss"}, code)
	check.Equal(t, "without a key", model.CodeOf(err), model.CodeUnavailable)
}

// Wrong codes slow an administrator down, also for the right one, and nobody else. Codes that were used are no guesses.
func TestWrongCodesAreSlowedDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, codes := till(t, 1, 0)
		code := codes[0]
		refused := 0
		for range 60 {
			_, err := s.Redeem(t.Context(), model.Till{By: "mallory"}, vouchercode.New().Reveal())
			if model.CodeOf(err) == model.CodeRateLimited {
				refused++
			}
		}
		check.That(t, refused >= 30, "%d of 60 wrong codes were refused", refused)
		_, err := s.Redeem(t.Context(), model.Till{By: "mallory"}, code)
		check.Equal(t, "the right code, after that", model.CodeOf(err), model.CodeRateLimited)
		check.Is(t, "another administrator", check.ErrorOf(s.Redeem(t.Context(), model.Till{By: "boss"}, code)), nil)
		for range 60 {
			_, err := s.Redeem(t.Context(), model.Till{By: "boss"}, code)
			check.Equal(t, "a used code, again and again", model.CodeOf(err), model.CodeIllegalState)
		}
		servicetest.Pass(budget.Settled)
		_, err = s.Redeem(t.Context(), model.Till{By: "mallory"}, code)
		check.Equal(t, "after a while", model.CodeOf(err), model.CodeIllegalState)
	})
}

// The tills of a shop may share one account: right codes are no wrong ones, however many are used at once.
func TestManyRightCodesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, codes := till(t, 100, time.Second)
		check.Volley(len(codes), func(i int) { check.Must(t, check.ErrorOf(s.Redeem(t.Context(), model.Till{By: "boss"}, codes[i]))) })
	})
}

type refundDesk struct {
	RefundStore // of the rest nothing is called

	asked []string
	err   error
}

func (d *refundDesk) Request(ctx context.Context, orderID, newID, adminID string, _ model.RefundAsk) (model.Refund, model.Order, error) {
	d.asked = append(d.asked, orderID+" "+adminID)
	if d.err == nil {
		d.err = ctx.Err()
	}
	return model.Refund{ID: newID, OrderID: orderID, Actor: adminID}, model.Order{ID: orderID}, d.err
}

func (d *refundDesk) PaidBack(context.Context, string, string) (model.Refund, error) {
	return model.Refund{}, nil
}

func (d *refundDesk) Withdraw(ctx context.Context, orderID, _, userID string) (bool, error) {
	_, _, err := d.Request(ctx, orderID, "", userID, model.RefundAsk{})
	return err == nil, err
}

// The instances learn of the unit that came back, or may have, and no other; a client's hang-up changes nothing.
func TestRefundRequest(t *testing.T) {
	t.Parallel()
	processing := model.OrderDetail{Order: model.Order{ID: "o1.v1", UserID: "boss", Status: model.OrderProcessing}}
	receipt := func(owner string) model.OrderDetail {
		moves := []model.OrderMove{{By: owner}, {By: "clerk"}, {By: model.ByProvider}}
		return model.OrderDetail{Order: model.Order{ID: "o1.v1", UserID: owner}, History: moves}
	}
	for name, test := range map[string]struct {
		err      error
		withdraw bool
		detail   model.OrderDetail
		notFound error
		want     model.Code // empty: refunded
		told     int
	}{
		"paid":                {told: 1},
		"withdrawn":           {withdraw: true, detail: receipt("boss"), told: 1},
		"another's":           {withdraw: true, err: model.NotFound("order"), detail: receipt("alice"), want: model.CodeNotFound},
		"withdrawn too early": {withdraw: true, err: model.NotFound("order"), detail: processing, want: model.CodeIllegalState},
		"not paid":            {err: &model.Error{Code: model.CodeIllegalState}, want: model.CodeIllegalState},
		"unknown outcome":     {err: model.Unavailable("x", model.ErrUnknownOutcome), want: model.CodeUnavailable, told: 1},
		"database away":       {err: model.Unavailable("x", nil), want: model.CodeUnavailable},
		"absent":              {err: model.NotFound("order"), notFound: model.NotFound("order"), want: model.CodeNotFound},
		"without a row yet":   {err: model.NotFound("order"), detail: processing, want: model.CodeIllegalState},
		"nobody can tell it":  {err: model.NotFound("order"), notFound: model.Unavailable("x", nil), want: model.CodeUnavailable},
	} {
		servicetest.Bubble(t, name, func(t *testing.T) {
			desk, told := &refundDesk{err: test.err}, 0
			log := slog.New(slog.DiscardHandler)
			entries := check.Value(cache.New(servicetest.NewTable(), nil, telemetry.New(prometheus.NewRegistry()),
				log))(t)
			defer entries.Close(context.Background())
			s := &Refunds{
				Store: desk, Cache: entries, Log: log,
				Announce: func(context.Context, string) error { told++; return nil },
				Detail: func(context.Context, string) (model.OrderDetail, error) {
					return test.detail, test.notFound
				},
			}
			gone, hangUp := context.WithCancel(t.Context())
			hangUp()
			ask := func(ctx context.Context, id string) (answer string, err error) {
				if test.withdraw {
					got, changed, err := s.Withdraw(ctx, "boss", id)
					return fmt.Sprintf("%s %t %v", got.ID, changed, got.History), err
				}
				refund, err := s.Request(ctx, "boss", id, model.RefundAsk{})
				return fmt.Sprintf("%s %t %s", refund.OrderID, refund.ID != "", refund.Actor), err
			}
			answer, err := ask(gone, "o1.v1")
			want := "o1.v1 true boss"
			if test.withdraw { // which names no administrator
				shown := receipt("boss")
				shown.History[1].By = "admin"
				want = fmt.Sprintf("o1.v1 true %v", shown.History)
			}
			check.That(t, test.want != "" || err == nil && answer == want, "%s, %v, want %s", answer, err, want)
			check.That(t, test.want == "" || model.CodeOf(err) == test.want, "%v, want %s", err, test.want)
			if e, ok := errors.AsType[*model.Error](err); name == "without a row yet" &&
				(!ok || e.OrderStatus != model.OrderProcessing) {
				t.Errorf("%v", err)
			}
			check.Equal(t, "how often the instances were told", told, test.told)
			_, err = ask(t.Context(), "impossible")
			check.Equal(t, "an id that cannot exist", model.CodeOf(err), model.CodeNotFound)
			check.Equal(t, "orders asked for", len(desk.asked), 1)
		})
	}
}

func generatedSale(chance *rand.Rand) (stocks []model.StockAt, orders []model.BookedOrder, now time.Time) {
	begin := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	length := time.Duration(1+chance.IntN(1_000_000)) * time.Millisecond
	within := func() time.Time { return begin.Add(time.Duration(chance.Int64N(int64(length)))) }
	stocks = []model.StockAt{{At: begin, Stock: int64(chance.IntN(100))}}
	for range chance.IntN(3) {
		stocks = append(stocks, model.StockAt{At: within(), Stock: int64(chance.IntN(100))})
	}
	slices.SortFunc(stocks, func(a, b model.StockAt) int { return a.At.Compare(b.At) })
	for n := range chance.IntN(150) {
		o := model.BookedOrder{Order: model.Order{ID: fmt.Sprint(n), CreatedAt: within()}}
		o.UnpaidAt = new(o.CreatedAt.Add(time.Millisecond))
		closed := func() { o.ClosedAt = new(o.CreatedAt.Add(1 + time.Duration(chance.Int64N(int64(length))))) }
		switch o.Status = model.OrderStatuses()[1+chance.IntN(7)]; o.Status {
		case model.OrderPaid, model.OrderRedeemed:
			o.PaidAt, o.Received = o.UnpaidAt, int64(chance.IntN(1000))
		case model.OrderCanceled, model.OrderExpired:
			closed()
		case model.OrderRefunded:
			closed()
			o.Received = int64(chance.IntN(1000))
			o.Returned = o.Received
			if chance.IntN(2) == 0 {
				o.PaidAt = o.UnpaidAt
				if chance.IntN(3) == 0 {
					o.RedeemedAt = o.PaidAt
				}
			} else if chance.IntN(2) == 0 { // late money for an order that had failed
				o.UnpaidAt = nil
			}
		case model.OrderFailed:
			closed()
			o.UnpaidAt = nil
		}
		orders = append(orders, o)
	}
	slices.SortFunc(orders, func(a, b model.BookedOrder) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return stocks, orders, begin.Add(2*length + 1)
}

// usedUp counts the units that had left the stock at an instant.
func usedUp(orders []model.BookedOrder, at time.Time) (units int64) {
	for _, o := range orders {
		if o.RedeemedAt != nil && !o.ClosedAt.After(at) {
			units++
		}
	}
	return units
}

func soldOutAt(stocks []model.StockAt, orders []model.BookedOrder) *time.Time {
	var instants []time.Time
	for _, s := range stocks {
		instants = append(instants, s.At)
	}
	for _, o := range orders {
		instants = append(instants, o.CreatedAt)
	}
	slices.SortFunc(instants, time.Time.Compare)
	for _, now := range instants {
		if taken, stock := unitsAt(stocks, orders, now); taken > 0 && taken >= stock {
			return &now
		}
	}
	return nil
}

func unitsAt(stocks []model.StockAt, orders []model.BookedOrder, now time.Time) (taken, stock int64) {
	for _, o := range orders {
		if o.TookUnit() && !o.CreatedAt.After(now) && (o.ClosedAt == nil || o.ClosedAt.After(now) || o.RedeemedAt != nil) {
			taken++
		}
	}
	for _, s := range stocks {
		if !s.At.After(now) {
			stock = s.Stock + usedUp(orders, s.At)
		}
	}
	return taken, stock
}

// A report adds up its rows, and knows when the stock sold out, whatever was returned or added before.
func TestReportOfAGeneratedSale(t *testing.T) {
	t.Parallel()
	chance := check.Seeded(t)
	soldOut := 0
	for range check.Count(t, "ROUNDS", 500, 20_000) {
		stocks, orders, now := generatedSale(chance)
		sale := newSoldSale(model.Voucher{VoucherFields: model.VoucherFields{
			Stock:   stocks[len(stocks)-1].Stock,
			BeginAt: stocks[0].At,
		}, VoucherView: model.VoucherView{ServerTime: now}}, slices.Clone(stocks))
		want := model.Report{OrdersByStatus: map[model.OrderStatus]int64{}}
		for _, o := range orders {
			check.Must(t, sale.add(o))
			want.OrdersByStatus[o.Status]++
			want.Money.Received += o.Received
			want.Money.Returned += o.Returned
			if o.TookUnit() {
				want.Orders++
				if o.RedeemedAt != nil {
					want.WrittenOff++
				} else if o.ClosedAt != nil {
					want.Returned++
				}
				if o.ClosedAt != nil && o.PaidAt == nil {
					want.NeverPaid++
				}
			}
		}
		got := sale.finish()
		sums := func(r model.Report) string {
			return fmt.Sprint(r.Orders, r.OrdersByStatus, r.NeverPaid, r.Returned, r.WrittenOff, r.Money)
		}
		check.Equal(t, "sums", sums(got), sums(want))
		at := soldOutAt(stocks, orders)
		check.Equal(t, "sold out at", fmt.Sprint(got.SoldOutAt), fmt.Sprint(at))
		if at != nil {
			before := int64(0)
			for _, o := range orders {
				if o.TookUnit() && !o.CreatedAt.After(*at) {
					before++
				}
			}
			check.Equal(t, "who took the last unit", got.Curve.LastUnit, before)
		}
		c := got.Curve
		check.Equal(t, "what the curve tells of orders", fmt.Sprint(len(c.OrdersMS), len(c.CameBack)),
			fmt.Sprint(want.Orders, want.Returned))
		for range min(5, len(c.Left)) {
			step := chance.IntN(len(c.Left))
			now := c.From.Add(model.StepEnd(step) - 1)
			if now.Before(stocks[0].At) { // it was there before its first order
				now = stocks[0].At
			}
			taken, stock := unitsAt(stocks, orders, now)
			check.Equal(t, fmt.Sprintf("units left after step %d", step), c.Left[step], stock-taken)
		}
		if at != nil {
			soldOut++
		}
	}
	check.That(t, soldOut > 50, "%d sales were sold out", soldOut)
}

// Steps are few however long the sale is, each instant is in one, and none is longer than 10 ms or 4 % of the time since.
func TestStepsOfAnyLength(t *testing.T) {
	t.Parallel()
	chance := check.Seeded(t)
	from := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	check.Equal(t, "before", model.StepAt(from, from.Add(-1)), 0)
	for range 10_000 {
		after := time.Duration(chance.Int64N(1 << (10 + chance.IntN(44))))
		step := model.StepAt(from, from.Add(after))
		begins, ends := model.StepEnd(step-1), model.StepEnd(step)
		check.That(t, begins <= after && after < ends && ends-begins <= max(10*time.Millisecond, after/25) && step < 1000,
			"%s is in step %d from %s to %s", after, step, begins, ends)
	}
}

// The curve tells what all processes have counted, each step by step since its own first attempt, as of the sale's steps.
func TestCurveOfTallies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		chance := check.Seeded(t)
		begin := time.Now()
		var heard []map[string]*model.Heard
		var instants []time.Duration
		for range 3 {
			time.Sleep(time.Duration(chance.IntN(1000)) * time.Millisecond) // of the bubble
			var process telemetry.Tallies
			process.Placed("v", "NOT_STARTED", time.Millisecond)
			for range 1000 {
				time.Sleep(time.Duration(chance.Int64N(int64(time.Minute))))
				process.Placed("v", "OK", time.Second)
				instants = append(instants, time.Since(begin))
			}
			heard = append(heard, process.Unstored()["v"].ByCode)
		}
		sale := newSoldSale(model.Voucher{VoucherFields: model.VoucherFields{EndAt: time.Now().Add(1)}}, nil)
		sale.report.Answers.Heard = heard
		sale.begin(begin)
		c := sale.finish().Curve
		check.Equal(t, "half of the answers took", math.Round(c.Took["OK"].Median), 750)
		sum := int64(0)
		for n, attempts := range c.Heard["OK"] {
			sum += attempts
			until := func(more float64) (count int64) {
				for _, at := range instants {
					if float64(at) <= float64(model.StepEnd(n))*more {
						count++
					}
				}
				return count
			}
			check.That(t, until(0.95) <= sum && sum <= until(1.05), "after step %d there are %d attempts, want %d to %d", n,
				sum, until(0.95), until(1.05))
		}
		check.Equal(t, "attempts", sum, 3000)
	})
}

func TestStocksOfALog(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	change := func(hour int, before, after string) model.AdminChange {
		c := model.AdminChange{At: at.Add(time.Duration(hour) * time.Hour)}
		if before != "" {
			c.Before = json.RawMessage(before)
		}
		if after != "" {
			c.After = json.RawMessage(after)
		}
		return c
	}
	for name, test := range map[string]struct {
		log  []model.AdminChange // newest first
		want string
	}{
		"none":               {nil, "[9]"},
		"made and restocked": {[]model.AdminChange{change(2, `{"stock":5}`, `{"stock":9}`), change(1, "", `{"stock":5}`)}, "[5 9]"},
		"older than the log": {[]model.AdminChange{change(2, `{"stock":5}`, `{"stock":9}`)}, "[5 9]"},
		"a rebuild":          {[]model.AdminChange{change(3, "", ""), change(2, `{"stock":5}`, `{"stock":9}`)}, "[5 9]"},
	} {
		r := NewReports(ReportDeps{AdminLog: fixedLog(test.log)})
		var got []int64
		for _, stock := range check.Value(r.stocks(t.Context(), model.Voucher{ID: "v1", VoucherFields: model.VoucherFields{Stock: 9}}))(t) {
			got = append(got, stock.Stock)
		}
		check.Equal(t, name, fmt.Sprint(got), test.want)
	}
}

type fixedLog []model.AdminChange

func (l fixedLog) List(_ context.Context, q model.AdminLogQuery) (page model.AdminLogPage, err error) {
	n := len(q.Cursor)
	if n < len(l) {
		page.Items = l[n : n+1]
	}
	if n+1 < len(l) {
		page.NextCursor = q.Cursor + "x"
	}
	return page, nil
}
