//part:races

package e2e_test

import (
	"database/sql"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/handler"
	"seckill/internal/api"
	"seckill/internal/payment"
	"seckill/internal/payment/simulator"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// Everybody moves the same orders at once: buyers pay, cancel and give back, money comes too late or leaves the provider, administrators redeem, undo
// and refund, also what is used, time passes. Two instances serve, in either mode; the provider's answers get lost, its webhooks double. In
// the end each order has one legal history, and units, money, codes and events add up.
func TestLivesAtOnceInOneProcess(t *testing.T) {
	t.Parallel()
	for _, mode := range []model.OrderMode{model.ModeSync, model.ModeAsync} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			x, s := openTill(t), lifeSettings(t, mode)
			s = s.with(x.settings())
			newLives(t, x, s, start(t, s), start(t, s)).race(t, check.Seeded(t), check.Count(t, "ORDERS", 12, 40), 20,
				nil)
		})
	}
}

func lifeSettings(t *testing.T, mode model.OrderMode) settings {
	t.Helper()
	return onServers(t).with(settings{
		"SECKILL_ORDER_MODE": string(mode), "SECKILL_NATS_URL": testserver.SharedNATS(t), "SECKILL_EVENTS": newStream(),
	})
}

type lives struct {
	instances []*app
	till      *till
	settings  settings
	db        *sql.DB
	offers    []*offer
	buyers    []*buyer

	mu       sync.Mutex
	payments map[string][]string                  // order → payments, in the order in which they were heard of
	told     map[string]map[model.OrderStatus]int // order → how often a caller was told that a move is made
	backed   map[string]bool                      // orders of which money was given back at the provider
}

type offer struct {
	voucher model.Voucher
	crowd   *crowd
}

type buyer struct {
	offer *offer
	user  string

	mu    sync.Mutex
	order model.Order
}

func newLives(t *testing.T, x *till, s settings, instances ...*app) *lives {
	t.Helper()
	l := &lives{
		instances: instances, till: x, settings: s, db: behind(t, s),
		payments: map[string][]string{}, told: map[string]map[model.OrderStatus]int{}, backed: map[string]bool{},
	}
	for _, a := range instances {
		x.tellsTwice(t, a)
	}
	return l
}

// open makes vouchers with a unit for each buyer. Their prices differ, so that sums show whose money is wrong.
func (l *lives) open(t *testing.T, orders int) {
	t.Helper()
	terms := []map[string]any{
		{"price": 333, "payment_window": "1s", "withdrawal": "1h"},
		{"price": 10_007, "payment_window": "3s", "withdrawal": "1h"},
		{"price": 1_000_003, "withdrawal": "1h"},
	}
	for n := range orders {
		if n < len(terms) {
			terms[n]["stock"] = (orders - n + len(terms) - 1) / len(terms)
			v := l.instances[0].Create(t, terms[n])
			l.offers = append(l.offers, &offer{v, newCrowd(l.instances[0], v.ID, l.instances[1:]...)})
		}
		l.buyers = append(l.buyers, &buyer{offer: l.offers[n%len(terms)], user: l.instances[0].user(n)})
	}
}

// try is one move that somebody tries to make with a buyer's order, whether it is legal or not.
type try struct {
	buyer *buyer
	move  func(l *lives, t *testing.T, n int, b *buyer)
}

func (l *lives) tries(chance *rand.Rand) []try {
	var tries []try
	for _, b := range l.buyers {
		for _, move := range []func(*lives, *testing.T, int, *buyer){
			(*lives).start, (*lives).start, (*lives).approve, (*lives).approve, (*lives).decline, (*lives).cancel,
			(*lives).redeem, (*lives).redeem, (*lives).redeem, (*lives).undo, (*lives).refund, (*lives).refundUsed, (*lives).withdraw, (*lives).elsewhere, (*lives).back, (*lives).buyAgain,
		} {
			if chance.IntN(4) > 0 {
				tries = append(tries, try{b, move})
			}
		}
	}
	chance.Shuffle(len(tries), func(i, j int) { tries[i], tries[j] = tries[j], tries[i] })
	return tries
}

// race has callers make the tries, while harm may act, told of each third of them; then it checks everything.
func (l *lives) race(
	t *testing.T, chance *rand.Rand, orders, callers int, harm func(thirds <-chan struct{}) (heal func()),
) {
	l.open(t, orders)
	tries, thirds, over := l.tries(chance), make(chan struct{}, 3), make(chan struct{})
	unwatched := l.watch(t)
	go func() {
		defer close(over)
		var next atomic.Int64
		check.Volley(callers, func(int) {
			for n := int(next.Add(1)) - 1; n < len(tries); n = int(next.Add(1)) - 1 {
				if third := len(tries) / 3; (n+1)%third == 0 {
					thirds <- struct{}{}
				}
				tries[n].move(l, t, n, tries[n].buyer)
			}
		})
	}()
	faultless := l.loseAnswers()
	heal := func() {}
	if harm != nil {
		heal = harm(thirds)
	}
	<-over
	faultless()
	l.settle(t)
	for _, payments := range l.payments { // the latest money of all
		_ = l.till.Decide(t.Context(), payments[len(payments)-1], simulator.Approve)
	}
	l.settle(t)
	heal()
	l.settle(t)
	unwatched()
	l.check(t, orders)
}

// loseAnswers has the provider do a call and lose its answer, a quarter of the time, until what it returns is called.
func (l *lives) loseAnswers() (stop func()) {
	losing := meanwhile(1, func(_, n int) {
		l.till.front.Set(map[bool]check.Wrong{true: check.WrongAnswers()["lost"]}[n%4 == 0])
		<-time.After(check.Soon)
	})
	return func() {
		losing()
		l.till.front.Set(nil)
	}
}

// watch looks at the units until the function it returns is called: at no instant is one missing, or there twice.
func (l *lives) watch(t *testing.T) (stop func()) {
	t.Helper()
	return meanwhile(1, func(_, look int) {
		var wrong int
		err := l.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM vouchers WHERE stock <> remaining"+
			" + (SELECT COUNT(*) FROM orders WHERE voucher_id = vouchers.id AND status IN ('unpaid', 'paid', 'redeemed'))").Scan(&wrong)
		check.That(t, t.Context().Err() != nil || err == nil && wrong == 0,
			"look %d: of %d vouchers units are wrong (%v)", look, wrong, err)
		<-time.After(check.Soon)
	})
}

// insist repeats a call until an instance answers, as clients do: the move is made, or it is illegal.
func (l *lives) insist(t *testing.T, n int, token, path string, body any, made int) (api.Answer, bool) {
	got := remote.Insist(t, path, func(attempt int) (api.Answer, error) {
		a := l.instances[(n+attempt)%len(l.instances)]
		return a.Send(http.MethodPost, path, token, body)
	})
	again := strings.HasSuffix(path, "/withdraw") && got.Status == http.StatusOK   // it was made before
	gone := strings.HasSuffix(path, "/refund") && got.Code() == model.CodeConflict // a used order's money went back
	check.That(t, got.Status == made || again || gone || got.Code() == model.CodeIllegalState || got.Code() == model.CodeAlreadyPaid, "%s: %d %s", path, got.Status, got.Body)
	return got, got.Status == made
}

// moves tries a move, and keeps that it was told as made.
func (l *lives) moves(
	t *testing.T, n int, order model.Order, to model.OrderStatus, token, path string, body any, made int,
) {
	if _, ok := l.insist(t, n, token, path, body, made); !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told[order.ID] == nil {
		l.told[order.ID] = map[model.OrderStatus]int{}
	}
	l.told[order.ID][to]++
}

func (l *lives) token(t *testing.T, order model.Order) string {
	return l.instances[0].Token(t, order.UserID, model.RoleUser)
}

// current is the buyer's order. Whoever asks first has it bought.
func (l *lives) current(t *testing.T, n int, b *buyer) model.Order {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.order.ID == "" {
		l.buy(t, n, b)
		check.That(t, b.order.ID != "", "%s has no order, although there is a unit for everybody", b.user)
	}
	return b.order
}

// buy has a buyer make an order, which then is unpaid. The order before is theirs still when it is not closed.
func (l *lives) buy(t *testing.T, n int, b *buyer) {
	c := b.offer.crowd
	c.insist(t, b.user)
	c.mu.Lock()
	told, ok := c.told[b.user]
	c.mu.Unlock()
	if !ok {
		return
	}
	check.Patiently(t, "order "+told.ID+" is more than a promise", func() bool {
		now, found := l.read(t, n, told, "?wait=10s")
		n++
		return found && now.Status != model.OrderProcessing
	})
	b.order = told
}

func (l *lives) read(t *testing.T, n int, order model.Order, query string) (now model.Order, found bool) {
	a := l.instances[n%len(l.instances)]
	got, err := a.Send(http.MethodGet, "/orders/"+order.ID+query, l.token(t, order), nil)
	if err != nil || got.Status != http.StatusOK {
		return now, false
	}
	return remote.Decode[model.Order](t, got), true
}

// buyAgain succeeds when the order before is closed, with the unit that came back.
func (l *lives) buyAgain(t *testing.T, n int, b *buyer) {
	l.current(t, n, b)
	b.mu.Lock()
	defer b.mu.Unlock()
	l.buy(t, n, b)
}

func (l *lives) start(t *testing.T, n int, b *buyer) { l.pay(t, n, l.current(t, n, b)) }

// pay starts a payment, and returns the one that the order had last, whether it can be paid or not.
func (l *lives) pay(t *testing.T, n int, order model.Order) (paymentID string) {
	got, ok := l.insist(t, n, l.token(t, order), "/orders/"+order.ID+"/pay", nil, http.StatusAccepted)
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.payments[order.ID]
	if ok {
		if id := remote.Decode[handler.PaymentStart](t, got).PaymentID; !slices.Contains(known, id) {
			known = append(known, id)
			l.payments[order.ID] = known
		}
	}
	if len(known) == 0 {
		return ""
	}
	return known[len(known)-1]
}

// approve moves money, be it too late.
func (l *lives) approve(t *testing.T, n int, b *buyer) { l.decide(t, n, b, simulator.Approve) }

func (l *lives) decline(t *testing.T, n int, b *buyer) { l.decide(t, n, b, simulator.Decline) }

func (l *lives) decide(t *testing.T, n int, b *buyer, decision simulator.Decision) {
	if id := l.pay(t, n, l.current(t, n, b)); id != "" {
		_ = l.till.Decide(t.Context(), id, decision) // it may be decided already
	}
}

// back gives an order's money back at the provider, as the shop's owner may do there.
func (l *lives) back(t *testing.T, n int, b *buyer) {
	order := l.current(t, n, b)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range l.payments[order.ID] {
		if l.till.Decide(t.Context(), id, simulator.Refund) == nil {
			l.backed[order.ID] = true
		}
	}
}

func (l *lives) cancel(t *testing.T, n int, b *buyer) {
	order := l.current(t, n, b)
	l.moves(t, n, order, model.OrderCanceled, l.token(t, order), "/orders/"+order.ID+"/cancel", nil, http.StatusOK)
}

func (l *lives) refund(t *testing.T, n int, b *buyer) {
	order := l.current(t, n, b)
	l.moves(t, n, order, model.OrderRefunded, l.instances[0].Admin(t), "/admin/orders/"+order.ID+"/refund", nil,
		http.StatusAccepted)
}

func (l *lives) withdraw(t *testing.T, n int, b *buyer) {
	order := l.current(t, n, b)
	l.moves(t, n, order, model.OrderRefunded, l.token(t, order), "/orders/"+order.ID+"/withdraw", nil,
		http.StatusAccepted)
}

// refundUsed refunds an order that may be used: then its unit is gone. Another one is added before, so that there is one
// for everybody.
func (l *lives) refundUsed(t *testing.T, n int, b *buyer) {
	order := l.current(t, n, b)
	l.insist(t, n, l.instances[0].Admin(t), "/admin/vouchers/"+b.offer.voucher.ID+"/stock", map[string]int{"delta": 1}, http.StatusOK)
	l.moves(t, n, order, model.OrderRefunded, l.instances[0].Admin(t), "/admin/orders/"+order.ID+"/refund",
		map[string]bool{"used": true}, http.StatusAccepted)
}

func (l *lives) undo(t *testing.T, n int, b *buyer) {
	order := l.current(t, n, b)
	l.moves(t, n, order, model.OrderPaid, l.instances[0].Admin(t), "/admin/orders/"+order.ID+"/unredeem",
		map[string]string{"reason": "x"}, http.StatusOK)
}

func (l *lives) elsewhere(t *testing.T, n int, b *buyer) {
	order := l.current(t, n, b)
	l.moves(t, n, order, model.OrderPaid, l.instances[0].Admin(t), "/admin/orders/"+order.ID+"/paid",
		map[string]string{"reference": "try " + strconv.Itoa(n)}, http.StatusOK)
}

func (l *lives) redeem(t *testing.T, n int, b *buyer) {
	order := l.current(t, n, b)
	if now, _ := l.read(t, n, order, ""); now.Code != "" {
		l.moves(t, n+1, order, model.OrderRedeemed, l.instances[0].Admin(t), "/admin/redemptions",
			map[string]string{"code": now.Code}, http.StatusOK)
	}
}

func (l *lives) settle(t *testing.T) {
	t.Helper()
	underWay := []string{
		"orders WHERE status = 'processing' OR (status = 'unpaid' AND expires_at < UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE)",
		"refunds WHERE status = 'pending'", "releases", "events",
	}
	check.Patiently(t, "nothing is under way", func() bool {
		return check.Value(l.till.Balance(t.Context()))(t).Unsent == 0 &&
			!slices.ContainsFunc(underWay, func(left string) bool {
				return l.number(t,
					"SELECT COUNT(*) FROM "+left) > 0
			})
	})
}

func (l *lives) number(t *testing.T, question string) (n int64) {
	t.Helper()
	check.Must(t, l.db.QueryRowContext(t.Context(), question).Scan(&n))
	return n
}

func (l *lives) check(t *testing.T, orders int) {
	a, kept := l.instances[0], int64(0)
	made, events := map[model.Transition]int{}, map[string][]string{}
	for _, s := range l.offers {
		for id := range a.conserved(t, s.voucher.ID, s.crowd.promised) {
			detail := remote.Decode[model.OrderDetail](t,
				a.Call(t, http.MethodGet, "/admin/orders/"+id, a.Admin(t), nil))
			for _, move := range l.legal(t, detail) {
				made[move]++
			}
			for _, move := range detail.History {
				if move.To == model.OrderPaid && *move.From == model.OrderRedeemed {
					events[id] = append(events[id], "order.unredeemed")
				} else if move.To != model.OrderProcessing {
					events[id] = append(events[id], "order."+string(move.To))
				}
			}
			kept += l.paid(t, detail)
		}
	}
	balance := check.Value(l.till.Balance(t.Context()))(t)
	check.Equal(t, "money that the provider has kept", balance.Received-balance.Refunded, kept)
	check.Equal(t, "refunds that have failed", len(a.refunds(t, "failed")), 0)
	said, err := runs(t, l.settings, "audit")
	check.That(t, err == nil, "%v\n%s", err, said)
	for id, types := range readEvents(t, l.settings["SECKILL_NATS_URL"], l.settings["SECKILL_EVENTS"], func(told map[string][]string) bool {
		return !slices.ContainsFunc(slices.Collect(maps.Keys(events)),
			func(id string) bool { return len(told[id]) < len(events[id]) })
	}) {
		check.That(t, !strings.HasPrefix(types[0], "order.") || slices.Equal(types, events[id]),
			"of order %s it tells %v, and its history %v", id, types, events[id])
	}
	for _, move := range model.Transitions() {
		t.Logf("%s to %s: %d", move.From, move.To, made[move])
		if soon := move.From == model.OrderProcessing ||
			move.From == model.OrderFailed; orders >= 500 && !soon && made[move] == 0 {
			t.Errorf("no order went from %s to %s: that was no race", move.From, move.To)
		}
	}
	t.Logf("%d orders, %+v", len(events), balance)
}

// legal holds an order's history to the table of moves, and to what callers were told. It returns the moves.
func (l *lives) legal(t *testing.T, o model.OrderDetail) (moves []model.Transition) {
	been := map[model.OrderStatus]int{} // times it became so; paid: by a caller
	by := map[string]model.Mover{
		o.UserID: model.MoverBuyer, "admin": model.MoverAdmin, model.ByProvider: model.MoverProvider,
		model.BySystem: model.MoverService,
	}
	for n, step := range o.History {
		undone := n > 0 && step.To == model.OrderPaid && *step.From == model.OrderRedeemed
		again := been[step.To] > 0 && step.To != model.OrderRedeemed && !undone
		if again || (step.From == nil) != (n == 0) {
			t.Errorf("order %s, step %d: %+v", o.ID, n, o.History)
			return moves
		}
		if been[step.To]++; step.To == model.OrderPaid && step.By == model.ByProvider { // which is no caller
			been[step.To] = 0
		}
		if n == 0 {
			continue
		}
		before := o.History[n-1]
		move, err := model.Move(*step.From, step.To, by[step.By])
		check.That(t, err == nil && *step.From == before.To && !step.At.Before(before.At),
			"order %s, step %d: %+v (%v)", o.ID, n, o.History, err)
		moves = append(moves, move)
	}
	check.Equal(t, "the end of the history of order "+o.ID, o.History[len(o.History)-1].To, o.Status)
	alive := slices.DeleteFunc(slices.Clone(o.Uses), func(use model.OrderUse) bool { return use.UndoneAt != nil })
	check.That(t, len(o.Uses) == been[model.OrderRedeemed] && len(alive) <= 1 && (len(alive) == 1) == (o.RedeemedAt != nil),
		"order %s, %s: uses %+v, and %+v", o.ID, o.Status, o.Uses, o.History)
	for status, times := range l.told[o.ID] {
		// A repeated cancellation is answered like the first.
		if been[status] == 0 || times > been[status] && status != model.OrderCanceled {
			t.Errorf("order %s: %d callers were told that it is %s now: %+v", o.ID, times, status, o.History)
		}
	}
	return moves
}

// paid holds an order to the provider's ledger: the price if paid there, or used then, else nothing. It returns what is kept.
func (l *lives) paid(t *testing.T, o model.OrderDetail) (kept int64) {
	t.Helper()
	for _, id := range l.payments[o.ID] {
		if p := check.Value(l.till.LookUp(t.Context(), id))(t); p.Status == payment.Succeeded {
			kept += p.Amount - p.Refunded
		}
	}
	want := int64(0)
	if o.PaidReference == "" && (o.Status == model.OrderPaid || o.Status == model.OrderRedeemed) {
		want = o.Price
	}
	if kept == 0 && o.Status == model.OrderRedeemed && l.backed[o.ID] {
		want = 0 // it was used before the provider told
	}
	check.Equal(t, "money that is kept for order "+o.ID+", which is "+string(o.Status), kept, want)
	return kept
}
