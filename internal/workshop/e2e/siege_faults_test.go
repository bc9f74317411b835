//go:build faults

//part:siege
package e2e_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

const (
	// acceptedLoss is how much of the accepted orders one attacker may cost.
	acceptedLoss = 0.20
	// slower is how many times its quiet value the p99 of an accepted order may be.
	slower = 5
	// memoryLimit is what the service may take at most.
	memoryLimit = 512 << 20
	// backWithin is how long after the end of an attack the sale is as it was before.
	backWithin = 5 * time.Second
	// longPhase is from which length on figures have limits: a shorter phase measures too little on a busy machine.
	longPhase = 8 * time.Second

	// descriptors is what the service's process may open: below what an attacker can open, as on any machine.
	descriptors = 4096
	// closedBuyers is how many buy at once when the capacity is measured: more do not make it higher.
	closedBuyers = 64
	// mostWaiting bounds the buyers who have no answer yet. One more is refused by the load itself and counted.
	mostWaiting = 4000
	// streets is from how many addresses the crowd comes.
	streets = 50
	// plenty is a stock that is never sold out.
	plenty = 10_000_000
)

// One attacker at a time does not stop a sale. Long version: make siege.
//
//nolint:paralleltest // what it measures is not for a machine that is busy with other tests
func TestSiege(t *testing.T) {
	phase := time.Duration(check.Count(t, "SIEGE_SECONDS", 1, 1)) * time.Second
	chosen := siegeWords("SIEGE_ATTACKS", "lists logins waits idle")
	for _, mode := range siegeWords("SIEGE_MODES", "sync async") {
		t.Run(mode, func(t *testing.T) {
			w := newTown(t, mode, nil)
			w.throng = w.newThrong()
			w.throng.closed(closedBuyers, phase) // everything is warm
			capacity := int(float64(w.throng.closed(closedBuyers, phase)) / phase.Seconds())
			rate := max(1, capacity/2)
			t.Logf("%s: %d orders/s with %d buyers at once; the sale runs at %d/s", mode, capacity, closedBuyers, rate)
			var rows []siegeRow
			for _, a := range attacks() {
				if (a.only == "" || a.only == mode) && (chosen[0] == "all" || slices.Contains(chosen, a.name)) {
					rows = append(rows, w.besiege(a, rate, phase))
				}
			}
			t.Log("\n" + siegeTable(rows))
			w.conservedAll()
			for _, r := range rows {
				r.check(t, phase)
			}
		})
	}
}

func siegeWords(variable, short string) []string {
	if value := os.Getenv(variable); value != "" {
		short = value
	}
	return strings.Fields(short)
}

// town is the service under siege on its own servers. An async worker is a process, which an attack may find paused.
type town struct {
	*process

	t        *testing.T
	db       *sql.DB
	worker   *process
	vouchers []string // to be audited
	throng   *throng
}

// newTown starts servers and service with production's limits, and 10,000 vouchers that nobody buys, some sold out.
func newTown(t *testing.T, mode string, more settings) *town {
	own, s := asyncOnOwnServers(t)
	s = s.with(settings{"SECKILL_ORDER_MODE": mode, "SECKILL_LOG_LEVEL": "error"}).with(more)
	delete(s, "SECKILL_RATE_USER")
	delete(s, "SECKILL_RATE_ADDR")
	w := &town{t: t, db: patient(t, own.database.DSN(testserver.DefaultSchema))}
	role := map[string]string{"sync": "all", "async": "api"}[mode]
	w.process = prepare(t, withDescriptors(t, testserver.Program(t), descriptors), s.role(role))
	w.start(t)
	w.awaitReady(t)
	if mode == "async" {
		w.worker = launch(t, s.role("worker"))
	}
	_, err := w.db.ExecContext(t.Context(), `INSERT INTO vouchers
		(id, title, description, price, face_value, currency, stock, remaining, begin_at, end_at, state, version, created_at)
		SELECT CONCAT('shelf', seq), 'shelf', '', 1000, 2000, 'CNY', 100, IF(seq MOD 10 = 0, 0, 100), UTC_TIMESTAMP(6) - INTERVAL 1 DAY,
			UTC_TIMESTAMP(6) + INTERVAL 30 DAY, 'published', 1, UTC_TIMESTAMP(6) FROM seq_1_to_10000`)
	check.Must(t, err)
	return w
}

// conservedAll checks that every accepted order is there, database, Redis and queue agree, and nothing is oversold.
func (w *town) conservedAll() {
	w.t.Helper()
	for _, id := range w.vouchers {
		d := w.quiet(w.t, id).Database
		check.That(w.t, d.Stock == d.Remaining+d.LiveOrders, "voucher %s: stock %d, remaining %d, live orders %d", id,
			d.Stock, d.Remaining, d.LiveOrders)
		if c := w.throng; c != nil && id == c.voucher {
			check.That(w.t, d.LiveOrders >= c.yes.Load(), "voucher %s: %d orders were accepted, and %d are live", id,
				c.yes.Load(), d.LiveOrders)
		}
	}
}

// besiege measures the sale before, during and after one attack.
func (w *town) besiege(a attack, rate int, phase time.Duration) siegeRow {
	sale := w.throng.open(rate)
	<-time.After(time.Second) // real time: the crowd opens its connections before anything is measured
	r := siegeRow{attack: a.name, back: -1}

	began := time.Now()
	<-time.After(phase)
	server := w.cmd.Process.Pid
	testserver.ForgetPeak(w.t, server)
	order := ""
	if a.pauseWorker {
		check.Must(w.t, w.worker.cmd.Process.Signal(syscall.SIGSTOP))
		order = remote.Decode[model.Order](w.t, check.Value(w.Place(w.t, w.throng.voucher, waiter))(w.t)).ID
	}
	endAttack := w.attack(a, order)
	attacked := time.Now()
	<-time.After(phase)
	ended := time.Now()
	r.attackers = endAttack()
	if a.pauseWorker {
		check.Must(w.t, w.worker.cmd.Process.Signal(syscall.SIGCONT))
	}
	r.memory = testserver.PeakMemory(w.t, server)
	stopped := time.Now()
	after := min(backWithin, 2*phase) + time.Second
	<-time.After(after + time.Second) // real time: the phase that is measured, and who still waits for an answer
	sale.end()

	r.quiet, r.siege = sale.between(began, began.Add(phase)), sale.between(attacked, ended)
	r.after = sale.between(stopped, stopped.Add(after))
	for second := time.Duration(0); second < after && r.back < 0; second += time.Second {
		now := sale.between(stopped.Add(second), stopped.Add(second+time.Second))
		if now.rate() >= (1-acceptedLoss)*r.quiet.rate() && now.quantile(99) <= slower*r.quiet.quantile(99) {
			r.back = second
		}
	}
	w.t.Logf("%s: %s", a.name, r.attackers.answers())
	return r
}

type siegeRow struct {
	attack              string
	quiet, siege, after saleFigures
	attackers           outcome
	memory              int64         // the most the service had, in bytes
	back                time.Duration // after the end of the attack, until the sale was as before; negative is never
}

func (r siegeRow) check(t *testing.T, phase time.Duration) {
	t.Helper()
	check.That(t, r.siege.accepted > 0 && r.after.accepted > 0,
		"%s: %d orders were accepted during the attack, and %d after it",
		r.attack, r.siege.accepted, r.after.accepted)
	check.That(t, r.memory <= memoryLimit, "%s: the service took %d MiB, more than %d", r.attack, r.memory>>20,
		memoryLimit>>20)
	if phase < longPhase {
		return
	}
	kept, limit := r.siege.rate()/r.quiet.rate(), slower*r.quiet.quantile(99)
	check.That(t, kept >= 1-acceptedLoss, "%s: %.0f %% of the orders were accepted", r.attack, 100*kept)
	check.That(t, r.siege.quantile(99) <= limit, "%s: the p99 is %v, more than %v", r.attack, r.siege.quantile(99),
		limit)
	check.That(t, r.back >= 0 && r.back <= backWithin, "%s: the sale is not as before within %v of the end", r.attack,
		backWithin)
}

func siegeTable(rows []siegeRow) string {
	var b strings.Builder
	b.WriteString("| attack | requests/s | answered | accepted/s: quiet, attacked | kept | p50 | p99 | refused | MiB | back after |\n")
	b.WriteString(strings.Repeat("|---", 10) + "|\n")
	both := func(r siegeRow, percent int) string {
		return fmt.Sprintf("%.1f, %.1f ms", r.quiet.quantile(percent).Seconds()*1000,
			r.siege.quantile(percent).Seconds()*1000)
	}
	for _, r := range rows {
		back := map[bool]string{true: r.back.String(), false: "never"}[r.back >= 0]
		fmt.Fprintf(&b, "| %s | %.0f | %s | %.0f, %.0f | %.0f %% | %s | %s | %d | %d | %s |\n",
			r.attack, float64(r.attackers.Requests)/r.attackers.Seconds, r.attackers.answers(), r.quiet.rate(),
			r.siege.rate(),
			100*r.siege.rate()/r.quiet.rate(), both(r, 50), both(r, 99), r.siege.others, r.memory>>20, back)
	}
	return b.String()
}

// throng are buyers of one voucher who come from many addresses. Each buys once, and does not insist.
type throng struct {
	*town

	voucher   string
	clients   []*http.Client
	next, yes atomic.Int64
}

func (w *town) newThrong() *throng {
	w.t.Helper()
	c := &throng{town: w, voucher: w.onSale(w.t, plenty).ID, clients: clientsFrom(w.t, "127.0.1.%d", streets, 200)}
	w.vouchers = append(w.vouchers, c.voucher)
	// On sale is when the first is sold: in async the hot copy is loaded first.
	check.Eventually(w.t, "the voucher is on sale", c.buy)
	return c
}

// clientsFrom makes clients whose connections come from addresses of this machine.
func clientsFrom(t testing.TB, format string, addresses, connections int) (all []*http.Client) {
	t.Helper()
	for n := range addresses {
		client := remote.Client(t, fmt.Sprintf(format, n+1), connections)
		client.Transport.(*http.Transport).IdleConnTimeout = 3 * time.Second // before the service closes it
		all = append(all, client)
	}
	return all
}

func (c *throng) buy() bool {
	n := c.next.Add(1)
	bearer := c.Token(c.t, fmt.Sprint("buyer", n), model.RoleUser)
	got, _ := api.Send(context.WithoutCancel(c.t.Context()), c.clients[n%streets], http.MethodPost,
		c.URL+"/api/v1/vouchers/"+c.voucher+"/seckill", bearer, nil)
	if got.Sells() {
		c.yes.Add(1)
	}
	return got.Sells()
}

// closed is how many orders are accepted in a while when so many buyers each buy again as soon as they have an answer.
func (c *throng) closed(buyers int, length time.Duration) int {
	var all sync.WaitGroup
	var count atomic.Int64
	ctx, cancel := context.WithTimeout(c.t.Context(), length)
	defer cancel()
	for range buyers {
		all.Go(func() {
			for ctx.Err() == nil {
				if c.buy() && ctx.Err() == nil {
					count.Add(1)
				}
			}
		})
	}
	all.Wait()
	return int(count.Load())
}

// steadySale is an open model, in which buyers come at their time whatever the answers take.
type steadySale struct {
	end func() // lets the last buyers have their answers

	mu      sync.Mutex
	samples []sample
}

type sample struct {
	at       time.Time // when the buyer pressed the button
	took     time.Duration
	accepted bool
}

func (c *throng) open(perSecond int) *steadySale {
	ctx, stop := context.WithCancel(c.t.Context())
	s := &steadySale{}
	var buyers sync.WaitGroup
	var waiting atomic.Int64
	note := func(one sample) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.samples = append(s.samples, one)
	}
	buyers.Go(func() {
		began, tick := time.Now(), time.NewTicker(2*time.Millisecond)
		defer tick.Stop()
		for n := 0; ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for due := int(time.Since(began).Seconds() * float64(perSecond)); n < due; n++ {
				at := began.Add(time.Duration(n) * time.Second / time.Duration(perSecond))
				if waiting.Load() >= mostWaiting {
					note(sample{at: at})
					continue
				}
				waiting.Add(1)
				buyers.Go(func() {
					defer waiting.Add(-1)
					accepted := c.buy()
					note(sample{at: at, took: time.Since(at), accepted: accepted})
				})
			}
		}
	})
	s.end = func() { stop(); buyers.Wait() }
	return s
}

type saleFigures struct {
	length           time.Duration
	accepted, others int             // others: every other answer, and none
	took             []time.Duration // of those accepted, in order
}

func (f saleFigures) rate() float64 { return float64(f.accepted) / f.length.Seconds() }

func (f saleFigures) quantile(percent int) time.Duration {
	if len(f.took) == 0 {
		return 0
	}
	return f.took[min(len(f.took)-1, len(f.took)*percent/100)]
}

// between are the figures of those who pressed the button from one moment to another.
func (s *steadySale) between(from, to time.Time) saleFigures {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := saleFigures{length: to.Sub(from)}
	for _, one := range s.samples {
		switch {
		case one.at.Before(from) || !one.at.Before(to):
		case one.accepted:
			f.accepted++
			f.took = append(f.took, one.took)
		default:
			f.others++
		}
	}
	slices.Sort(f.took)
	return f
}

// attack is something an outsider, or a user, may do on so many connections, again and again until the attack ends.
type attack struct {
	name        string
	only        string // the order mode in which it makes sense; empty is both
	pauseWorker bool   // it happens while nothing is persisted
	connections int
	// turn is what a connection does each time: the status of its answer; 0 with an error is none.
	turn func(a *attacker, n, turn int) (int, error)
}

// waiter is the user who has an order that nobody persists.
const waiter = "waiter"

func attacks() []attack {
	huge := `{"username":"` + strings.Repeat("x", 4<<20) + `"}`
	run := strconv.FormatInt(time.Now().UnixNano(), 36)
	return []attack{
		// Lists in every way there is, as an anonymous visitor.
		{name: "lists", connections: 200, turn: func(a *attacker, n, turn int) (int, error) {
			queries := []string{
				"phase=sold_out", "phase=upcoming&limit=100", "limit=" + strconv.Itoa(1+turn%100),
				"phase=sold_out&cursor=" + strconv.Itoa(turn*n),
			}
			return a.call(http.MethodGet, "/vouchers?"+queries[turn%len(queries)], "", "")
		}},
		// Passwords are guessed, half of them of one account.
		{name: "logins", connections: 64, turn: func(a *attacker, n, turn int) (int, error) {
			name := []string{fmt.Sprintf("nobody%d-%d", n, turn), "admin"}[n%2]
			return a.call(http.MethodPost, "/auth/login", "", `{"username":"`+name+`","password":"wrong password `+strconv.Itoa(turn)+`"}`)
		}},
		{name: "registrations", connections: 64, turn: func(a *attacker, n, turn int) (int, error) {
			return a.call(http.MethodPost, "/auth/register", "", fmt.Sprintf(`{"username":"u%s-%d-%d","password":"a long password"}`, run, n, turn))
		}},
		// More connections than the service's process may have, that say nothing, or a byte of a header now and then.
		{
			name: "idle", connections: descriptors * 3 / 2 / eachOpens,
			turn: func(a *attacker, _, _ int) (int, error) { return a.hold("", 0) },
		},
		{
			name: "dripping", connections: descriptors * 3 / 2 / eachOpens,
			turn: func(a *attacker, _, _ int) (int, error) {
				return a.hold("GET /api/v1/vouchers HTTP/1.1\r\nHost: x\r\nX-Drip: ", 200*time.Millisecond)
			},
		},
		// Waits for one order, thousands at once.
		{
			name: "waits", only: "async", pauseWorker: true, connections: 2000,
			turn: func(a *attacker, _, _ int) (int, error) {
				return a.call(http.MethodGet, "/orders/"+os.Getenv("SIEGE_ORDER")+"?wait=30s",
					a.Token(a.t, waiter, model.RoleUser), "")
			},
		},
		// Tokens that were never signed, were signed by somebody else, or are none.
		{name: "tokens", connections: 128, turn: func(a *attacker, _, turn int) (int, error) {
			head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"1","typ":"JWT"}`))
			claims := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"x","role":"admin","iss":"seckill","aud":"seckill","exp":4102444800}`))
			bad := []string{
				head + "." + claims + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 32)),
				head + "." + claims + ".", "none", strings.Repeat("a.", 2000),
				strings.Replace(head, "1", "2", 1) + "." + claims + ".AAAA",
			}
			return a.buy(bad[turn%len(bad)], "")
		}},
		// Much more than any call takes.
		{name: "bodies", connections: 32, turn: func(a *attacker, n, turn int) (int, error) {
			if (n+turn)%2 == 0 {
				return a.call(http.MethodPost, "/auth/login", "", huge)
			}
			return a.buy(a.Token(a.t, "hauler", model.RoleUser), huge)
		}},
		{name: "one-user", connections: 500, turn: func(a *attacker, _, _ int) (int, error) {
			return a.buy(a.Token(a.t, "fidget", model.RoleUser), "")
		}},
		// Buys and cancels, as many users at once.
		{name: "circles", connections: 64, turn: func(a *attacker, n, _ int) (int, error) {
			bearer := a.Token(a.t, "circler"+strconv.Itoa(n), model.RoleUser)
			got, err := a.send(http.MethodPost, a.seckill(), bearer, "")
			var order struct {
				ID      string
				OrderID string `json:"order_id"`
			}
			if err != nil || json.Unmarshal(got.Body, &order) != nil || order.ID == "" && order.OrderID == "" {
				return got.Status, err
			}
			a.note(got.Status, nil)
			return a.call(http.MethodPost, "/orders/"+order.ID+order.OrderID+"/cancel", bearer, "")
		}},
	}
}

// eachOpens is how many connections each loop of hold opens.
const eachOpens = 100

// hold opens connections with a greeting, and keeps them until the attack ends or the service has closed them all.
func (a *attacker) hold(greeting string, drip time.Duration) (int, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(attackerAddr)}, Timeout: time.Second}
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range eachOpens {
		c, err := dialer.DialContext(a.ctx, "tcp", strings.TrimPrefix(a.URL, "http://"))
		if err != nil {
			return 0, err
		}
		open = append(open, c)
		a.note(http.StatusContinue, nil) // a connection more
		_, _ = io.WriteString(c, greeting)
	}
	one := make([]byte, 1)
	for a.ctx.Err() == nil {
		alive := false
		for _, c := range open {
			_ = c.SetDeadline(time.Now().Add(time.Millisecond))
			if drip > 0 {
				_, err := io.WriteString(c, "x")
				alive = alive || err == nil
			} else {
				_, err := c.Read(one)
				alive = alive || errors.Is(err, os.ErrDeadlineExceeded)
			}
		}
		if !alive {
			return 0, io.EOF // once more
		}
		select {
		case <-a.ctx.Done():
		case <-time.After(max(drip, 200*time.Millisecond)):
		}
	}
	return 0, nil
}

const attackerAddr = "127.0.66.1"

// attacker makes one attack in its own process at the lowest priority, for a machine elsewhere that takes no CPU here.
type attacker struct {
	remote.Service

	t   *testing.T
	ctx context.Context

	mu  sync.Mutex
	did outcome
}

// begun is the line an attacker writes when it has seen its first outcome.
const begun = "begun\n"

type outcome struct {
	Requests int64
	Statuses map[string]int64
	Seconds  float64
}

func (o outcome) answers() string {
	keys := sorted(o.Statuses)
	slices.SortStableFunc(keys, func(x, y string) int { return int(o.Statuses[y] - o.Statuses[x]) })
	var parts []string
	for _, key := range keys[:min(len(keys), 4)] {
		parts = append(parts, fmt.Sprintf("%s: %d", key, o.Statuses[key]))
	}
	return strings.Join(parts, ", ")
}

// TestAttacker is what an attacker's process does: attack until its input ends, and report; without an attack nothing.
func TestAttacker(t *testing.T) {
	t.Parallel()
	index := slices.IndexFunc(attacks(), func(a attack) bool { return a.name == os.Getenv("SIEGE_ATTACK") })
	if index < 0 {
		return
	}
	ctx, stop := context.WithCancel(t.Context())
	a := &attacker{
		Service: remote.Service{
			URL: os.Getenv("SIEGE_URL"), Client: clientsFrom(t, "127.0.66.%d", 1, 5000)[0],
			Tokens: check.Value(remote.Authority(secret))(t),
		},
		t: t, ctx: ctx, did: outcome{Statuses: map[string]int64{}},
	}
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	began, its := time.Now(), attacks()[index]
	var all sync.WaitGroup
	for n := range its.connections {
		all.Go(func() {
			for turn := 0; ctx.Err() == nil; turn++ {
				status, err := its.turn(a, n, turn)
				if ctx.Err() != nil {
					return
				}
				a.note(status, err)
				if err != nil {
					<-time.After(10 * time.Millisecond) // real time: the attacker's pause, also after a refused connection
				}
			}
		})
	}
	all.Wait()
	a.did.Seconds = time.Since(began).Seconds()
	check.Must(t, json.NewEncoder(os.Stdout).Encode(a.did))
}

func (a *attacker) note(status int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.did.Requests++; a.did.Requests == 1 {
		_, _ = io.WriteString(os.Stdout, begun)
	}
	key := strconv.Itoa(status)
	switch {
	case err != nil:
		key = "no answer"
	case status == http.StatusContinue:
		key = "connected"
	}
	a.did.Statuses[key]++
}

func (a *attacker) seckill() string { return "/vouchers/" + os.Getenv("SIEGE_VOUCHER") + "/seckill" }

func (a *attacker) buy(bearer, body string) (int, error) {
	return a.call(http.MethodPost, a.seckill(), bearer, body)
}

func (a *attacker) call(method, path, bearer, body string) (int, error) {
	got, err := a.send(method, path, bearer, body)
	return got.Status, err
}

func (a *attacker) send(method, path, bearer, text string) (api.Answer, error) {
	var body any
	if text != "" {
		body = text
	}
	return api.Send(a.ctx, a.Client, method, a.URL+"/api/v1"+path, bearer, body)
}

// attack starts an attacker's process, waits until it has begun (a busy machine is slow), and returns how to end it.
func (w *town) attack(a attack, order string) (end func() outcome) {
	// From the first thread on: a process that lowers its own priority lowers that of one thread.
	cmd := exec.Command("nice", "-n", "19", os.Args[0], "-test.run=^TestAttacker$")
	cmd.Env = append(os.Environ(), "SIEGE_ATTACK="+a.name, "SIEGE_URL="+w.URL, "SIEGE_VOUCHER="+w.throng.voucher,
		"SIEGE_ORDER="+order)
	cmd.Stderr = os.Stderr
	output, its, err := os.Pipe() // one of cmd's own would be closed when the process ends, read or not
	check.Must(w.t, err)
	cmd.Stdout = its
	input := check.Value(cmd.StdinPipe())(w.t)
	ended := check.Value(testserver.StartTied(cmd))(w.t)
	check.Must(w.t, its.Close())
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill() // most have ended
		<-ended
		_ = output.Close()
	})
	late := time.AfterFunc(check.Deadline, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	out := bufio.NewReader(output)
	line, err := out.ReadString('\n')
	check.Need(w.t, line == begun, "%s: the attacker did nothing: %q, %v", a.name, line, err)
	return func() (did outcome) {
		w.t.Helper()
		check.Must(w.t, input.Close())
		check.Must(w.t, json.NewDecoder(out).Decode(&did))
		<-ended
		check.That(w.t, cmd.ProcessState.Success(), "the attacker ended: %v", cmd.ProcessState)
		return did
	}
}
