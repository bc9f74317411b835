package service

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// generatedSale is a sale with restocks, and the orders that such a sale may have, oldest first.
func generatedSale(chance *rand.Rand) (stocks []model.StockAt, orders []model.SoldOrder, now time.Time) {
	begin := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	length := time.Duration(1+chance.IntN(1_000_000)) * time.Millisecond
	within := func() time.Time { return begin.Add(time.Duration(chance.Int64N(int64(length)))) }
	stocks = []model.StockAt{{At: begin, Stock: int64(chance.IntN(100))}}
	for range chance.IntN(3) {
		stocks = append(stocks, model.StockAt{At: within(), Stock: int64(chance.IntN(100))})
	}
	slices.SortFunc(stocks, func(a, b model.StockAt) int { return a.At.Compare(b.At) })
	for n := range chance.IntN(150) {
		o := model.SoldOrder{ID: fmt.Sprint(n), CreatedAt: within()}
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
			} else if chance.IntN(2) == 0 { // late money for an order that had failed
				o.UnpaidAt = nil
			}
		case model.OrderFailed:
			closed()
			o.UnpaidAt = nil
		}
		orders = append(orders, o)
	}
	slices.SortFunc(orders, func(a, b model.SoldOrder) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return stocks, orders, begin.Add(2*length + 1)
}

// soldOutAt looks at every instant at which something happened whether all that is offered then is taken.
func soldOutAt(stocks []model.StockAt, orders []model.SoldOrder) *time.Time {
	var instants []time.Time
	for _, s := range stocks {
		instants = append(instants, s.At)
	}
	for _, o := range orders {
		instants = append(instants, o.CreatedAt)
	}
	slices.SortFunc(instants, time.Time.Compare)
	for _, now := range instants {
		taken, stock := int64(0), int64(0)
		for _, o := range orders {
			if o.TookUnit() && !o.CreatedAt.After(now) && (o.ClosedAt == nil || o.ClosedAt.After(now)) {
				taken++
			}
		}
		for _, s := range stocks {
			if !s.At.After(now) {
				stock = s.Stock
			}
		}
		if taken > 0 && taken >= stock {
			return &now
		}
	}
	return nil
}

// The sums of a report are those of the rows, and it is told exactly when the stock was sold out, whatever was returned
// or added before.
func TestReportOfAGeneratedSale(t *testing.T) {
	t.Parallel()
	chance := check.Seeded(t)
	soldOut := 0
	for range check.Count(t, "ROUNDS", 500, 20_000) {
		stocks, orders, now := generatedSale(chance)
		sale := newSoldSale(model.Voucher{VoucherFields: model.VoucherFields{Stock: stocks[len(stocks)-1].Stock, BeginAt: stocks[0].At}, VoucherView: model.VoucherView{ServerTime: now}}, slices.Clone(stocks))
		want := model.Report{OrdersByStatus: map[model.OrderStatus]int64{}}
		for _, o := range orders {
			check.Must(t, sale.add(o))
			want.OrdersByStatus[o.Status]++
			want.Money.Received += o.Received
			want.Money.Returned += o.Returned
			if o.TookUnit() {
				want.Orders++
				if o.ClosedAt != nil {
					want.Returned++
				}
				if o.ClosedAt != nil && o.PaidAt == nil {
					want.NeverPaid++
				}
			}
		}
		got := sale.finish()
		sums := func(r model.Report) string {
			return fmt.Sprint(r.Orders, r.OrdersByStatus, r.NeverPaid, r.Returned, r.Money)
		}
		check.Equal(t, "sums", sums(got), sums(want))
		at := soldOutAt(stocks, orders)
		check.Equal(t, "sold out at", fmt.Sprint(got.SoldOutAt), fmt.Sprint(at))
		before := int64(0)
		for _, o := range orders {
			if o.TookUnit() && (at == nil || !o.CreatedAt.After(*at)) {
				before++
			}
		}
		curve := int64(0)
		for _, count := range got.Curve.Orders {
			curve += count
		}
		check.Equal(t, "orders until then", curve, before)
		check.Equal(t, "orders later", got.Curve.Later, want.Orders-before)
		if at != nil {
			soldOut++
		}
	}
	check.That(t, soldOut > 50, "%d sales were sold out", soldOut)
}

// A curve has a bounded number of steps however long the sale is, and each order is in the step of its instant.
func TestCurveOfAnyLength(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 11, 11, 0, 0, 0, 50_000_000, time.UTC)
	for _, length := range []time.Duration{0, time.Second, 24 * time.Second, time.Minute, time.Hour, 1000 * time.Hour} {
		var c model.ReportCurve
		const orders = 1000
		steps := map[int64]int64{}
		for n := range orders {
			plot(&c, from.Add(time.Duration(n)*length/orders))
		}
		for n := range orders {
			steps[from.Add(time.Duration(n)*length/orders).Sub(*c.From).Milliseconds()/c.StepMS]++
		}
		check.That(t, len(c.Orders) <= maxSteps && (length < 24*time.Second || len(c.Orders) > maxSteps/3), "%d steps for %s", len(c.Orders), length)
		for step, count := range c.Orders {
			check.Equal(t, fmt.Sprintf("orders of step %d for %s", step, length), count, steps[int64(step)])
		}
	}
}

// The stock of a voucher at each instant is that of the administrators' log, the change of a title included.
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

// fixedLog is a log in pages of one entry.
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
