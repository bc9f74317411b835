//go:build faults

//part:weather

package e2e_test

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// victim is something that can be killed and comes back.
type victim struct {
	name        string
	kill, start func()
}

// vouchersAtOnce are how many are on sale in one round after the other: what one does not share with another breaks
// with many.
func vouchersAtOnce(round int) int { return []int{1, 10, 100}[round%3] }

// In each round a rush is on while API, workers and servers are killed at random, one or two at a time, and come back
// after up to a second and a half. Where there is a waitlist, whoever is refused waits, units change hands, are paid or
// left, and users leave; draws are entered, drawn, and their units handed on. Nothing that was promised is missing,
// nothing is oversold, and it sells on. Long version: make chaos.
func TestRandomKillsDuringARush(t *testing.T) {
	t.Parallel()
	rounds, chance := check.Count(t, "ROUNDS", 1, 3), check.Seeded(t)
	front, other, processes, victims, x := underFire(t)
	for round := range rounds {
		many, sale := vouchersAtOnce(round), make(chan struct{})
		crowds, lots := make([]*fairCrowd, many), make([]*fairCrowd, 3)
		var load sync.WaitGroup
		for n := range crowds {
			crowds[n] = newFairCrowd(t, x, fair(n, map[string]any{"stock": 3000 / many}), front.app, other.app)
		}
		for n, c := range crowds {
			load.Go(c.buying(t, users(front.app, 10_000*round+n*3400/many, 3400/many), max(1, 6/many)))
		}
		for n := range lots {
			lots[n] = newFairCrowd(t, x, fair(n, map[string]any{"stock": 100, "allocation": "draw"}), front.app, other.app)
			load.Go(func() { lots[n].draws(t, n+1) })
		}
		load.Go(func() { // the first of both begin early
			for _, voucher := range []string{crowds[0].voucher, lots[0].voucher} {
				got := front.Insist(t, http.MethodPost, "/vouchers/"+voucher+"/seckill", front.stranger().Token(t, "nobody", model.RoleUser), nil)
				check.That(t, got.Code() == model.CodeNotStarted || got.Code() == model.CodeEnded, "who must wait hears %d %s", got.Status, got.Body)
			}
		})
		go func() {
			defer close(sale)
			load.Wait()
		}()
		crowds[0].moreSales(t, min(20, 2000/many))
		havoc(t, chance, victims, processes, sale)
		<-sale
		for _, p := range processes {
			p.revive(t)
			p.awaitReady(t)
		}
		judge(t, other, crowds, lots)
		front.sellsOn(t, crowds[0].voucher, 10_000*round+9_000)
		check.Need(t, !t.Failed(), "in round %d", round+1)
	}
}

// judge checks what has become of all promises, once everything is well again.
func judge(t *testing.T, by *process, crowds, lots []*fairCrowd) {
	t.Helper()
	yes, refused, failed, served, entered, gone := 0, 0, 0, 0, 0, 0
	for _, c := range crowds {
		var orders map[string]model.Order
		if c.waits {
			orders = c.checkKept(t, func(time.Time) bool { return false })
		} else {
			orders = by.kept(t, c.voucher, c.promised)
		}
		checkTold(t, orders, c.crowd)
		yes, refused, failed, served, gone = yes+c.yes, refused+c.refused, failed+c.failed, served+c.served, gone+len(c.gone)
	}
	for _, c := range lots {
		c.checkDrawn(t)
		entered, gone = entered+len(c.entered), gone+len(c.gone)
	}
	t.Logf("%d vouchers: %d × 202, %d × 503, %d without an answer; %d places became orders, %d have entered, and %d have canceled", len(crowds), yes, refused, failed, served, entered, gone)
	check.That(t, served > 0, "no unit has changed hands")
}

// underFire is the service on servers of its own, all of which may be killed: two instances that serve, and two that
// work.
func underFire(t *testing.T) (front, other *process, processes []*process, victims []victim, x *till) {
	t.Helper()
	own, s := asyncOnOwnServers(t)
	x = openTill(t)
	s = s.with(x.settings()).with(settings{"SECKILL_LOCK_LEASE": "3s"}) // of a dead worker, too: the others take over while the round lasts
	front, other = launch(t, s.role("api")), launch(t, s.role("api"))
	victims = []victim{
		{"Redis", own.redis.Kill, own.redis.Start},
		{"NATS", own.nats.Kill, own.nats.Start},
		{"MariaDB", own.database.Kill, own.database.Start},
	}
	processes = []*process{front, other, launch(t, s.role("worker")), launch(t, s.role("worker"))}
	for n, name := range []string{"API 1", "API 2", "worker 1", "worker 2"} {
		victims = append(victims, victim{name, processes[n].kill, func() { processes[n].start(t) }})
	}
	for _, p := range processes {
		p.Groups = []string{earlyGroup}
	}
	x.tells(t, other.app)
	return front, other, processes, victims, x
}

// In each round the buyers of a sold-out sale cancel, one after the other, and so do those who get their units, while
// everything is killed at random. Each unit is an order of who waits first, and nobody else's.
func TestRandomKillsWhereUsersWait(t *testing.T) {
	t.Parallel()
	rounds, chance := check.Count(t, "ROUNDS", 1, 3), check.Seeded(t)
	front, other, processes, victims, _ := underFire(t)
	const stock, waiting = 4, 400
	for round := range rounds {
		voucher := front.Create(t, fair(0, map[string]any{"stock": stock})).ID
		path := "/vouchers/" + voucher + "/waitlist"
		owners := users(front.app, 10_000*round, stock)
		orders := map[string]string{}
		for _, user := range owners {
			orders[user] = front.becomes(t, front.accepted(t, voucher, user), model.OrderUnpaid).ID
		}
		line := users(front.app, 10_000*round+1000, waiting)
		for _, user := range line {
			check.Equal(t, "a place", front.Insist(t, http.MethodPost, path, front.Token(t, user, model.RoleUser), nil).Status, http.StatusCreated)
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			for _, next := range line {
				first := owners[0]
				owners = append(owners[1:], next)
				got := front.Insist(t, http.MethodPost, "/orders/"+orders[first]+"/cancel", front.Token(t, first, model.RoleUser), nil)
				check.Equal(t, "the cancellation", got.Status, http.StatusOK)
				place := remote.Decode[model.WaitlistPlace](t, other.Insist(t, http.MethodGet, path, other.Token(t, next, model.RoleUser), nil))
				if orders[next] = place.OrderID; place.OrderID == "" {
					t.Errorf("%s waits first, at %d, and has no order", next, place.Position)
					return
				}
				outsider := front.Insist(t, http.MethodPost, "/vouchers/"+voucher+"/seckill", front.Token(t, "nobody", model.RoleUser), nil)
				check.Equal(t, "what the open sale hears", outsider.Code(), model.CodeSoldOut)
			}
		}()
		havoc(t, chance, victims, processes, over)
		<-over
		for _, p := range processes {
			p.revive(t)
			p.awaitReady(t)
		}
		check.Equal(t, "live orders", front.quiet(t, voucher).Database.LiveOrders, stock)
		for _, order := range front.orders(t, voucher) {
			if live := slices.Contains(owners, order.UserID); order.Live() != live || order.ID != orders[order.UserID] {
				t.Errorf("order %s of %s is %s; its user should have %s, live: %t", order.ID, order.UserID, order.Status, orders[order.UserID], live)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// havoc kills and starts at random until the sale is over. A process that found a server missing at its start is
// started again, as an orchestrator does.
func havoc(t *testing.T, chance *rand.Rand, victims []victim, processes []*process, over <-chan struct{}) {
	t.Helper()
	pause := func(most time.Duration) bool {
		select {
		case <-over:
			return false
		case <-time.After(time.Duration(chance.Int64N(int64(most)))):
			return true
		}
	}
	for going := true; going; {
		hit := chance.Perm(len(victims))[:1+chance.IntN(2)]
		slices.Sort(hit) // servers come back first: a program does not start without
		for _, n := range hit {
			t.Logf("kill %s", victims[n].name)
			victims[n].kill()
		}
		going = pause(1500 * time.Millisecond)
		for _, n := range hit {
			victims[n].start()
		}
		going = going && pause(2500*time.Millisecond)
		for _, p := range processes {
			p.revive(t)
		}
	}
}
