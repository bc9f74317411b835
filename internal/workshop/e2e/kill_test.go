//part:kills

package e2e_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"seckill/handler"
	"seckill/internal/failpoint"
	"seckill/internal/payment/simulator"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func entrySteps() []failpoint.Step {
	return []failpoint.Step{failpoint.BeforeEntryCommit, failpoint.AfterEntry}
}

func drawSteps() []failpoint.Step {
	return []failpoint.Step{
		failpoint.AfterDrawClosed, failpoint.AfterDrawRoot, failpoint.BeforeDrawCommit,
		failpoint.AfterDrawBatch,
	}
}

// The program kills itself with SIGKILL at every step of a draw, from entering to returns, in both order modes. Who was
// told so is entered once, anybody computes the same order, and a returned unit goes to who waits first.
func TestKilledInADraw(t *testing.T) {
	t.Parallel()
	for mode, returns := range map[string][]stop{
		"sync": stops(cancelOne, failpoint.BeforeCancel, failpoint.AfterHandOver, failpoint.AfterCancel),
		"async": slices.Concat(
			stops(cancelOne, failpoint.BeforeCancel, failpoint.AfterHandOver, failpoint.AfterReturn,
				failpoint.AfterReturnNoted, failpoint.AfterCancel),
			stops(waitForIt, releaseSteps()...), // an outbox row is there
		),
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := &drawLane{lane: newLane(t, modes()[mode](t)), entered: map[string]string{}}
			l.enters(t)
			l.returns(t, append(returns, stops(expireOne, failpoint.BeforeExpire, failpoint.AfterExpire)...),
				l.draws(t))
		})
	}
}

// drawLane is a lane with one draw, which goes on from one dead process to the next.
type drawLane struct {
	*lane

	voucher string
	users   []string          // who enter; in drawn order once it is drawn
	entered map[string]string // leaves, and their users
}

const drawUnits, drawEntries = 10, 24

// enters has users enter, who are of an early group, before the sale begins for everybody else.
func (l *drawLane) enters(t *testing.T) {
	l.program.Groups = []string{earlyGroup}
	l.well(t, func(p *process) {
		l.voucher = p.Create(t, fair(0, map[string]any{"stock": drawUnits, "allocation": "draw", "beacon": "lottery"})).ID
	})
	l.elects(t, "reconciler", "expiry", "draw")
	for _, step := range entrySteps() {
		(&fatality{lane: l.lane, step: step}).dies(t, func(t *testing.T, f *fatality) {
			user := l.user()
			l.users = append(l.users, user)
			l.leases = append(l.leases, "lock:order:"+user) // which the dead process holds
			f.ask(t, "/vouchers/"+l.voucher+"/seckill", f.program.as(t, user), nil)
		})
	}
	l.well(t, func(p *process) {
		for len(l.users) < drawEntries {
			l.users = append(l.users, l.user())
		}
		for _, user := range append(l.users, l.users...) { // a second time changes nothing
			got := p.buy(t, l.voucher, user)
			check.Equal(t, user+" enters", got.Status, http.StatusAccepted)
			l.entered[remote.Decode[model.Entry](t, got).Leaf] = user
		}
		check.Equal(t, "who begins later", p.stranger().buy(t, l.voucher, l.user()).Code(), model.CodeNotStarted)
	})
}

func (l *drawLane) draws(t *testing.T) (orders map[string]model.Order) {
	t.Helper()
	begin := time.Now().UTC().Add(-2 * time.Hour)
	execute(t, l.s, "UPDATE vouchers SET begin_at = '"+begin.Format(time.DateTime)+"', end_at = '"+
		begin.Add(time.Hour).Format(time.DateTime)+"' WHERE id = '"+l.voucher+"'")
	for _, step := range drawSteps() {
		(&fatality{lane: l.lane, step: step}).dies(t, func(t *testing.T, f *fatality) {
			if step == failpoint.BeforeDrawCommit { // until then it waits for this
				f.ask(t, "/admin/vouchers/"+l.voucher+"/beacon", f.program.Admin(t), map[string]string{"value": "7 11"})
			}
		})
	}
	l.well(t, func(p *process) {
		l.users = p.drawn(t, l.voucher, l.entered, nil)
		orders = p.rows(t, l.voucher)
	})
	return orders
}

// returns has units come back, from those who were drawn first.
func (l *drawLane) returns(t *testing.T, stops []stop, orders map[string]model.Order) {
	for _, stop := range stops {
		f := &fatality{lane: l.lane, step: stop.step}
		if !slices.Contains(releaseSteps(), stop.step) {
			f.before = orders[l.users[len(l.dead)]]
			l.dead = append(l.dead, f)
		}
		f.dies(t, stop.drive)
	}
	l.well(t, func(p *process) {
		gone := map[string]bool{}
		for n, f := range l.dead {
			if gone[l.users[n]] = true; f.expires {
				check.Patiently(t, "it is expired",
					func() bool { return p.now(t, f.before).Status == model.OrderExpired })
			} else {
				p.cancels(t, f.before)
			}
		}
		p.drawn(t, l.voucher, l.entered, gone)
	})
}

// comeback is a way in which an awaited unit comes. It is driven again after a death, so that repeating it is harmless.
type comeback struct {
	open  func(*testing.T) settings
	drive drive
	steps []failpoint.Step
	paid  bool // the order that had the unit
}

func comebacks() map[string]comeback {
	onOwnRedis := func(t *testing.T) settings {
		_, s := asyncOnOwnRedis(t)
		return s
	}
	canceled := []failpoint.Step{failpoint.BeforeCancel, failpoint.AfterHandOver, failpoint.AfterCancel}
	expired := []failpoint.Step{failpoint.BeforeExpire, failpoint.AfterHandOver, failpoint.AfterExpire}
	refunded := []failpoint.Step{failpoint.AfterHandOver, failpoint.BeforeRefund, failpoint.AfterRefund}
	added := []failpoint.Step{failpoint.AfterHandOver}
	relayed := func(steps []failpoint.Step) []failpoint.Step { return slices.Concat(steps, releaseSteps()) }
	return map[string]comeback{
		"canceled, sync":   {onServers, cancelOne, canceled, false},
		"expired, sync":    {onServers, expireOne, expired, false},
		"refunded, sync":   {onServers, refundOne, refunded, true},
		"withdrawn, sync":  {onServers, withdrawOne, refunded, true},
		"added, sync":      {onServers, addOne, added, false},
		"canceled, async":  {asyncOnServers, cancelOne, append(canceled, failpoint.AfterReturn, failpoint.AfterReturnNoted), false},
		"expired, async":   {asyncOnServers, expireOne, relayed(expired), false},
		"refunded, async":  {asyncOnServers, refundOne, relayed(refunded), true},
		"withdrawn, async": {asyncOnServers, withdrawOne, relayed(refunded), true},
		"added, async":     {asyncOnServers, addOne, slices.Concat(added, []failpoint.Step{failpoint.AfterStockChange}, rebuildSteps()), false},
		"forgotten":        {onOwnRedis, forgetAndCancel, relayed(rebuildSteps()), false},
	}
}

// Wherever the program dies while an awaited unit comes, who waits first has it once, and the open sale never.
func TestKilledWhereUsersWait(t *testing.T) {
	t.Parallel()
	for name, way := range comebacks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killedWhereUsersWait(t, way)
		})
	}
}

func killedWhereUsersWait(t *testing.T, way comeback) {
	x := openTill(t)
	events := settings{"SECKILL_EVENTS": newStream(), "SECKILL_NATS_URL": testserver.SharedNATS(t)}
	l := newLane(t, way.open(t).with(x.settings()).with(events))
	x.tells(t, l.program.app)
	l.well(t, func(p *process) {
		all := len(way.steps)
		for _, n := range check.Seeded(t).Perm(all)[:min(all, check.Count(t, "STEPS", 2, all))] {
			f := l.mortal(way.steps[n])
			f.voucher = p.Create(t, map[string]any{"stock": 1, "waitlist": true, "withdrawal": "1h"})
			if f.before = p.buys(t, f.voucher.ID, l.user()); way.paid {
				x.approve(t, p.pays(t, f.before))
				p.reaches(t, f.before, model.OrderPaid)
			}
			for n := range 2 {
				f.line = append(f.line, l.user())
				check.Equal(t, "who hears SOLD_OUT waits", f.place(t, http.MethodPost, n).Position, int64(n+1))
			}
		}
	})
	l.elects(t, "reconciler", "expiry", "events")
	for _, f := range l.dead {
		f.dies(t, way.drive)
	}
	l.well(t, func(p *process) {
		for _, f := range l.dead {
			f.openSaleGetsNothing(t)
		}
		for _, f := range l.dead {
			check.Patiently(t, string(f.step)+": the unit is there", func() bool {
				way.drive(t, f)
				return f.place(t, http.MethodGet, 0).OrderID != ""
			})
			f.promised[f.place(t, http.MethodGet, 0).OrderID] = f.line[0]
			f.handedTo(t, p.kept(t, f.voucher.ID, f.promised), f.line[0])
		}
		l.heard(t)
		for _, f := range l.dead { // the unit goes on, and comes to the open sale in the end
			for n, user := range f.line {
				p.cancels(t, model.Order{ID: f.place(t, http.MethodGet, n).OrderID, UserID: user})
				if n == 0 {
					f.openSaleGetsNothing(t)
				}
			}
			last := p.buys(t, f.voucher.ID, l.user())
			f.handedTo(t, p.kept(t, f.voucher.ID, map[string]string{last.ID: last.UserID}), last.UserID)
		}
	})
}

// place asks about the place of a user in line, or for it.
func (f *fatality) place(t *testing.T, method string, n int) model.WaitlistPlace {
	t.Helper()
	got := f.program.does(t, method+" /vouchers/"+f.voucher.ID+"/waitlist", f.program.as(t, f.line[n]), nil)
	return remote.Decode[model.WaitlistPlace](t, got)
}

func (f *fatality) openSaleGetsNothing(t *testing.T) {
	t.Helper()
	check.Equal(t, string(f.step)+": the open sale", f.program.buy(t, f.voucher.ID, f.user()).Code(), model.CodeSoldOut)
}

// handedTo checks that one user has the unit that came, and that a unit that was not given back is where it was.
func (f *fatality) handedTo(t *testing.T, orders map[string]model.Order, user string) {
	t.Helper()
	want := []string{user}
	if f.canceled == "" {
		want = append(want, f.before.UserID)
	}
	slices.Sort(want)
	got := sorted(owners(orders))
	check.That(t, slices.Equal(got, want), "%s: %v have live orders, want %v", f.step, got, want)
}

func refundOne(t *testing.T, f *fatality) {
	t.Helper()
	f.canceled = f.before.ID
	f.ask(t, "/admin/orders/"+f.canceled+"/refund", f.program.Admin(t), nil)
}

func withdrawOne(t *testing.T, f *fatality) {
	t.Helper()
	f.canceled = f.before.ID
	f.ask(t, "/orders/"+f.canceled+"/withdraw", f.program.as(t, f.before.UserID), nil)
}

func addOne(t *testing.T, f *fatality) {
	t.Helper()
	f.ask(t, "/admin/vouchers/"+f.voucher.ID+"/stock", f.program.Admin(t), map[string]any{"stock": f.voucher.Stock + 1})
}

// forgetAndCancel empties Redis, once, and gives a unit back while there is no hot copy.
func forgetAndCancel(t *testing.T, f *fatality) {
	if f.canceled == "" {
		check.Must(t, f.redis.FlushAll(t.Context()).Err())
	}
	cancelOne(t, f)
}

func paySteps() []failpoint.Step {
	return []failpoint.Step{
		failpoint.BeforePaymentStart, failpoint.AfterPaymentStart, failpoint.BeforePaymentSettle,
		failpoint.AfterPaymentSettle,
	}
}

func refundSteps() []failpoint.Step {
	return []failpoint.Step{failpoint.BeforeRefund, failpoint.AfterRefund, failpoint.AfterRefundNoted}
}

// The program kills itself with SIGKILL at every step of a payment and of a refund, on one database. In the end each
// order is paid once or its money is back once, and the provider's ledger agrees.
func TestKilledWithMoneyUnderWay(t *testing.T) {
	t.Parallel()
	x := openTill(t)
	l := newLane(t, onServers(t).with(x.settings()))
	x.tells(t, l.program.app)
	var voucher model.Voucher
	l.well(t, func(p *process) {
		voucher = p.onSale(t, len(paySteps())+len(refundSteps()))
		for _, step := range paySteps() {
			l.mortal(step).before = p.buys(t, voucher.ID, l.user())
		}
		for _, step := range refundSteps() {
			l.mortal(step).before = p.paid(t, x, voucher.ID, l.user())
		}
	})
	paying, refunding := l.dead[:len(paySteps())], l.dead[len(paySteps()):]
	for _, f := range paying {
		f.dies(t, func(t *testing.T, f *fatality) {
			got, err := f.program.Send(http.MethodPost, "/orders/"+f.before.ID+"/pay", f.program.as(t, f.before.UserID),
				nil)
			if err == nil && got.Status == http.StatusAccepted {
				x.approve(t, remote.Decode[handler.PaymentStart](t, got)) // its webhook comes
			}
		})
	}
	for _, f := range refunding {
		f.dies(t, refundOne)
	}
	l.well(t, func(p *process) {
		for _, f := range paying {
			if p.now(t, f.before).Status == model.OrderUnpaid {
				got := p.does(t, "POST /orders/"+f.before.ID+"/pay", p.as(t, f.before.UserID), nil)
				if got.Status == http.StatusAccepted { // it may be approved already
					_ = x.Decide(t.Context(), remote.Decode[handler.PaymentStart](t, got).PaymentID, simulator.Approve)
				}
			}
			p.reaches(t, f.before, model.OrderPaid)
		}
		for _, f := range refunding {
			if p.now(t, f.before).Status == model.OrderPaid { // the process had died of what another order was owed
				p.refund(t, f.before)
			}
		}
		p.back(t, len(refunding))
		for _, f := range refunding {
			check.Equal(t, "order", p.now(t, f.before).Status, model.OrderRefunded)
			p.buys(t, voucher.ID, f.before.UserID) // its unit
		}
		x.balance(t, int64(len(l.dead)), int64(len(refunding)))
		check.Equal(t, "payments that nobody made", check.Value(x.Balance(t.Context()))(t).Undecided, 0)
		check.That(t, p.Audit(t, voucher.ID).Balanced, "the stock does not add up")
	})
}
