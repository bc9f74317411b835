package repository_test

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"seckill/internal/testserver"
	"seckill/model"
)

// orderModel is what an order is: a status, and money.
type orderModel struct {
	order    model.Order
	status   model.OrderStatus
	payments []model.Payment
	arrived  map[string]bool // payments whose money is here, or was
	decided  map[string]bool // payments that are started no more
	refunds  int
	code     *model.SealedCode
}

// saleModel is one voucher and its orders, beside the database that must agree.
type saleModel struct {
	life

	t      *testing.T
	v      model.Voucher
	stock  int
	orders map[string]*orderModel
	live   map[string]string // user → order
	fate   *atomic.Int32     // what becomes of the next COMMIT
}

// The model of the moves is a second, plainer description of them than the table.
func (m *saleModel) allowed(from, to model.OrderStatus) bool {
	return slices.Contains(map[model.OrderStatus][]model.OrderStatus{
		model.OrderUnpaid: {model.OrderPaid, model.OrderCanceled, model.OrderExpired},
		model.OrderPaid:   {model.OrderRedeemed, model.OrderRefunded},
	}[from], to)
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
	o.status = to
	if !(model.Order{Status: to}).Live() && m.live[o.order.UserID] == o.order.ID {
		delete(m.live, o.order.UserID)
	}
}

// draw chooses an order, and what becomes of the COMMIT of the call that follows.
func (m *saleModel) draw(t *rapid.T) *orderModel {
	if len(m.orders) == 0 {
		t.Skip("no order yet")
	}
	m.fate.Store(rapid.SampledFrom([]int32{0, 0, 0, int32(cutBefore), int32(cutAfter)}).Draw(t, "COMMIT"))
	return m.orders[rapid.SampledFrom(slices.Sorted(maps.Keys(m.orders))).Draw(t, "order")]
}

func (m *saleModel) buy(t *rapid.T) {
	asked := order(m.t, m.v.ID, user(rapid.IntRange(0, 3).Draw(t, "user")))
	got := m.place(m.t, asked)
	want := model.Code("")
	switch {
	case m.live[asked.UserID] != "":
		want = model.CodeAlreadyOrdered
	case len(m.live) == m.stock:
		want = model.CodeSoldOut
	default:
		m.live[asked.UserID] = asked.ID
		m.orders[asked.ID] = &orderModel{
			order: got.Order, status: model.OrderUnpaid, arrived: map[string]bool{}, decided: map[string]bool{},
		}
	}
	if (got.Err != nil || want != "") && model.CodeOf(got.Err) != want {
		t.Fatalf("%s buys: %v, want %q", asked.UserID, got.Err, want)
	}
}

func (m *saleModel) start(t *rapid.T) {
	o := m.draw(t)
	payment, _, err := m.payments.Start(m.t.Context(), o.order.ID, o.order.UserID, newID(m.t))
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

// notice is news of one of an order's payments.
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

func (m *saleModel) pay(t *rapid.T) {
	o, n := m.notice(t, true)
	got, err := m.payments.Settle(m.t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	first := !o.arrived[n.PaymentID]
	o.arrived[n.PaymentID], o.decided[n.PaymentID] = true, true
	changed := first
	switch {
	case !first:
	case o.status == model.OrderUnpaid:
		m.become(o, model.OrderPaid)
		o.code = &n.Code
	case o.status == model.OrderCanceled || o.status == model.OrderExpired:
		m.become(o, model.OrderRefunded)
		o.refunds++
	default:
		o.refunds++
		changed = false
	}
	if got.Changed != changed || got.Order.Status != o.status {
		t.Fatalf("money for %s: %+v, want %s (changed %v)", o.order.ID, got, o.status, changed)
	}
}

func (m *saleModel) fail(t *rapid.T) {
	o, n := m.notice(t, false)
	got, err := m.payments.Settle(m.t.Context(), n)
	if err != nil || got.Changed || got.Order.Status != o.status {
		t.Fatalf("a failed payment of %s: %+v, %v", o.order.ID, got, err)
	}
	o.decided[n.PaymentID] = true
}

func (m *saleModel) giveBack(t *rapid.T) {
	o := m.draw(t)
	_, changed, err := m.cancel(m.t.Context(), o.order.UserID, o.order.ID)
	if o.status == model.OrderCanceled {
		if changed || err != nil {
			t.Fatalf("%s canceled again: %v, %v", o.order.ID, changed, err)
		}
		return
	}
	if legal := m.answers(t, o, model.OrderCanceled, err); legal != changed {
		t.Fatalf("%s canceled: %v, want %v", o.order.ID, changed, legal)
	}
}

func (m *saleModel) expire(t *rapid.T) {
	o := m.draw(t)
	m.lapse(m.t, o.order)
	expired, err := m.life.orders.Expire(m.t.Context(), []string{o.order.ID})
	if legal := m.allowed(o.status, model.OrderExpired); err != nil || len(expired) != map[bool]int{true: 1}[legal] {
		t.Fatalf("%s, %s: %d expired, %v", o.order.ID, o.status, len(expired), err)
	} else if legal {
		m.become(o, model.OrderExpired)
	}
}

func (m *saleModel) redeem(t *rapid.T) {
	o := m.draw(t)
	if o.code == nil {
		_, err := m.life.orders.Redeem(m.t.Context(), newCode(m.t).Hash, "boss")
		if model.CodeOf(err) != model.CodeNotFound {
			t.Fatalf("a guessed code: %v", err)
		}
		return
	}
	_, err := m.life.orders.Redeem(m.t.Context(), o.code.Hash, "boss")
	m.answers(t, o, model.OrderRedeemed, err)
}

func (m *saleModel) refund(t *rapid.T) {
	o := m.draw(t)
	_, _, err := m.refunds.Request(m.t.Context(), o.order.ID, newID(m.t), "boss")
	if m.answers(t, o, model.OrderRefunded, err) {
		o.refunds++
	}
}

// agrees compares everything.
func (m *saleModel) agrees(t *rapid.T) {
	m.balanced(m.t, m.v.ID, int64(len(m.live)))
	for id, o := range m.orders {
		row := testserver.Value(m.life.orders.Get(m.t.Context(), id))(m.t)
		refunds := m.number(m.t, "SELECT COUNT(*) FROM refunds WHERE order_id = ?", id)
		kept := len(o.arrived) - int(refunds)
		holds := o.status == model.OrderPaid || o.status == model.OrderRedeemed
		if row.Status != o.status || int(refunds) != o.refunds || kept != map[bool]int{true: 1}[holds] {
			t.Fatalf("order %s is %s with %d refunds of %d payments, want %s with %d", id, row.Status, refunds, len(o.arrived), o.status, o.refunds)
		}
	}
}

// TestLifeModel: random sequences of everything that can happen to orders, in which now
// and then a COMMIT is lost, or its answer, agree with a simple model.
func TestLifeModel(t *testing.T) {
	t.Parallel()
	for mode, open := range map[model.OrderMode]func(testing.TB, store) *fixture{model.ModeSync: newFixture, model.ModeAsync: newAsync} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			near := open(t, stores()[0])
			var fate atomic.Int32
			far := near.through(t, func(_ *wire, statement string) verdict {
				if statement != "COMMIT" {
					return pass
				}
				return verdict(fate.Swap(int32(pass)))
			})
			far.asIn(t, mode)
			l := lifeOf(far)
			rapid.Check(t, func(r *rapid.T) {
				stock := rapid.IntRange(1, 3).Draw(r, "stock")
				m := &saleModel{
					life: l, t: t, stock: stock, orders: map[string]*orderModel{}, live: map[string]string{}, fate: &fate,
				}
				fate.Store(int32(pass))
				m.v = near.onSale(t, int64(stock))
				r.Repeat(map[string]func(*rapid.T){
					"buy": m.buy, "start": m.start, "pay": m.pay, "fail": m.fail, "cancel": m.giveBack,
					"expire": m.expire, "redeem": m.redeem, "refund": m.refund,
				})
				fate.Store(int32(pass))
				m.agrees(r)
				for id := range m.orders {
					m.steps(t, id)
				}
				if t.Failed() {
					r.Fatal(fmt.Sprintf("voucher %s", m.v.ID))
				}
			})
		})
	}
}
