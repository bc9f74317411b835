package console

import (
	"net/http"

	"seckill/model"
)

// overview is the first page: which sales are on, and which come next.
type overview struct {
	Live, Next []model.Voucher
}

// overviewSales bounds each list.
const overviewSales = 6

func (c *console) overview(w http.ResponseWriter, r *http.Request, v *visit) error {
	var page overview
	for _, list := range []struct {
		phase model.Phase
		into  *[]model.Voucher
	}{{model.PhaseLive, &page.Live}, {model.PhaseUpcoming, &page.Next}} {
		found, err := c.Vouchers.List(r.Context(), model.VoucherQuery{Phase: list.phase, All: true, Limit: overviewSales})
		if err != nil {
			return err
		}
		*list.into = found.Items
	}
	return c.show(w, r, v, http.StatusOK, "overview", page)
}
