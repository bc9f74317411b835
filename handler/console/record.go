package console

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/model"
)

const maxRecorded = 30 // sales of a phase that are kept

// sale is one that is on, whose charts show the last hour, or one that is watched. The console's mutex guards it.
type sale struct {
	id      string
	counted rarely[counts]

	recorder watcher
	readings []reading // oldest first
	told     []byte    // the event with the readings; nil: it is not made yet

	watchers map[chan []byte]bool
	latest   []byte             // a whole event, as each watcher is sent it
	end      context.CancelFunc // of the readings for watchers
}

// sale is a sale's own; the mutex is held.
func (c *console) sale(id string) *sale {
	if c.sales[id] == nil {
		made := &sale{id: id, watchers: map[chan []byte]bool{}}
		made.recorder = watcher{console: c, sale: made}
		made.counted = rarely[counts]{log: c.Log, what: "the orders of voucher " + id, count: made.recorder.count}
		c.sales[id] = made
	}
	return c.sales[id]
}

// Record reads each sale that is on, again and again, until ctx ends.
func (c *Console) Record(ctx context.Context) {
	poll.Every(ctx, budget.Answer, func() {
		if err := c.record(ctx); err != nil && ctx.Err() == nil {
			c.Log.DebugContext(ctx, "the charts of the sales miss a point", slog.Any("error", err))
		}
	})
}

func (c *console) record(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Work)
	defer cancel()
	for _, phase := range []model.Phase{model.PhaseLive, model.PhaseSoldOut, model.PhasePaused} {
		page, err := c.Vouchers.List(ctx, model.VoucherQuery{Phase: phase, All: true, Limit: maxRecorded})
		if err != nil {
			return err
		}
		for _, voucher := range page.Items {
			if !voucher.Buyable() && voucher.State != model.VoucherPaused {
				continue
			}
			if err := c.keepReading(ctx, voucher); err != nil {
				return err
			}
		}
	}
	c.forget(time.Now().Add(-budget.Hour))
	return nil
}

func (c *console) keepReading(ctx context.Context, voucher model.Voucher) error {
	c.mu.Lock()
	sale := c.sale(voucher.ID)
	c.mu.Unlock()
	one, err := sale.recorder.read(ctx, voucher)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	one.Tag, one.State = "", "" // which charts do not show
	sale.readings, sale.told = append(sale.readings, one), nil
	return nil
}

// forget drops readings that are too old, and sales of which none is left and that nobody watches.
func (c *console) forget(before time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, sale := range c.sales {
		sale.readings = slices.DeleteFunc(sale.readings, func(one reading) bool { return one.Now.Before(before) })
		if len(sale.readings)+len(sale.watchers) == 0 {
			delete(c.sales, id)
		}
	}
}

// history is an event with what was kept of a sale. Those who begin to watch it at the same time share it.
func (c *console) history(id string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sale := c.sale(id)
	if sale.told == nil {
		message, err := json.Marshal(map[string][]reading{"readings": append([]reading{}, sale.readings...)})
		if err != nil {
			return nil, err
		}
		sale.told = event("history", message)
	}
	return sale.told, nil
}

const countShare = 100 // counts of orders take at most a hundredth of the time, at least budget.Answer apart

// rarely reads what takes long, such as a count of orders: in the background, for a small share of the time.
type rarely[T any] struct {
	log   *slog.Logger
	what  string // for the log
	count func(context.Context) (T, error)

	mu     sync.Mutex
	latest *T
	due    time.Time     // not before
	under  chan struct{} // is closed when the reading under way has ended; nil: none is
}

// get is the latest reading, nil before the first. It begins one that is due, and waits for its end for so long.
func (r *rarely[T]) get(patience time.Duration) *T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under == nil && !time.Now().Before(r.due) {
		r.under = make(chan struct{})
		go r.read()
	}
	if under := r.under; under != nil && patience > 0 {
		r.mu.Unlock()
		select {
		case <-under:
		case <-time.After(patience):
		}
		r.mu.Lock()
	}
	return r.latest
}

func (r *rarely[T]) read() {
	ctx, cancel := context.WithTimeout(context.Background(), budget.Survey)
	defer cancel()
	began := time.Now()
	found, err := r.count(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.under)
	r.under, r.due = nil, time.Now().Add(max(budget.Answer, countShare*time.Since(began)))
	if err != nil {
		r.log.WarnContext(ctx, "nothing could be counted", slog.String("what", r.what), slog.Any("error", err))
		return
	}
	r.latest = &found
}

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

type mark struct {
	At   int64  `json:"at"`   // in milliseconds since 1970
	What string `json:"what"` // the new state, stock, end or rebuild
}

const maxMarks = 20

type watcher struct {
	*console

	sale  *sale
	meter meter

	marks    []mark
	marked   string    // the tag of the voucher with these marks
	remarked time.Time // when they were read
}

func (w *watcher) message(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, budget.Call)
	defer cancel()
	v, err := w.Vouchers.Get(ctx, w.sale.id, true)
	if err != nil {
		return nil, err
	}
	one, err := w.read(ctx, v)
	if err != nil {
		return nil, err
	}
	one.Marks = w.latestMarks(ctx, one.Tag)
	return json.Marshal(one)
}

func (w *watcher) read(ctx context.Context, v model.Voucher) (reading, error) {
	page := voucherPage{Voucher: v}
	r := reading{
		Now: v.ServerTime, State: v.State, Phase: phase(v), Tag: v.Tag(), Stock: v.Stock, Remaining: v.Remaining,
		Taken: page.Taken(), Reserved: v.Reserved, Sold: page.Sold(),
	}
	now := time.Now()
	if tallies, err := w.Tallies(ctx, v.ID); err == nil {
		r.Rates = w.meter.read(tallies, now)
	} else if ctx.Err() != nil {
		return reading{}, err
	}
	r.Backlog = backlogOf(w.Metrics, w.Log)
	r.Counts = w.sale.counted.get(0)
	return r, nil
}

func (w *watcher) count(ctx context.Context) (counts, error) {
	at := time.Now().UTC()
	takings, err := w.Vouchers.Takings(ctx, w.sale.id)
	of := takings.ByStatus
	return counts{
		At: at, Unpaid: of[model.OrderUnpaid].Orders, Paid: of[model.OrderPaid].Orders,
		Redeemed: of[model.OrderRedeemed].Orders,
		Revenue:  of[model.OrderPaid].Amount + of[model.OrderRedeemed].Amount, Refunded: of[model.OrderRefunded].Amount,
		Adrift: takings.Adrift,
	}, err
}

func (w *watcher) latestMarks(ctx context.Context, tag string) []mark {
	if now := time.Now(); tag != w.marked || now.Sub(w.remarked) >= budget.Step {
		page, err := w.AdminLog(ctx, model.AdminLogQuery{Subject: w.sale.id, Limit: maxMarks})
		if err != nil {
			return w.marks // the next look follows
		}
		w.marks, w.marked, w.remarked = marksOf(page.Items), tag, now
	}
	return w.marks
}

func marksOf(changes []model.AdminChange) []mark {
	var marks []mark
	for _, change := range slices.Backward(changes) {
		what := map[string]string{model.ActionStockChange: "stock", model.ActionRebuild: "rebuild"}[change.Action]
		if change.Action == model.ActionVoucherChange {
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

// Rates are what all instances together do for one voucher.
type Rates struct {
	// PerSecond counts attempts to buy by outcome, OK or the problem's code; null: not known yet.
	PerSecond map[string]float64 `json:"per_second"`
	Latency   *model.Latency     `json:"latency,omitempty"` // absent: nobody tried to buy
	Backlog   *Backlog           `json:"backlog,omitempty"` // absent: there is no queue, or it does not tell
}

// Backlog is what waits in the queue, of all vouchers.
type Backlog struct {
	Orders float64 `json:"orders"` // messages, which hold one order or more
	Age    float64 `json:"age"`    // of the oldest, in seconds
}

const tallySilent = budget.Call + budget.Brief // the age of a tally whose instance counts as asked by no buyer

// meter makes rates of the tallies of one voucher, by what has grown from one look to the next.
type meter struct {
	looked time.Time // zero: never
	before map[string]told
}

// told is the latest tally of an instance, and the attempts that it has more than the one before.
type told struct {
	tally     model.Tally
	since     time.Time          // when it was first seen; zero: there was none before
	perSecond map[string]float64 // by outcome
	took      []float64          // attempts by how long they took
}

// read is the rates of now; a negative number of attempts is none, of an instance that counts anew.
func (m *meter) read(tallies map[string]model.Tally, now time.Time) Rates {
	before, first := m.before, m.looked.IsZero()
	gap := now.Sub(m.looked)
	m.before, m.looked = make(map[string]told, len(tallies)), now
	rates := Rates{PerSecond: map[string]float64{}}
	took := make([]float64, len(model.TallyBounds())+1)
	for instance, tally := range tallies {
		is := before[instance]
		switch {
		case first:
			is.tally = tally
		case tally.At.After(is.tally.At):
			// What has grown after a silence has done so since the look before.
			is = since(is.tally, tally, min(tally.At.Sub(is.tally.At), max(gap, budget.Look)).Seconds())
			is.since = now
		}
		m.before[instance] = is
		if is.since.IsZero() || now.Sub(is.since) >= max(tallySilent, gap) {
			continue
		}
		for outcome, rate := range is.perSecond {
			rates.PerSecond[outcome] += rate
		}
		for n, count := range is.took {
			took[n] += count
		}
	}
	if first {
		return Rates{}
	}
	rates.Latency = model.LatencyOf(took)
	return rates
}

// since is what a tally has more than an earlier one of the same instance, in so many seconds.
func since(before, after model.Tally, seconds float64) told {
	is := told{tally: after, perSecond: map[string]float64{}, took: make([]float64, len(after.Took))}
	for outcome, count := range after.Placed {
		if was := before.Placed[outcome]; count > was {
			is.perSecond[outcome] = float64(count-was) / seconds
		}
	}
	was := append(slices.Clone(before.Took), make([]uint64, len(after.Took))...) // a first tally has none before
	for n, count := range after.Took {
		is.took[n] = float64(count - min(count, was[n]))
	}
	return is
}

// backlogOf reads what waits in the queue from an instance's metrics in memory; nil: there is none, or it is unknown.
func backlogOf(metrics prometheus.Gatherer, log *slog.Logger) *Backlog {
	families, err := metrics.Gather()
	if err != nil { // what could be gathered is there all the same
		log.Debug("not all metrics could be gathered", slog.Any("error", err))
	}
	gauges := map[string]float64{}
	for _, family := range families {
		if name := family.GetName(); slices.Contains([]string{
			"seckill_backlog_known", "seckill_backlog_messages",
			"seckill_backlog_age_seconds",
		}, name) {
			gauges[name] = family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if gauges["seckill_backlog_known"] != 1 {
		return nil
	}
	return &Backlog{Orders: gauges["seckill_backlog_messages"], Age: gauges["seckill_backlog_age_seconds"]}
}
