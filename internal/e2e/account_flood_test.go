package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// from is the program seen from another address of this machine.
func (a *app) from(t testing.TB, address string) *app {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	elsewhere := *a
	elsewhere.client = &http.Client{Transport: transport, Timeout: 30 * time.Second}
	return &elsewhere
}

const rightPassword = "correct horse"

func (a *app) register(t testing.TB, username string) {
	t.Helper()
	got := a.call(t, http.MethodPost, "/auth/register", "", map[string]string{"username": username, "password": rightPassword})
	if got.status != http.StatusCreated {
		t.Fatalf("register %s: %d %s", username, got.status, got.body)
	}
}

func (a *app) login(t testing.TB, username, password string) answer {
	t.Helper()
	return a.call(t, http.MethodPost, "/auth/login", "", map[string]string{"username": username, "password": password})
}

// session logs in and returns the token, and how long it is good for.
func (a *app) session(t testing.TB, username, password string) (token string, lasts time.Duration) {
	t.Helper()
	got := a.login(t, username, password)
	session := decode[struct {
		Token   string `json:"access_token"`
		Expires int    `json:"expires_in"`
	}](t, got)
	if got.status != http.StatusOK {
		t.Fatalf("login of %s: %d %s", username, got.status, got.body)
	}
	return session.Token, time.Duration(session.Expires) * time.Second
}

// stayAway is what a refusal for too many requests says, which is never more than 30 s.
func stayAway(t testing.TB, got answer) time.Duration {
	t.Helper()
	seconds, err := strconv.Atoi(got.header.Get("Retry-After"))
	if got.status != http.StatusTooManyRequests || got.code() != model.CodeRateLimited || err != nil || seconds < 1 || seconds > 30 {
		t.Errorf("%d %s, Retry-After %q", got.status, got.body, got.header.Get("Retry-After"))
	}
	return time.Duration(seconds) * time.Second
}

// guesses is what became of the attempts of loops of wrong passwords.
type guesses struct {
	tried, refused atomic.Int64 // answered 401 and 429
	stop           func()       // ends the loops, and returns when they have ended
}

// guess runs so many loops of logins with wrong passwords.
func (a *app) guess(t testing.TB, loops int, username func(n int) string) *guesses {
	t.Helper()
	var (
		running sync.WaitGroup
		made    = &guesses{}
		done    = make(chan struct{})
	)
	made.stop = sync.OnceFunc(func() {
		close(done)
		running.Wait()
	})
	for range loops {
		running.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				body := map[string]string{"username": username(n), "password": fmt.Sprintf("wrong horse %d", n)}
				got, err := send(a.client, http.MethodPost, a.url+"/api/v1/auth/login", "", body)
				switch {
				case err != nil:
					t.Errorf("guess: %v", err)
					return
				case got.status == http.StatusUnauthorized:
					made.tried.Add(1)
				default:
					stayAway(t, got)
					made.refused.Add(1)
				}
			}
		})
	}
	t.Cleanup(made.stop)
	return made
}

func always(username string) func(int) string { return func(int) string { return username } }

// TestWrongPasswordsLockNobodyOut floods one account from one address. The address
// and the account are made to wait. Others do not notice, and neither does the
// account's owner, who comes from another address. From the flood's own address the
// right password gets in after a wait.
func TestWrongPasswordsLockNobodyOut(t *testing.T) {
	t.Parallel()
	p := launch(t, onServers(t))
	owner, attacker := p.from(t, "127.0.0.3"), p.from(t, "127.0.0.2")
	owner.register(t, "alice")
	owner.register(t, "bob")

	flood := attacker.guess(t, 16, always("Alice"))
	until(t, 30*time.Second, "the flood is refused", func() bool { return flood.refused.Load() >= 60 })
	if got := owner.login(t, "bob", rightPassword); got.status != http.StatusOK {
		t.Errorf("another account from another address: %d %s", got.status, got.body)
	}
	if got := owner.login(t, "alice", rightPassword); got.status != http.StatusOK {
		t.Errorf("its owner from another address: %d %s", got.status, got.body)
	}
	flood.stop()
	if tried := flood.tried.Load(); tried > 30 {
		t.Errorf("%d passwords were tried, %d refused", tried, flood.refused.Load())
	}

	began := time.Now()
	var got answer
	until(t, time.Minute, "the right password gets in", func() bool {
		got = attacker.login(t, "alice", rightPassword)
		return got.status == http.StatusOK || stayAway(t, got) == 0
	})
	if took := time.Since(began); took > 31*time.Second {
		t.Errorf("the right password got in after %s", took)
	}

	metrics := p.metrics(t)
	for _, outcome := range []string{"OK", "UNAUTHENTICATED", "RATE_LIMITED"} {
		if name := fmt.Sprintf(`seckill_account_attempts_total{action="login",outcome=%q}`, outcome); !strings.Contains(metrics, name) {
			t.Errorf("there is no metric %s", name)
		}
	}
	said := p.output.String()
	if !strings.Contains(said, "wrong password") || !strings.Contains(said, "127.0.0.2") || !strings.Contains(strings.ToLower(said), "alice") {
		t.Errorf("the failures were not logged:\n%s", tail(said, 20))
	}
	if strings.Contains(said, "horse") {
		t.Errorf("a password was logged:\n%s", tail(said, 20))
	}
}

// metrics are what the operations listener tells.
func (a *app) metrics(t testing.TB) string {
	t.Helper()
	got, err := send(a.client, http.MethodGet, a.ops+"/metrics", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(got.body)
}

// TestUnknownUsernamesAreLimitedAsOthers: neither the limit nor its words tell
// whether there is an account. What is no username appears in no log.
func TestUnknownUsernamesAreLimitedAsOthers(t *testing.T) {
	t.Parallel()
	p := launch(t, onServers(t))
	p.from(t, "127.0.0.3").register(t, "alice")
	for n, username := range []string{"alice", "nobody"} {
		from, refusals := p.from(t, fmt.Sprintf("127.0.0.%d", 10+n)), 0
		for range 12 {
			if got := from.login(t, username, "wrong horse"); got.status != http.StatusUnauthorized {
				stayAway(t, got)
				refusals++
			}
		}
		if refusals == 0 {
			t.Errorf("%s: twelve wrong passwords, and none was refused", username)
		}
	}
	// One address tries many accounts, and things that are no usernames.
	spray := p.from(t, "127.0.0.12").guess(t, 8, func(n int) string { return "secret\n" + strconv.Itoa(n) })
	until(t, 30*time.Second, "the spray is refused", func() bool { return spray.refused.Load() >= 30 })
	spray.stop()
	if tried := spray.tried.Load(); tried > 60 {
		t.Errorf("%d accounts were tried from one address", tried)
	}
	if said := p.output.String(); strings.Contains(said, "secret") {
		t.Errorf("what is no username was logged:\n%s", tail(said, 20))
	}
}

// TestRegistrationsAreBounded floods the registration from one address. Another
// address registers, and logs in.
func TestRegistrationsAreBounded(t *testing.T) {
	t.Parallel()
	p := launch(t, onServers(t))
	attacker, other := p.from(t, "127.0.0.2"), p.from(t, "127.0.0.3")
	var (
		made, refused, next atomic.Int64
		flood               sync.WaitGroup
	)
	for range 16 {
		flood.Go(func() {
			for refused.Load() < 50 {
				body := map[string]string{"username": fmt.Sprintf("robot%d", next.Add(1)), "password": rightPassword}
				got, err := send(attacker.client, http.MethodPost, attacker.url+"/api/v1/auth/register", "", body)
				switch {
				case err != nil:
					t.Errorf("register: %v", err)
					return
				case got.status == http.StatusCreated:
					if made.Add(1) > 400 {
						return
					}
				default:
					stayAway(t, got)
					refused.Add(1)
				}
			}
		})
	}
	until(t, 30*time.Second, "the flood is refused", func() bool { return refused.Load() > 0 || made.Load() > 400 })
	other.register(t, "human")
	other.session(t, "human", rightPassword)
	flood.Wait()
	if made.Load() > 200 {
		t.Errorf("%d accounts were made from one address", made.Load())
	}
}

// TestLoginsDoNotStopTheSale sells while 64 loops try passwords: every purchase
// succeeds, and few passwords are tried. It tells what the loops do to the time of
// a purchase, which a busy machine decides as well.
func TestLoginsDoNotStopTheSale(t *testing.T) {
	t.Parallel()
	p := launch(t, onServers(t))
	const purchases = 200
	voucher := p.onSale(t, 3*purchases)
	next := 0
	sell := func() (median, slow time.Duration) {
		took := make([]time.Duration, purchases)
		for i := range took {
			next++
			token := p.token(t, p.user(next), model.RoleUser)
			began := time.Now()
			got := p.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", token, nil)
			took[i] = time.Since(began)
			if got.status != http.StatusCreated {
				t.Fatalf("%d %s", got.status, got.body)
			}
		}
		slices.Sort(took)
		return took[purchases/2], took[purchases*99/100]
	}
	median, slow := sell()
	t.Logf("quiet: median %s, p99 %s", median, slow)
	flood := p.from(t, "127.0.0.2").guess(t, 64, func(n int) string { return "user" + strconv.Itoa(n%1000) })
	median, slow = sell()
	flood.stop()
	t.Logf("64 loops of logins: median %s, p99 %s, %d passwords tried, %d refused", median, slow, flood.tried.Load(), flood.refused.Load())
	if flood.tried.Load() > 60 {
		t.Errorf("%d passwords were tried from one address", flood.tried.Load())
	}

	// The same loops, each at an address of its own that has not failed before.
	var floods []*guesses
	for n := range 64 {
		floods = append(floods, p.from(t, fmt.Sprintf("127.0.1.%d", n+1)).guess(t, 1, func(i int) string { return fmt.Sprintf("user%d.%d", n, i) }))
	}
	median, slow = sell()
	var tried, refused int64
	check.Volley(len(floods), func(i int) { floods[i].stop() })
	for _, flood := range floods {
		tried, refused = tried+flood.tried.Load(), refused+flood.refused.Load()
	}
	t.Logf("64 addresses: median %s, p99 %s, %d passwords tried, %d refused", median, slow, tried, refused)
}
