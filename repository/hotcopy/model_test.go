//part:stores

package hotcopy_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// copyModel is what a hot copy is: marks, pending orders, closed orders, and a stock that bounds the marks.
type copyModel struct {
	*sale
	stock   int
	missing int               // of the stock
	off     int               // the stock, of used orders
	marks   map[string]string // user → order
	pending map[string]string // order → user
	closed  map[string]bool
	cooling map[string]time.Time // user → until when the user waits
}

const modelUsers, modelOrders = 5, 4 // no two users share orders

func (m *copyModel) draw(t *rapid.T) model.ReserveRequest {
	u := rapid.IntRange(0, modelUsers-1).Draw(t, "user")
	n := rapid.IntRange(0, modelOrders-1).Draw(t, "order")
	return model.ReserveRequest{OrderID: fmt.Sprintf("u%dn%d.%s", u, n, m.v.ID), VoucherID: m.v.ID, UserID: user(u)}
}

func (m *copyModel) admits(a model.ReserveRequest) (model.OrderStatus, error) {
	mark, marked := m.marks[a.UserID]
	switch _, pending := m.pending[a.OrderID]; {
	case mark == a.OrderID && pending:
		return model.OrderProcessing, nil
	case mark == a.OrderID:
		return "", nil
	case m.closed[a.OrderID]:
		return "", model.ErrOrderClosed
	case marked:
		return "", model.AlreadyOrdered(model.Order{ID: mark})
	case m.cooling[a.UserID].After(time.Now()):
		return "", model.CoolingDown(m.cooling[a.UserID], time.Now())
	case len(m.marks) >= m.stock-m.off-m.missing:
		return "", model.SoldOut()
	}
	m.marks[a.UserID] = a.OrderID
	m.pending[a.OrderID] = a.UserID
	return model.OrderProcessing, nil
}

// reserve also stands for a late copy of an earlier reservation: the orders are drawn from few.
func (m *copyModel) reserve(t *rapid.T) {
	group := make([]model.ReserveRequest, rapid.IntRange(1, 7).Draw(t, "orders"))
	for i := range group {
		group[i] = m.draw(t)
	}
	answers, err := m.copies.Reserve(context.Background(), group)
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range answers {
		status, want := m.admits(group[i])
		refusal, _ := errors.AsType[*model.Error](want)
		answer, _ := errors.AsType[*model.Error](got.Err)
		switch {
		case refusal != nil && (answer == nil || answer.Code != refusal.Code || answer.OrderID != refusal.OrderID ||
			!answer.RetryAt.Equal(refusal.RetryAt)),
			refusal == nil && !errors.Is(got.Err, want),
			want == nil && got.Status != status:
			t.Fatalf("%s of %s: %+v, want %s, %v", group[i].OrderID, group[i].UserID, got, status, want)
		}
	}
}

func (m *copyModel) settle(t *rapid.T) {
	a, b := m.draw(t), m.draw(t)
	if err := m.copies.Settle(context.Background(),
		[]model.Order{{ID: a.OrderID, VoucherID: m.v.ID}, {ID: b.OrderID, VoucherID: m.v.ID}}); err != nil {
		t.Fatal(err)
	}
	delete(m.pending, a.OrderID)
	delete(m.pending, b.OrderID)
}

func (m *copyModel) release(t *rapid.T) {
	a := m.draw(t)
	r := model.Release{OrderID: a.OrderID, VoucherID: m.v.ID, UserID: a.UserID, WrittenOff: rapid.Bool().Draw(t, "used")}
	if m.v.Cooldown > 0 {
		if wait := time.Duration(rapid.SampledFrom([]int{0, -1, 1, 2}).Draw(t,
			"hours to wait")) * time.Hour; wait != 0 {
			r.CooldownUntil = new(time.Now().Add(wait).UTC().Truncate(time.Millisecond))
		}
	}
	applied, err := m.copies.Release(context.Background(), r)
	if m.v.Waitlist {
		if applied || !errors.Is(err, model.ErrNeedsOutbox) {
			t.Fatalf("released %v, %v, although only the outbox knows who waited", applied, err)
		}
		return
	}
	if err != nil || !applied {
		t.Fatalf("released %v, %v", applied, err)
	}
	delete(m.pending, a.OrderID)
	if m.marks[a.UserID] == a.OrderID {
		delete(m.marks, a.UserID)
		m.gone(r)
	}
	m.closed[a.OrderID] = true
	if until := r.CooldownUntil; until != nil && until.After(m.cooling[a.UserID]) { // never less for what comes late
		m.cooling[a.UserID] = *until
	}
}

func (m *copyModel) gone(r model.Release) {
	if r.WrittenOff {
		m.off++
	}
}

// handOver gives units back with their heirs, in rows of the outbox, of which the last one may be what a call tells.
func (m *copyModel) handOver(t *rapid.T) {
	if !m.v.Waitlist {
		t.Skip("nobody may wait")
	}
	rows := make([]model.Release, rapid.IntRange(1, 4).Draw(t, "rows"))
	for i := range rows {
		a := m.draw(t)
		rows[i] = model.Release{ID: int64(i + 1), OrderID: a.OrderID, VoucherID: m.v.ID, UserID: a.UserID}
		if heir := m.draw(t); heir.UserID != a.UserID { // nobody waits who has an order
			rows[i].HeirID, rows[i].HeirUserID = heir.OrderID, heir.UserID
		} else {
			rows[i].WrittenOff = true
		}
	}
	last := len(rows) - 1
	told := rapid.Bool().Draw(t, "the last one is told by a call")
	if told {
		rows[last].ID, rows[last].Direct = 0, true
	}
	all := true
	for i, r := range rows {
		marked := m.marks[r.UserID] == r.OrderID
		taken := r.HeirID != "" && m.marks[r.HeirUserID] != "" && m.marks[r.HeirUserID] != r.HeirID
		if all = marked && !taken || !marked && (!told || i < last); !all {
			break
		}
		if marked {
			delete(m.marks, r.UserID)
			m.gone(r)
			if r.HeirID != "" {
				m.marks[r.HeirUserID] = r.HeirID
			}
		}
		delete(m.pending, r.OrderID)
		m.closed[r.OrderID] = true
	}
	applied, err := m.copies.ReleaseAll(context.Background(), m.v.ID, rows)
	if refused := errors.Is(err, model.ErrNeedsOutbox); applied != all || refused != (told && !all) ||
		err != nil && !refused {
		t.Fatalf("%+v: applied %v, %v, want %v", rows, applied, err, all)
	}
}

// rebuilt carries everything but the tombstones to another epoch.
func (m *copyModel) rebuilt(t *rapid.T) {
	ctx := context.Background()
	var live []model.Order
	var carried []model.Reservation
	for u, id := range m.marks {
		if m.pending[id] == "" {
			live = append(live, model.Order{UserID: u, ID: id})
		}
	}
	for id, u := range m.pending {
		carried = append(carried, model.Reservation{Epoch: m.epoch, Order: model.Order{ID: id, UserID: u}})
	}
	var cooling []model.Cooling
	for u, until := range m.cooling {
		cooling = append(cooling, model.Cooling{UserID: u, Until: until})
	}
	previous := m.epoch
	m.epoch++
	m.missing = rapid.IntRange(0, 2).Draw(t, "missing")
	m.v.Stock, m.v.WrittenOff = int64(m.stock-m.off), int64(m.off) // as the database has it by now
	err := errors.Join(
		m.copies.Close(ctx, m.record(m.epoch, previous)), m.copies.Load(ctx, m.record(m.epoch, 0), nil, nil),
		m.copies.Load(ctx, m.record(m.epoch, 0), nil, carried), m.copies.Load(ctx, m.record(m.epoch, 0), live, nil),
		m.copies.LoadCooling(ctx, m.record(m.epoch, 0), cooling),
		m.copies.Open(ctx, m.record(m.epoch, previous), m.v, int64(m.missing)),
	)
	if err != nil {
		t.Fatal(err)
	}
	clear(m.closed)
}

func (m *copyModel) check(t *rapid.T) {
	ctx := context.Background()
	marks, pending := make(map[string]string), make(map[string]string)
	due, err := m.copies.Due(ctx, m.v.ID, 0, 100)
	for _, r := range due {
		pending[r.ID] = r.UserID
	}
	err = errors.Join(err, m.copies.Marks(ctx, m.v.ID, m.epoch, func(u, id string) error { marks[u] = id; return nil }))
	copies, err2 := m.copies.Read(ctx, []string{m.v.ID})
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(marks) != fmt.Sprint(m.marks) || fmt.Sprint(pending) != fmt.Sprint(m.pending) {
		t.Fatalf("marks %v and pending %v, want %v and %v", marks, pending, m.marks, m.pending)
	}
	m.checkBuyers(t, copies[m.v.ID].Voucher)
	left := max(0, m.stock-m.off-m.missing-len(m.marks))
	if hot := copies[m.v.ID]; int(hot.Voucher.Stock) != m.stock-m.off || hot.Voucher.Remaining != int64(left) || int(hot.Reserved) != len(m.pending) {
		t.Fatalf("reads %+v, want %d left and %d reserved", hot, left, len(m.pending))
	}
}

func (m *copyModel) checkBuyers(t *rapid.T, v model.Voucher) {
	got, want := map[string]bool{}, map[string]bool{}
	if err := m.copies.Buyers(context.Background(), v,
		func(user string) error { got[user] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	for user := range m.marks {
		want[user] = true
	}
	for user, until := range m.cooling {
		if until.After(v.ServerTime) {
			want[user] = true
		}
	}
	if !maps.Equal(got, want) {
		t.Fatalf("the buyers, and who waits, are %v, want %v", got, want)
	}
}

// TestHotCopyModel compares every answer and the whole content with the model, over late and repeated calls too.
func TestHotCopyModel(t *testing.T) {
	t.Parallel()
	check.Must(t, flag.Set("rapid.checks", strconv.Itoa(check.Count(t, "CHECKS", 8, 100))))
	overRedis(t, func(t *testing.T, over *sale) {
		rapid.Check(t, func(r *rapid.T) {
			s := &sale{t: t, copies: over.copies, v: voucherOf(newID(t), 3)}
			s.v.Waitlist = rapid.Bool().Draw(r, "waitlist")
			s.v.Cooldown = model.Window(rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(r, "cool-down"))
			s.rebuild(1, 0, nil, nil)
			m := &copyModel{
				sale: s, stock: 3,
				marks: make(map[string]string), pending: make(map[string]string), closed: make(map[string]bool),
				cooling: make(map[string]time.Time),
			}
			r.Repeat(map[string]func(*rapid.T){
				"reserve": m.reserve, "settle": m.settle, "release": m.release, "hand over": m.handOver, "rebuild": m.rebuilt, "": m.check,
			})
		})
	})
}
