package console

import (
	"net/http"
	"slices"

	"seckill/model"
)

// refundList is one page of the list of refunds.
type refundList struct {
	Status   model.RefundStatus // empty: any
	Statuses []model.RefundStatus
	Items    []model.Refund
	Next     string // where the next page is; empty on the last one
}

// listRefunds begins with those that an administrator has to look after: the provider has refused
// them for good.
func (c *console) listRefunds(w http.ResponseWriter, r *http.Request, v *visit) error {
	query := r.URL.Query()
	list := refundList{Status: model.RefundStatus(query.Get("status")), Statuses: model.RefundStatuses()}
	if !query.Has("status") {
		list.Status = model.RefundFailed
	}
	if list.Status != "" && !slices.Contains(list.Statuses, list.Status) {
		return model.Invalid("query.status", "is no status of a refund")
	}
	page, err := c.Refunds.List(r.Context(), model.RefundQuery{Status: list.Status, Cursor: query.Get("cursor"), Limit: pageSize})
	if err != nil {
		return err
	}
	list.Items, list.Next = page.Items, nextPage(r.URL, page.NextCursor)
	return c.show(w, r, v, http.StatusOK, "refunds", list)
}
