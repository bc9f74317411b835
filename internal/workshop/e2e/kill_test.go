//part:kills

package e2e_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/failpoint"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// entrySteps, drawSteps and releaseSteps are the steps of entering a draw, of drawing, and of what relays a returned
// unit.
func entrySteps() []failpoint.Step {
	return []failpoint.Step{failpoint.BeforeEntryCommit, failpoint.AfterEntry}
}

func drawSteps() []failpoint.Step {
	return []failpoint.Step{failpoint.AfterDrawClosed, failpoint.AfterDrawRoot, failpoint.BeforeDrawCommit, failpoint.AfterDrawBatch}
}

func releaseSteps() []failpoint.Step {
	return []failpoint.Step{failpoint.BeforeRelease, failpoint.AfterRelease, failpoint.AfterReleaseNoted}
}

// The real program is killed with SIGKILL, by itself, at every step of a draw: of entering it, of drawing, and of the
// returns of units that were won, in both order modes. Who was told so is entered, once; the order is the one that
// everybody can compute, and each unit that comes back is of who waits first.
func TestKilledInADraw(t *testing.T) {
	t.Parallel()
	testserver.Program(t, "failpoint")
	for _, test := range []struct {
		mode    string
		open    func(*testing.T) settings
		returns []stop
	}{
		{"sync", onServers, stops(cancelOne, failpoint.BeforeCancel, failpoint.AfterHandOver, failpoint.AfterCancel)},
		{"async", asyncOnServers, slices.Concat(
			stops(cancelOne, failpoint.BeforeCancel, failpoint.AfterHandOver, failpoint.AfterReturn, failpoint.AfterReturnNoted, failpoint.AfterCancel),
			stops(waitForIt, releaseSteps()...), // an outbox row is there
		)},
	} {
		t.Run(test.mode, func(t *testing.T) {
			t.Parallel()
			s := test.open(t)
			l := &drawLane{lane: &lane{s: s, program: prepare(t, testserver.Program(t, "failpoint"), s)}, entered: map[string]string{}}
			l.redis = redis.NewClient(check.Value(redis.ParseURL(s["SECKILL_REDIS_URL"]))(t))
			t.Cleanup(func() { _ = l.redis.Close() })
			l.enters(t)
			l.returns(t, append(test.returns, stops(expireOne, failpoint.BeforeExpire, failpoint.AfterExpire)...), l.draws(t))
		})
	}
}

// well has the program run, for as long as something is done with it.
func (l *lane) well(t *testing.T, do func(p *process)) {
	t.Helper()
	if len(l.leases) > 0 {
		l.lapse(t)
	}
	l.program.start(t)
	l.program.awaitReady(t)
	do(l.program)
	l.program.kill()
}

// drawLane is a lane with one draw, which goes on from one dead process to the next.
type drawLane struct {
	*lane

	voucher string
	users   []string          // who enter; in drawn order once it is drawn
	entered map[string]string // leaves, and their users
}

const drawUnits, drawEntries = 10, 24

func (l *drawLane) die(t *testing.T, stops []stop) {
	t.Helper()
	for _, stop := range stops {
		(&fatality{lane: l.lane, step: stop.step}).dies(t, stop.drive)
	}
}

// enters has users enter, who are of an early group, before the sale begins for everybody else.
func (l *drawLane) enters(t *testing.T) {
	t.Helper()
	l.program.Groups = []string{earlyGroup}
	l.well(t, func(p *process) {
		l.voucher = p.Create(t, fair(0, map[string]any{"stock": drawUnits, "allocation": "draw"})).ID
	})
	for _, part := range []string{"reconciler", "expiry", "draw"} {
		l.leases = append(l.leases, "seckill:"+part+":"+deploymentOf(t, l.s))
	}
	path := "/vouchers/" + l.voucher + "/seckill"
	l.die(t, stops(func(t *testing.T, f *fatality) {
		t.Helper()
		user := l.user()
		l.users = append(l.users, user)
		l.leases = append(l.leases, "lock:order:"+user) // which the dead process holds
		f.ask(t, path, f.program.Token(t, user, model.RoleUser), nil)
	}, entrySteps()...))
	l.well(t, func(p *process) {
		for len(l.users) < drawEntries {
			l.users = append(l.users, l.user())
		}
		for _, user := range append(l.users, l.users...) { // a second time changes nothing
			got := p.Insist(t, http.MethodPost, path, p.Token(t, user, model.RoleUser), nil)
			check.Equal(t, user+" enters", got.Status, http.StatusAccepted)
			l.entered[remote.Decode[model.Entry](t, got).Leaf] = user
		}
		got := p.Insist(t, http.MethodPost, path, p.stranger().Token(t, l.user(), model.RoleUser), nil)
		check.Equal(t, "who begins later", got.Code(), model.CodeNotStarted)
	})
}

// draws has the draw drawn, and returns the orders by their users.
func (l *drawLane) draws(t *testing.T) (orders map[string]model.Order) {
	t.Helper()
	begin := time.Now().UTC().Add(-2 * time.Hour)
	execute(t, l.s, "UPDATE vouchers SET begin_at = '"+begin.Format(time.DateTime)+"', end_at = '"+begin.Add(time.Hour).Format(time.DateTime)+"' WHERE id = '"+l.voucher+"'")
	l.die(t, stops(waitForIt, drawSteps()...))
	l.well(t, func(p *process) {
		l.users = p.drawn(t, l.voucher, l.entered, nil)
		orders = p.rows(t, l.voucher)
	})
	return orders
}

// returns has units come back, from those who were drawn first.
func (l *drawLane) returns(t *testing.T, stops []stop, orders map[string]model.Order) {
	t.Helper()
	for _, stop := range stops {
		f := &fatality{lane: l.lane, step: stop.step}
		if !slices.Contains(releaseSteps(), stop.step) {
			f.before = orders[l.users[len(l.dead)]]
			l.dead = append(l.dead, f)
		}
		f.dies(t, stop.drive)
	}
	l.well(t, func(p *process) {
		for _, f := range l.dead {
			if f.expires {
				check.Patiently(t, "it is expired", func() bool { return p.now(t, f.before).Status == model.OrderExpired })
			} else {
				p.cancels(t, f.before)
			}
		}
		gone := map[string]bool{}
		for _, user := range l.users[:len(l.dead)] {
			gone[user] = true
		}
		p.drawn(t, l.voucher, l.entered, gone)
	})
}

// comeback is a way in which a unit comes that somebody waits for. It is driven again where a process died of it, so
// that it makes no difference how often it is.
type comeback struct {
	open  func(*testing.T) settings
	drive drive
	steps []failpoint.Step
	paid  bool // the order that had the unit
}

func comebacks() map[string]comeback {
	relayed := []failpoint.Step{failpoint.BeforeRelease, failpoint.AfterRelease, failpoint.AfterReleaseNoted}
	rebuilt := []failpoint.Step{
		failpoint.AfterCloseDatabase, failpoint.AfterCloseCopy, failpoint.AfterBarrier, failpoint.AfterLoad, failpoint.AfterOpenDatabase, failpoint.AfterOpenCopy,
	}
	canceled := []failpoint.Step{failpoint.BeforeCancel, failpoint.AfterHandOver, failpoint.AfterCancel}
	expired := []failpoint.Step{failpoint.BeforeExpire, failpoint.AfterHandOver, failpoint.AfterExpire}
	refunded := []failpoint.Step{failpoint.AfterHandOver, failpoint.BeforeRefund, failpoint.AfterRefund}
	return map[string]comeback{
		"canceled, sync":  {onServers, cancelOne, canceled, false},
		"expired, sync":   {onServers, expireOne, expired, false},
		"refunded, sync":  {onServers, refundOne, refunded, true},
		"added, sync":     {onServers, addOne, []failpoint.Step{failpoint.AfterHandOver}, false},
		"canceled, async": {asyncOnServers, cancelOne, slices.Concat(canceled, []failpoint.Step{failpoint.AfterReturn, failpoint.AfterReturnNoted}), false},
		"expired, async":  {asyncOnServers, expireOne, slices.Concat(expired, relayed), false},
		"refunded, async": {asyncOnServers, refundOne, slices.Concat(refunded, relayed), true},
		"added, async":    {asyncOnServers, addOne, slices.Concat([]failpoint.Step{failpoint.AfterHandOver, failpoint.AfterStockChange}, rebuilt), false},
		"forgotten": {func(t *testing.T) settings {
			t.Helper()
			_, s := asyncOnOwnRedis(t)
			return s
		}, forgetAndCancel, slices.Concat(rebuilt, relayed), false},
	}
}

// Whatever the program dies of while a unit comes that somebody waits for, the unit is an order of who waits first,
// once, and nobody else's: not the open sale's either, while nobody has settled yet what the dead process left behind.
func TestKilledWhereUsersWait(t *testing.T) {
	t.Parallel()
	testserver.Program(t, "failpoint")
	for name, way := range comebacks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killedWhereUsersWait(t, way)
		})
	}
}

func killedWhereUsersWait(t *testing.T, way comeback) {
	t.Helper()
	x := openTill(t)
	s := way.open(t).with(x.settings()).with(settings{"SECKILL_EVENTS": newStream(), "SECKILL_NATS_URL": testserver.SharedNATS(t)})
	l := &lane{s: s, program: prepare(t, testserver.Program(t, "failpoint"), s)}
	l.redis = redis.NewClient(check.Value(redis.ParseURL(s["SECKILL_REDIS_URL"]))(t))
	t.Cleanup(func() { _ = l.redis.Close() })
	well := l.program
	x.tells(t, well.app)
	well.start(t)
	well.awaitReady(t)
	all := len(way.steps)
	for _, n := range check.Seeded(t).Perm(all)[:min(all, check.Count(t, "STEPS", 2, all))] {
		step := way.steps[n]
		f := &fatality{lane: l, step: step, promised: map[string]string{}, voucher: well.Create(t, map[string]any{"stock": 1, "waitlist": true})}
		if f.before = well.buys(t, f.voucher.ID, l.user()); way.paid {
			x.approve(t, well.pays(t, f.before))
			well.reaches(t, f.before, model.OrderPaid)
		}
		for range 2 {
			f.line = append(f.line, l.user())
			got := f.place(t, http.MethodPost, len(f.line)-1)
			check.Equal(t, "who hears SOLD_OUT waits", got.Position, int64(len(f.line)))
		}
		l.dead = append(l.dead, f)
	}
	for _, part := range []string{"reconciler", "expiry", "events"} {
		l.leases = append(l.leases, "seckill:"+part+":"+deploymentOf(t, s))
	}
	well.kill()
	for _, f := range l.dead {
		f.dies(t, way.drive)
	}
	l.lapse(t)
	well.start(t)
	well.awaitReady(t)
	for _, f := range l.dead {
		f.openSaleGetsNothing(t)
	}
	for _, f := range l.dead {
		check.Patiently(t, string(f.step)+": the unit is there", func() bool {
			way.drive(t, f)
			return f.place(t, http.MethodGet, 0).OrderID != ""
		})
		f.promised[f.place(t, http.MethodGet, 0).OrderID] = f.line[0]
		orders := well.kept(t, f.voucher.ID, f.promised)
		f.handedTo(t, orders, f.line[0])
	}
	l.heard(t)
	for _, f := range l.dead { // the unit goes on, and comes to the open sale in the end
		heir := f.place(t, http.MethodGet, 0).OrderID
		well.cancels(t, model.Order{ID: heir, UserID: f.line[0]})
		f.openSaleGetsNothing(t)
		next := f.place(t, http.MethodGet, 1).OrderID
		well.cancels(t, model.Order{ID: next, UserID: f.line[1]})
		last := well.buys(t, f.voucher.ID, l.user())
		f.handedTo(t, well.kept(t, f.voucher.ID, map[string]string{last.ID: last.UserID}), last.UserID)
	}
}

// place asks about the place of a user in line, or for it.
func (f *fatality) place(t *testing.T, method string, n int) model.WaitlistPlace {
	t.Helper()
	token := f.program.Token(t, f.line[n], model.RoleUser)
	return remote.Decode[model.WaitlistPlace](t, f.program.Insist(t, method, "/vouchers/"+f.voucher.ID+"/waitlist", token, nil))
}

func (f *fatality) openSaleGetsNothing(t *testing.T) {
	t.Helper()
	got := f.program.Insist(t, http.MethodPost, "/vouchers/"+f.voucher.ID+"/seckill", f.program.Token(t, f.user(), model.RoleUser), nil)
	check.Equal(t, string(f.step)+": the open sale", got.Code(), model.CodeSoldOut)
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

func addOne(t *testing.T, f *fatality) {
	t.Helper()
	f.ask(t, "/admin/vouchers/"+f.voucher.ID+"/stock", f.program.Admin(t), map[string]any{"stock": f.voucher.Stock + 1})
}

// forgetAndCancel empties Redis, once, and gives a unit back while there is no hot copy.
func forgetAndCancel(t *testing.T, f *fatality) {
	t.Helper()
	if f.canceled == "" {
		check.Must(t, f.redis.FlushAll(t.Context()).Err())
	}
	cancelOne(t, f)
}
