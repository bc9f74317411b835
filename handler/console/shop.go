package console

import (
	"net/http"

	"seckill/model"
)

// ShopPath is where the shop window is.
const ShopPath = "/shop"

// shopPage is what the page has before its script has asked the API, so that nothing moves when it has.
type shopPage struct {
	Vouchers []model.Voucher
	Words    []string // for what the API says
}

// maxShown is how many vouchers the shop window shows, the newest first.
const maxShown = 20

// shop is the page of a buyer, who is anybody: its script uses the public API alone, and
// the page brings the words for what the API says.
func (c *console) shop(w http.ResponseWriter, r *http.Request, v *visit) error {
	shown, err := c.Vouchers.List(r.Context(), model.VoucherQuery{Limit: maxShown})
	if err != nil {
		return err
	}
	page := shopPage{Vouchers: shown.Items, Words: []string{model.ReasonRefundFailed, model.ReasonDisputed, model.ReasonPart, model.RefundOfUsed}}
	for _, phase := range model.Phases() {
		page.Words = append(page.Words, string(phase))
	}
	for _, status := range model.OrderStatuses() {
		page.Words = append(page.Words, string(status))
	}
	for _, code := range model.Codes() {
		page.Words = append(page.Words, string(code))
	}
	return c.show(w, r, v, http.StatusOK, "shop", page)
}
