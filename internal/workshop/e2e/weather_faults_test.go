//go:build faults

//part:weather
package e2e_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/failpoint"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

const (
	weatherUser     = "shop"
	weatherPassword = "weather"

	// An event lasts this long.
	shortestEvent, longestEvent = 15 * time.Millisecond, 3 * time.Second
	// between is between two looks at all orders, which costs the database something.
	between = 200 * time.Millisecond
	// breath is between two users of one of two sales.
	breath = 40 * time.Millisecond
	// forgiveness is how long after a loss in Redis a promised order may turn out to be a user's second one.
	forgiveness = 2 * time.Second
	// fewest of many failures are told.
	fewest = 4
)

// TestWeather: each round sells 2, 10 or 100 vouchers while servers suffer, for 15 ms to 3 s, what no list of faults
// names. Then every 202 is unpaid, audits balance, and nobody was refused for another's trouble. Beside them users
// wait, begin early and enter draws, in linearizable histories. EVENT=name,name allows these alone.
func TestWeather(t *testing.T) { t.Parallel(); newWeather(t, events()).rounds(t, 3) }

// TestRandomKillsDuringARush is the same, and what happens are kills of API, workers and servers.
func TestRandomKillsDuringARush(t *testing.T) { t.Parallel(); newWeather(t, killEvents()).rounds(t, 6) }

// vouchersAtOnce are how many are on sale in each round: what vouchers do not share breaks with many.
func vouchersAtOnce(round int) int { return []int{1, 10, 100}[round%3] }

func (w *weather) rounds(t *testing.T, strikes int) {
	t.Helper()
	for round := range check.Count(t, "ROUNDS", 1, 3) {
		w.round(max(2, vouchersAtOnce(round)), strikes)
		check.Need(t, !t.Failed(), "in round %d", round+1)
	}
}

// weather is a deployment with accounts and wires of its own, and what happens to it.
type weather struct {
	t      *testing.T
	chance *rand.Rand
	all    []event
	deck   []event // those of all that have not come yet, before all come again

	own              servers
	admin            *sql.DB
	primary, replica *redis.Client
	queue            rawStream
	wires            map[string]*wire
	processes        []*process // two APIs, two workers
	settings         settings   // without wires and accounts

	sales     []*crowd // the first one meets trouble of its own
	mu        sync.Mutex
	histories []*history // those that are whole
	began     time.Time
	past      []struck
}

type struck struct {
	event
	from, to time.Time
}

func newWeather(t *testing.T, all []event) *weather {
	w := &weather{t: t, all: all, chance: check.Seeded(t), own: servers{
		database: testserver.MariaDB(t), redis: testserver.Redis(t, "--repl-diskless-sync-delay", "0"),
		nats: testserver.NATS(t, natsAccounts(weatherPassword, "")),
	}}
	second := testserver.Redis(t, "--repl-diskless-sync-delay", "0")
	w.admin = adminOf(t, w.own.database, testserver.DefaultSchema)
	w.admin.SetMaxOpenConns(1) // which it keeps when there are no others
	w.sql("CREATE USER "+weatherUser+"@'127.0.0.1' IDENTIFIED BY '"+weatherPassword+"'",
		"GRANT ALL ON seckill.* TO "+weatherUser+"@'127.0.0.1'")
	w.primary, w.replica = w.client(w.own.redis), w.client(second)
	w.follow(w.replica, w.primary)
	w.redis(w.primary, redisAccount)

	w.wires = map[string]*wire{
		inMariaDB: newWire(t, w.own.database.Addr()), inRedis: newWire(t, w.own.redis.Addr()),
		inNATS: newWire(t, w.own.nats.Addr()),
	}
	account := weatherUser + ":" + weatherPassword + "@"
	w.settings = settings{
		"SECKILL_DATABASE_DSN": w.own.database.DSN(testserver.DefaultSchema), "SECKILL_NATS_URL": "nats://admin:admin@" + w.own.nats.Addr(),
		"SECKILL_REDIS_URL": w.own.redis.URL(), "SECKILL_ORDER_MODE": "async", "SECKILL_JWT_SECRET": secret, "SECKILL_RATE_USER": "0", "SECKILL_RATE_ADDR": "0",
	}
	s := w.settings.with(settings{
		"SECKILL_DATABASE_DSN": account + "tcp(" + w.wires[inMariaDB].Addr() + ")/" + testserver.DefaultSchema,
		"SECKILL_REDIS_URL":    "redis://" + account + w.wires[inRedis].Addr() + "/0",
		"SECKILL_NATS_URL":     "nats://" + account + w.wires[inNATS].Addr(),
	})
	for _, role := range []string{"api", "api", "worker", "worker"} {
		p := launch(t, s.role(role))
		p.Groups = []string{earlyGroup}
		w.processes = append(w.processes, p)
	}
	w.queue = streamOf(t, w.settings)
	return w
}

func (w *weather) round(vouchers, strikes int) {
	w.began, w.past = time.Now(), nil
	stop := make(chan struct{})
	var load sync.WaitGroup
	w.sales = make([]*crowd, vouchers)
	for n := range w.sales {
		w.sales[n] = w.sale(n, vouchers)
		leave := w.sales[n].coming(w.t, 8)
		load.Go(func() {
			<-stop
			leave()
		})
	}
	w.record(&load, stop)
	told := make(chan struct{})
	go func() {
		defer close(told)
		load.Wait()
	}()
	end := sync.OnceFunc(func() { close(stop) })
	defer end()
	for range strikes {
		w.pause(time.Second)
		w.strike()
	}
	w.revive()
	over := time.Now()
	end()
	w.until("everybody is told", func() bool {
		w.revive()
		return isClosed(told)
	})
	w.checkPromises()
	w.checkHistories()
	w.processes[1].sellsOut(w.t, w.sales[1].voucher)
	yes, all := 0, 0
	for _, s := range w.sales {
		yes, all = yes+s.yes, all+len(s.samples)
	}
	w.t.Logf("%d vouchers: %d of %d requests were promised in %v, and looked at for %v:\n%s", vouchers, yes, all,
		w.at(over), time.Since(over).Round(time.Millisecond), w.events())
}

// sale is one of many vouchers: new users ask for it until they are told, and some strangers, who have to wait.
func (w *weather) sale(n, many int) *crowd {
	w.t.Helper()
	v := w.processes[0].Create(w.t, fair(n, map[string]any{"stock": 1_000_000, "waitlist": false}))
	c := newCrowd(w.processes[0].app, v.ID, w.processes[1].app)
	c.names = func(buyer int) string { return w.processes[0].user(1_000_000*(n+1) + buyer) }
	pause := time.Duration(many/2) * breath // the load of many sales is that of two
	c.lives = func(t *testing.T, user string) {
		if v.Early.From != nil && strings.HasSuffix(user, "7") {
			got, err := c.instances[0].stranger().Place(t, v.ID, user)
			check.That(t, remote.Again(got, err) || got.Code() == model.CodeNotStarted, "a stranger buys: %d %s",
				got.Status, got.Body)
		} else {
			c.insist(t, user)
		}
		<-time.After(pause)
	}
	return c
}

// record records histories, one after the other, of users who wait, begin early, cool down or enter draws.
func (w *weather) record(load *sync.WaitGroup, stop <-chan struct{}) {
	w.histories = nil
	for _, r := range []rules{{waits: true, early: true}, {waits: true, cools: true}, {draws: true}} {
		seed := w.chance.Uint64()
		load.Go(func() {
			for ; !isClosed(stop); seed++ {
				h := newHistory(w.t, []*app{w.processes[0].app, w.processes[1].app}, r)
				h.record(w.t, seed)
				w.mu.Lock()
				w.histories = append(w.histories, h)
				w.mu.Unlock()
			}
		})
	}
}

// checkHistories checks those during which Redis lost nothing: where it did, a promise may turn out to be a second one.
func (w *weather) checkHistories() {
	w.t.Helper()
	checked := 0
	for _, h := range w.histories {
		h.ends(check.Context(w.t), w.t)
		history := recorded{h.close(w.t), h.rules}
		if slices.ContainsFunc(w.past, func(s struck) bool {
			return s.loses &&
				h.began.Before(s.to.Add(forgiveness))
		}) {
			continue
		}
		checked++
		check.That(w.t, history.legal(w.t), "not linearizable, while there were\n%s:\n%s", w.events(), history)
	}
	w.t.Logf("%d of %d histories were checked", checked, len(w.histories))
}

// strike makes one or two things happen, mends them, and waits until the other voucher sells, as it does under one.
func (w *weather) strike() {
	now := []struck{{event: w.draw("")}}
	if w.chance.IntN(4) == 0 {
		if e := w.draw(now[0].server); e.name != "" {
			now = append(now, struck{event: e})
		}
	}
	lasts := make([]time.Duration, len(now))
	for n := range lasts {
		lasts[n] = shortestEvent + time.Duration(w.chance.Int64N(int64(longestEvent-shortestEvent)))
	}
	slices.Sort(lasts)
	mends := make([]func(), len(now))
	before := w.sales[1].sales()
	for n := range now {
		now[n].from = time.Now()
		mends[n] = now[n].strike(w, lasts[n])
	}
	aimed := !slices.ContainsFunc(now, func(s struck) bool { return !s.aimed })
	for n, mend := range mends {
		<-time.After(time.Until(now[n].from.Add(lasts[n])))
		if aimed {
			w.sellsOn("while something happens to the first one alone", before)
		}
		mend()
		now[n].to = time.Now()
		w.past = append(w.past, now[n])
	}
	mended := time.Now()
	w.sellsOn("when all is put right", w.sales[1].sales())
	w.t.Logf("%s: sold again after %v", now[0].name, time.Since(mended))
}

// sellsOn waits until somebody has bought the other voucher who is not among those before.
func (w *weather) sellsOn(when string, before int) {
	w.t.Helper()
	w.until("the other voucher is sold "+when, func() bool {
		w.revive()
		return w.sales[1].sales() > before
	})
}

// draw takes an event off the deck that is not on a server. EVENT limits the deck; there may be none left.
func (w *weather) draw(not string) event {
	if len(w.deck) == 0 {
		wanted := os.Getenv("EVENT")
		w.deck = slices.DeleteFunc(slices.Clone(w.all),
			func(e event) bool { return wanted != "" && !slices.Contains(strings.Split(wanted, ","), e.name) })
		check.Need(w.t, len(w.deck) != 0, "there is no event of %q", wanted)
		w.chance.Shuffle(len(w.deck), func(a, b int) { w.deck[a], w.deck[b] = w.deck[b], w.deck[a] })
	}
	n := slices.IndexFunc(w.deck, func(e event) bool { return e.server != not })
	if n < 0 {
		return event{}
	}
	e := w.deck[n]
	w.deck = slices.Delete(w.deck, n, n+1)
	return e
}

// revive restarts a process that gave up, as an orchestrator does. Those leave one dead that ended as if all were well.
func (w *weather) revive() {
	w.t.Helper()
	for n, p := range w.processes {
		select {
		case <-p.exited:
			check.That(w.t, !p.cmd.ProcessState.Success(), "process %d ended by itself, and said that all is well", n+1)
			p.revive(w.t)
		default:
		}
	}
}

// checkPromises waits until every 202 is unpaid and both audits balance.
func (w *weather) checkPromises() {
	w.t.Helper()
	right := func() bool {
		return !slices.ContainsFunc(w.sales, func(s *crowd) bool { return len(w.broken(s))+len(w.unbalanced(s)) > 0 })
	}
	for hung := check.Context(w.t); !right() && hung.Err() == nil; {
		w.revive()
		<-time.After(between)
	}
	for n, s := range w.sales {
		broken := w.broken(s)
		for _, order := range broken[:min(len(broken), fewest)] {
			w.t.Errorf("voucher %d: a promise is not kept, one of %d: %+v\n%s", n+1, len(broken), order,
				w.story(order.ID))
		}
		check.Equal(w.t, "users who heard that a voucher with units is sold out", s.soldOut, 0)
		said := w.unbalanced(s)
		check.That(w.t, said == "", "voucher %d: the audit says %.800s", n+1, said)
	}
	noDeadLetters(w.t, w.settings)
}

func (w *weather) story(id string) (lines string) {
	for n, p := range w.processes {
		for line := range strings.Lines(p.output.String()) {
			if strings.Contains(line, id) {
				lines += fmt.Sprintf("    process %d: %s\n", n+1, strings.TrimSpace(line))
			}
		}
	}
	return lines
}

// broken are a sale's orders that are missing or not unpaid despite a promise, but for those that Redis lost.
func (w *weather) broken(c *crowd) (broken []model.Order) {
	rows, err := w.admin.QueryContext(w.t.Context(), "SELECT id, user_id, status FROM orders WHERE voucher_id = ?",
		c.voucher)
	w.must("read the orders", err)
	defer rows.Close()
	orders := map[string]model.Order{}
	for rows.Next() {
		var o model.Order
		w.must("read an order", rows.Scan(&o.ID, &o.UserID, &o.Status))
		orders[o.ID] = o
	}
	w.must("read the orders", rows.Err())
	for id, user := range c.promised {
		o := orders[id]
		kept := o.UserID == user && o.Status == model.OrderUnpaid
		if forgiven := o.Status == model.OrderFailed && w.lost(c.heard[id]); !kept && !forgiven {
			broken = append(broken, model.Order{ID: id, UserID: user, Status: o.Status})
		}
	}
	return broken
}

// unbalanced is what the audit says of a voucher that is not as it must be.
func (w *weather) unbalanced(s *crowd) string {
	w.t.Helper()
	a := w.processes[1]
	got, err := a.Send(http.MethodGet, "/admin/vouchers/"+s.voucher+"/audit", a.Admin(w.t), nil)
	if err == nil && got.Status == http.StatusOK && settled(remote.Decode[model.Audit](w.t, got)) {
		return ""
	}
	return fmt.Sprintf("%d %s %v", got.Status, got.Body, err)
}

// lost reports whether Redis was losing what it had acknowledged.
func (w *weather) lost(at time.Time) bool {
	return slices.ContainsFunc(w.past, func(s struck) bool {
		return s.loses && at.After(s.from) && at.Before(s.to.Add(forgiveness))
	})
}

func (w *weather) events() string {
	var lines []string
	for _, s := range w.past {
		lines = append(lines, fmt.Sprintf("    %v to %v: %s", w.at(s.from), w.at(s.to), s.name))
	}
	return strings.Join(lines, "\n")
}

func (w *weather) at(instant time.Time) time.Duration {
	return instant.Sub(w.began).Round(time.Millisecond)
}

func (w *weather) pause(most time.Duration) {
	<-time.After(time.Duration(w.chance.Int64N(int64(most))))
}

func (w *weather) must(what string, err error) {
	w.t.Helper()
	check.Need(w.t, err == nil, "%s: %v", what, err)
}

func (w *weather) until(what string, holds func() bool) {
	w.t.Helper()
	check.Patiently(w.t, what, holds)
}

func (w *weather) sql(statements ...string) {
	w.t.Helper()
	for _, statement := range statements {
		_, err := w.admin.ExecContext(w.t.Context(), statement)
		w.must(statement, err)
	}
}

func (w *weather) client(server *testserver.Server) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: 20 * time.Second})
	w.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (w *weather) redis(client *redis.Client, command string) string {
	w.t.Helper()
	var args []any
	for word := range strings.FieldsSeq(command) {
		args = append(args, word)
	}
	said, err := client.Do(w.t.Context(), args...).Result()
	w.must(command, err)
	return fmt.Sprint(said)
}

// Everybody moves the same orders at once, as in TestLivesAtOnceInOneProcess. Two processes serve them, in either mode;
// each is killed in the middle, by its process id, and then dies once more, by itself at a step of these roads. In the
// end each order has one legal history, and units, money, codes and events add up.
//
//nolint:tparallel // rounds come one after the other: each is as much as a machine can do
func TestLivesAtOnce(t *testing.T) {
	t.Parallel()
	chance, modes := check.Seeded(t), []model.OrderMode{model.ModeSync, model.ModeAsync}
	first := chance.IntN(len(modes))
	for round := range check.Count(t, "ROUNDS", 2, 2) {
		mode := modes[(first+round)%len(modes)]
		t.Run(fmt.Sprintf("%s %d", mode, round+1), func(t *testing.T) {
			x, s := openTill(t), lifeSettings(t, mode)
			s = s.with(x.settings())
			var mortals []*process
			for range 2 {
				p := prepare(t, testserver.Program(t, "failpoint"), s)
				p.serves(t)
				mortals = append(mortals, p)
			}
			l := newLives(t, x, s, mortals[0].app, mortals[1].app)
			l.race(t, chance, check.Count(t, "ORDERS", 300, 300), 200, func(thirds <-chan struct{}) (heal func()) {
				return l.kill(t, mortals, chance, thirds)
			})
		})
	}
}

// kill kills the processes in turn by id, then has each kill itself at a step. The function ends that, and waits.
func (l *lives) kill(t *testing.T, mortals []*process, chance *rand.Rand, thirds <-chan struct{}) (heal func()) {
	steps := slices.Concat(paySteps(), refundSteps(), []failpoint.Step{
		failpoint.BeforeCancel, failpoint.AfterCancel, failpoint.BeforeExpire, failpoint.AfterExpire,
		failpoint.AfterEventsPublished,
	})
	if l.settings["SECKILL_ORDER_MODE"] == string(model.ModeAsync) {
		steps = append(steps, failpoint.AfterReturn, failpoint.AfterReturnNoted, failpoint.BeforeRelease,
			failpoint.AfterRelease,
			failpoint.AfterReleaseNoted, failpoint.BeforeSettle, failpoint.AfterSettle, failpoint.BeforeAck,
			failpoint.AfterAck)
	}
	enough := make(chan struct{})
	var dying sync.WaitGroup
	for _, p := range mortals {
		step := steps[chance.IntN(len(steps))]
		<-thirds
		p.kill()
		p.start(t, settings{"SECKILL_FAILPOINT": string(step)})
		exited := p.exited
		dying.Go(func() {
			select {
			case <-exited:
				t.Logf("a process was killed, and then died at %s", step)
			case <-enough:
				t.Logf("a process was killed, and then never at %s", step)
				p.kill()
			}
			p.start(t)
		})
	}
	return func() {
		close(enough)
		dying.Wait()
		for _, p := range mortals {
			p.awaitReady(t)
		}
	}
}
