//go:build faults

//part:siege

package siege_test

import (
	"bufio"
	"context"
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
	"time"

	"seckill/internal/api"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// attackVariable names the attack that this process is to make, instead of running tests.
const attackVariable = "SIEGE_ATTACK"

// attackerAddr is where every attack comes from.
const attackerAddr = "127.0.66.1"

// attack is something an outsider, or a user, may do.
type attack struct {
	name        string
	only        string // the order mode in which it makes sense; empty is both
	pauseWorker bool   // it happens while nothing is persisted
	run         func(*attacker)
}

var attacks = []attack{
	{name: "lists", run: (*attacker).lists},
	{name: "logins", run: (*attacker).logins},
	{name: "registrations", run: (*attacker).registrations},
	{name: "idle", run: (*attacker).idle},
	{name: "dripping", run: (*attacker).dripping},
	{name: "waits", only: "async", pauseWorker: true, run: (*attacker).waits},
	{name: "tokens", run: (*attacker).badTokens},
	{name: "bodies", run: (*attacker).hugeBodies},
	{name: "one-user", run: (*attacker).oneUser},
	{name: "circles", run: (*attacker).circles},
}

// lists reads lists in every way there is, as an anonymous visitor.
func (a *attacker) lists() {
	a.each(200, func(n, turn int) (int, error) {
		queries := []string{"phase=sold_out", "phase=upcoming&limit=100", "limit=" + strconv.Itoa(1+turn%100), "phase=sold_out&cursor=" + strconv.Itoa(turn*n)}
		return a.call(http.MethodGet, "/vouchers?"+queries[turn%len(queries)], "", "")
	})
}

// logins guesses passwords, half of them of one account.
func (a *attacker) logins() {
	a.each(64, func(n, turn int) (int, error) {
		name := "admin"
		if n%2 == 0 {
			name = fmt.Sprintf("nobody%d-%d", n, turn)
		}
		return a.call(http.MethodPost, "/auth/login", "", `{"username":"`+name+`","password":"wrong password `+strconv.Itoa(turn)+`"}`)
	})
}

// registrations makes accounts.
func (a *attacker) registrations() {
	run := strconv.FormatInt(time.Now().UnixNano(), 36)
	a.each(64, func(n, turn int) (int, error) {
		return a.call(http.MethodPost, "/auth/register", "", fmt.Sprintf(`{"username":"u%s-%d-%d","password":"a long password"}`, run, n, turn))
	})
}

// idle opens connections, more than the service's process may have, and says nothing on them.
func (a *attacker) idle() { a.connections("", 0) }

// dripping does the same, and sends a byte of a header now and then.
func (a *attacker) dripping() {
	a.connections("GET /api/v1/vouchers HTTP/1.1\r\nHost: x\r\nX-Drip: ", 200*time.Millisecond)
}

func (a *attacker) connections(greeting string, drip time.Duration) {
	const eachHas = 100
	var dialer net.Dialer
	dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(attackerAddr)}
	dialer.Timeout = time.Second
	a.each(descriptors*3/2/eachHas, func(_, _ int) (int, error) {
		var open []net.Conn
		defer func() {
			for _, c := range open {
				c.Close()
			}
		}()
		for range eachHas {
			c, err := dialer.DialContext(a.ctx, "tcp", strings.TrimPrefix(a.url, "http://"))
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
				return 0, io.EOF // the service closed them all: once more
			}
			select {
			case <-a.ctx.Done():
			case <-time.After(max(drip, 200*time.Millisecond)):
			}
		}
		return 0, nil
	})
}

// waits asks thousands of times at once for an order that nobody persists.
func (a *attacker) waits() {
	bearer := a.bearer("waiter")
	var order model.Order
	got, err := a.send(http.MethodPost, "/vouchers/"+a.voucher+"/seckill", bearer, "")
	if err == nil {
		err = json.Unmarshal(got.Body, &order)
	}
	if err != nil || order.ID == "" {
		a.note(0, fmt.Errorf("the order to wait for: %w %s", err, got.Body))
		return
	}
	a.each(2000, func(_, _ int) (int, error) {
		return a.call(http.MethodGet, "/orders/"+order.ID+"?wait=30s", bearer, "")
	})
}

// badTokens sends tokens that were never signed, signed by somebody else, or are none.
func (a *attacker) badTokens() {
	head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"1","typ":"JWT"}`))
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"x","role":"admin","iss":"seckill","aud":"seckill","exp":4102444800}`))
	bad := []string{
		head + "." + claims + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 32)),
		head + "." + claims + ".", "none", strings.Repeat("a.", 2000), strings.Replace(head, "1", "2", 1) + "." + claims + ".AAAA",
	}
	a.each(128, func(_, turn int) (int, error) {
		return a.call(http.MethodPost, "/vouchers/"+a.voucher+"/seckill", bad[turn%len(bad)], "")
	})
}

// hugeBodies sends much more than any call takes.
func (a *attacker) hugeBodies() {
	huge := `{"username":"` + strings.Repeat("x", 4<<20) + `"}`
	bearer := a.bearer("hauler")
	a.each(32, func(n, turn int) (int, error) {
		if (n+turn)%2 == 0 {
			return a.call(http.MethodPost, "/auth/login", "", huge)
		}
		return a.call(http.MethodPost, "/vouchers/"+a.voucher+"/seckill", bearer, huge)
	})
}

// oneUser presses the button on five hundred connections.
func (a *attacker) oneUser() {
	bearer := a.bearer("fidget")
	a.each(500, func(_, _ int) (int, error) {
		return a.call(http.MethodPost, "/vouchers/"+a.voucher+"/seckill", bearer, "")
	})
}

// circles buys and cancels, as many users at once.
func (a *attacker) circles() {
	a.each(64, func(n, _ int) (int, error) {
		bearer := a.bearer("circler" + strconv.Itoa(n))
		got, err := a.send(http.MethodPost, "/vouchers/"+a.voucher+"/seckill", bearer, "")
		var order struct {
			ID      string
			OrderID string `json:"order_id"`
		}
		if err != nil || json.Unmarshal(got.Body, &order) != nil || order.ID == "" && order.OrderID == "" {
			return got.Status, err
		}
		a.note(got.Status, nil)
		return a.call(http.MethodPost, "/orders/"+order.ID+order.OrderID+"/cancel", bearer, "")
	})
}

// attacker makes one attack, in a process of its own and at the lowest priority: it stands for a machine elsewhere,
// which takes no processor from the service.
type attacker struct {
	ctx          context.Context
	url, voucher string
	tokens       *token.Authority
	client       *http.Client

	mu  sync.Mutex
	did outcome
}

// begun is the line an attacker writes when it has seen its first outcome.
const begun = "begun\n"

// outcome is what an attacker saw.
type outcome struct {
	Requests int64
	Statuses map[string]int64
	Seconds  float64
}

func (o outcome) rate() float64 { return float64(o.Requests) / o.Seconds }

// answers are the statuses, the most frequent first.
func (o outcome) answers() string {
	keys := make([]string, 0, len(o.Statuses))
	for key := range o.Statuses {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(x, y string) int { return int(o.Statuses[y] - o.Statuses[x]) })
	parts := make([]string, 0, len(keys))
	for _, key := range keys[:min(len(keys), 4)] {
		parts = append(parts, fmt.Sprintf("%s: %d", key, o.Statuses[key]))
	}
	return strings.Join(parts, ", ")
}

// attackFromHere is what the process of an attacker does: attack until its input ends, then say what it saw.
func attackFromHere(name string) int {
	tokens, err := remote.Authority(secret)
	index := slices.IndexFunc(attacks, func(a attack) bool { return a.name == name })
	if err != nil || index < 0 {
		fmt.Fprintln(os.Stderr, name, err)
		return 2
	}
	ctx, stop := context.WithCancel(context.Background())
	a := &attacker{
		ctx: ctx, url: os.Getenv("SIEGE_URL"), voucher: os.Getenv("SIEGE_VOUCHER"), tokens: tokens,
		client: clientFrom(attackerAddr, 5000), did: outcome{Statuses: map[string]int64{}},
	}
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	began := time.Now()
	attacks[index].run(a)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.did.Seconds = time.Since(began).Seconds()
	if err := json.NewEncoder(os.Stdout).Encode(a.did); err != nil {
		return 1
	}
	return 0
}

// each does something on many connections, again and again until the attack ends.
func (a *attacker) each(connections int, do func(n, turn int) (int, error)) {
	var all sync.WaitGroup
	for n := range connections {
		all.Go(func() {
			for turn := 0; a.ctx.Err() == nil; turn++ {
				status, err := do(n, turn)
				if a.ctx.Err() != nil {
					return
				}
				a.note(status, err)
				if err != nil {
					<-time.After(10 * time.Millisecond) // real time: the attacker's pause: a refused connection costs it too
				}
			}
		})
	}
	all.Wait()
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

func (a *attacker) bearer(user string) string {
	signed, err := a.tokens.Issue(token.Claims{Subject: user, Role: model.RoleUser}, time.Hour)
	if err != nil {
		panic(err)
	}
	return signed
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
	return api.Send(a.ctx, a.client, method, a.url+"/api/v1"+path, bearer, body)
}

// running is an attacker at work.
type running struct {
	w     *town
	cmd   *exec.Cmd
	input io.Closer
	out   *bufio.Reader
	ended <-chan struct{}
}

// launch starts an attacker in a process of its own, and returns when the attack has begun: on a busy machine the
// process may take longer to start than the attack is to last.
func (w *town) launch(a attack) *running {
	w.t.Helper()
	// From the first thread on: a process that lowers its own priority lowers that of one thread.
	cmd := exec.Command("nice", "-n", "19", os.Args[0])
	cmd.Env = append(os.Environ(), attackVariable+"="+a.name, "SIEGE_URL="+w.URL, "SIEGE_VOUCHER="+w.crowd.voucher)
	cmd.Stderr = os.Stderr
	output, its, err := os.Pipe() // one of cmd's own would be closed when the process ends, read or not
	check.Must(w.t, err)
	cmd.Stdout = its
	r := &running{w: w, cmd: cmd, out: bufio.NewReader(output)}
	r.input, err = cmd.StdinPipe()
	check.Must(w.t, err)
	r.ended, err = testserver.StartTied(cmd)
	check.Must(w.t, err)
	check.Must(w.t, its.Close())
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill() // most have ended
		<-r.ended
		_ = output.Close()
	})
	late := time.AfterFunc(check.Deadline, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if line, err := r.out.ReadString('\n'); line != begun {
		w.t.Fatalf("%s: the attacker did nothing: %q, %v", a.name, line, err)
	}
	return r
}

// end stops the attacker and returns what it saw.
func (r *running) end() outcome {
	r.w.t.Helper()
	check.Must(r.w.t, r.input.Close())
	var did outcome
	check.Must(r.w.t, json.NewDecoder(r.out).Decode(&did))
	if <-r.ended; !r.cmd.ProcessState.Success() {
		r.w.t.Fatalf("the attacker ended: %v", r.cmd.ProcessState)
	}
	return did
}
