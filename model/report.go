package model

import (
	"math"
	"math/bits"
	"time"
)

// ReportSale is what everybody may read of a sale: numbers, and nobody's name or money.
type ReportSale struct {
	VoucherID string    `json:"voucher_id"`
	Title     string    `json:"title"`
	Stock     int64     `json:"stock"`
	BeginAt   time.Time `json:"begin_at"`
	EndAt     time.Time `json:"end_at"`
	At        time.Time `json:"at" doc:"When it was made, on the clock that decides the window."`

	Orders         int64  `json:"orders" doc:"Orders that took a unit, whatever became of them."`
	SoldOutAfterMS *int64 `json:"sold_out_after_ms,omitempty" doc:"Since begin_at; absent: it was never sold out."`
	NeverPaid      int64  `json:"never_paid" doc:"Orders that ended without a payment in time: canceled, or expired."`
	Returned       int64  `json:"returned" doc:"Units that came back: of orders that were canceled, expired or refunded."`
	Resold         int64  `json:"resold" doc:"Orders beyond the stock: so many units were sold again."`
}

// Report is a sale as the database has it: complete once it is over and its orders are decided.
type Report struct {
	ReportSale

	Currency       string                `json:"currency"` // ISO 4217
	OrdersByStatus map[OrderStatus]int64 `json:"orders_by_status"`
	NeverPaidShare float64               `json:"never_paid_share" doc:"Of the orders that took a unit: 0 to 1."`
	WrittenOff     int64                 `json:"written_off" doc:"Units of used orders that were paid back: they left the stock."`
	Lapsed         int64                 `json:"lapsed" doc:"Paid orders whose code was not used in its time."`
	LapsedMoney    int64                 `json:"lapsed_money" doc:"What they cost, in minor units."`
	UsesByPlace    map[string]int64      `json:"uses_by_place,omitempty" doc:"Used orders by the group for which their code was used."`
	Money          ReportMoney           `json:"money"`

	SoldOutAt *time.Time    `json:"sold_out_at,omitempty" doc:"When every unit that was offered by then was taken for the first time; absent: never."`
	Curve     ReportCurve   `json:"curve"`
	Answers   ReportAnswers `json:"answers"`

	Waitlist *ReportWaitlist `json:"waitlist,omitempty" doc:"Of a voucher with a waitlist."`
	Audit    Audit           `json:"audit"`

	Draw *ReportDraw `json:"draw,omitempty" doc:"Of a voucher with allocation draw."`
}

// Public is what of the report everybody may read.
func (r Report) Public(commitment string) PublicReport {
	p := PublicReport{ReportSale: r.ReportSale, ByCode: r.Answers.ByCode, Commitment: commitment}
	for _, attempts := range p.ByCode {
		p.Attempts += attempts
	}
	if r.Waitlist != nil {
		p.ToWaitlist = r.Waitlist.Served
	}
	return p
}

// PublicReport is what everybody may read of a sale that has ended.
type PublicReport struct {
	ReportSale

	Attempts   int64            `json:"attempts" doc:"How many attempts to buy there were."`
	ByCode     map[string]int64 `json:"by_code" doc:"Attempts by OK or the problem's code: how many heard what."`
	ToWaitlist int64            `json:"to_waitlist" doc:"Orders of users who had waited."`
	Commitment string           `json:"commitment,omitempty" doc:"Of a draw, whose proof is at /draw."`
}

// Replay is a sale that has ended, again.
type Replay struct {
	PublicReport

	Curve ReportCurve `json:"curve"`
}

// ReportCurve is a sale step by step, see StepAt.
type ReportCurve struct {
	From     *time.Time          `json:"from,omitempty" doc:"When it began to be sold: the whole second of the first order, or entry in a draw; absent: there is none."`
	StepsMS  []int64             `json:"steps_ms" nullable:"false" doc:"When each step ends, in milliseconds since from; the first is all before it. The others are 10 ms at first, and 2 to 3 % of the time since from later."`
	Left     []int64             `json:"left" nullable:"false" doc:"By step: units that nobody had at its end."`
	Heard    map[string][]int64  `json:"heard" doc:"By OK or the problem's code, by step: attempts to buy until the end of the sale."`
	Took     map[string]*Latency `json:"took" doc:"By OK or the problem's code: how long the answers took."`
	OrdersMS []int64             `json:"orders_ms" nullable:"false" doc:"When each of the first 2000 orders that took a unit was made, in milliseconds since from."`
	LastUnit int64               `json:"last_unit,omitempty" doc:"The number of the order that took the last unit, when all were taken for the first time; from 1."`
	CameBack []ReportUnit        `json:"came_back" nullable:"false" doc:"Units that came back, by the number of their order: of the first 2000 such orders."`
	Served   []ReportUnit        `json:"served" nullable:"false" doc:"Units that went to users who had waited, by the number of their place: of the first 1000 places."`
}

// ReportUnit is a unit that came back, or that somebody who had waited got.
type ReportUnit struct {
	AtMS   int64 `json:"at_ms" doc:"When, in milliseconds since from."`
	Number int64 `json:"number" doc:"Of the order, or of the place, from 1."`
}

// Latency is how long answers took.
type Latency struct {
	Median float64 `json:"median" doc:"In milliseconds, as p99."`
	P99    float64 `json:"p99"`
}

const (
	stepMS   = 10                  // how long the shortest steps are, in milliseconds
	evenBits = 6                   // as many steps as they count have one length; then a length doubles after half as many
	halfEven = 1 << (evenBits - 1) // steps
)

// StepAt is in which step of a replay an instant is: 0 before its beginning.
func StepAt(from, at time.Time) int {
	if at.Before(from) {
		return 0
	}
	n := int(at.Sub(from).Milliseconds() / stepMS)
	doubled := max(0, bits.Len(uint(n))-evenBits)
	return 1 + doubled*halfEven + n>>doubled
}

// StepEnd is when a step ends, since the beginning.
func StepEnd(step int) time.Duration {
	doubled := max(0, (step-1)/halfEven-1)
	return time.Duration(stepMS*(step-doubled*halfEven)<<doubled) * time.Millisecond
}

// Heard counts attempts to buy with one outcome: by how long they took, see TallyBounds, and by StepAt since the first.
type Heard struct {
	First time.Time `json:"first"`
	Took  []uint64  `json:"took"`
	Steps []uint32  `json:"steps"`
}

// Attempts is how many there were.
func (h *Heard) Attempts() (sum uint64) {
	for _, attempts := range h.Took {
		sum += attempts
	}
	return sum
}

// LatencyOf is that of attempts by how long they took; nil when there were none.
func LatencyOf(took []float64) *Latency {
	bounds := append(TallyBounds(), math.Inf(1))
	total := 0.0
	for _, count := range took {
		total += count
	}
	if total == 0 || len(took) > len(bounds) {
		return nil
	}
	const milliseconds = 1000
	return &Latency{Median: milliseconds * quantile(bounds, took, total/2), P99: milliseconds * quantile(bounds, took, total*0.99)} //nolint:mnd // as named
}

// quantile is between the bounds of a bucket in proportion, as Prometheus' histogram_quantile has it.
func quantile(bounds, took []float64, rank float64) float64 {
	low, below := 0.0, 0.0
	for n, count := range took {
		if below+count >= rank && count > 0 {
			if math.IsInf(bounds[n], 1) {
				return low
			}
			return low + (bounds[n]-low)*(rank-below)/count
		}
		low, below = bounds[n], below+count
	}
	return low
}

// ReportDraw tells of a draw, and whether it was kept to.
type ReportDraw struct {
	Entries   int64 `json:"entries"`
	Winners   int64 `json:"winners"`
	OrderKept bool  `json:"order_kept" doc:"Whether it is drawn, and no order was made before that of an earlier place in the drawn order, by the draw or by the waitlist."`
}

// ReportMoney is in minor units of the currency.
type ReportMoney struct {
	Received  int64 `json:"received"` // late money too, which goes back
	Elsewhere int64 `json:"elsewhere" doc:"Of what was received: paid elsewhere, with no provider."`
	Returned  int64 `json:"returned"`
}

// ReportAnswers counts the answers of all instances to buyers, without refusals before the sale (token, rate, form).
type ReportAnswers struct {
	Since  *time.Time       `json:"since,omitempty" doc:"The first attempt that was counted; absent: there was none."`
	Until  *time.Time       `json:"until,omitempty" doc:"The latest attempt that was counted. Instances store their counts every 10 s and at a stop: a killed one loses what it counted since."`
	ByCode map[string]int64 `json:"by_code" doc:"Attempts by OK or the problem's code."`

	Heard []map[string]*Heard `json:"-"` // the same by process, step by step
}

// ReportWaitlist is whether those who waited were served in their order, by the rows of the places and of their orders.
type ReportWaitlist struct {
	Places    int64 `json:"places" doc:"Places that were given, those included that were left."`
	Served    int64 `json:"served" doc:"Places that became orders."`
	Left      int64 `json:"left" doc:"Places that were given up."`
	Waiting   int64 `json:"waiting" doc:"Places that wait."`
	Overtaken int64 `json:"overtaken" doc:"Orders of places that were made before that of an earlier place: 0, or the order was not kept."`

	Turns map[int64]time.Time `json:"-"` // when each of the first places became an order
}

// StockAt is what a voucher's stock was from an instant on.
type StockAt struct {
	At    time.Time
	Stock int64
}

// Counted is what one process has counted of the attempts to buy a voucher.
type Counted struct {
	First, Latest time.Time // attempt, on the process' clock
	ByCode        map[string]*Heard
}

// Stats counts one voucher's units and orders at one instant.
type Stats struct {
	Stock          int64                 `json:"stock"`
	Remaining      int64                 `json:"remaining"`
	Reserved       int64                 `json:"reserved"`
	Sold           int64                 `json:"sold"`
	OrdersByStatus map[OrderStatus]int64 `json:"orders_by_status"`
}

// Audit is the conservation check of one voucher.
type Audit struct {
	VoucherID string         `json:"voucher_id"`
	Mode      OrderMode      `json:"mode"`
	Balanced  bool           `json:"balanced"`
	Database  AuditDatabase  `json:"database"`
	Redis     *AuditHotCopy  `json:"redis"` // nil in sync mode, and of a draw: there is no copy
	Queue     *AuditQueue    `json:"queue"` // nil likewise: there is no queue
	Drift     []DriftedOrder `json:"drift"`
	Wrong     []string       `json:"wrong,omitempty" doc:"What rows of a draw or of a waitlist the database has otherwise than it says."`
	Draw      bool           `json:"-"` // the voucher is allocated by draw
}

// AuditDatabase is what the database says.
type AuditDatabase struct {
	Stock      int64 `json:"stock"`
	Remaining  int64 `json:"remaining"`
	LiveOrders int64 `json:"live_orders"`
	Waiting    int64 `json:"waiting,omitempty" doc:"How many wait for a unit, as the voucher says; while anybody does, nothing remains."`
}

// AuditHotCopy is what the copy that admits buyers says.
type AuditHotCopy struct {
	State     string `json:"state"` // open, closed or rebuilding
	Remaining int64  `json:"remaining"`
	Reserved  int64  `json:"reserved"`
	Buyers    int64  `json:"buyers"`
}

// AuditQueue is what waits to be persisted.
type AuditQueue struct {
	Pending     int64 `json:"pending"`
	OldestAgeMS int64 `json:"oldest_age_ms"`
}

// DriftedOrder names an order that does not add up, and what was found.
type DriftedOrder struct {
	OrderID string `json:"order_id"`
	Found   string `json:"found"`
}
