package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"seckill/handler/wire"
	"seckill/model"
)

// redeemPage is where a code is used, and what has just become of one.
type redeemPage struct {
	Code    string     // as it was typed
	Refusal string     // why it was refused
	UsedAt  *time.Time // of a code that was used before: when, and by whom
	UsedBy  string
	Shown   *shownCode // the order that was just redeemed, or looked up; nil: none
}

// shownCode is the order of a code, as a till wants to know it.
type shownCode struct {
	model.Order

	Title     string // of the voucher
	FaceValue int64
	Buyer     string
	UsedBy    string // empty: nobody has used it
}

// redeemPage asks for a code. After one was used it says what, who and when: a reload uses nothing.
func (c *console) redeemPage(w http.ResponseWriter, r *http.Request, v *visit) error {
	page := redeemPage{}
	if id := r.URL.Query().Get("order"); id != "" {
		shown, err := c.shown(r.Context(), id)
		if err != nil {
			return err
		}
		page.Shown = &shown
	}
	return c.show(w, r, v, http.StatusOK, "redeem", page)
}

// redeem uses the code that a buyer shows, once; or it looks at its order alone.
func (c *console) redeem(w http.ResponseWriter, r *http.Request, v *visit) error {
	typed := r.PostForm.Get("code")
	if r.PostForm.Get("how") == "look" {
		return c.lookUp(w, r, v, typed)
	}
	order, err := c.Redemptions.Redeem(r.Context(), v.claims.Subject, typed)
	if err != nil {
		if model.CodeOf(err) == model.CodeInternal {
			return err
		}
		page := redeemPage{Code: typed, Refusal: explainField(v.language, err)}
		if used, ok := errors.AsType[*model.Error](err); ok && !used.RedeemedAt.IsZero() {
			page.UsedAt, page.UsedBy = &used.RedeemedAt, used.RedeemedBy
		}
		return c.show(w, r, v, wire.KindOf(model.CodeOf(err)).Status, "redeem", page)
	}
	return done(w, r, Path+"/redeem?order="+url.QueryEscape(order.ID), "redeemed")
}

// lookUp shows the order of a code, and uses nothing.
func (c *console) lookUp(w http.ResponseWriter, r *http.Request, v *visit, code string) error {
	hash, err := c.Codes.Hash(code)
	if err == nil {
		var found model.OrderPage
		if found, err = c.Search.Find(r.Context(), model.OrderSearch{CodeHash: hash}); err == nil && len(found.Items) == 0 {
			err = model.NotFound("code")
		}
		if err == nil {
			http.Redirect(w, r, Path+"/redeem?order="+url.QueryEscape(found.Items[0].ID), http.StatusSeeOther)
			return nil
		}
	}
	if model.CodeOf(err) == model.CodeInternal {
		return err
	}
	return c.show(w, r, v, wire.KindOf(model.CodeOf(err)).Status, "redeem", redeemPage{Code: code, Refusal: explainField(v.language, err)})
}

// shown is the order of a code with what it is for, whose it is and who used it.
func (c *console) shown(ctx context.Context, orderID string) (shownCode, error) {
	detail, err := c.Orders.Detail(ctx, orderID)
	if err != nil {
		return shownCode{}, err
	}
	voucher, err := c.Vouchers.Get(ctx, detail.VoucherID, true)
	if err != nil {
		return shownCode{}, err
	}
	shown := shownCode{Order: detail.Order, Title: voucher.Title, FaceValue: voucher.FaceValue, Buyer: c.name(ctx, detail.UserID)}
	for _, move := range detail.History {
		if move.To == model.OrderRedeemed {
			shown.UsedBy = c.name(ctx, move.By)
		}
	}
	return shown, nil
}

// name is the username of an account, or the id of a user who has none.
func (c *console) name(ctx context.Context, userID string) string {
	if account, err := c.People.ByID(ctx, userID); err == nil {
		return account.Username
	}
	return userID
}
