package console

import (
	"net/http"

	"seckill/handler/wire"
	"seckill/model"
)

// redeemPage is where a code is used.
type redeemPage struct {
	Code    string // as it was typed
	Refusal string // why it was refused
}

func (c *console) redeemPage(w http.ResponseWriter, r *http.Request, v *visit) error {
	return c.show(w, r, v, http.StatusOK, "redeem", redeemPage{})
}

// redeem uses the code that a buyer shows, once.
func (c *console) redeem(w http.ResponseWriter, r *http.Request, v *visit) error {
	typed := r.PostForm.Get("code")
	order, err := c.Redemptions.Redeem(r.Context(), v.claims.Subject, typed)
	if err != nil {
		if model.CodeOf(err) == model.CodeInternal {
			return err
		}
		page := redeemPage{Code: typed, Refusal: explainField(v.language, err)}
		return c.show(w, r, v, wire.KindOf(model.CodeOf(err)).Status, "redeem", page)
	}
	return done(w, r, orderPath(order.ID), "redeemed")
}
