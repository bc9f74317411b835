package handler

import (
	"context"
	"net/http"

	"seckill/model"
)

// Redemption is the code that a buyer shows.
type Redemption struct {
	Code string `json:"code" minLength:"1" maxLength:"128" doc:"As it was typed: case, blanks and dashes make no difference."`
}

type redemptionInput struct {
	Body Redemption
}

func (a *api) redemptionRoutes() {
	register(a, route{
		id: "redeem-code", method: http.MethodPost, path: basePath + "/admin/redemptions", tag: tagAdmin,
		summary: "Use the code of a paid order, once",
		description: "A code that was used already, or whose order was refunded, is ILLEGAL_STATE with the order's status, and when and by whom it was used; one " +
			"that no order has is NOT_FOUND; one whose check character does not fit was mistyped: VALIDATION. Many wrong ones: RATE_LIMITED.",
		access: administrators, status: http.StatusOK,
		codes: []model.Code{model.CodeNotFound, model.CodeIllegalState, model.CodeRateLimited, model.CodeUnavailable},
	}, func(ctx context.Context, in *redemptionInput) (*output[model.Order], error) {
		order, err := a.options.Redemptions.Redeem(ctx, subject(ctx), in.Body.Code)
		return &output[model.Order]{Body: order}, err
	})
}
