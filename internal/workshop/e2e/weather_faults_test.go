//go:build faults

//part:weather

package e2e_test

import (
	"bytes"
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

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

const (
	weatherUser     = "shop"
	weatherPassword = "weather"

	// An event lasts this long. strikes of them come in a round.
	shortestEvent, longestEvent = 15 * time.Millisecond, 3 * time.Second
	strikes                     = 3
	// between is between two looks at all orders, which costs the database something.
	between = 200 * time.Millisecond
	// breath is between two users where units change hands, which then lasts for as long as the round.
	breath = 40 * time.Millisecond
	// forgiveness is how long after Redis lost what it had acknowledged an order may be promised that turns out to be a
	// user's second one.
	forgiveness = 2 * time.Second
	// fewest of many failures are told.
	fewest = 4
)

// In each round 2, 10 or 100 vouchers sell while things happen to the servers that no list of faults names: all are put
// right after 15 ms to 3 s. Every 202 is unpaid then, the audits balance, and nobody was refused for somebody else's
// trouble. Beside them two are sold out, and their units change hands, and draws are entered and drawn, and whoever was
// told so has an order, a place or an entry. EVENT=name,name has these alone happen.
func TestWeather(t *testing.T) {
	t.Parallel()
	rounds, w := check.Count(t, "ROUNDS", 1, 3), newWeather(t)
	for round := range rounds {
		w.round(max(2, vouchersAtOnce(round)))
		check.Need(t, !t.Failed(), "in round %d", round+1)
	}
}

// weather is a deployment with accounts and wires of its own, and what happens to it.
type weather struct {
	t      *testing.T
	chance *rand.Rand
	deck   []event // those that have not come yet, before all come again

	own              servers
	admin            *sql.DB
	primary, replica *redis.Client
	queue            rawStream
	wires            map[string]*wire
	processes        []*process // two APIs, two workers
	settings         settings   // without wires and accounts
	till             *till

	sales        []*sale // the first one meets trouble of its own
	crowds, lots []*fairCrowd
	began        time.Time
	past         []struck
}

// struck is an event that happened.
type struck struct {
	event
	span
}

func newWeather(t *testing.T) *weather {
	t.Helper()
	w := &weather{t: t, chance: check.Seeded(t), till: openTill(t), own: servers{
		database: testserver.MariaDB(t), redis: testserver.Redis(t, "--repl-diskless-sync-delay", "0"),
		nats: testserver.NATS(t, natsAccounts(weatherPassword, "")),
	}}
	second := testserver.Redis(t, "--repl-diskless-sync-delay", "0")
	w.admin = w.open(w.own.database.AdminDSN(testserver.DefaultSchema))
	w.admin.SetMaxOpenConns(1) // which it keeps when there are no others
	w.sql("CREATE USER "+weatherUser+"@'127.0.0.1' IDENTIFIED BY '"+weatherPassword+"'", "GRANT ALL ON seckill.* TO "+weatherUser+"@'127.0.0.1'")
	w.primary, w.replica = w.client(w.own.redis), w.client(second)
	w.follow(w.replica, w.primary)
	w.redis(w.primary, "ACL SETUSER "+weatherUser+" on >"+weatherPassword+" ~* &* +@all")

	w.wires = map[string]*wire{
		inMariaDB: newWire(t, w.own.database.Addr()), inRedis: newWire(t, w.own.redis.Addr()), inNATS: newWire(t, w.own.nats.Addr()),
	}
	account := weatherUser + ":" + weatherPassword + "@"
	w.settings = settings{
		"SECKILL_DATABASE_DSN": w.own.database.DSN(testserver.DefaultSchema), "SECKILL_NATS_URL": "nats://admin:admin@" + w.own.nats.Addr(),
		"SECKILL_REDIS_URL": w.own.redis.URL(), "SECKILL_ORDER_MODE": "async", "SECKILL_JWT_SECRET": secret, "SECKILL_RATE_USER": "0", "SECKILL_RATE_ADDR": "0",
	}
	s := w.settings.with(w.till.settings()).with(settings{
		"SECKILL_DATABASE_DSN": account + "tcp(" + w.wires[inMariaDB].addr() + ")/" + testserver.DefaultSchema,
		"SECKILL_REDIS_URL":    "redis://" + account + w.wires[inRedis].addr() + "/0",
		"SECKILL_NATS_URL":     "nats://" + account + w.wires[inNATS].addr(),
	})
	for _, role := range []string{"api", "api", "worker", "worker"} {
		p := launch(t, s.role(role))
		p.Groups = []string{earlyGroup}
		w.processes = append(w.processes, p)
	}
	w.till.tells(t, w.processes[1].app)
	w.queue = streamOf(t, w.settings)
	return w
}

// round sells while things happen, and checks what became of it.
func (w *weather) round(vouchers int) {
	w.t.Helper()
	w.began, w.past = time.Now(), nil
	stop := make(chan struct{})
	var load sync.WaitGroup
	w.sales = make([]*sale, vouchers)
	for n := range w.sales {
		w.sales[n] = newSale(w.onSale(fair(n, map[string]any{"stock": 1_000_000})), w.processes[:2], vouchers/2)
	}
	for _, s := range w.sales {
		load.Go(func() { s.rush(w.t, stop) })
	}
	w.changeHands(&load, stop)
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
	w.until("units change hands", func() bool {
		w.revive()
		return !slices.ContainsFunc(w.crowds, func(c *fairCrowd) bool { return c.handedOver() == 0 })
	})
	end()
	w.until("everybody is told", func() bool {
		w.revive()
		return isClosed(told)
	})
	w.checkAnswers()
	w.checkPromises()
	w.checkFair()
	yes, all := 0, 0
	for _, s := range w.sales {
		yes, all = yes+len(s.promised()), all+len(s.requests)
	}
	w.t.Logf("%d vouchers: %d of %d requests were promised in %v, and looked at for %v:\n%s", vouchers, yes, all, w.at(over), time.Since(over).Round(time.Millisecond), w.events())
}

// changeHands lets two vouchers sell out, on which users wait and units change hands, and one draw after the other be
// held.
func (w *weather) changeHands(load *sync.WaitGroup, stop <-chan struct{}) {
	w.t.Helper()
	front, other := w.processes[0].app, w.processes[1].app
	w.crowds, w.lots = nil, nil
	for _, n := range []int{0, 5} { // with and without a cool-down and an early beginning
		c := newFairCrowd(w.t, w.till, fair(n, map[string]any{"stock": 30, "waitlist": true}), front, other)
		c.lives = func(t *testing.T, user string) {
			c.buysOrWaits(t, user)
			<-time.After(breath)
		}
		w.crowds = append(w.crowds, c)
		leave := c.coming(w.t, 1)
		load.Go(func() {
			<-stop
			leave()
		})
	}
	load.Go(func() {
		for !isClosed(stop) {
			c := newFairCrowd(w.t, w.till, fair(len(w.lots), map[string]any{"stock": 30, "allocation": "draw"}), front, other)
			w.lots = append(w.lots, c)
			c.draws(w.t, 1)
		}
	})
}

// checkFair checks that whoever was told so has an order, a place or an entry.
func (w *weather) checkFair() {
	w.t.Helper()
	served, gone, entered := 0, 0, 0
	for _, c := range w.crowds {
		c.checkKept(w.t, func(heard time.Time) bool { return heard.IsZero() || w.lost(heard) })
		served, gone = served+c.served, gone+len(c.gone)
	}
	for _, c := range w.lots {
		c.checkDrawn(w.t)
		entered, gone = entered+len(c.entered), gone+len(c.gone)
	}
	w.t.Logf("%d places became orders, %d have entered %d draws, and %d have canceled", served, entered, len(w.lots), gone)
}

// onSale creates a voucher, and asks again as the contract tells clients: a connection may still be of the weather
// before.
func (w *weather) onSale(fields map[string]any) model.Voucher {
	w.t.Helper()
	return w.processes[0].Create(w.t, fields)
}

// strike makes one thing happen, or two in different places, puts them right, and waits until the other voucher sells
// again. It sells on while only the first one is met.
func (w *weather) strike() {
	w.t.Helper()
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
	for n := range now {
		now[n].from = time.Now()
		mends[n] = now[n].strike(w, lasts[n])
	}
	aimed := !slices.ContainsFunc(now, func(s struck) bool { return !s.aimed })
	for n, mend := range mends {
		<-time.After(time.Until(now[n].from.Add(lasts[n])))
		if aimed {
			w.sellsOn("while something happens to the first one alone", now[n].from)
		}
		mend()
		now[n].to = time.Now()
		w.past = append(w.past, now[n])
	}
	mended := time.Now()
	w.sellsOn("when all is put right", mended)
	w.t.Logf("%s: sold again after %v", now[0].name, w.sales[1].sold().Sub(mended))
}

// sellsOn waits until somebody has bought the other voucher after an instant.
func (w *weather) sellsOn(when string, since time.Time) {
	w.t.Helper()
	w.until("the other voucher is sold "+when, func() bool {
		w.revive()
		return w.sales[1].sold().After(since)
	})
}

// draw takes an event from the deck that is not on a server; the deck holds each that EVENT does not exclude once.
// There may be none.
func (w *weather) draw(not string) event {
	if len(w.deck) == 0 {
		wanted := os.Getenv("EVENT")
		w.deck = slices.DeleteFunc(events(), func(e event) bool { return wanted != "" && !slices.Contains(strings.Split(wanted, ","), e.name) })
		if len(w.deck) == 0 {
			w.t.Fatalf("there is no event of %q", wanted)
		}
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

// revive starts a process again that found that it cannot go on, as an orchestrator does. One that ends as if all were
// well is left dead by those.
func (w *weather) revive() {
	w.t.Helper()
	for n, p := range w.processes {
		select {
		case <-p.exited:
			if p.cmd.ProcessState.Success() {
				w.t.Errorf("process %d ended by itself, and said that all is well", n+1)
			}
			p.revive(w.t)
		default:
		}
	}
}

// checkAnswers checks that nobody heard what the contract does not know.
func (w *weather) checkAnswers() {
	w.t.Helper()
	for _, s := range w.sales {
		odd := s.those(func(r request) bool { return r.odd })
		var told []string
		for _, r := range odd[:min(len(odd), fewest)] {
			told = append(told, w.story(s, r.user, r.id))
		}
		if len(odd) > 0 {
			w.t.Errorf("%d answers are none of the contract:\n%s", len(odd), strings.Join(told, "\n"))
		}
	}
}

// checkPromises waits until every 202 is unpaid and both audits balance.
func (w *weather) checkPromises() {
	w.t.Helper()
	right := func() bool {
		return !slices.ContainsFunc(w.sales, func(s *sale) bool { return len(w.broken(s))+len(w.unbalanced(s)) > 0 })
	}
	for hung := check.Context(w.t); !right() && hung.Err() == nil; {
		w.revive()
		<-time.After(between)
	}
	for n, s := range w.sales {
		broken := w.broken(s)
		for _, r := range broken[:min(len(broken), fewest)] {
			w.t.Errorf("voucher %d: a promise is not kept, one of %d:\n%s", n+1, len(broken), w.story(s, r.user, r.order))
		}
		if said := w.unbalanced(s); said != "" {
			w.t.Errorf("voucher %d: the audit says %.800s", n+1, said)
		}
	}
	listed, err := runs(w.t, w.settings, "deadletters", "list")
	w.must("list the dead letters", err)
	if lines := strings.Split(listed, "\n"); !strings.HasPrefix(listed, "0 ") {
		w.t.Errorf("good orders are among the dead letters:\n%s\n%s", shorten(lines), shorten(lines[len(lines)-2:]))
	}
}

// shorten keeps a few of many lines.
func shorten(lines []string) string { return strings.Join(lines[:min(len(lines), fewest)], "\n") }

// broken are the promises of a sale that are not kept: the order is not there, or not unpaid. One that failed because
// Redis lost it is none.
func (w *weather) broken(s *sale) []request {
	w.t.Helper()
	rows, err := w.admin.QueryContext(w.t.Context(), "SELECT id, user_id, status FROM orders WHERE voucher_id = ?", s.voucher)
	w.must("read the orders", err)
	defer rows.Close()
	orders := map[string]model.Order{}
	for rows.Next() {
		var o model.Order
		w.must("read an order", rows.Scan(&o.ID, &o.UserID, &o.Status))
		orders[o.ID] = o
	}
	w.must("read the orders", rows.Err())
	return s.those(func(r request) bool {
		order := orders[r.order]
		kept := order.UserID == r.user && order.Status == model.OrderUnpaid
		forgiven := order.Status == model.OrderFailed && w.lost(r.answered)
		return r.order != "" && !kept && !forgiven
	})
}

// unbalanced is what the audit says of a voucher that is not as it must be.
func (w *weather) unbalanced(s *sale) string {
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

// story is what a user heard, what the database says of the order, and every line in which a process names the id of it
// or of a request.
func (w *weather) story(s *sale, user, id string) string {
	lines := append([]string{"    " + user}, s.story(user, w.began)...)
	var status, reason string
	if err := w.admin.QueryRowContext(w.t.Context(), "SELECT status, reason FROM orders WHERE id = ?", id).Scan(&status, &reason); err == nil {
		lines = append(lines, fmt.Sprintf("the database has it as %s (%s)", status, reason))
	}
	for n, p := range w.processes {
		for _, line := range linesNaming(p.output.String(), id) {
			lines = append(lines, fmt.Sprintf("process %d: %s", n+1, strings.TrimSpace(line)))
		}
	}
	return strings.Join(lines, "\n        ")
}

// events tells what happened, and when.
func (w *weather) events() string {
	var lines []string
	for _, s := range w.past {
		lines = append(lines, fmt.Sprintf("    %v to %v: %s", w.at(s.from), w.at(s.to), s.name))
	}
	return strings.Join(lines, "\n")
}

// isClosed reports whether a channel is, on which nothing is sent.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// at is an instant of a round.
func (w *weather) at(instant time.Time) time.Duration {
	return instant.Sub(w.began).Round(time.Millisecond)
}

func (w *weather) pause(most time.Duration) {
	<-time.After(time.Duration(w.chance.Int64N(int64(most))))
}

func (w *weather) must(what string, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

func (w *weather) until(what string, holds func() bool) {
	w.t.Helper()
	check.Patiently(w.t, what, holds)
}

func (w *weather) open(dsn string) *sql.DB {
	w.t.Helper()
	db, err := sql.Open("mysql", dsn)
	w.must("open the database", err)
	w.t.Cleanup(func() { _ = db.Close() })
	return db
}

// sql runs statements of the administrator.
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

// redis runs a command of the administrator.
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

// sale is the load of one voucher, and remembers when each request was made and how it was answered.
type sale struct {
	voucher string
	early   bool // strangers have to wait
	apis    []*process
	share   int // times as long pauses: the load of many sales is that of two

	mu       sync.Mutex
	next     int // user
	requests []request
	last     time.Time // of a 202
}

func newSale(v model.Voucher, apis []*process, share int) *sale {
	return &sale{voucher: v.ID, early: v.Early.From != nil, apis: apis, next: int(time.Now().UnixMilli()%1e9) * 10_000, share: share}
}

// request is one request to buy.
type request struct {
	user, order     string // the order of a 202
	asked, answered time.Time
	said, id        string
	odd             bool // the contract knows no such answer
}

// ask makes a request, at each instance in turn, and reports whether the user was told for good. Under every trouble
// the contract leaves 202, 503 and, while an order of the user is being settled, 429 and ALREADY_ORDERED; for a
// stranger to whom the sale has not begun, NOT_STARTED.
func (s *sale) ask(t *testing.T, user string, attempt int, stranger bool) (final bool) {
	t.Helper()
	r, a := request{user: user, asked: time.Now()}, s.apis[attempt%len(s.apis)].app
	if stranger = stranger && s.early; stranger {
		a = a.stranger()
	}
	got, err := a.Place(t, s.voucher, user)
	r.answered, r.id = time.Now(), got.Header.Get("X-Request-Id")
	switch code := got.Code(); {
	case err != nil:
		r.said = "nothing: " + err.Error()
	case got.Status == http.StatusAccepted:
		r.said, r.order, r.odd = "202", remote.Decode[model.Order](t, got).ID, stranger
	default:
		r.said = fmt.Sprintf("%d %s", got.Status, bytes.TrimSpace(got.Body))
		final = code == model.CodeAlreadyOrdered || stranger && code == model.CodeNotStarted
		r.odd = code != model.CodeUnavailable && code != model.CodeLockBusy && !final
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	if r.order != "" && r.answered.After(s.last) {
		s.last = r.answered
	}
	return final || r.order != ""
}

// user is a new one.
func (s *sale) user() (name string, attempt int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	return s.apis[0].user(s.next), s.next
}

// rush lets new users buy, some at a time, who ask until they are told, and besides them, however slow the answers are,
// ten a second who ask once: so that a silence is seen as one. Some of those are strangers. It returns when stop is
// closed and all is answered.
func (s *sale) rush(t *testing.T, stop <-chan struct{}) {
	t.Helper()
	const parallel = 4
	share := time.Duration(s.share)
	pause, beat := share*20*time.Millisecond, share*100*time.Millisecond //nolint:durationcheck // a number of times
	waits := func(d time.Duration) bool {
		select {
		case <-stop:
			return false
		case <-time.After(d):
			return true
		}
	}
	var load sync.WaitGroup
	for range parallel {
		load.Go(func() {
			for going := true; going; {
				user, attempt := s.user()
				for ; going && !s.ask(t, user, attempt, false); attempt++ {
					going = waits(pause)
				}
				going = going && waits(pause)
			}
		})
	}
	for waits(beat) {
		load.Go(func() {
			user, attempt := s.user()
			s.ask(t, user, attempt, attempt%4 == 0)
		})
	}
	load.Wait()
}

// those are the requests for which something holds.
func (s *sale) those(holds func(request) bool) []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(r request) bool { return !holds(r) })
}

// promised are the requests that were answered 202.
func (s *sale) promised() []request {
	return s.those(func(r request) bool { return r.order != "" })
}

// sold is when a 202 was answered last.
func (s *sale) sold() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// span is a time from one instant to another.
type span struct{ from, to time.Time }

// story is what a user heard, and when.
func (s *sale) story(user string, since time.Time) (lines []string) {
	for _, r := range s.those(func(r request) bool { return r.user == user }) {
		if len(lines) == fewest {
			return append(lines, "and so on")
		}
		lines = append(lines, fmt.Sprintf("asked at %v, answered at %v: %s %s", r.asked.Sub(since).Round(time.Millisecond), r.answered.Sub(since).Round(time.Millisecond), r.said, r.order))
	}
	return lines
}
