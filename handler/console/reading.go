package console

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
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
}

// mark is something that an administrator did to a sale.
type mark struct {
	At   int64  `json:"at"`   // in milliseconds since 1970
	What string `json:"what"` // the new state, stock, end or rebuild
}

const (
	// countEvery is the least time between two counts of a sale's orders, and countShare the share of it that they may take:
	// a hundredth.
	countEvery = 5 * time.Second
	countShare = 100
	// countTimeout bounds a count.
	countTimeout = time.Minute
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

	mu      sync.Mutex
	counted *counts
	recount time.Time // not before

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
	r.Counts = w.count(now) //nolint:contextcheck // nobody waits for a count
	return r, nil
}

// count is the latest count. A new one is begun when it is due; nobody waits for it.
func (w *watcher) count(now time.Time) *counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Before(w.recount) {
		return w.counted
	}
	w.recount = now.Add(countTimeout)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
		defer cancel()
		began := time.Now()
		takings, err := w.Vouchers.Takings(ctx, w.id)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.recount = time.Now().Add(max(countEvery, countShare*time.Since(began)))
		if err != nil {
			w.Log.WarnContext(ctx, "the orders of a sale cannot be counted", slog.String("voucher_id", w.id), slog.Any("error", err))
			return
		}
		w.counted = &counts{
			At: began.UTC(), Unpaid: takings[model.OrderUnpaid].Orders, Paid: takings[model.OrderPaid].Orders, Redeemed: takings[model.OrderRedeemed].Orders,
			Revenue: takings[model.OrderPaid].Amount + takings[model.OrderRedeemed].Amount, Refunded: takings[model.OrderRefunded].Amount,
		}
	}()
	return w.counted
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
