package handler

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"seckill/model"
)

type refundsInput struct {
	Paging
	Status string `query:"status" enum:"pending,done,failed" doc:"Only refunds that stand there."`
}

func (a *api) refundRoutes() {
	a.registerBare(route{
		id: "refund-order", method: http.MethodPost, path: basePath + "/admin/orders/{id}/refund", tag: tagAdmin,
		summary: "Refund a paid order",
		description: "The unit is on sale again, and the money goes back soon: the list of refunds tells when. A refund that " +
			"had failed for good is tried again. An order that is not paid cannot be refunded: ILLEGAL_STATE.",
		access: administrators, status: http.StatusAccepted,
		codes:    []model.Code{model.CodeNotFound, model.CodeIllegalState, model.CodeConflict, model.CodeUnavailable},
		response: map[string]any{"application/json": model.Refund{}},
	}, func(c *gin.Context) (any, error) {
		return a.options.Refunds.Request(c.Request.Context(), subject(c.Request.Context()), c.Param("id"))
	})
	register(a, route{
		id: "list-refunds", method: http.MethodGet, path: basePath + "/admin/refunds", tag: tagAdmin,
		summary:     "List refunds, newest first",
		description: "A failed one was refused by the payment provider for good: somebody has to look.",
		access:      administrators, status: http.StatusOK, large: true,
		codes: []model.Code{model.CodeValidation, model.CodeUnavailable},
	}, func(ctx context.Context, in *refundsInput) (*output[model.RefundPage], error) {
		page, err := a.options.Refunds.List(ctx, model.RefundQuery{
			Status: model.RefundStatus(in.Status), Cursor: in.Cursor, Limit: in.Limit,
		})
		if page.Items == nil {
			page.Items = []model.Refund{}
		}
		return &output[model.RefundPage]{Body: page}, err
	})
}
