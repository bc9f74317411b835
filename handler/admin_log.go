package handler

import (
	"context"
	"net/http"

	"seckill/model"
)

type adminLogInput struct {
	Paging
	Actor string `query:"actor" maxLength:"64" doc:"Only what this user has changed."`
}

func (a *api) adminLogRoutes() {
	register(a, route{
		id: "admin-log", method: http.MethodGet, path: basePath + "/admin/log", tag: tagAdmin,
		summary:     "List what administrators changed, newest first",
		description: "Vouchers, stocks, rebuilds, refunds, redemptions and rate limits: each entry was written in the transaction of its change.",
		access:      administrators, status: http.StatusOK, large: true,
		codes: []model.Code{model.CodeValidation, model.CodeUnavailable},
	}, func(ctx context.Context, in *adminLogInput) (*output[model.AdminLogPage], error) {
		page, err := a.options.AdminLog.List(ctx, model.AdminLogQuery{Actor: in.Actor, Cursor: in.Cursor, Limit: in.Limit})
		if page.Items == nil {
			page.Items = []model.AdminChange{}
		}
		return &output[model.AdminLogPage]{Body: page}, err
	})
}
