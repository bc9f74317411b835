package console

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"seckill/model"
)

// reading is what the watchers of a sale are told.
type reading struct {
	Now       time.Time          `json:"now"` // on the clock that decides the window
	State     model.VoucherState `json:"state"`
	Phase     string             `json:"phase"`
	Tag       string             `json:"tag"` // of all that administrators decide
	Stock     int64              `json:"stock"`
	Remaining int64              `json:"remaining"`
	Taken     int64              `json:"taken"` // sold or reserved
	Reserved  int64              `json:"reserved"`
	Sold      int64              `json:"sold"` // what neither remains nor is reserved
	Counts    *counts            `json:"counts,omitempty"`
	Marks     []mark             `json:"marks,omitempty"` // of a reading that is sent as it is made
	Rates
}

// counts are of a sale's orders. They are counted rarely, because they are more and more.
type counts struct {
	At       time.Time `json:"at"` // when they were counted
	Unpaid   int64     `json:"unpaid"`
	Paid     int64     `json:"paid"` // and not used yet
	Redeemed int64     `json:"redeemed"`
	Revenue  int64     `json:"revenue"` // of both, in minor units
	Refunded int64     `json:"refunded"`
	Adrift   int64     `json:"-"` // see model.Takings
}

// mark is something that an administrator did to a sale.
type mark struct {
	At   int64  `json:"at"`   // in milliseconds since 1970
	What string `json:"what"` // the new state, stock, end or rebuild
}

const (
	// marksEvery is between two looks at the administrators' log for a sale that they do not seem to have changed.
	marksEvery = 10 * time.Second
	// maxMarks bounds them.
	maxMarks = 20
)

// watcher reads one sale again and again.
type watcher struct {
	*console

	id    string
	meter meter

	counted *rarely[counts] // of the sale, for all who read it

	marks    []mark
	marked   string    // the tag of the voucher with these marks
	remarked time.Time // when they were read
}

// read makes a reading of a voucher as it is now.
func (w *watcher) read(ctx context.Context, v model.Voucher) (reading, error) {
	page := voucherPage{Voucher: v}
	r := reading{
		Now: v.ServerTime, State: v.State, Phase: phase(v), Tag: v.Tag(), Stock: v.Stock, Remaining: v.Remaining,
		Taken: page.Taken(), Reserved: v.Reserved, Sold: page.Sold(),
	}
	now := time.Now()
	if tallies, err := w.Tallies.Read(ctx, w.id); err == nil {
		r.Rates = w.meter.read(tallies, now)
	} else if ctx.Err() != nil {
		return reading{}, err
	}
	r.Backlog = backlogOf(w.Metrics, w.Log)
	r.Counts, _ = w.counted.get(w.Log, "the orders of voucher "+w.id, w.count)
	return r, nil
}

func (w *watcher) count(ctx context.Context) (counts, error) {
	at := time.Now().UTC()
	takings, err := w.Vouchers.Takings(ctx, w.id)
	of := takings.ByStatus
	return counts{
		At: at, Unpaid: of[model.OrderUnpaid].Orders, Paid: of[model.OrderPaid].Orders, Redeemed: of[model.OrderRedeemed].Orders,
		Revenue: of[model.OrderPaid].Amount + of[model.OrderRedeemed].Amount, Refunded: of[model.OrderRefunded].Amount, Adrift: takings.Adrift,
	}, err
}

// latestMarks are what administrators did to the voucher, oldest first.
func (w *watcher) latestMarks(ctx context.Context, tag string) []mark {
	if now := time.Now(); tag != w.marked || now.Sub(w.remarked) >= marksEvery {
		page, err := w.AdminLog.List(ctx, model.AdminLogQuery{Subject: w.id, Limit: maxMarks})
		if err != nil {
			return w.marks // the next look follows
		}
		w.marks, w.marked, w.remarked = marksOf(page.Items), tag, now
	}
	return w.marks
}

// marksOf are the marks of changes, which are newest first.
func marksOf(changes []model.AdminChange) []mark {
	var marks []mark
	for _, change := range slices.Backward(changes) {
		what := ""
		switch change.Action {
		case model.ActionStockChange:
			what = "stock"
		case model.ActionRebuild:
			what = "rebuild"
		case model.ActionVoucherChange:
			what = changed(change)
		}
		if what != "" {
			marks = append(marks, mark{change.At.UnixMilli(), what})
		}
	}
	return marks
}

// changed is the new state of a changed voucher, or "end" when its end was moved; empty: it was something else.
func changed(change model.AdminChange) string {
	var was, became struct {
		State string `json:"state"`
		EndAt string `json:"end_at"`
	}
	_ = json.Unmarshal(change.Before, &was) // what is no object has no members
	_ = json.Unmarshal(change.After, &became)
	switch {
	case was.State != became.State:
		return strings.ToLower(became.State)
	case was.EndAt != became.EndAt:
		return "end"
	default:
		return ""
	}
}
