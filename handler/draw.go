package handler

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"seckill/model"
)

// leavesInput is the paging of leaves, which are short: a million are read in two hundred calls.
type leavesInput struct {
	InPath
	Cursor string `query:"cursor" maxLength:"18" pattern:"^[0-9]*$" doc:"next_cursor of the page before; empty: the first page."`
	Limit  int    `query:"limit" minimum:"1" maximum:"5000" default:"1000" doc:"The most leaves of a page."`
}

func (a *api) drawRoutes() {
	register(a, route{
		id: "get-entry", access: users, method: http.MethodGet, path: basePath + "/vouchers/{id}/entry", tag: tagOrders,
		summary: "Get my entry in a draw", status: http.StatusOK,
		description: "entered: it is not drawn yet. won: order_id is my order, which wants to be paid. waiting: I get a unit that comes " +
			"back, in the order of position. lost: I wait no more.",
		codes: []model.Code{model.CodeNotFound, model.CodeUnavailable},
	}, func(ctx context.Context, in *InPath) (*output[model.Entry], error) {
		entry, err := a.options.Draws.Entry(ctx, in.ID, subject(ctx))
		return &output[model.Entry]{Body: entry}, err
	})
	register(a, route{
		id: "get-draw", access: recognised, method: http.MethodGet, path: basePath + "/vouchers/{id}/draw", tag: tagVouchers,
		summary: "Get the proof of a draw", status: http.StatusOK,
		description: "The commitment is there from the beginning, root when nobody can enter any more, and secret when it is drawn. With the " +
			"list of leaves anybody can draw again: docs/draw.md, seckill draw verify.",
		codes: []model.Code{model.CodeNotFound, model.CodeUnavailable},
	}, func(ctx context.Context, in *InPath) (*output[model.Draw], error) {
		proof, err := a.options.Draws.Proof(ctx, in.ID, isAdmin(ctx))
		return &output[model.Draw]{Body: proof}, err
	})
	register(a, route{
		id: "list-leaves", access: recognised, method: http.MethodGet, path: basePath + "/vouchers/{id}/draw/entries", tag: tagVouchers,
		summary: "List the leaves of a draw, in the drawn order", status: http.StatusOK, large: true,
		description: "Each stands for one entry, whose owner alone knows which: the SHA-256 of the voucher, the entry's nonce and the user. CONFLICT until it is drawn.",
		codes:       []model.Code{model.CodeNotFound, model.CodeConflict, model.CodeValidation, model.CodeUnavailable},
	}, func(ctx context.Context, in *leavesInput) (*output[model.DrawnLeaves], error) {
		page, err := a.options.Draws.Leaves(ctx, in.ID, isAdmin(ctx), in.Cursor, in.Limit)
		return &output[model.DrawnLeaves]{Body: page}, err
	})
}

// entered answers a purchase that is an entry.
func (a *api) entered(c *gin.Context, entry model.Entry) {
	c.Writer.Header()["Location"] = []string{basePath + "/vouchers/" + entry.VoucherID + "/entry"}
	a.send(c, http.StatusAccepted, "application/json", entry)
}
