package command

import (
	"context"

	"seckill/model"
	"seckill/service"
)

// orderDesk is selling, with what the service does not offer yet.
type orderDesk struct{ *service.Orders }

// Cancel refuses.
func (orderDesk) Cancel(context.Context, string, string) (model.Order, error) {
	return model.Order{}, model.Unavailable("Orders cannot be canceled yet.", nil)
}

// voucherDesk looks after vouchers, with what the service does not offer yet.
type voucherDesk struct{ *service.Vouchers }

// Rebuild refuses.
func (voucherDesk) Rebuild(context.Context, string) error {
	return model.Conflict("In the order mode sync there is no hot copy to rebuild.")
}
