package handler

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"seckill/model"
)

type voucherOrdersInput struct {
	InPath
	Paging
	Status string `query:"status" enum:"processing,unpaid,paid,canceled,expired,failed,refunded" doc:"Only orders that stand there."`
	Format string `query:"format" enum:"json,csv" default:"json" doc:"csv streams all of them, whatever cursor and limit say."`
}

func (a *api) adminOrderRoutes() {
	register(a, route{
		id: "voucher-orders", method: http.MethodGet, path: adminVouchers + "/{id}/orders", tag: tagAdmin,
		summary: "List a voucher's orders, newest first, or export them as CSV",
		access:  administrators, status: http.StatusOK, headers: []string{"Content-Disposition"},
		codes:    []model.Code{model.CodeNotFound, model.CodeValidation, model.CodeUnavailable},
		response: map[string]any{"application/json": model.OrderPage{}, csvType: ""},
	}, a.voucherOrders)
	register(a, route{
		id: "admin-get-order", method: http.MethodGet, path: basePath + "/admin/orders/{id}", tag: tagAdmin,
		summary: "Get anybody's order and what happened to it", access: administrators, status: http.StatusOK,
		codes: []model.Code{model.CodeNotFound, model.CodeUnavailable},
	}, func(ctx context.Context, in *InPath) (*output[model.OrderDetail], error) {
		detail, err := a.options.Orders.Detail(ctx, in.ID)
		if detail.History == nil {
			detail.History = []model.OrderMove{}
		}
		return &output[model.OrderDetail]{Body: detail}, err
	})
}

func (a *api) voucherOrders(ctx context.Context, in *voucherOrdersInput) (*huma.StreamResponse, error) {
	query := model.OrderQuery{VoucherID: in.ID, Status: model.OrderStatus(in.Status)}
	if in.Format == "csv" {
		return &huma.StreamResponse{Body: func(ctx huma.Context) { //nolint:contextcheck // it comes with the request
			a.exportOrders(humagin.Unwrap(ctx), query)
		}}, nil
	}
	if _, err := a.options.Vouchers.Get(ctx, in.ID, true); err != nil {
		return nil, err
	}
	query.Cursor, query.Limit = in.Cursor, in.Limit
	page, err := a.options.Orders.List(ctx, query)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		a.send(humagin.Unwrap(ctx), http.StatusOK, "application/json", orderPage(page).Body)
	}}, nil
}
