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

// entrySteps, drawSteps and releaseSteps are the steps of entering a draw, of drawing, and of what relays a returned unit.
func entrySteps() []failpoint.Step {
	return []failpoint.Step{failpoint.BeforeEntryCommit, failpoint.AfterEntry}
}

func drawSteps() []failpoint.Step {
	return []failpoint.Step{failpoint.AfterDrawClosed, failpoint.AfterDrawRoot, failpoint.BeforeDrawCommit, failpoint.AfterDrawBatch}
}

func releaseSteps() []failpoint.Step {
	return []failpoint.Step{failpoint.BeforeRelease, failpoint.AfterRelease, failpoint.AfterReleaseNoted}
}

// The real program is killed with SIGKILL, by itself, at every step of a draw: of entering it, of drawing, and of the returns of
// units that were won, in both order modes. Who was told so is entered, once; the order is the one that everybody can compute, and
// each unit that comes back is of who waits first.
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
