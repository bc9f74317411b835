//go:build faults

//part:databases
package e2e_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/api"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
)

// TestAQuietInstanceStopsWell: the database has closed the connections of an instance that idled.
func TestAQuietInstanceStopsWell(t *testing.T) {
	t.Parallel()
	database := testserver.MariaDB(t)
	s := onServers(t).with(settings{"SECKILL_DATABASE_DSN": database.DSN(testserver.DefaultSchema)})
	operate(t, s, "", "migrate")
	admin := adminOf(t, database, "")
	check.Must(t, check.ErrorOf(admin.ExecContext(t.Context(), "SET GLOBAL wait_timeout = 1")))
	p := launch(t, s)
	voucher := p.onSale(t, 50)
	check.Volley(50, func(n int) { _, _ = p.Place(t, voucher.ID, p.user(n)) }) // over as many connections as there are
	check.Eventually(t, "the database closes connections", func() bool {
		var name, count string
		check.Must(t, admin.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Aborted_clients'").Scan(&name,
			&count))
		return check.Value(strconv.Atoi(count))(t) > 3
	})
	p.stops(t)
}

// TestAStopBesideDeadServers: what cannot be closed well any more is no failure of the stop.
func TestAStopBesideDeadServers(t *testing.T) {
	t.Parallel()
	database, redis, nats := testserver.MariaDB(t), testserver.Redis(t), testserver.NATS(t)
	for name, dead := range map[string][]*testserver.Server{
		"database": {database}, "Redis": {redis}, "NATS": {nats}, "all": {database, redis, nats},
	} {
		for _, server := range []*testserver.Server{database, redis, nats} {
			server.Start()
		}
		p := launch(t, onServers(t).with(settings{
			"SECKILL_DATABASE_DSN": database.DSN(testserver.DefaultSchema), "SECKILL_REDIS_URL": redis.URL(),
			"SECKILL_ORDER_MODE": "async", "SECKILL_NATS_URL": nats.URL(),
		}))
		voucher := p.onSale(t, 20)
		check.Volley(20, func(n int) { _, _ = p.Place(t, voucher.ID, p.user(n)) })
		for _, server := range dead {
			server.Kill()
		}
		t.Log("a stop beside dead " + name)
		p.stops(t)
	}
}

// The database is restored from a backup beside a newer Redis. The orders since are lost with it; the rest holds: the
// hot copy is rebuilt, and exactly the stock is sold. Rebuilds since the backup leave the database's epochs below those
// in Redis; without one they are equal, and the copy looks healthy. Nobody has to help, and no buyer from before to
// come. A backup by deployments/backup.md during a sale has every order answered before it.
func TestADatabaseIsRestoredBesideANewerRedis(t *testing.T) {
	t.Parallel()
	const stock, before, since = 300, 8, 8
	for name, tt := range map[string]struct {
		running  bool
		rebuilds int
		page     bool
	}{
		"lower epochs, under running instances":      {true, 5, false},
		"lower epochs, before the instances start":   {false, 5, false},
		"the same epoch, under running instances":    {true, 0, false},
		"the same epoch, before the instances start": {false, 0, false},
		"as the page says, under running instances":  {true, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own, s := asyncOnOwnDatabase(t)
			a := launch(t, s)
			voucher := a.onSale(t, stock)
			take, restore := func() { own.Stop(); own.KeepData(); own.Start() }, own.RestoreData
			if tt.page {
				b := newBackup(t, own)
				take, restore = func() { b.follow(t, "Taking one") }, func() { b.follow(t, "Restoring it") }
			}
			kept := a.stores(t, voucher.ID, 0, before)
			stop := meanwhile(1, func(_, n int) {
				if tt.page && n < stock/2 {
					a.accepted(t, voucher.ID, a.user(1000+n))
				}
			})
			take()
			stop()
			a.accepted(t, voucher.ID, a.user(before)) // it sells again
			lost := a.stores(t, voucher.ID, 100, since)
			// A message that is not acknowledged yet would bring its order back.
			check.Patiently(t, "the queue is empty", func() bool { return a.Audit(t, voucher.ID).Queue.Pending == 0 })
			for range tt.rebuilds {
				a.rebuild(t, voucher.ID)
				a.opens(t, voucher.ID)
			}

			if !tt.running {
				a.kill()
			}
			own.Kill()
			restore()
			restored := time.Now()
			own.Start()
			if !tt.running {
				a.serves(t)
			}
			a.accepted(t, voucher.ID, a.user(500)) // it sells again
			t.Logf("it sold again %.1f s after the database had begun to start", time.Since(restored).Seconds())
			check.Patiently(t, "the repair leaves nothing to do", func() bool {
				return !tt.page || check.ErrorOf(runs(t, s, "audit", "--repair", "--voucher", voucher.ID)) == nil
			})
			a.quiet(t, voucher.ID)
			t.Logf("it was in balance %.1f s after the database had begun to start", time.Since(restored).Seconds())
			orders := a.kept(t, voucher.ID, kept)
			for id := range lost {
				_, there := orders[id]
				check.That(t, !there, "order %s was made after the backup, and is there", id)
			}
			a.sellsOn(t, voucher.ID, 5000)
		})
	}
}

// backup is a server's, by the commands of deployments/backup.md.
type backup struct{ environ []string }

// newBackup tells mariadb-backup, in the file where an operator would, which server is meant.
func newBackup(t *testing.T, own *testserver.Server) backup {
	db := adminOf(t, own, "")
	var data, socket string
	check.Must(t, db.QueryRowContext(t.Context(), "SELECT @@datadir, @@socket").Scan(&data, &socket))
	home := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(home, ".my.cnf"),
		fmt.Appendf(nil, "[mariadb-backup]\nuser = root\nsocket = %s\ndatadir = %s\ninnodb_use_native_aio = OFF\n",
			socket, data), 0o600))
	return backup{append(os.Environ(), "HOME="+home, "DATA="+filepath.Clean(data),
		"BACKUP="+filepath.Join(home, "backup"))}
}

// follow runs the first commands of a chapter.
func (b backup) follow(t *testing.T, chapter string) {
	t.Helper()
	page := check.Value(os.ReadFile("../../../deployments/backup.md"))(t)
	found := regexp.MustCompile(`(?s)\n## ` + chapter + `\n.*?\n` + "```sh\n(.*?)```").FindSubmatch(page)
	check.Need(t, found != nil, "backup.md does not say how: %s", chapter)
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", string(found[1]))
	cmd.Env = b.environ
	out, err := cmd.CombinedOutput()
	check.Need(t, err == nil, "%s: %v\n%s", found[1], err, out)
}

// askForPasswords starts servers that refuse whoever has not the passwords.
func askForPasswords(t *testing.T) (mariadb, cache, queue *testserver.Server) {
	mariadb = testserver.MariaDB(t)
	onDatabase(t, mariadb, "CREATE USER 'app'@'%' IDENTIFIED BY '"+mariadbSecret+"'",
		"GRANT ALL ON "+testserver.DefaultSchema+".* TO 'app'@'%'")
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
	db := adminOf(t, server, "")
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

// A server whose right passwords become wrong while it runs shows none: in no log level, answer, or dump of goroutines.
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
		check.That(t, !strings.Contains(out, "the settings cannot be used"),
			"%s: it was refused before it asked the server: %s", name, out)
	}

	p := prepare(t, testserver.Program(t), guarded(mariadb.Addr(), cache.Addr(), queue.Addr()))
	p.Tokens = check.Value(token.New([]token.Key{{ID: "new", Secret: jwtSecret}}, "seckill", "seckill"))(t)
	p.serves(t)
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
			{
				http.MethodPost, p.URL + "/api/v1/auth/register", "",
				map[string]string{"username": "anybody", "password": userPassword},
			},
			{
				http.MethodPost, p.URL + "/api/v1/auth/login", "",
				map[string]string{"username": "anybody", "password": userPassword},
			},
			{
				http.MethodPost, p.URL + "/api/v1/auth/login", "",
				map[string]string{"username": "nobody", "password": userPassword},
			},
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
			check.That(t, !strings.Contains(text, bearer), "%s: %s shows the token of the request", round, call.url)
		}
	}
	ask("with the right passwords")

	onDatabase(t, mariadb, "ALTER USER 'app'@'%' IDENTIFIED BY 'changed by its operator'", "KILL USER app")
	onRedis(t, cache, redisSecret, "CONFIG", "SET", "requirepass", "changed by its operator")
	onRedis(t, cache, "changed by its operator", "CLIENT", "KILL", "TYPE", "normal")
	queue.ReloadNATS(natsUser("changed by its operator"))
	check.Patiently(t, "it is not ready", func() bool {
		got, err := p.Get("/readyz")
		return err == nil && strings.Count(string(got.Body), "cannot be reached")+
			strings.Count(string(got.Body), "does not answer") >= 2
	})
	ask("with the wrong passwords")

	check.Must(t, p.cmd.Process.Signal(syscall.SIGQUIT)) // the runtime prints all goroutines, as after a panic
	check.Receive(t, "its end", p.exited)
	said := p.output.String()
	unseen(t, "the log", said)
	check.Equal(t, "the log has that it is not ready, and the goroutines", p.output.Has("not ready") &&
		p.output.Has("goroutine "), true)
	check.That(t, !strings.Contains(said, bearer) && !strings.Contains(said, bearer[:40]), "the log shows a token")
}

// Neither an unfinished request, nor a running profile, nor a hung database keeps a stop from ending.
func TestTerminatedWhileEverythingHangs(t *testing.T) {
	t.Parallel()
	database := testserver.MariaDB(t)
	a := launch(t, onServers(t).with(settings{"SECKILL_DATABASE_DSN": database.DSN(testserver.DefaultSchema)}))
	voucher := a.onSale(t, 10)
	address := strings.TrimPrefix(a.URL, "http://")
	stalled := check.Value(net.Dial("tcp", address))(t)
	defer stalled.Close()
	check.Value(fmt.Fprintf(stalled, "POST /api/v1/auth/login HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", address))(t)
	ended := make(chan struct{}, 2) // both are cut off
	go func() {
		_, _ = api.Send(t.Context(), a.Client, http.MethodGet, a.ops+"/debug/pprof/profile?seconds=25", "", nil)
		ended <- struct{}{}
	}()
	database.Pause()
	defer database.Resume()
	go func() {
		_, _ = a.Place(t, voucher.ID, a.user(1))
		ended <- struct{}{}
	}()
	check.Eventually(t, "the profile runs", func() bool {
		got, err := api.Send(t.Context(), a.Client, http.MethodGet, a.ops+"/debug/pprof/goroutine?debug=1", "", nil)
		return err == nil && strings.Contains(string(got.Body), "pprof.Profile")
	})
	a.stops(t)
	for range cap(ended) {
		check.Receive(t, "the end of a request", ended)
	}
}

func askMember[T any](t *testing.T, member *testserver.Server, question string) (answer T, err error) {
	t.Helper()
	db := check.Value(sql.Open("mysql", member.AdminDSN("")))(t)
	defer db.Close()
	err = db.QueryRowContext(t.Context(), question).Scan(&answer)
	return answer, err
}

type pair struct {
	*app // the first one, which begins with the first member

	other *app
	mode  string
}

// onPair starts two instances, each behind a proxy of its own that has another member first.
func onPair(t *testing.T, mode string, members []*testserver.Server) pair {
	t.Helper()
	s := modes()[mode](t)
	on := func(first int) *app {
		proxy := testserver.Proxied(t, slices.Concat(members[first:], members[:first]))
		return start(t, s.with(settings{"SECKILL_DATABASE_DSN": proxy.DSN(testserver.DefaultSchema)}))
	}
	return pair{on(0), on(1), mode}
}

// crowded lets too many users buy a new voucher at both instances. The function waits, and checks an exact sale.
func (p pair) crowded(t *testing.T, stock, from int) (*crowd, func()) {
	t.Helper()
	c := newCrowd(p.app, p.onSale(t, stock).ID, p.other)
	sale := c.buying(t, users(p.app, from, stock+stock/5), 16)
	return c, func() {
		sale()
		sold(t, p.other, c.voucher, c.told, stock)
	}
}

// tellsOfNoQuorum waits until readiness tells that no order becomes a row.
func (p pair) tellsOfNoQuorum(t *testing.T) {
	t.Helper()
	check.Patiently(t, "readiness tells that no order becomes a row", func() bool {
		ready, err := p.Get("/readyz")
		if err != nil {
			return false
		}
		said := remote.Decode[struct{ Checks map[string]string }](t, ready).Checks["database"]
		return said != "ok" && (p.mode == "async" || ready.Status == http.StatusServiceUnavailable)
	})
}

type databases struct {
	members []*testserver.Server
	// serves tells whether a member takes writes, as another sees it.
	serves func(t *testing.T, member, seen *testserver.Server) bool
	// alone tells whether a member has given up what waits because it has no quorum.
	alone func(t *testing.T, member *testserver.Server) bool
	anew  []string // the statements of an operator who is sure that the others are dead
}

// survive has two instances sell exactly through three members: one dies for good, then the quorum; the dead come back.
func (d databases) survive(t *testing.T, p pair) {
	first, members := d.members[0], d.members
	_, exactly := p.crowded(t, 300, 0)
	exactly()

	flows := []*flow{
		p.flowing(t, p.onSale(t, 100_000).ID, 3, p.user),
		p.other.flowing(t, p.onSale(t, 100_000).ID, 3, p.other.user),
	}
	goOn := func() {
		for _, f := range flows {
			f.moreSales(t, ordersBefore(t))
		}
	}
	goOn()
	killed := time.Now()
	first.Kill()
	check.Patiently(t, "another member takes writes", func() bool {
		if !d.serves(t, members[1], members[1]) {
			members[1], members[2] = members[2], members[1]
		}
		return d.serves(t, members[1], members[2])
	})
	elected := time.Now()
	goOn()
	for i, f := range flows {
		f.failedOver(t, fmt.Sprintf("%s, instance %d", p.mode, i), killed, elected)
		f.conservedFlow(t)
	}

	// Of those that are left the one dies that does not serve.
	c, exactly := p.crowded(t, 200, 300_000)
	c.moreSales(t, 20)
	lost, last := time.Now(), members[1]
	members[2].Kill()
	p.tellsOfNoQuorum(t)
	t.Logf("%s: not ready %.1f s after the quorum was lost", p.mode, time.Since(lost).Seconds())
	check.Patiently(t, "the member gives up what waits", func() bool { return d.alone(t, last) })
	onDatabase(t, last, d.anew...)
	exactly()

	members[2].Start()
	first.Start()
	p.ready(t)
	p.other.ready(t)
	check.That(t, d.serves(t, last, first), "the one that was left does not serve")
	_, exactly = p.crowded(t, 100, 400_000)
	exactly()
}

// TestGaleraCluster: two instances sell through two of three writable members, and show each other's sales at once.
//
//nolint:paralleltest // members that suspect each other by time-outs need the machine for themselves
func TestGaleraCluster(t *testing.T) {
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			members := testserver.Galera(t, 3)
			p := onPair(t, mode, members)
			voucher := p.onSale(t, 1000)
			for n := range 300 {
				from, to := p.app, p.other
				if n%2 == 1 {
					from, to = to, from
				}
				order := from.bought(t, voucher.ID, from.user(100_000+n))
				shown := to.does(t, "GET /orders/"+order.ID, to.as(t, order.UserID), nil)
				check.Equal(t, "the order, shown by the other instance", shown.Status, http.StatusOK)
			}
			primary := func(t *testing.T, member *testserver.Server) bool {
				const question = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_cluster_status'"
				status, err := askMember[string](t, member, question)
				return err == nil && status == "Primary"
			}
			databases{
				members: members, anew: []string{"SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES'"},
				serves: func(t *testing.T, member, _ *testserver.Server) bool { return primary(t, member) },
				alone:  func(t *testing.T, member *testserver.Server) bool { return !primary(t, member) },
			}.survive(t, p)
		})
	}
}
