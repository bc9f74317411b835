//go:build faults

//part:databases

package e2e_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/api"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// askForPasswords starts servers that refuse whoever has not the passwords.
func askForPasswords(t *testing.T) (mariadb, cache, queue *testserver.Server) {
	t.Helper()
	mariadb = testserver.MariaDB(t)
	onDatabase(t, mariadb, "CREATE USER 'app'@'%' IDENTIFIED BY '"+mariadbSecret+"'", "GRANT ALL ON "+testserver.DefaultSchema+".* TO 'app'@'%'")
	cache = testserver.Redis(t)
	onRedis(t, cache, "", "CONFIG", "SET", "requirepass", redisSecret)
	queue = testserver.NATS(t, natsUser(natsSecret))
	return mariadb, cache, queue
}

func natsUser(password string) string {
	return fmt.Sprintf("authorization: {user: app, password: %q}", password)
}

func onDatabase(t *testing.T, server *testserver.Server, statements ...string) {
	t.Helper()
	db := check.Value(sql.Open("mysql", server.AdminDSN("")))(t)
	defer db.Close()
	for _, statement := range statements {
		check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), statement)))
	}
}

func onRedis(t *testing.T, server *testserver.Server, password string, command ...any) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: password})
	defer client.Close()
	check.Must(t, client.Do(t.Context(), command...).Err())
}

// A server with the right passwords that become the wrong ones while it runs tells
// none of them: neither in its log of every level, nor in an answer, nor when it is
// made to print all its goroutines.
func TestNoRunTellsASecret(t *testing.T) {
	t.Parallel()
	mariadb, cache, queue := askForPasswords(t)
	for name, wrong := range map[string]settings{
		"wrong password of MariaDB": guarded(mariadb.Addr(), cache.Addr(), queue.Addr()).with(settings{
			"SECKILL_DATABASE_DSN": "app:" + natsToken + "@tcp(" + mariadb.Addr() + ")/" + testserver.DefaultSchema,
		}),
		"wrong password of Redis": guarded(mariadb.Addr(), cache.Addr(), queue.Addr()).with(settings{"SECKILL_REDIS_URL": redisLink(cache.Addr(), lockSecret)}),
		"wrong token of NATS": guarded(mariadb.Addr(), cache.Addr(), queue.Addr()).with(settings{
			"SECKILL_NATS_URL": natsLink(queue.Addr(), url.User(natsToken)),
		}),
	} {
		out := ended(t, wrong, "serve")
		unseen(t, name, out)
		if strings.Contains(out, "the settings cannot be used") {
			t.Errorf("%s: it was refused before it asked the server: %s", name, out)
		}
	}

	p := prepare(t, testserver.Program(t), guarded(mariadb.Addr(), cache.Addr(), queue.Addr()))
	p.Tokens = check.Value(token.New([]token.Key{{ID: "new", Secret: jwtSecret}}, "seckill", "seckill"))(t)
	p.start(t)
	p.awaitReady(t)
	bearer := p.Admin(t)
	ask := func(round string) {
		for _, call := range []struct {
			method, url, token string
			body               any
		}{
			{http.MethodGet, p.URL + "/readyz", "", nil},
			{http.MethodGet, p.ops + "/metrics", "", nil},
			{http.MethodGet, p.ops + "/debug/pprof/cmdline", "", nil},
			{http.MethodGet, p.ops + "/debug/pprof/goroutine?debug=2", "", nil},
			{http.MethodGet, p.URL + "/api/v1/openapi.json", "", nil},
			{http.MethodGet, p.URL + "/api/v1/admin/vouchers", bearer, nil},
			{http.MethodGet, p.URL + "/api/v1/orders", bearer + "x", nil},
			{http.MethodPost, p.URL + "/api/v1/admin/vouchers", bearer, "{"},
			{http.MethodPost, p.URL + "/api/v1/auth/register", "", map[string]string{"username": "anybody", "password": userPassword}},
			{http.MethodPost, p.URL + "/api/v1/auth/login", "", map[string]string{"username": "anybody", "password": userPassword}},
			{http.MethodPost, p.URL + "/api/v1/auth/login", "", map[string]string{"username": "nobody", "password": userPassword}},
			{http.MethodPost, p.URL + "/api/v1/auth/login", "", map[string]string{"username": userPassword}},
		} {
			got, err := api.Send(t.Context(), p.Client, call.method, call.url, call.token, call.body)
			if err != nil {
				t.Errorf("%s: %s: %v", round, call.url, err)
				continue
			}
			header := &bytes.Buffer{}
			_ = got.Header.Write(header)
			text := header.String() + string(got.Body)
			unseen(t, round+": "+call.url, text)
			if strings.Contains(text, bearer) {
				t.Errorf("%s: %s shows the token of the request", round, call.url)
			}
		}
	}
	ask("with the right passwords")

	onDatabase(t, mariadb, "ALTER USER 'app'@'%' IDENTIFIED BY 'changed by its operator'", "KILL USER app")
	onRedis(t, cache, redisSecret, "CONFIG", "SET", "requirepass", "changed by its operator")
	onRedis(t, cache, "changed by its operator", "CLIENT", "KILL", "TYPE", "normal")
	queue.ReloadNATS(natsUser("changed by its operator"))
	check.Patiently(t, "it is not ready", func() bool {
		got, err := p.Get("/readyz")
		return err == nil && strings.Count(string(got.Body), "cannot be reached")+strings.Count(string(got.Body), "does not answer") >= 2
	})
	ask("with the wrong passwords")

	check.Must(t, p.cmd.Process.Signal(syscall.SIGQUIT)) // the runtime prints all goroutines, as after a panic
	check.Receive(t, "its end", p.exited)
	said := p.output.String()
	unseen(t, "the log", said)
	check.Equal(t, "the log has that it is not ready, and the goroutines", p.output.Has("not ready") && p.output.Has("goroutine "), true)
	if strings.Contains(said, bearer) || strings.Contains(said, bearer[:40]) {
		t.Error("the log shows a token")
	}
}
