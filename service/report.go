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

	flights singleflight.Group // of replays, which everybody shares
	shared  *lru.Cache[string, sharedReplay]
}

type sharedReplay struct {
	model.Replay

	until time.Time
}

const maxShared = 500 // replays that are kept, some 50 kB each at the most

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
	shared, _ := lru.New[string, sharedReplay](maxShared) // fails for a size below 1 only
	return &Reports{ReportDeps: deps, turn: make(chan struct{}, 1), shared: shared}
}

// Replay is a sale again, as of some seconds ago: whoever asks, and however often, has it made a storeShare-th of the
// time. Everybody but an administrator hears NOT_FOUND before the end, and of a voucher that has no public report.
func (r *Reports) Replay(ctx context.Context, voucherID string, admin bool) (replay model.Replay, err error) {
	v, err := r.Vouchers.Get(ctx, voucherID, admin)
	if err == nil && !admin && (!v.PublicReport || v.Phase != model.PhaseEnded) {
		err = model.NotFound("report")
	}
	if err != nil {
		return replay, err
	}
	key := fmt.Sprint(voucherID, admin) // what an administrator saw before the end is not what everybody sees after it
	if kept, found := r.shared.Get(key); found && time.Now().Before(kept.until) {
		return kept.Replay, nil
	}
	made := r.flights.DoChan(key, func() (any, error) { return r.share(context.WithoutCancel(ctx), v, key) })
	select {
	case result := <-made:
		replay, _ = result.Val.(model.Replay)
		return replay, result.Err
	case <-ctx.Done():
		return replay, model.Unavailable("The report is being made.", ctx.Err())
	}
}

func (r *Reports) share(ctx context.Context, v model.Voucher, key string) (replay model.Replay, err error) {
	began, draw := time.Now(), model.Draw{}
	report, err := r.Make(ctx, v.ID)
	if err == nil && v.Allocation == model.ByDraw {
		draw, err = r.Draws.Proof(ctx, v.ID, true)
	}
	if err != nil {
		return replay, err
	}
	replay = model.Replay{PublicReport: report.Public(draw.Commitment), Curve: report.Curve}
	until := time.Now().Add(max(budget.Step, storeShare*time.Since(began)))
	r.shared.Add(key, sharedReplay{replay, until})
	return replay, nil
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
	if sale.report.Answers, err = r.Answers.Read(ctx, v.ID); err != nil {
		return report, err
	}
	for _, of := range sale.report.Answers.Heard {
		if sold := of["OK"]; sold != nil {
			sale.begin(sold.First) // a draw has orders only at its end
		}
	}
	if err := r.Orders.Sold(ctx, v.ID, sale.add); err != nil {
		return report, err
	}
	if v.Waitlist {
		waited, err := r.Orders.Waited(ctx, v.ID)
		if err != nil {
			return report, err
		}
		sale.report.Waitlist = &waited
	}
	report = sale.finish()
	if v.Allocation == model.ByDraw {
		report.Draw, err = r.Draws.Report(ctx, v.ID)
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

// soldSale makes a sale's report of its orders, oldest first, keeping only instants until sold out, and steps.
type soldSale struct {
	report  model.Report
	all     []model.StockAt
	stocks  []model.StockAt // those that are still to come
	left    []int64         // by how much what is left grows in a step
	voucher *model.VoucherFields

	stock, taken int64 // as of the latest order, until the sale is sold out
	returns      instants
	writtenOff   []time.Time // units that are taken for good; a stock of the log is without them
}

func newSoldSale(v model.Voucher, stocks []model.StockAt) *soldSale {
	return &soldSale{all: stocks, stocks: stocks, voucher: &v.VoucherFields, report: model.Report{
		ReportSale: model.ReportSale{
			VoucherID: v.ID, Title: v.Title, Stock: v.Stock, BeginAt: v.BeginAt, EndAt: v.EndAt, At: v.ServerTime,
		},
		Currency: v.Currency, OrdersByStatus: make(map[model.OrderStatus]int64), UsesByPlace: map[string]int64{},
		Curve: model.ReportCurve{
			StepsMS: []int64{}, Left: []int64{}, Heard: map[string][]int64{}, Took: map[string]*model.Latency{},
			OrdersMS: []int64{}, CameBack: []model.ReportUnit{}, Served: []model.ReportUnit{},
		},
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
	s.plot(o)
	if r.SoldOutAt == nil {
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
			s.stock, s.stocks = s.offered(next), s.stocks[1:]
			s.look(next.At)
		default:
			return
		}
	}
}

// offered is a stock of the log with the units that were written off until then.
func (s *soldSale) offered(next model.StockAt) int64 {
	for _, at := range s.writtenOff {
		if !at.After(next.At) {
			next.Stock++
		}
	}
	return next.Stock
}

func (s *soldSale) look(now time.Time) {
	if s.taken > 0 && s.taken >= s.stock {
		s.report.SoldOutAt, s.report.Curve.LastUnit = &now, s.report.Orders
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
	s.addUp()
	return *r
}

const maxInstants = 2000 // of orders, and of units that came back, that a curve tells

// begin begins the curve with what was first.
func (s *soldSale) begin(first time.Time) {
	if from := &s.report.Curve.From; *from == nil || first.Before(**from) {
		*from = new(first.Truncate(time.Second))
	}
}

// plot is add for the curve, of an order that took a unit.
func (s *soldSale) plot(o model.BookedOrder) {
	c := &s.report.Curve
	if s.report.Orders == 1 {
		s.begin(o.CreatedAt)
	}
	s.left = s.more(s.left, o.CreatedAt, -1)
	if len(c.OrdersMS) < maxInstants {
		c.OrdersMS = append(c.OrdersMS, o.CreatedAt.Sub(*c.From).Milliseconds())
	}
	if o.ClosedAt == nil || o.WrittenOff() {
		return
	}
	s.left = s.more(s.left, *o.ClosedAt, 1)
	if len(c.CameBack) < maxInstants {
		c.CameBack = append(c.CameBack, s.unit(*o.ClosedAt, s.report.Orders))
	}
}

func (s *soldSale) unit(at time.Time, number int64) model.ReportUnit {
	return model.ReportUnit{AtMS: at.Sub(*s.report.Curve.From).Milliseconds(), Number: number}
}

// more adds to the step of an instant, which may be a new one.
func (s *soldSale) more(steps []int64, at time.Time, more int64) []int64 {
	step := model.StepAt(*s.report.Curve.From, at)
	steps = append(steps, make([]int64, max(0, step+1-len(steps)))...)
	steps[step] += more
	return steps
}

// addUp makes the curve: it adds up the steps, and brings what each process has counted into them.
func (s *soldSale) addUp() {
	c := &s.report.Curve
	if c.From == nil {
		return
	}
	stock := int64(0)
	for n, next := range s.all {
		if n == 0 {
			next.At = time.Time{} // it was there before its first order
		}
		s.left = s.more(s.left, next.At, s.offered(next)-stock)
		stock = s.offered(next)
	}
	steps, took := len(s.left), map[string][]float64{}
	for _, of := range s.report.Answers.Heard {
		for code, heard := range of {
			took[code] = append(took[code], make([]float64, max(0, len(heard.Took)-len(took[code])))...)
			for n, attempts := range heard.Took {
				took[code][n] += float64(attempts)
			}
			c.Took[code] = model.LatencyOf(took[code])
			for n, attempts := range heard.Steps {
				middle := heard.First.Add((model.StepEnd(n) + model.StepEnd(max(0, n-1))) / 2) //nolint:mnd // of the step
				if attempts > 0 && code != string(model.CodeEnded) {
					c.Heard[code] = s.more(c.Heard[code], middle, int64(attempts))
				}
			}
			steps = max(steps, len(c.Heard[code]))
		}
	}
	left := int64(0)
	for n, more := range append(s.left, make([]int64, steps-len(s.left))...) {
		left += more
		c.Left, c.StepsMS = append(c.Left, left), append(c.StepsMS, model.StepEnd(n).Milliseconds())
	}
	for code, heard := range c.Heard {
		c.Heard[code] = append(heard, make([]int64, steps-len(heard))...)
	}
	if waited := s.report.Waitlist; waited != nil {
		for _, place := range slices.Sorted(maps.Keys(waited.Turns)) {
			c.Served = append(c.Served, s.unit(waited.Turns[place], place))
		}
	}
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
