package console_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// The first page says what has come since midnight where the person is: orders, money received, money returned.
func TestTheDayOnTheOverview(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	day := func(orders, received, returned string) func() bool {
		return func() bool {
			page := b.get(t, "/console", "Cookie", "seckill-zone=Asia/Shanghai").body
			return strings.Contains(page, "<dt>Orders today</dt><dd><b>"+orders+"<") &&
				strings.Contains(page, "<dt>Money received today</dt><dd><b>"+received+"<") && strings.Contains(page, "<dt>Money returned today</dt><dd><b>"+returned+"<")
		}
	}
	id := b.create(t)
	paid := s.paid(t, "alice", id)
	s.paid(t, "bob", id)
	s.buy(t, "carol", id)
	b.act(t, "/console/orders/"+paid+"/refund", nil)
	check.Patiently(t, "three orders, two paid, one of them refunded", day("3", "CN¥20.00", "CN¥10.00"))
	shanghai := check.Value(time.LoadLocation("Asia/Shanghai"))(t)
	now := time.Now().In(shanghai)
	yesterday := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, -1000_000, shanghai).UTC()
	for table, column := range map[string]string{"orders": "created_at", "payments": "decided_at", "refunds": "closed_at"} {
		check.Must(t, check.ErrorOf(s.database(t).SQL().ExecContext(t.Context(), "UPDATE "+table+" SET "+column+" = ?", yesterday.UnixMicro())))
	}
	check.Patiently(t, "of yesterday nothing counts", day("0", "CN¥0.00", "CN¥0.00"))
}

// neighbours are the instances of a shop, and how many units of its sales no order holds.
type neighbours struct {
	onSaleNow

	alive  []model.Instance
	adrift int64
}

func (n neighbours) Alive(context.Context) ([]model.Instance, error) { return n.alive, nil }

func (n neighbours) Takings(context.Context, string) (model.Takings, error) {
	return model.Takings{Adrift: n.adrift}, nil
}

// What does not become well by itself is on the first page, whichever instance has seen it.
func TestWhatNeedsSomebody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const nobody = "Needs somebody"
		for _, test := range []struct {
			shop neighbours
			want string
		}{
			{neighbours{alive: []model.Instance{{Name: "a:8080"}}}, ""},
			{neighbours{alive: []model.Instance{{Name: "a:8080"}, {Name: "b:8080", Unready: "database,queue"}}}, `<a href="/console/system">b:8080 is not ready: database, queue</a>`},
			{neighbours{alive: []model.Instance{{Drifted: "v7,v8"}}}, `<a href="/console/vouchers/v8/audit">Units and orders do not add up: Coffee`},
			{neighbours{adrift: 1}, `<a href="/console/vouchers/v1/audit">Units and orders do not add up: Coffee`},
			{neighbours{adrift: -1}, `<a href="/console/vouchers/v1/audit">Units and orders do not add up: Coffee`},
		} {
			sold := &shop{}
			test.shop.onSaleNow = onSaleNow{sold}
			sold.Vouchers, sold.Instances = test.shop, test.shop
			b := sold.browser(t)
			ctx, cancel := context.WithCancel(t.Context())
			go sold.console.Record(ctx)
			time.Sleep(time.Minute) // of the bubble
			page := b.page(t, "/console")
			if strings.Contains(page, nobody) != (test.want != "") {
				t.Errorf("%+v: %s", test.shop, page)
			}
			want(t, page, test.want, "<dt>Orders today</dt><dd><b>7<")
			cancel()
		}
	})
}
