package service

import (
	"container/heap"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
)

// Reports tell what a sale was.
type Reports struct {
	ReportDeps

	turn chan struct{} // of the one report that is made at a time

	flights singleflight.Group // of public reports, which everybody shares
	shared  *lru.Cache[string, sharedReport]
}

type sharedReport struct {
	model.PublicReport

	until time.Time
}

const maxShared = 1000 // public reports that are kept

// ReportDeps is what Reports works with.
type ReportDeps struct {
	Vouchers interface { // *Vouchers
		Get(ctx context.Context, id string, admin bool) (model.Voucher, error)
		Audit(ctx context.Context, id string) (model.Audit, error)
	}
	Orders interface { // *repository.Orders
		// Sold calls yield for every order of a voucher that has a row, oldest first. It reads page by page.
		Sold(ctx context.Context, voucherID string, yield func(model.BookedOrder) error) error
		// Waited counts the places of a voucher's waitlist.
		Waited(ctx context.Context, voucherID string) (model.ReportWaitlist, error)
	}
	AdminLog interface { // *repository.AdminLog
		List(ctx context.Context, q model.AdminLogQuery) (model.AdminLogPage, error)
	}
	Draws interface { // *repository.Draws
		Report(ctx context.Context, voucherID string) (*model.ReportDraw, error)
		Proof(ctx context.Context, voucherID string, admin bool) (model.Draw, error)
	}
	Answers interface { // *repository.Answers
		Read(ctx context.Context, voucherID string) (model.ReportAnswers, error)
	}
}

// NewReports makes the service.
func NewReports(deps ReportDeps) *Reports {
	shared, _ := lru.New[string, sharedReport](maxShared) // fails for a size below 1 only
	return &Reports{ReportDeps: deps, turn: make(chan struct{}, 1), shared: shared}
}

// Public is what everybody may read of a sale that has ended, as of some seconds ago: whoever asks, and however often,
// has it made a storeShare-th of the time. NOT_FOUND before the end, and of a voucher that has no public report.
func (r *Reports) Public(ctx context.Context, voucherID string) (report model.PublicReport, err error) {
	v, err := r.Vouchers.Get(ctx, voucherID, false)
	if err == nil && (!v.PublicReport || v.Phase != model.PhaseEnded) {
		err = model.NotFound("report")
	}
	if err != nil {
		return report, err
	}
	if kept, found := r.shared.Get(voucherID); found && time.Now().Before(kept.until) {
		return kept.PublicReport, nil
	}
	made := r.flights.DoChan(voucherID, func() (any, error) { return r.share(context.WithoutCancel(ctx), v) })
	select {
	case result := <-made:
		report, _ = result.Val.(model.PublicReport)
		return report, result.Err
	case <-ctx.Done():
		return report, model.Unavailable("The report is being made.", ctx.Err())
	}
}

func (r *Reports) share(ctx context.Context, v model.Voucher) (public model.PublicReport, err error) {
	began, draw := time.Now(), model.Draw{}
	report, err := r.Make(ctx, v.ID)
	if err == nil && v.Allocation == model.ByDraw {
		draw, err = r.Draws.Proof(ctx, v.ID, false)
	}
	if err != nil {
		return public, err
	}
	public = report.Public(draw.Commitment)
	until := time.Now().Add(max(budget.Step, storeShare*time.Since(began)))
	r.shared.Add(v.ID, sharedReport{public, until})
	return public, nil
}

// Make makes a voucher's report, one at a time, without delay to sales. NOT_FOUND: no voucher. UNAVAILABLE: no audit.
func (r *Reports) Make(ctx context.Context, voucherID string) (report model.Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, budget.Survey)
	defer cancel()
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return report, model.Unavailable("Another report is being made.", ctx.Err())
	}
	v, err := r.Vouchers.Get(ctx, voucherID, true)
	if err != nil {
		return report, err
	}
	if report, err = r.read(ctx, v); err != nil {
		return report, fmt.Errorf("report voucher %s: %w", voucherID, err)
	}
	report.Audit, err = r.Vouchers.Audit(ctx, voucherID)
	return report, err
}

func (r *Reports) read(ctx context.Context, v model.Voucher) (report model.Report, err error) {
	stocks, err := r.stocks(ctx, v)
	if err != nil {
		return report, err
	}
	sale := newSoldSale(v, stocks)
	if err := r.Orders.Sold(ctx, v.ID, sale.add); err != nil {
		return report, err
	}
	report = sale.finish()
	report.Answers, err = r.Answers.Read(ctx, v.ID)
	if err == nil && v.Allocation == model.ByDraw {
		report.Draw, err = r.Draws.Report(ctx, v.ID)
	}
	if err == nil && v.Waitlist {
		report.Waitlist = new(model.ReportWaitlist)
		*report.Waitlist, err = r.Orders.Waited(ctx, v.ID)
	}
	return report, err
}

// stocks is a voucher's stock, oldest first, by the log; before it, what its first entry found.
func (r *Reports) stocks(ctx context.Context, v model.Voucher) ([]model.StockAt, error) {
	var latest []model.StockAt // newest first
	first := new(v.Stock + v.WrittenOff)
	for cursor := ""; ; {
		page, err := r.AdminLog.List(ctx, model.AdminLogQuery{Subject: v.ID, Cursor: cursor, Limit: 100})
		if err != nil {
			return nil, err
		}
		for _, change := range page.Items {
			if after := stockOf(change.After); after != nil {
				latest = append(latest, model.StockAt{At: change.At, Stock: *after})
				first = stockOf(change.Before)
			}
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if first != nil {
		latest = append(latest, model.StockAt{Stock: *first})
	}
	slices.Reverse(latest)
	return latest, nil
}

// stockOf is the stock in a document of the administrators' log; nil: it tells none.
func stockOf(document json.RawMessage) *int64 {
	var of struct {
		Stock *int64 `json:"stock"`
	}
	_ = json.Unmarshal(document, &of) // what is no object has no members
	return of.Stock
}

// soldSale makes a sale's report of its orders, oldest first, keeping only instants until sold out.
type soldSale struct {
	report  model.Report
	stocks  []model.StockAt // those that are still to come
	voucher *model.VoucherFields

	stock, taken int64 // as of the latest order, until the sale is sold out
	returns      instants
	writtenOff   []time.Time // units that are taken for good; a stock of the log is without them
}

func newSoldSale(v model.Voucher, stocks []model.StockAt) *soldSale {
	return &soldSale{stocks: stocks, voucher: &v.VoucherFields, report: model.Report{
		ReportSale: model.ReportSale{
			VoucherID: v.ID, Title: v.Title, Stock: v.Stock, BeginAt: v.BeginAt, EndAt: v.EndAt, At: v.ServerTime,
		},
		Currency: v.Currency, OrdersByStatus: make(map[model.OrderStatus]int64), UsesByPlace: map[string]int64{},
		Curve: model.ReportCurve{Orders: []int64{}},
	}}
}

func (s *soldSale) add(o model.BookedOrder) error {
	r := &s.report
	r.OrdersByStatus[o.Status]++
	if o.Status == model.OrderPaid && o.PaidAt != nil {
		if ends := s.voucher.ValidityOf(*o.PaidAt).ValidUntil; ends != nil && !r.At.Before(*ends) {
			r.Lapsed++
			r.LapsedMoney += o.Price
		}
	}
	if o.Place != "" {
		r.UsesByPlace[o.Place]++
	}
	r.Money.Received += o.Received
	if o.PaidReference != "" {
		r.Money.Elsewhere += o.Price
	}
	r.Money.Returned += o.Returned
	if !o.TookUnit() {
		return nil
	}
	s.pass(o.CreatedAt)
	r.Orders++
	if r.SoldOutAt != nil {
		r.Curve.Later++
	} else {
		plot(&r.Curve, o.CreatedAt)
		s.taken++
		s.look(o.CreatedAt)
	}
	if o.WrittenOff() {
		r.WrittenOff++
		s.writtenOff = append(s.writtenOff, *o.ClosedAt)
	} else if o.ClosedAt != nil {
		r.Returned++
		if o.PaidAt == nil {
			r.NeverPaid++
		}
		if r.SoldOutAt == nil {
			heap.Push(&s.returns, *o.ClosedAt)
		}
	}
	return nil
}

// pass goes on to an instant: what came back or was changed up to then.
func (s *soldSale) pass(now time.Time) {
	for s.report.SoldOutAt == nil {
		stocked := len(s.stocks) > 0 && !s.stocks[0].At.After(now)
		switch returned := len(s.returns) > 0 && !s.returns[0].After(now); {
		case returned && (!stocked || !s.returns[0].After(s.stocks[0].At)):
			heap.Pop(&s.returns)
			s.taken--
		case stocked:
			next := s.stocks[0]
			s.stock, s.stocks = next.Stock, s.stocks[1:]
			for _, at := range s.writtenOff {
				if !at.After(next.At) {
					s.stock++
				}
			}
			s.look(next.At)
		default:
			return
		}
	}
}

func (s *soldSale) look(now time.Time) {
	if s.taken > 0 && s.taken >= s.stock {
		s.report.SoldOutAt = &now
		s.returns = nil
	}
}

func (s *soldSale) finish() model.Report {
	r := &s.report
	s.pass(r.At)
	r.Resold = max(0, r.Orders-r.Stock-r.WrittenOff)
	if r.Orders > 0 {
		r.NeverPaidShare = float64(r.NeverPaid) / float64(r.Orders)
	}
	if r.SoldOutAt != nil {
		r.SoldOutAfterMS = new(max(0, r.SoldOutAt.Sub(r.BeginAt).Milliseconds()))
	}
	return *r
}

const (
	// firstStep is that of the curve of a short sale, in milliseconds; it doubles as often as a longer sale needs.
	firstStep = 100
	maxSteps  = 240 // a curve's, as many as a page can show
)

func plot(c *model.ReportCurve, at time.Time) {
	if c.From == nil {
		c.From, c.StepMS = new(at.Truncate(firstStep*time.Millisecond)), firstStep
	}
	for at.Sub(*c.From).Milliseconds()/c.StepMS >= maxSteps {
		for n, orders := range c.Orders {
			if n%2 == 0 {
				c.Orders[n/2] = orders
			} else {
				c.Orders[n/2] += orders
			}
		}
		c.Orders, c.StepMS = c.Orders[:(len(c.Orders)+1)/2], 2*c.StepMS
	}
	step := int(at.Sub(*c.From).Milliseconds() / c.StepMS)
	for len(c.Orders) <= step {
		c.Orders = append(c.Orders, 0)
	}
	c.Orders[step]++
}

type instants []time.Time

func (h instants) Len() int           { return len(h) }
func (h instants) Less(i, j int) bool { return h[i].Before(h[j]) }
func (h instants) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

func (h *instants) Push(x any) {
	at, _ := x.(time.Time) // nothing else is pushed
	*h = append(*h, at)
}

func (h *instants) Pop() any {
	last := len(*h) - 1
	at := (*h)[last]
	*h = (*h)[:last]
	return at
}

// storeShare bounds storing, and public reports, to a storeShare-th of the time. Each budget.Step is stored: a death
// loses 10 s.
const storeShare = 100

// Tallies tells other instances what this one counts, so that each shows the sum, and stores it for reports.
type Tallies struct {
	Counted *telemetry.Tallies
	Publish func(ctx context.Context, tallies map[string]model.Tally) error
	Keep    func(ctx context.Context, counted map[string]model.Counted) error
	Log     *slog.Logger

	unstored map[string]model.Counted
	lacks    telemetry.Trouble // of the database
}

// Share publishes what this instance counts until ctx ends.
func (t *Tallies) Share(ctx context.Context) {
	var trouble telemetry.Trouble
	poll.Every(ctx, budget.Look, func() {
		if changed := t.Counted.Changed(); len(changed) > 0 {
			trouble.Note(ctx, t.Log, t.Publish(ctx, changed),
				"what this instance counts cannot be shared: charts lack it",
				"what this instance counts is shared again")
		}
	})
}

// Run stores what this instance counts until ctx ends.
func (t *Tallies) Run(ctx context.Context) {
	for pause := budget.Step; ; {
		poll.Pause(ctx, pause)
		if ctx.Err() != nil {
			return
		}
		began := time.Now()
		t.Store(ctx)
		pause = max(budget.Step, storeShare*time.Since(began))
	}
}

// Store stores what is not stored yet: also at the stop, when Run has ended and nobody asks this instance any more.
func (t *Tallies) Store(ctx context.Context) {
	if t.unstored == nil {
		t.unstored = map[string]model.Counted{}
	}
	maps.Copy(t.unstored, t.Counted.Unstored())
	err := t.Keep(ctx, t.unstored)
	if err == nil {
		clear(t.unstored)
	}
	t.lacks.Note(ctx, t.Log, err, "what this instance counts cannot be stored: reports lack it",
		"what this instance counts is stored again")
}
