//go:build faults

//part:siege

package e2e_test

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
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

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
			queries := []string{"phase=sold_out", "phase=upcoming&limit=100", "limit=" + strconv.Itoa(1+turn%100), "phase=sold_out&cursor=" + strconv.Itoa(turn*n)}
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
		{name: "idle", connections: descriptors * 3 / 2 / eachOpens, turn: func(a *attacker, _, _ int) (int, error) { return a.hold("", 0) }},
		{name: "dripping", connections: descriptors * 3 / 2 / eachOpens, turn: func(a *attacker, _, _ int) (int, error) {
			return a.hold("GET /api/v1/vouchers HTTP/1.1\r\nHost: x\r\nX-Drip: ", 200*time.Millisecond)
		}},
		// Waits for one order, thousands at once.
		{name: "waits", only: "async", pauseWorker: true, connections: 2000, turn: func(a *attacker, _, _ int) (int, error) {
			return a.call(http.MethodGet, "/orders/"+os.Getenv("SIEGE_ORDER")+"?wait=30s", a.Token(a.t, waiter, model.RoleUser), "")
		}},
		// Tokens that were never signed, were signed by somebody else, or are none.
		{name: "tokens", connections: 128, turn: func(a *attacker, _, turn int) (int, error) {
			head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"1","typ":"JWT"}`))
			claims := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"x","role":"admin","iss":"seckill","aud":"seckill","exp":4102444800}`))
			bad := []string{
				head + "." + claims + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 32)),
				head + "." + claims + ".", "none", strings.Repeat("a.", 2000), strings.Replace(head, "1", "2", 1) + "." + claims + ".AAAA",
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

// attackerAddr is where every attack comes from.
const attackerAddr = "127.0.66.1"

// attacker makes one attack, in a process of its own and at the lowest priority: it stands for a machine elsewhere,
// which takes no processor from the service.
type attacker struct {
	remote.Service

	t   *testing.T
	ctx context.Context

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

// answers are the four most frequent statuses.
func (o outcome) answers() string {
	keys := sorted(o.Statuses)
	slices.SortStableFunc(keys, func(x, y string) int { return int(o.Statuses[y] - o.Statuses[x]) })
	var parts []string
	for _, key := range keys[:min(len(keys), 4)] {
		parts = append(parts, fmt.Sprintf("%s: %d", key, o.Statuses[key]))
	}
	return strings.Join(parts, ", ")
}

// TestAttacker is what the process of an attacker does: attack until its input ends, then say what it saw. Without an
// attack that is asked for it does nothing.
func TestAttacker(t *testing.T) {
	t.Parallel()
	index := slices.IndexFunc(attacks(), func(a attack) bool { return a.name == os.Getenv("SIEGE_ATTACK") })
	if index < 0 {
		return
	}
	ctx, stop := context.WithCancel(t.Context())
	a := &attacker{
		Service: remote.Service{URL: os.Getenv("SIEGE_URL"), Client: clientsFrom(t, "127.0.66.%d", 1, 5000)[0], Tokens: check.Value(remote.Authority(secret))(t)},
		t:       t, ctx: ctx, did: outcome{Statuses: map[string]int64{}},
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
					<-time.After(10 * time.Millisecond) // real time: the attacker's pause: a refused connection costs it too
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

// attack starts an attacker in a process of its own, and returns when the attack has begun: on a busy machine the
// process may take longer to start than the attack is to last. Its end says what the attacker saw.
func (w *town) attack(a attack, order string) (end func() outcome) {
	w.t.Helper()
	// From the first thread on: a process that lowers its own priority lowers that of one thread.
	cmd := exec.Command("nice", "-n", "19", os.Args[0], "-test.run=^TestAttacker$")
	cmd.Env = append(os.Environ(), "SIEGE_ATTACK="+a.name, "SIEGE_URL="+w.URL, "SIEGE_VOUCHER="+w.throng.voucher, "SIEGE_ORDER="+order)
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
