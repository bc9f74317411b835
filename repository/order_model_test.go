//part:stores

package repository_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"seckill/internal/workshop/check"
	"seckill/model"
)

type orderModel struct {
	order    model.Order
	status   model.OrderStatus
	payments []model.Payment
	arrived  map[string]bool // payments whose money is here, or was
	decided  map[string]bool // payments that are started no more
	refunds  map[string]*model.Refund
	code     *model.SealedCode
	wait     time.Duration // that its end has made its user wait
	withdrew bool

	elsewhere string // the reference of its payment elsewhere
}

type saleModel struct {
	life

	t      *testing.T
	v      model.Voucher
	stock  int
	orders map[string]*orderModel
	live   map[string]string // user → order
	line   []string          // users who wait for a unit
	waits  map[string]bool   // users who cool down
	waited map[string]int    // how often it began
	outbox map[string]bool   // orders whose units came back, and no hot copy knows
	mode   model.OrderMode
	crash  *crash
}

// crash loses a connection at a statement, as the death of the process or of the server does.
type crash struct {
	in       atomic.Int32 // so many statements pass before
	verdict  atomic.Int32
	happened [cutAfter + 1]atomic.Int32
}

func (c *crash) judge(*wire, string) verdict {
	if c.in.Add(-1) != -1 {
		return pass
	}
	v := verdict(c.verdict.Load())
	c.happened[v].Add(1)
	return v
}

// The model of the moves is a second, plainer description of them than the table.
func (m *saleModel) allowed(from, to model.OrderStatus) bool {
	return slices.Contains(map[model.OrderStatus][]model.OrderStatus{
		model.OrderUnpaid: {model.OrderPaid, model.OrderCanceled, model.OrderExpired},
		model.OrderPaid:   {model.OrderRedeemed, model.OrderRefunded},
	}[from], to) // a used one becomes paid by an undo alone, and refunded if it is said that it was used: see there
}

// answers compares an answer with what the model says of a move, and makes the move.
func (m *saleModel) answers(t *rapid.T, o *orderModel, to model.OrderStatus, err error) bool {
	legal := m.allowed(o.status, to)
	if legal && err != nil {
		t.Fatalf("%s, %s to %s: %v", o.order.ID, o.status, to, err)
	}
	if !legal && model.CodeOf(err) != model.CodeIllegalState {
		t.Fatalf("%s, %s to %s: %v, want ILLEGAL_STATE", o.order.ID, o.status, to, err)
	}
	if legal {
		m.become(o, to)
	}
	return legal
}

func (m *saleModel) become(o *orderModel, to model.OrderStatus) {
	if m.mode == model.ModeAsync && (model.Order{Status: o.status}).Live() && !(model.Order{Status: to}).Live() {
		m.outbox[o.order.ID] = true
	}
	o.status = to
	if !(model.Order{Status: to}).Live() && m.live[o.order.UserID] == o.order.ID {
		delete(m.live, o.order.UserID)
	}
	m.serve()
}

// serve gives those who wait first what is free, which are orders of theirs then.
func (m *saleModel) serve() {
	for len(m.line) > 0 && len(m.live) < m.stock {
		m.owned(m.owns(m.t, m.v.ID, m.line[0]), m.line[0])
		m.line = m.line[1:]
	}
}

func (m *saleModel) owned(o model.Order, user string) {
	m.live[user] = o.ID
	m.orders[o.ID] = &orderModel{
		order: o, status: model.OrderUnpaid, arrived: map[string]bool{}, decided: map[string]bool{},
		refunds: map[string]*model.Refund{},
	}
}

func (m *saleModel) queue(t *rapid.T, leaves bool) {
	if drawn := m.v.Allocation == model.ByDraw; drawn && !leaves || !drawn && !m.v.Waitlist {
		t.Skip("nobody may wait")
	}
	u := user(rapid.IntRange(0, 3).Draw(t, "user"))
	err := m.call(t, func() error {
		if leaves {
			return m.leave(m.t.Context(), m.v.ID, u)
		}
		_, _, err := m.join(m.t.Context(), m.v.ID, u)
		return err
	})
	at, want := slices.Index(m.line, u), model.Code("")
	switch {
	case at >= 0 && leaves:
		m.line = slices.Delete(m.line, at, at+1)
	case at >= 0:
	case m.live[u] != "":
		want = model.CodeAlreadyOrdered
	case leaves:
		want = model.CodeNotFound
	case m.waits[u]:
		want = model.CodeCoolingDown
	case len(m.live) < m.stock:
		want = model.CodeConflict
	default:
		m.line = append(m.line, u)
	}
	if (err != nil || want != "") && model.CodeOf(err) != want {
		t.Fatalf("%s waits, or leaves (%t): %v, want %q", u, leaves, err, want)
	}
}

func (m *saleModel) restock(t *rapid.T) {
	if !m.v.Waitlist && m.v.Allocation != model.ByDraw || m.stock == 3 {
		t.Skip("enough")
	}
	m.stock++
	more := model.StockChange{Stock: new(int64(m.stock))}
	if err := m.call(t, func() error {
		return check.ErrorOf(m.vouchers.ChangeStock(m.t.Context(), m.v.ID, more, model.Idempotency{}))
	}); err != nil {
		t.Fatal(err)
	}
	m.serve()
}

// ended is an order that ended unpaid. Its user waits, if the voucher says so and no administrator has done it.
func (m *saleModel) ended(o *orderModel, by string) {
	user := o.order.UserID
	if m.v.Cooldown == 0 || by != "" {
		return
	}
	o.wait = min(time.Duration(m.v.Cooldown)<<m.waited[user], 24*time.Hour)
	m.waits[user], m.waited[user] = true, m.waited[user]+1
}

func (m *saleModel) wait(t *rapid.T) {
	u := user(rapid.IntRange(0, 3).Draw(t, "user"))
	m.exec(m.t, "UPDATE orders SET cooldown_until = created_at WHERE voucher_id = ? AND user_id = ? AND cooldown_until IS NOT NULL", m.v.ID, u)
	for _, o := range m.orders {
		if o.order.UserID == u && o.wait != 0 {
			o.wait = -1
		}
	}
	m.waits[u] = false
}

func (m *saleModel) draw(t *rapid.T) *orderModel {
	if len(m.orders) == 0 {
		t.Skip("no order yet")
	}
	return m.orders[rapid.SampledFrom(slices.Sorted(maps.Keys(m.orders))).Draw(t, "order")]
}

// call loses a connection now and then, before or after a statement, and repeats what is unknown or has not happened.
func (m *saleModel) call(t *rapid.T, do func() error) error {
	how := rapid.SampledFrom(cuts).Draw(t, "crash")
	behind := rapid.Int32Range(0, 2*mostStatements).Draw(t, "crash behind statements")
	for _, cut := range cuts { // each happens, whatever is drawn
		if m.crash.happened[cut].Load() == 0 {
			how, behind = cut, 0
		}
	}
	m.crash.verdict.Store(int32(how))
	m.crash.in.Store(behind)
	err := do()
	m.crash.in.Store(-1)
	if model.CodeOf(err) == model.CodeUnavailable {
		err = do()
	}
	return err
}

var cuts = []verdict{cutBefore, cutAfter}

// mostStatements is what the longest transaction of these has.
const mostStatements = 16

func (m *saleModel) drawn() {
	l := lotteryOf(m.life)
	for n := range 4 {
		check.Must(m.t, check.ErrorOf(l.enters(m.t, m.v.ID, user(n))))
	}
	l.over(m.t, m.v.ID)
	for place, of := range l.drawn(m.t, m.v.ID, 4, 1) {
		if place < m.stock {
			m.owned(m.owns(m.t, m.v.ID, of.UserID), of.UserID)
		} else {
			m.line = append(m.line, of.UserID)
		}
	}
}

func (m *saleModel) buy(t *rapid.T) {
	if m.v.Allocation == model.ByDraw {
		t.Skip("the sale is over")
	}
	asked := order(m.t, m.v.ID, user(rapid.IntRange(0, 3).Draw(t, "user")))
	var got model.Outcome
	err := m.call(t, func() error {
		outcomes, err := m.life.orders.CreateOrders(m.t.Context(), []model.Order{asked})
		if err == nil {
			got = outcomes[0]
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s buys: %v", asked.UserID, err)
	}
	want := model.Code("")
	switch {
	case m.live[asked.UserID] != "":
		want = model.CodeAlreadyOrdered
	case m.waits[asked.UserID]:
		want = model.CodeCoolingDown
	case len(m.live) == m.stock:
		want = model.CodeSoldOut
	default:
		m.owned(got.Order, asked.UserID)
	}
	if (got.Err != nil || want != "") && model.CodeOf(got.Err) != want {
		t.Fatalf("%s buys: %v, want %q", asked.UserID, got.Err, want)
	}
}

func (m *saleModel) start(t *rapid.T) {
	o := m.draw(t)
	var payment model.Payment
	err := m.call(t, func() (err error) {
		payment, _, err = m.payments.Start(m.t.Context(), o.order.ID, o.order.UserID, newID(m.t))
		return err
	})
	if legal := o.status == model.OrderUnpaid; !legal || err != nil {
		if legal || model.CodeOf(err) != model.CodeIllegalState {
			t.Fatalf("start a payment of %s, %s: %v", o.order.ID, o.status, err)
		}
		return
	}
	known := slices.ContainsFunc(o.payments, func(p model.Payment) bool { return p.ID == payment.ID })
	open := slices.ContainsFunc(o.payments, func(p model.Payment) bool { return !o.decided[p.ID] })
	if known != open {
		t.Fatalf("payment %s of %s: known %v, one is open %v", payment.ID, o.order.ID, known, open)
	}
	if !known {
		o.payments = append(o.payments, payment)
	}
}

func (m *saleModel) notice(t *rapid.T, succeeded bool) (*orderModel, model.PaymentNotice) {
	o := m.draw(t)
	if len(o.payments) == 0 {
		t.Skip("nothing was started")
	}
	n := money(m.t, rapid.SampledFrom(o.payments).Draw(t, "payment"))
	n.Succeeded = succeeded
	if rapid.Bool().Draw(t, "by webhook") {
		n = webhook(m.t, n, newID(m.t))
	}
	return o, n
}

func (m *saleModel) settle(t *rapid.T, n model.PaymentNotice) (got model.Receipt) {
	err := m.call(t, func() (err error) {
		got, err = m.payments.Settle(m.t.Context(), n)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (m *saleModel) pay(t *rapid.T) {
	o, n := m.notice(t, true)
	got := m.settle(t, n)
	first := !o.arrived[n.PaymentID]
	o.arrived[n.PaymentID], o.decided[n.PaymentID] = true, true
	changed, late := first, first
	switch {
	case !first:
	case o.status == model.OrderUnpaid:
		m.become(o, model.OrderPaid)
		o.code, late = &n.Code, false
	case o.status == model.OrderCanceled || o.status == model.OrderExpired:
		m.become(o, model.OrderRefunded)
	default:
		changed = false
	}
	if late {
		if got.Refund == nil || got.Refund.Status != model.RefundPending {
			t.Fatalf("late money for %s: %+v", o.order.ID, got)
		}
		o.refunds[got.Refund.ID] = got.Refund
	}
	if got.Changed != changed || got.Order.Status != o.status {
		t.Fatalf("money for %s: %+v, want %s (changed %v)", o.order.ID, got, o.status, changed)
	}
}

// elsewhere pays an order elsewhere; its payment is one that has arrived, and what goes back of it a person pays.
func (m *saleModel) elsewhere(t *rapid.T) {
	o := m.draw(t)
	paid := model.Elsewhere{Reference: rapid.SampledFrom([]string{"till 1", "till 2"}).Draw(t, "reference")}
	code := newCode(m.t)
	err := m.call(t, func() error {
		got, err := m.payments.Elsewhere(m.t.Context(), o.order.ID, newID(m.t), "boss", paid, code)
		if err == nil && got.PaidReference != paid.Reference {
			t.Fatalf("%s was paid with %q, want %q", o.order.ID, got.PaidReference, paid.Reference)
		}
		return err
	})
	switch o.elsewhere {
	case paid.Reference:
		if err != nil {
			t.Fatalf("%s paid with %q again: %v", o.order.ID, paid.Reference, err)
		}
	case "":
		if m.answers(t, o, model.OrderPaid, err) {
			o.elsewhere, o.code, o.arrived[paid.Reference] = paid.Reference, &code, true
		}
	default:
		if model.CodeOf(err) != model.CodeAlreadyPaid {
			t.Fatalf("%s paid with %q, then %q: %v", o.order.ID, o.elsewhere, paid.Reference, err)
		}
	}
}

func (m *saleModel) fail(t *rapid.T) {
	o, n := m.notice(t, false)
	if got := m.settle(t, n); got.Changed || got.Order.Status != o.status {
		t.Fatalf("a failed payment of %s: %+v", o.order.ID, got)
	}
	o.decided[n.PaymentID] = true
}

func (m *saleModel) giveBack(t *rapid.T) {
	o := m.draw(t)
	var changed bool
	by := rapid.SampledFrom([]string{"", "boss"}).Draw(t, "by")
	err := m.call(t, func() error {
		answers, err := m.life.orders.Cancel(m.t.Context(),
			[]model.Cancellation{{OrderID: o.order.ID, UserID: o.order.UserID, By: by}})
		if err != nil {
			return err
		}
		changed = answers[0].Changed
		return answers[0].Err
	})
	if o.status == model.OrderCanceled {
		if changed || err != nil {
			t.Fatalf("%s canceled again: %v, %v", o.order.ID, changed, err)
		}
		return
	}
	legal := m.answers(t, o, model.OrderCanceled, err)
	if legal != changed {
		t.Fatalf("%s canceled: %v, want %v", o.order.ID, changed, legal)
	}
	if legal {
		m.ended(o, by)
	}
}

func (m *saleModel) expire(t *rapid.T) {
	o := m.draw(t)
	m.lapse(m.t, o.order)
	var expired []model.Order
	err := m.call(t, func() (err error) {
		expired, err = m.life.orders.Expire(m.t.Context(), []string{o.order.ID})
		return err
	})
	if legal := m.allowed(o.status, model.OrderExpired); err != nil || len(expired) != map[bool]int{true: 1}[legal] {
		t.Fatalf("%s, %s: %d expired, %v", o.order.ID, o.status, len(expired), err)
	} else if legal {
		m.become(o, model.OrderExpired)
		m.ended(o, "")
	}
}

func (m *saleModel) redeem(t *rapid.T) {
	o := m.draw(t)
	code, known := newCode(m.t), o.code != nil
	if known {
		code = *o.code
	}
	err := m.call(t, func() error { return check.ErrorOf(m.life.orders.Redeem(m.t.Context(), code.Hash, atTill("boss"))) })
	if known {
		m.answers(t, o, model.OrderRedeemed, err)
	} else if model.CodeOf(err) != model.CodeNotFound {
		t.Fatalf("a guessed code: %v", err)
	}
}

func (m *saleModel) undo(t *rapid.T) {
	o := m.draw(t)
	err := m.call(t, func() error {
		return check.ErrorOf(m.life.orders.Unredeem(m.t.Context(), model.Undo{OrderID: o.order.ID, By: "boss", Reason: "x", Anytime: true}))
	})
	switch {
	case o.status == model.OrderRedeemed && err == nil:
		m.become(o, model.OrderPaid)
	case o.status == model.OrderRedeemed || model.CodeOf(err) != model.CodeIllegalState:
		t.Fatalf("undo of %s, %s: %v", o.order.ID, o.status, err)
	}
}

// refund refunds a paid order, or has a refund tried again that had failed for good.
func (m *saleModel) refund(t *rapid.T) {
	o := m.draw(t)
	used := rapid.Bool().Draw(t, "used")
	var got model.Refund
	err := m.call(t, func() (err error) {
		got, _, err = m.refunds.Request(m.t.Context(), o.order.ID, newID(m.t), "boss", model.RefundAsk{Used: used})
		return err
	})
	if err == nil && got.Outside != (o.elsewhere != "" && got.Reason == model.RefundByAdmin) || err == nil && !got.Outside && got.Status != model.RefundPending {
		t.Fatalf("refund %s: %+v", o.order.ID, got)
	}
	if failed := o.refunds[got.ID]; err == nil && failed != nil && failed.Status == model.RefundFailed &&
		o.status != model.OrderPaid && (o.status != model.OrderRedeemed || !used) {
		failed.Status = model.RefundPending
		return
	}
	if anyFailed := slices.ContainsFunc(slices.Collect(maps.Values(o.refunds)),
		func(r *model.Refund) bool { return r.Status == model.RefundFailed }); anyFailed && err != nil {
		t.Fatalf("a failed refund of %s is not tried again: %v", o.order.ID, err)
	}
	if o.status == model.OrderRedeemed && used && err == nil {
		m.stock-- // before those who wait get what is free
		m.become(o, model.OrderRefunded)
		o.refunds[got.ID] = &got
	} else if m.answers(t, o, model.OrderRefunded, err) {
		o.refunds[got.ID] = &got
	}
}

func (m *saleModel) withdraw(t *rapid.T) {
	o, changed := m.draw(t), false
	err := m.call(t, func() (err error) {
		changed, err = m.refunds.Withdraw(m.t.Context(), o.order.ID, newID(m.t), o.order.UserID)
		return err
	})
	switch {
	case o.withdrew:
		if changed || err != nil {
			t.Fatalf("%s withdrawn again: %v, %v", o.order.ID, changed, err)
		}
	case o.status == model.OrderPaid && m.v.Withdrawal == 0:
		if model.CodeOf(err) != model.CodeWithdrawalOver {
			t.Fatalf("%s withdrawn: %v, want WITHDRAWAL_OVER", o.order.ID, err)
		}
	case m.answers(t, o, model.OrderRefunded, err):
		refunds := check.Value(m.refunds.List(m.t.Context(), model.RefundQuery{OrderID: o.order.ID}))(m.t).Items
		for i, refund := range refunds {
			if refund.Reason == model.RefundWithdrawn {
				o.withdrew, o.refunds[refund.ID] = true, &refunds[i]
			}
		}
	}
}

// attempt notes what the provider has said of a refund. Only a pending one is changed by that.
func (m *saleModel) attempt(t *rapid.T) {
	o := m.draw(t)
	if len(o.refunds) == 0 {
		t.Skip("nothing goes back")
	}
	r := o.refunds[rapid.SampledFrom(slices.Sorted(maps.Keys(o.refunds))).Draw(t, "refund")]
	to := rapid.SampledFrom([]model.RefundStatus{model.RefundPending, model.RefundDone, model.RefundFailed}).Draw(t, "what the provider says")
	err := m.call(t, func() error {
		switch to {
		case model.RefundDone:
			return m.refunds.Done(m.t.Context(), r.ID)
		case model.RefundFailed:
			return m.refunds.GiveUp(m.t.Context(), r.ID, "no")
		default:
			return m.refunds.Retry(m.t.Context(), r.ID, "later", time.Minute)
		}
	})
	if err != nil {
		t.Fatalf("refund %s is %s: %v", r.ID, to, err)
	}
	if r.Status == model.RefundPending {
		r.Status, r.Attempts = to, r.Attempts+1
	}
}

// relay takes the oldest units from the outbox, as if the hot copy knew of them.
func (m *saleModel) relay(t *rapid.T) {
	var ids []int64
	for _, release := range m.releasesOf(t) {
		if len(ids) < 2 {
			ids = append(ids, release.ID)
			delete(m.outbox, release.OrderID)
		}
	}
	if err := m.call(t, func() error { return m.releases.Done(m.t.Context(), ids) }); err != nil {
		t.Fatalf("take %v from the outbox: %v", ids, err)
	}
}

// releasesOf reads the voucher's rows in the outbox, which has one for each unit that came back.
func (m *saleModel) releasesOf(t *rapid.T) (list []model.Release) {
	all, err := m.releases.After(m.t.Context(), model.Release{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, release := range all {
		if release.VoucherID == m.v.ID {
			list = append(list, release)
		}
	}
	seen := map[string]bool{}
	for _, release := range list {
		seen[release.OrderID] = true
	}
	if !maps.Equal(seen, m.outbox) || len(list) != len(seen) {
		t.Fatalf("the outbox has %+v, want the units of %v", list, m.outbox)
	}
	return list
}

func (m *saleModel) agrees(t *rapid.T) {
	m.balanced(m.t, m.v.ID, int64(len(m.live)))
	m.releasesOf(t)
	for n, u := range m.line {
		if at := m.position(m.t, m.v.ID, u); at != strconv.Itoa(n+1) {
			t.Fatalf("%s waits at %s, want %d", u, at, n+1)
		}
	}
	for id, o := range m.orders {
		row := check.Value(m.life.orders.Get(m.t.Context(), id))(m.t)
		refunds := m.number(m.t, "SELECT COUNT(*) FROM refunds WHERE order_id = ?", id)
		kept := len(o.arrived) - int(refunds)
		holds := o.status == model.OrderPaid || o.status == model.OrderRedeemed
		if row.Status != o.status || int(refunds) != len(o.refunds) || kept != map[bool]int{true: 1}[holds] {
			t.Fatalf("order %s is %s with %d refunds of %d payments, want %s with %d", id, row.Status, refunds,
				len(o.arrived), o.status, len(o.refunds))
		}
		m.cools(t, o, row)
		m.found(t, row)
		owed := slices.ContainsFunc(slices.Collect(maps.Values(o.refunds)),
			func(r *model.Refund) bool { return r.Status == model.RefundFailed })
		if (row.Reason == model.ReasonRefundFailed) != owed {
			t.Fatalf("order %s has the reason %q, and the provider refuses to give money of it back: %t", id,
				row.Reason, owed)
		}
		for refundID, r := range o.refunds {
			if m.number(m.t, "SELECT COUNT(*) FROM refunds WHERE id = ? AND status = ? AND attempts <= ?", refundID,
				r.Status, r.Attempts) != 1 {
				t.Fatalf("refund %s is not %s after at most %d attempts", refundID, r.Status, r.Attempts)
			}
		}
	}
}

// found holds what books find an order by against the order.
func (m *saleModel) found(t *rapid.T, row model.Order) {
	const right = "SELECT COUNT(*) FROM order_instants JOIN orders ON id = order_id WHERE id = ?" +
		" AND at = CASE instant WHEN 'paid' THEN paid_at WHEN 'redeemed' THEN redeemed_at WHEN 'closed' THEN closed_at END"
	want := int64(0)
	for _, at := range []*time.Time{row.PaidAt, row.RedeemedAt, row.ClosedAt} {
		if at != nil {
			want++
		}
	}
	if all := m.number(m.t, "SELECT COUNT(*) FROM order_instants WHERE order_id = ?", row.ID); all != want || m.number(m.t, right, row.ID) != want {
		t.Fatalf("order %s has %d instants in the books, want %d: %+v", row.ID, all, want, row)
	}
}

func (m *saleModel) cools(t *rapid.T, o *orderModel, row model.Order) {
	switch until := row.CooldownUntil; {
	case (until == nil) != (o.wait == 0):
		t.Fatalf("order %s makes its user wait until %v, want for %v", row.ID, until, o.wait)
	case o.wait > 0:
		if over := until.Sub(row.ClosedAt.Add(o.wait)); over < 0 || over >= time.Millisecond {
			t.Fatalf("order %s was closed at %v and makes its user wait until %v, want for %v", row.ID, row.ClosedAt,
				until, o.wait)
		}
	}
	told := m.number(m.t, "SELECT COUNT(*) FROM releases JOIN orders ON orders.id = order_id WHERE order_id = ? AND releases.cooldown_until IS NOT NULL", row.ID)
	if want := m.outbox[row.ID] && o.wait != 0; (told == 1) != want {
		t.Fatalf("the hot copy is told that the user of order %s waits: %v, want %v", row.ID, told == 1, want)
	}
}

// Random sequences of all that can happen to orders, with connections lost at any statement, agree with a simple model.
func TestLifeModel(t *testing.T) {
	t.Parallel()
	check.Must(t, flag.Set("rapid.checks", strconv.Itoa(check.Count(t, "CHECKS", 12, 100))))
	for mode, open := range map[model.OrderMode]func(testing.TB, store) *fixture{model.ModeSync: newFixture, model.ModeAsync: newAsync} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			near, crash := open(t, stores()[0]), &crash{}
			far := near.through(t, crash.judge)
			far.asIn(t, mode)
			l := lifeOf(far)
			rapid.Check(t, func(r *rapid.T) {
				stock := rapid.IntRange(1, 3).Draw(r, "stock")
				waitlist, drawn := rapid.Bool().Draw(r, "waitlist"), rapid.Bool().Draw(r, "drawn")
				if waitlist {
					stock = 1 // which is soon sold out
				}
				m := &saleModel{
					life: l, t: t, stock: stock, orders: map[string]*orderModel{}, live: map[string]string{},
					outbox: map[string]bool{}, mode: mode, crash: crash, waits: map[string]bool{},
					waited: map[string]int{},
				}
				crash.in.Store(-1)
				m.v = near.voucher(t, model.VoucherFields{
					Waitlist: waitlist, Allocation: map[bool]model.Allocation{true: model.ByDraw}[drawn],
					Stock: int64(stock),
					Cooldown: model.Window(rapid.SampledFrom([]time.Duration{0, time.Minute, 10 * time.Hour}).Draw(r,
						"cool-down")),
					Withdrawal: model.Window(rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(r, "withdrawal")),
				})
				if drawn {
					m.drawn()
				}
				r.Repeat(map[string]func(*rapid.T){
					"buy": m.buy, "start": m.start, "pay": m.pay, "elsewhere": m.elsewhere, "fail": m.fail, "cancel": m.giveBack,
					"expire": m.expire, "redeem": m.redeem, "undo": m.undo, "refund": m.refund, "withdraw": m.withdraw, "attempt": m.attempt, "relay": m.relay, "wait": m.wait,
					"join": func(r *rapid.T) { m.queue(r, false) }, "leave": func(r *rapid.T) { m.queue(r, true) }, "restock": m.restock,
				})
				m.agrees(r)
				for id := range m.orders {
					m.steps(t, id)
				}
				if t.Failed() {
					r.Fatal(fmt.Sprintf("voucher %s", m.v.ID))
				}
			})
			for _, v := range cuts {
				if times := crash.happened[v].Load(); times == 0 {
					t.Errorf("the connection was never lost (%d)", v)
				}
			}
		})
	}
}
