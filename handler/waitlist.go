package handler

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"seckill/model"
)

// waitlistPath is where a user waits for a unit of a voucher.
const waitlistPath = basePath + "/vouchers/{id}/waitlist"

func (a *api) waitlistRoutes() {
	a.registerPlain(route{
		id: "join-waitlist", method: http.MethodPost, path: waitlistPath, tag: tagOrders,
		summary: "Wait for a unit", access: users, status: http.StatusCreated, otherwise: http.StatusOK,
		description: "Of a sold-out voucher with a waitlist. 201: a place at the end; 200: the place that you have. A unit that comes back or is " +
			"added is an unpaid order of who waits first, and not on sale again. CONFLICT while units are free, and for a voucher without a waitlist. " +
			"The window, the groups and the cool-down of the voucher refuse as they refuse a purchase.",
		codes: []model.Code{
			model.CodeNotFound, model.CodeNotEligible, model.CodeEnded, model.CodePaused, model.CodeNotStarted, model.CodeAlreadyOrdered,
			model.CodeCoolingDown, model.CodeConflict, model.CodeUnavailable,
		},
		response: map[string]any{"application/json": model.WaitlistPlace{}},
	}, a.joinWaitlist)
	register(a, route{
		id: "get-waitlist", method: http.MethodGet, path: waitlistPath, tag: tagOrders,
		summary: "Get my place", access: users, status: http.StatusOK,
		description: "With order_id the place has become that order, whatever became of it since, and position is 0. The first 1000 positions are " +
			"counted; further behind a position also counts who has left, and is never more than how many wait.",
		codes: []model.Code{model.CodeNotFound, model.CodeUnavailable},
	}, func(ctx context.Context, in *InPath) (*output[model.WaitlistPlace], error) {
		place, err := a.options.Orders.Waits(ctx, subject(ctx), in.ID)
		return &output[model.WaitlistPlace]{Body: place}, err
	})
	register(a, route{
		id: "leave-waitlist", method: http.MethodDelete, path: waitlistPath, tag: tagOrders,
		summary: "Give my place up", access: users, status: http.StatusNoContent,
		description: "A place that has become an order is none any more: ALREADY_ORDERED while that is live; cancel it.",
		codes:       []model.Code{model.CodeNotFound, model.CodeAlreadyOrdered, model.CodeUnavailable},
	}, func(ctx context.Context, in *InPath) (*struct{}, error) {
		return nil, a.options.Orders.Leave(ctx, subject(ctx), in.ID)
	})
}

func (a *api) joinWaitlist(c *gin.Context) {
	ctx := c.Request.Context()
	voucherID := c.Param("id")
	err := possible(waitlistPath, voucherID)
	if err != nil {
		a.abort(c, err)
		return
	}
	if p := emptyBody(c.Request); p != nil {
		a.write(c, p)
		return
	}
	place, created, err := a.options.Orders.Join(ctx, subject(ctx), voucherID, callOf(ctx).claims.Groups...)
	if err != nil {
		a.abort(c, err)
		return
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	a.send(c, status, "application/json", place)
}
