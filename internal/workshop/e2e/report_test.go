package e2e_test

import (
	"net/http"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// The report of a sale has what the attempts to buy heard at every instance, also at those that were stopped since.
// (TestLivesAtOnce compares its sums with the histories of the orders and the provider's ledger.)
func TestReportOfASale(t *testing.T) {
	t.Parallel()
	for _, mode := range []model.OrderMode{model.ModeSync, model.ModeAsync} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := onServers(t).with(settings{"SECKILL_ORDER_MODE": string(mode), "SECKILL_NATS_URL": testserver.SharedNATS(t)})
			var voucher model.Voucher
			heard := map[string]int64{}
			for stops := range 2 {
				instance := check.Value(begin(t, s))(t)
				a := newApp(t, instance.BaseURL(), instance.OpsURL())
				if stops == 0 {
					voucher = a.onSale(t, 3)
				}
				for n := range 3 {
					got := a.Insist(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.Token(t, a.user(n), model.RoleUser), nil)
					if got.Sells() {
						heard["OK"]++
					} else {
						heard[string(got.Code())]++
					}
				}
				halt(instance)
			}
			a := start(t, s)
			report := remote.Decode[model.Report](t, a.Insist(t, http.MethodGet, "/admin/vouchers/"+voucher.ID+"/report", a.Admin(t), nil))
			delete(heard, string(model.CodeUnavailable))
			for code, count := range heard {
				check.Equal(t, "attempts that heard "+code, report.Answers.ByCode[code], count)
			}
			check.Equal(t, "orders", report.Orders, 3)
			plotted := int64(0) // in as many steps as a busy machine took
			for _, orders := range report.Curve.Orders {
				plotted += orders
			}
			check.Equal(t, "orders of the curve", plotted, 3)
			check.That(t, report.SoldOutAt != nil && report.Audit.Balanced, "%+v", report)
		})
	}
}
