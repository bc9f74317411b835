package e2e_test

import (
	"database/sql"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// operate runs a command of the program beside the instances of a deployment, and
// returns what it prints.
func operate(t *testing.T, s settings, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testserver.Program(t), args...)
	cmd.Env = append(os.Environ(), s.environ()...)
	cmd.Stdin = strings.NewReader(stdin)
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("seckill %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return string(said)
}

// byHand changes the database as an operator does by hand.
func byHand(t *testing.T, s settings, statement string, args ...any) {
	t.Helper()
	cfg, err := mysql.ParseDSN(s["SECKILL_DATABASE_DSN"])
	check.Must(t, err)
	connector, err := mysql.NewConnector(cfg)
	check.Must(t, err)
	db := sql.OpenDB(connector)
	defer db.Close()
	result, err := db.ExecContext(t.Context(), statement, args...)
	check.Must(t, err)
	if rows, err := result.RowsAffected(); err != nil || rows != 1 {
		t.Fatalf("%s: %d rows, %v", statement, rows, err)
	}
}

// TestAnAdministratorIsOutWithinASecond ends the right of an administrator in every
// way there is. A second later no instance obeys the token any more.
func TestAnAdministratorIsOutWithinASecond(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	instances := []*app{start(t, s), launch(t, s).app}
	operator := instances[0].admin(t)
	create := func(username string) string {
		t.Helper()
		operate(t, s, rightPassword+"\n", "admin", "create", "--username", username)
		token, lasts := instances[0].session(t, username, rightPassword)
		if lasts > time.Hour {
			t.Errorf("an administrator's token lasts %s", lasts)
		}
		for _, a := range instances {
			if got := a.call(t, http.MethodGet, "/admin/vouchers", token, nil); got.status != http.StatusOK {
				t.Errorf("%s is an administrator: %d %s", username, got.status, got.body)
			}
		}
		return token
	}
	for name, test := range map[string]struct {
		end    func(username string)
		status int
		code   model.Code
		me     int // of GET /auth/me, in the end
	}{
		"disabled": {func(u string) { operate(t, s, "", "admin", "disable", "--username", u) }, 401, model.CodeUnauthenticated, 401},
		"password": {func(u string) { operate(t, s, "another horse\n", "admin", "passwd", "--username", u) }, 401, model.CodeUnauthenticated, 401},
		"demoted":  {func(u string) { byHand(t, s, "UPDATE accounts SET role = 'user' WHERE username_key = ?", u) }, 403, model.CodeForbidden, 200},
		"deleted":  {func(u string) { byHand(t, s, "DELETE FROM accounts WHERE username_key = ?", u) }, 401, model.CodeUnauthenticated, 200},
	} {
		token := create(name)
		draft := instances[0].create(t, map[string]any{"state": "draft"})
		test.end(name)
		ended := time.Now()
		for _, a := range instances {
			until(t, 30*time.Second, name+": is out", func() bool {
				asked := time.Now()
				got := a.call(t, http.MethodGet, "/admin/vouchers", token, nil)
				if got.status == http.StatusOK && asked.After(ended.Add(time.Second)) {
					t.Errorf("%s: goes on after %s", name, asked.Sub(ended))
				}
				if got.status != http.StatusOK {
					refused(t, got, test.status, test.code)
				}
				return got.status != http.StatusOK
			})
			refused(t, a.call(t, http.MethodGet, "/vouchers/"+draft.ID, token, nil), http.StatusNotFound, model.CodeNotFound)
			until(t, 30*time.Second, name+": a user's routes", func() bool {
				return a.call(t, http.MethodGet, "/auth/me", token, nil).status == test.me
			})
			// The operator's own tokens are of no account.
			if got := a.call(t, http.MethodGet, "/admin/vouchers", operator, nil); got.status != http.StatusOK {
				t.Errorf("%s: the operator's token: %d %s", name, got.status, got.body)
			}
		}
	}

	// A disabled account is refused with the words for a wrong password; enabled
	// again it logs in, and the old token stays ended.
	token := create("resting")
	operate(t, s, "", "admin", "disable", "--username", "resting")
	disabled, wrong := instances[1].login(t, "resting", rightPassword), instances[1].login(t, "resting", "wrong horse")
	refused(t, disabled, http.StatusUnauthorized, model.CodeUnauthenticated)
	if string(disabled.body) != string(wrong.body) {
		t.Errorf("it can be told that an account is disabled: %s, %s", disabled.body, wrong.body)
	}
	operate(t, s, "", "admin", "enable", "--username", "RESTING")
	renewed, _ := instances[1].session(t, "resting", rightPassword)
	if got := instances[1].call(t, http.MethodGet, "/admin/vouchers", renewed, nil); got.status != http.StatusOK {
		t.Errorf("enabled again: %d %s", got.status, got.body)
	}
	refused(t, instances[1].call(t, http.MethodGet, "/admin/vouchers", token, nil), http.StatusUnauthorized, model.CodeUnauthenticated)
}

func TestPasswordChange(t *testing.T) {
	t.Parallel()
	everywhere(t, nil, checkPasswordChange)
}

func checkPasswordChange(t *testing.T, a *app) {
	t.Helper()
	voucher := a.onSale(t, 5)
	a.register(t, "Alice")
	change := func(token, current, next string) answer {
		t.Helper()
		return a.call(t, http.MethodPost, "/auth/password", token, map[string]string{"current": current, "new": next})
	}
	first, lasts := a.session(t, "alice", rightPassword)
	second, _ := a.session(t, "alice", rightPassword)
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
	refused(t, change(a.token(t, "github:42", model.RoleUser), rightPassword, "another horse"), http.StatusNotFound, model.CodeNotFound)
	if got := a.call(t, http.MethodGet, "/auth/me", second, nil); got.status != http.StatusOK {
		t.Fatalf("what was refused has ended a token: %d %s", got.status, got.body)
	}

	if got := change(first, rightPassword, "another horse"); got.status != http.StatusNoContent || len(got.body) != 0 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for _, token := range []string{first, second} {
		refused(t, a.call(t, http.MethodGet, "/auth/me", token, nil), http.StatusUnauthorized, model.CodeUnauthenticated)
		refused(t, a.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", token, nil), http.StatusUnauthorized, model.CodeUnauthenticated)
		refused(t, change(token, "another horse", "a third horse"), http.StatusUnauthorized, model.CodeUnauthenticated)
	}
	refused(t, a.login(t, "alice", rightPassword), http.StatusUnauthorized, model.CodeUnauthenticated)
	third, _ := a.session(t, "alice", "another horse")
	if got := a.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", third, nil); got.status != http.StatusCreated {
		t.Errorf("a purchase with the new token: %d %s", got.status, got.body)
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
	got := a.call(t, http.MethodPost, "/auth/password", old, map[string]string{"current": rightPassword, "new": "another horse"})
	if got.status != http.StatusNoContent {
		t.Fatalf("%d %s", got.status, got.body)
	}
	until(t, 30*time.Second, "the other instance refuses the old token", func() bool {
		return other.call(t, http.MethodGet, "/orders", old, nil).status == http.StatusUnauthorized
	})
	refused(t, start(t, s).call(t, http.MethodGet, "/orders", old, nil), http.StatusUnauthorized, model.CodeUnauthenticated)
}

// TestParallelPasswordChanges: of several changes with one token, one happens.
func TestParallelPasswordChanges(t *testing.T) {
	t.Parallel()
	a := start(t, onServers(t))
	a.register(t, "alice")
	token, _ := a.session(t, "alice", rightPassword)
	answers := make([]answer, 3)
	check.Volley(len(answers), func(i int) {
		body := map[string]string{"current": rightPassword, "new": "another horse " + string(rune('a'+i))}
		answers[i] = a.call(t, http.MethodPost, "/auth/password", token, body)
	})
	changed := -1
	for i, got := range answers {
		switch {
		case got.status == http.StatusNoContent && changed < 0:
			changed = i
		case got.status == http.StatusNoContent:
			t.Error("two changes happened")
		default:
			refused(t, got, http.StatusUnauthorized, model.CodeUnauthenticated)
		}
	}
	if changed < 0 {
		t.Fatal("no change happened")
	}
	a.session(t, "alice", "another horse "+string(rune('a'+changed)))
}
