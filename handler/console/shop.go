package console

import (
	"net/http"

	"seckill/model"
)

// ShopPath is where the shop window is.
const ShopPath = "/shop"

// shop is the page of a buyer, who is anybody: its script uses the public API alone, and
// the page brings the words for what the API says.
func (c *console) shop(w http.ResponseWriter, r *http.Request, v *visit) error {
	words := []string{model.ReasonRefundFailed}
	for _, phase := range model.Phases() {
		words = append(words, string(phase))
	}
	for _, status := range model.OrderStatuses() {
		words = append(words, string(status))
	}
	for _, code := range model.Codes() {
		words = append(words, string(code))
	}
	return c.show(w, r, v, http.StatusOK, "shop", words)
}
