//part:races

package e2e_test

import (
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// operate runs a command of the program beside the instances of a deployment.
func operate(t *testing.T, s settings, stdin string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(check.Context(t), testserver.Program(t), args...)
	cmd.Env = append(os.Environ(), s.environ()...)
	cmd.Stdin = strings.NewReader(stdin)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("seckill %s: %v\n%s", strings.Join(args, " "), err, said)
	}
}

// TestAnAdministratorIsOutWithinASecond ends the right of an administrator in every way there is, and no instance obeys
// the token any more. (That it is a second, service/sale/cache tells.)
func TestAnAdministratorIsOutWithinASecond(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	instances := []*app{start(t, s), start(t, s)}
	operator := instances[0].Admin(t)
	create := func(username string) string {
		t.Helper()
		operate(t, s, rightPassword+"\n", "admin", "create", "--username", username)
		token, lasts := instances[0].elsewhere(t).session(t, username, rightPassword)
		if lasts > time.Hour {
			t.Errorf("an administrator's token lasts %s", lasts)
		}
		for _, a := range instances {
			object(t, a.Call(t, http.MethodGet, "/admin/vouchers", token, nil), http.StatusOK)
		}
		return token
	}
	tokens := map[string]string{}
	for name, test := range map[string]struct {
		end    func(username string)
		status int
		code   model.Code
		me     int // of GET /auth/me, in the end
	}{
		"disabled": {func(u string) { operate(t, s, "", "admin", "disable", "--username", u) }, 401, model.CodeUnauthenticated, 401},
		"password": {func(u string) { operate(t, s, "another horse\n", "admin", "passwd", "--username", u) }, 401, model.CodeUnauthenticated, 401},
		"demoted":  {func(u string) { execute(t, s, "UPDATE accounts SET role = 'user' WHERE username_key = '"+u+"'") }, 403, model.CodeForbidden, 200},
		"deleted":  {func(u string) { execute(t, s, "DELETE FROM accounts WHERE username_key = '"+u+"'") }, 401, model.CodeUnauthenticated, 200},
	} {
		token := create(name)
		tokens[name] = token
		draft := instances[0].Create(t, map[string]any{"state": "draft"})
		test.end(name)
		for _, a := range instances {
			var got api.Answer
			check.Eventually(t, name+": is out", func() bool {
				got = a.Call(t, http.MethodGet, "/admin/vouchers", token, nil)
				return got.Status != http.StatusOK
			})
			refused(t, got, test.status, test.code)
			refused(t, a.Call(t, http.MethodGet, "/vouchers/"+draft.ID, token, nil), http.StatusNotFound, model.CodeNotFound)
			check.Eventually(t, name+": a user's routes", func() bool {
				return a.Call(t, http.MethodGet, "/auth/me", token, nil).Status == test.me
			})
			// The operator's own tokens are of no account.
			object(t, a.Call(t, http.MethodGet, "/admin/vouchers", operator, nil), http.StatusOK)
		}
	}

	// A disabled account is refused with the words for a wrong password; enabled
	// again it logs in, and the old token stays ended.
	other := instances[1].elsewhere(t)
	disabled, wrong := other.login(t, "disabled", rightPassword), other.login(t, "disabled", "wrong horse")
	refused(t, disabled, http.StatusUnauthorized, model.CodeUnauthenticated)
	if string(disabled.Body) != string(wrong.Body) {
		t.Errorf("it can be told that an account is disabled: %s, %s", disabled.Body, wrong.Body)
	}
	operate(t, s, "", "admin", "enable", "--username", "DISABLED")
	renewed, _ := other.session(t, "disabled", rightPassword)
	object(t, other.Call(t, http.MethodGet, "/admin/vouchers", renewed, nil), http.StatusOK)
	refused(t, other.Call(t, http.MethodGet, "/admin/vouchers", tokens["disabled"], nil), http.StatusUnauthorized, model.CodeUnauthenticated)
}

func TestPasswordChange(t *testing.T) {
	t.Parallel()
	anywhere(t, checkPasswordChange)
}

func checkPasswordChange(t *testing.T, in shop) {
	t.Helper()
	a, alice := in.elsewhere(t), in.name("Alice")
	voucher := a.onSale(t, 5)
	a.register(t, alice)
	change := func(token, current, next string) api.Answer {
		t.Helper()
		return a.Insist(t, http.MethodPost, "/auth/password", token, map[string]string{"current": current, "new": next})
	}
	first, lasts := a.session(t, strings.ToLower(alice), rightPassword)
	second, _ := a.session(t, alice, rightPassword)
	if lasts < 6*time.Hour {
		t.Errorf("a buyer's token lasts %s", lasts)
	}

	refused(t, change("", rightPassword, "another horse"), http.StatusUnauthorized, model.CodeUnauthenticated)
	refused(t, change(first, "wrong horse", "another horse"), http.StatusUnauthorized, model.CodeUnauthenticated)
	for _, short := range []string{"", "123456789", strings.Repeat("x", 129)} {
		p := refused(t, change(first, rightPassword, short), http.StatusUnprocessableEntity, model.CodeValidation)
		if len(p.Errors) != 1 || p.Errors[0].Location != "body.new" {
			t.Errorf("%v", p.Errors)
		}
	}
	// A token of no account has no password here.
	refused(t, change(a.Token(t, "github:42", model.RoleUser), rightPassword, "another horse"), http.StatusNotFound, model.CodeNotFound)
	if got := a.Call(t, http.MethodGet, "/auth/me", second, nil); got.Status != http.StatusOK {
		t.Fatalf("what was refused has ended a token: %d %s", got.Status, got.Body)
	}

	// Of several changes at once, one happens.
	answers := make([]api.Answer, 3)
	check.Volley(len(answers), func(i int) { answers[i] = change(first, rightPassword, "another horse "+strconv.Itoa(i)) })
	changed := slices.IndexFunc(answers, func(got api.Answer) bool { return got.Status == http.StatusNoContent && len(got.Body) == 0 })
	for i, got := range answers {
		if i != changed {
			refused(t, got, http.StatusUnauthorized, model.CodeUnauthenticated)
		}
	}
	if changed < 0 {
		t.Fatal("no change happened")
	}
	for _, token := range []string{first, second} {
		refused(t, a.Call(t, http.MethodGet, "/auth/me", token, nil), http.StatusUnauthorized, model.CodeUnauthenticated)
		refused(t, a.Call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", token, nil), http.StatusUnauthorized, model.CodeUnauthenticated)
		refused(t, change(token, "another horse", "a third horse"), http.StatusUnauthorized, model.CodeUnauthenticated)
	}
	refused(t, a.login(t, alice, rightPassword), http.StatusUnauthorized, model.CodeUnauthenticated)
	third, _ := a.session(t, alice, "another horse "+strconv.Itoa(changed))
	if got := a.Insist(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", third, nil); !got.Sells() {
		t.Errorf("a purchase with the new token: %d %s", got.Status, got.Body)
	}
}

// TestAPasswordChangeIsKnownToEveryInstance: the other instance reads it from the
// database, and a new instance knows it from the start.
func TestAPasswordChangeIsKnownToEveryInstance(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	a, other := start(t, s), start(t, s)
	a.register(t, "alice")
	old, _ := a.session(t, "alice", rightPassword)
	got := a.Insist(t, http.MethodPost, "/auth/password", old, map[string]string{"current": rightPassword, "new": "another horse"})
	check.Equal(t, "the change", got.Status, http.StatusNoContent)
	check.Eventually(t, "the other instance refuses the old token", func() bool {
		return other.Call(t, http.MethodGet, "/orders", old, nil).Status == http.StatusUnauthorized
	})
	refused(t, start(t, s).Call(t, http.MethodGet, "/orders", old, nil), http.StatusUnauthorized, model.CodeUnauthenticated)
}

// TestTurningTheTokenSecret does what the page says, one instance after the other, while people log in at one and go on at
// another: none of them is logged out.
func TestTurningTheTokenSecret(t *testing.T) {
	t.Parallel()
	const old = "a secret of tokens that is replaced"
	page := string(check.Value(os.ReadFile("../../../deployments/changes.md"))(t))
	s := onServers(t)
	var instances [2]atomic.Pointer[app]
	var stop [2]func()
	serve := func(n int, listed string) {
		instance := check.Value(begin(t, s.with(settings{"SECKILL_JWT_SECRET": listed})))(t)
		instances[n].Store(newApp(t, instance.BaseURL(), instance.OpsURL()))
		stop[n] = func() { halt(instance) }
	}
	for n := range instances {
		serve(n, old)
		defer func() { stop[n]() }()
	}
	credentials := map[string]string{"username": "turner", "password": rightPassword}
	object(t, instances[0].Load().Call(t, http.MethodPost, "/auth/register", "", credentials), http.StatusCreated)
	var crowd sync.WaitGroup
	var over atomic.Bool
	var gone [2]atomic.Int64 // to another instance, or the same, by where the token is from
	defer crowd.Wait()
	defer over.Store(true)
	for n := range instances {
		crowd.Go(func() {
			for token, round := "", 0; !over.Load(); round++ {
				if round%8 == 0 {
					got, err := instances[n].Load().Send(http.MethodPost, "/auth/login", "", credentials)
					if token = ""; err == nil && got.Status == http.StatusOK { // otherwise it is being restarted, or has a queue
						token = remote.Decode[struct {
							AccessToken string `json:"access_token"`
						}](t, got).AccessToken
					}
				}
				got, err := instances[round%2].Load().Send(http.MethodGet, "/auth/me", token, nil)
				switch {
				case token == "" || err != nil:
				case got.Status == http.StatusOK:
					gone[n].Add(1)
				case got.Status == http.StatusUnauthorized:
					t.Errorf("a token of instance %d at instance %d: %s", n, round%2, got.Body)
					over.Store(true)
				}
			}
		})
	}
	fresh := func(n int) {
		before := gone[n].Load()
		check.Eventually(t, "people log in anew and go on", func() bool { return over.Load() || gone[n].Load() >= before+24 })
	}
	rolls := regexp.MustCompile("`SECKILL_JWT_SECRET=(.+?)`").FindAllStringSubmatch(page, -1)
	for _, roll := range rolls {
		listed := strings.NewReplacer("1=…", "1="+old, "new=…", "new="+old+" by this one").Replace(roll[1])
		for n := range instances {
			fresh(0)
			fresh(1)
			stop[n]()
			serve(n, listed)
		}
	}
	fresh(0)
	fresh(1)
	check.Equal(t, "rolls", len(rolls), 3)
}
