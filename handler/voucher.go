package handler

import (
	"context"
	"net/http"

	"seckill/model"
)

const tagVouchers = "Vouchers"

type vouchersInput struct {
	Paging
	Phase string `query:"phase" enum:"upcoming,live,sold_out,ended,paused" doc:"Only vouchers in this phase."`
}

func (a *api) voucherRoutes() {
	register(a, route{
		id: "list-vouchers", access: public, method: http.MethodGet, path: basePath + "/vouchers", tag: tagVouchers,
		summary: "List vouchers, newest first", status: http.StatusOK,
		codes: []model.Code{model.CodeValidation, model.CodeUnavailable},
	}, func(ctx context.Context, in *vouchersInput) (*output[model.VoucherPage], error) {
		return a.listVouchers(ctx, in, false)
	})
	register(a, route{
		id: "get-voucher", method: http.MethodGet, path: basePath + "/vouchers/{id}", tag: tagVouchers,
		summary:     "Get a voucher",
		description: "A draft or an archived voucher is not found, but by administrators.",
		access:      recognised, status: http.StatusOK,
		codes: []model.Code{model.CodeNotFound, model.CodeUnavailable},
	}, func(ctx context.Context, in *InPath) (*output[model.Voucher], error) {
		return a.getVoucher(ctx, in.ID, isAdmin(ctx))
	})
}

func (a *api) listVouchers(ctx context.Context, in *vouchersInput, all bool) (*output[model.VoucherPage], error) {
	page, err := a.options.Vouchers.List(ctx, model.VoucherQuery{
		Phase: model.Phase(in.Phase), All: all, Cursor: in.Cursor, Limit: in.Limit,
	})
	return voucherPage(page), err
}

func (a *api) getVoucher(ctx context.Context, id string, admin bool) (*output[model.Voucher], error) {
	voucher, err := a.options.Vouchers.Get(ctx, id, admin)
	return &output[model.Voucher]{Body: voucher}, err
}
