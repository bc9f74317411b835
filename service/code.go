package service

import (
	"context"
	"log/slog"

	"seckill/internal/vouchercode"
	"seckill/model"
)

// Codes are what buyers use their vouchers with. Without a key (a nil *Codes) there are none.
type Codes struct {
	keys *vouchercode.Keys
	log  *slog.Logger
}

// NewCodes makes and reads codes with keys.
func NewCodes(keys *vouchercode.Keys, log *slog.Logger) *Codes { return &Codes{keys: keys, log: log} }

// New makes a code for an order, as it is stored.
func (c *Codes) New(orderID string) model.SealedCode {
	code := vouchercode.New()
	return model.SealedCode{Hash: c.keys.Hash(code), Sealed: c.keys.Seal(code, orderID)}
}

// Hash is what the code that a person has typed is found by; VALIDATION when that is no code.
func (c *Codes) Hash(typed string) ([]byte, error) {
	if c == nil {
		return nil, model.Unavailable("There are no codes: no payments are configured.", nil)
	}
	code, err := vouchercode.Parse(typed)
	if err != nil {
		return nil, model.Invalid("body.code", "is mistyped: its check character does not fit")
	}
	return c.keys.Hash(code), nil
}

// Show opens the code of an order that can be used, or was. Its caller has made sure that the order's owner or
// an administrator asks. A code that does not open is logged, and the order shown without it.
func (c *Codes) Show(ctx context.Context, order model.Order) model.Order {
	usable := order.Status == model.OrderPaid || order.Status == model.OrderRedeemed
	if c == nil || !usable || order.SealedCode == "" {
		return order
	}
	code, err := c.keys.Open([]byte(order.SealedCode), order.ID)
	if err != nil {
		c.log.ErrorContext(ctx, "the code of an order cannot be shown", slog.String("order_id", order.ID), slog.Any("error", err))
		return order
	}
	order.Code = code.Reveal()
	return order
}
