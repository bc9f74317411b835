package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// What people see of a sale is the sum of what all instances count; the orders are counted separately.
func TestInstancesAreSummed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		await(t, (&shop{}).browser(t).watch(t, "v1"), "eight attempts a second at two instances", func(r reading) bool {
			return r.PerSecond["OK"] == 8 && r.Latency != nil && r.Latency.P99 > 1 && r.Latency.P99 <= 2.5 && r.Counts.Revenue == 3000 && r.Counts.Paid == 2
		})
	})
}

// onSaleNow is a shop with one sale that is on.
type onSaleNow struct{ *shop }

func (s onSaleNow) List(_ context.Context, query model.VoucherQuery) (model.VoucherPage, error) {
	if query.Phase != model.PhaseLive {
		return model.VoucherPage{}, nil
	}
	return model.VoucherPage{Items: []model.Voucher{{
		ID: "v1", VoucherFields: model.VoucherFields{Stock: 10, Remaining: 4, State: model.VoucherPublished},
		VoucherView: model.VoucherView{Phase: model.PhaseLive, ServerTime: time.Now()},
	}}}, nil
}

// The charts of a sale that is on are kept for an hour, whether somebody watches or not.
func TestChartsAreKeptForAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sold := &shop{}
		sold.Vouchers = onSaleNow{sold}
		b := sold.browser(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go sold.console.Record(ctx)
		time.Sleep(90 * time.Minute) // of the bubble
		request := check.Value(http.NewRequestWithContext(ctx, http.MethodGet, b.site.url+"/console/vouchers/v1/events", nil))(t)
		response, err := b.client.Do(request)
		check.Must(t, err)
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		lines.Scan()
		check.Equal(t, "the first event", lines.Text(), "event: history")
		lines.Scan()
		var kept struct{ Readings []reading }
		check.Must(t, json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data: ")), &kept))
		if n := len(kept.Readings); n < 715 || n > 722 || kept.Readings[n-1].PerSecond["OK"] != 8 || kept.Readings[0].Remaining != 4 {
			t.Errorf("after 90 minutes %d points are kept: %+v", n, kept.Readings[n-1])
		}
	})
}
