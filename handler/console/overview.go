package console

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"seckill/model"
)

// overview is the first page: which sales are on, which come next, and what needs somebody.
type overview struct {
	Live, Next []saleCard
	Needs      []need
}

// saleCard is a sale with its curve of the last hour.
type saleCard struct {
	model.Voucher

	Curve string // of what is sold, as points in 120 by 32; empty: nothing was kept yet
}

// need is something that does not become well by itself.
type need struct {
	Words string // with its number
	Path  string
}

// overviewSales bounds each list.
const overviewSales = 6

func (c *console) overview(w http.ResponseWriter, r *http.Request, v *visit) error {
	var page overview
	for _, list := range []struct {
		phase model.Phase
		into  *[]saleCard
	}{{model.PhaseLive, &page.Live}, {model.PhaseUpcoming, &page.Next}} {
		found, err := c.Vouchers.List(r.Context(), model.VoucherQuery{Phase: list.phase, All: true, Limit: overviewSales})
		if err != nil {
			return err
		}
		for _, voucher := range found.Items {
			if !voucher.Buyable() { // a draft is nobody's sale
				continue
			}
			*list.into = append(*list.into, saleCard{voucher, c.curve(voucher.ID)})
		}
	}
	var err error
	if page.Needs, err = c.needs(r, v); err != nil {
		return err
	}
	return c.show(w, r, v, http.StatusOK, "overview", page)
}

// needs looks for refunds that the provider refuses, dead letters, and what makes this instance not ready.
func (c *console) needs(r *http.Request, v *visit) ([]need, error) {
	var found []need
	refunds, err := c.Refunds.List(r.Context(), model.RefundQuery{Status: model.RefundFailed, Limit: pageSize})
	if err != nil {
		return nil, err
	}
	if n := len(refunds.Items); n > 0 {
		found = append(found, need{v.language.Text("Refunds that the payment provider has refused: %d", n), Path + "/refunds"})
	}
	if c.Behind != nil {
		letters := 0
		err := c.Behind.DeadLetters(r.Context(), func(model.DeadLetter) error {
			if letters++; letters == maxLetters {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return nil, err
		}
		if letters > 0 {
			found = append(found, need{v.language.Text("Orders that could not be stored: %d", letters), Path + "/dead-letters"})
		}
	}
	for _, check := range c.Health.Check(r.Context()) {
		if check.Err != nil {
			found = append(found, need{v.language.Text("This instance is not ready: %s", check.Name), Path + "/system"})
		}
	}
	return found, nil
}

// curve is what was sold of a voucher in the time that is kept, as the points of a line.
func (c *console) curve(id string) string {
	const width, height = 120.0, 32.0
	c.recorder.mu.Lock()
	defer c.recorder.mu.Unlock()
	sale := c.recorder.sales[id]
	if sale == nil || len(sale.readings) < 2 {
		return ""
	}
	first, last := sale.readings[0], sale.readings[len(sale.readings)-1]
	most := max(last.Stock, 1)
	var points strings.Builder
	for _, one := range sale.readings {
		x := width * float64(one.Now.Sub(first.Now)) / float64(max(last.Now.Sub(first.Now), 1))
		fmt.Fprintf(&points, "%.1f,%.1f ", x, height-1-(height-2)*float64(one.Sold)/float64(most))
	}
	return points.String()
}
