package e2e_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"seckill/config"
	"seckill/internal/api"
	command "seckill/internal/app"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // dozens of instances are in this process: to collect garbage as usual took a tenth of its time
	testserver.Main(m)
}

const secret = "a secret of the tests, 32 bytes or more"

// settings are variables of the environment.
type settings map[string]string

// with returns a copy with further settings, which win.
func (s settings) with(more settings) settings {
	all := maps.Clone(s)
	maps.Copy(all, more)
	return all
}

func (s settings) environ() []string {
	var environ []string
	for name, value := range s {
		environ = append(environ, name+"="+value)
	}
	return environ
}

// adminOf is a database server's administrator, in a schema.
func adminOf(t testing.TB, server *testserver.Server, schema string) *sql.DB {
	t.Helper()
	db := check.Value(sql.Open("mysql", server.AdminDSN(schema)))(t)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// meanwhile has loops do something again and again, until what it returns is called, which waits for them.
func meanwhile(loops int, do func(loop, n int)) (stop func()) {
	var (
		over    atomic.Bool
		looping sync.WaitGroup
	)
	for loop := range loops {
		looping.Go(func() {
			for n := 0; !over.Load(); n++ {
				do(loop, n)
			}
		})
	}
	return sync.OnceFunc(func() {
		over.Store(true)
		looping.Wait()
	})
}

// base are settings that every deployment of the tests has.
func base() settings {
	return settings{
		"SECKILL_JWT_SECRET": secret, "SECKILL_HTTP_ADDR": "127.0.0.1:0", "SECKILL_OPS_ADDR": "127.0.0.1:0",
		"SECKILL_RATE_USER": "0", "SECKILL_RATE_ADDR": "0", // all come from 127.0.0.1
	}
}

// onServers is a deployment of its own on the real servers the tests share: a fresh schema, and users no other test
// has.
func onServers(t *testing.T) settings {
	t.Helper()
	return base().with(settings{
		"SECKILL_DATABASE_DSN": testserver.Schema(t), "SECKILL_REDIS_URL": testserver.SharedRedis(t),
		"SECKILL_DRAIN_GRACE": "1s", // long enough to see it
	})
}

// embeddedSettings is a deployment without any server.
func embeddedSettings(t *testing.T) settings {
	t.Helper()
	return base().with(settings{"SECKILL_DATA_DIR": t.TempDir()})
}

// app is the program under test, seen through HTTP.
type app struct {
	remote.Service

	ops string
	// prefix makes users unique among the tests that share a Redis, where a user's lock has the same name in every
	// deployment.
	prefix string
}

// begin starts an instance in this process.
func begin(t *testing.T, s settings) (*command.Instance, error) {
	t.Helper()
	cfg, err := config.Load(s.environ())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})
	return command.Start(t.Context(), cfg, slog.New(log))
}

// start runs an instance in this process until the test ends.
func start(t *testing.T, s settings) *app {
	t.Helper()
	instance, err := begin(t, s)
	if err != nil {
		t.Fatal(err)
	}
	a := newApp(t, instance.BaseURL(), instance.OpsURL())
	t.Cleanup(func() {
		a.Client.CloseIdleConnections()
		halt(instance)
	})
	return a
}

// halt stops an instance at once: no load balancer has to notice.
func halt(instance *command.Instance) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	instance.Stop(now)
}

func newApp(t testing.TB, url, ops string) *app {
	t.Helper()
	return &app{
		Service: remote.Service{URL: url, Client: remote.Client(t, "", 4000), Tokens: check.Value(remote.Authority(secret))(t)},
		ops:     ops, prefix: t.Name()[:4] + strconv.FormatInt(time.Now().UnixNano(), 36) + ":",
	}
}

func (a *app) user(n int) string { return a.prefix + strconv.Itoa(n) }

// as is a user's token.
func (a *app) as(t testing.TB, user string) string {
	t.Helper()
	return a.Token(t, user, model.RoleUser)
}

// once makes a call, such as "POST /orders/1/cancel", which must be answered.
func (a *app) once(t testing.TB, call, token string, body any, headers ...string) api.Answer {
	t.Helper()
	method, path, _ := strings.Cut(call, " ")
	return a.Call(t, method, path, token, body, headers...)
}

// does is once for a call that may be told to come again.
func (a *app) does(t testing.TB, call, token string, body any, headers ...string) api.Answer {
	t.Helper()
	return remote.Insist(t, call, func(int) (api.Answer, error) {
		method, path, _ := strings.Cut(call, " ")
		return a.Send(method, path, token, body, headers...)
	})
}

// reads is what an administrator reads.
func reads[T any](t testing.TB, a *app, path string) T {
	t.Helper()
	got := a.does(t, "GET "+path, a.Admin(t), nil)
	check.Need(t, got.Status == http.StatusOK, "GET %s: %d %s", path, got.Status, got.Body)
	return remote.Decode[T](t, got)
}

// buy asks for a unit until that is answered for good.
func (a *app) buy(t testing.TB, voucherID, user string) api.Answer {
	t.Helper()
	return a.does(t, "POST /vouchers/"+voucherID+"/seckill", a.as(t, user), nil)
}

// mine are a user's orders of a voucher.
func (a *app) mine(t testing.TB, voucherID, user string) []model.Order {
	t.Helper()
	got := a.does(t, "GET /orders?voucher_id="+voucherID, a.as(t, user), nil)
	check.Need(t, got.Status == http.StatusOK, "the orders of %s: %d %s", user, got.Status, got.Body)
	return remote.Decode[model.OrderPage](t, got).Items
}

// patch changes a voucher.
func (a *app) patch(t testing.TB, voucherID string, fields any) model.Voucher {
	t.Helper()
	got := a.does(t, "PATCH /admin/vouchers/"+voucherID, a.Admin(t), fields)
	check.Need(t, got.Status == http.StatusOK, "change voucher %s: %d %s", voucherID, got.Status, got.Body)
	return remote.Decode[model.Voucher](t, got)
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

// onSale creates a voucher that is on sale now.
func (a *app) onSale(t testing.TB, stock int) model.Voucher {
	t.Helper()
	return a.Create(t, map[string]any{"stock": stock})
}

// rows lists every order of a voucher, by user.
func (a *app) rows(t testing.TB, voucherID string) map[string]model.Order {
	t.Helper()
	rows := map[string]model.Order{}
	for _, order := range a.orders(t, voucherID) {
		other, twice := rows[order.UserID]
		check.That(t, !twice, "user %s has two orders: %s and %s", order.UserID, order.ID, other.ID)
		rows[order.UserID] = order
	}
	return rows
}

// orders lists every order of a voucher that the database knows, by id.
func (a *app) orders(t testing.TB, voucherID string) map[string]model.Order {
	t.Helper()
	orders := map[string]model.Order{}
	for cursor := ""; ; {
		got := a.Insist(t, http.MethodGet, "/admin/vouchers/"+voucherID+"/orders?limit=100&cursor="+cursor, a.Admin(t), nil)
		check.Need(t, got.Status == http.StatusOK, "orders: %d %s", got.Status, got.Body)
		page := remote.Decode[model.OrderPage](t, got)
		for _, order := range page.Items {
			orders[order.ID] = order
		}
		if cursor = page.NextCursor; cursor == "" {
			return orders
		}
	}
}

// process is the real program in a process of its own. Its addresses, and with them its *app, stay the same when it is
// started again.
type process struct {
	*app
	path     string
	settings settings
	output   *check.Log

	mu     sync.Mutex // held while it is started or killed
	cmd    *exec.Cmd
	exited <-chan struct{} // closed once it has been waited for
}

// launch starts `seckill serve` and returns when it is ready. What is left of it is killed at the end of the test.
func launch(t testing.TB, s settings) *process {
	t.Helper()
	return launchAs(t, testserver.Program(t), s)
}

// launchAs is launch of another program.
func launchAs(t testing.TB, path string, s settings) *process {
	t.Helper()
	p := prepare(t, path, s)
	p.serves(t)
	return p
}

// prepare says how a program is to be started, and where.
func prepare(t testing.TB, path string, s settings) *process {
	t.Helper()
	main, ops := testserver.Address(t), testserver.Address(t)
	p := &process{
		app: newApp(t, "http://"+main, "http://"+ops), path: path, output: &check.Log{},
		settings: s.with(settings{"SECKILL_HTTP_ADDR": main, "SECKILL_OPS_ADDR": ops}),
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			testserver.KeepLog(t, "seckill-"+p.settings["SECKILL_HTTP_ADDR"], p.output.String())
		}
	})
	return p
}

// start runs the program, with further settings for this time.
func (p *process) start(t testing.TB, more ...settings) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.settings
	for _, m := range more {
		s = s.with(m)
	}
	cmd := exec.Command(p.path, "serve")
	cmd.Env = append(os.Environ(), s.environ()...)
	cmd.Stdout, cmd.Stderr = p.output, p.output
	exited, err := testserver.StartTied(cmd)
	check.Must(t, err)
	p.cmd, p.exited = cmd, exited
}

// serves starts the program, and waits until it is ready.
func (p *process) serves(t testing.TB) {
	t.Helper()
	p.start(t)
	p.awaitReady(t)
}

// restarts kills the program, and starts it again.
func (p *process) restarts(t testing.TB) {
	t.Helper()
	p.kill()
	p.serves(t)
}

// stops ends the program as an orchestrator does, and demands that it ends well.
func (p *process) stops(t testing.TB) {
	t.Helper()
	check.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.ends(t)
}

// awaitReady waits until the program says that it is ready.
func (p *process) awaitReady(t testing.TB) {
	t.Helper()
	check.Patiently(t, "the program is ready", func() bool {
		check.Need(t, p.alive(), "the program ended: %v\n%s", p.cmd.ProcessState, p.output)
		return p.Status("/readyz") == http.StatusOK
	})
}

// revive starts the program again if it has ended.
func (p *process) revive(t testing.TB) {
	t.Helper()
	if !p.alive() {
		t.Logf("it had ended: %v", p.cmd.ProcessState)
		p.start(t)
	}
}

// alive tells whether the program has not ended yet.
func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// ends waits until the program has ended by itself, and demands that it ended well.
func (p *process) ends(t testing.TB) {
	t.Helper()
	check.Receive(t, "the end of the program", p.exited)
	check.Equal(t, "its exit code", p.cmd.ProcessState.ExitCode(), 0)
}

// kill ends the program as a power cut would, and returns when it is gone.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // gone already is as good
	<-p.exited
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// connect opens so many connections to an instance and lets each have an answer, so that the requests that follow, up
// to as many at once, need no new one. The program closes a connection that has said nothing within five seconds, and
// http.Transport opens connections that it uses only later, so that a rush on a starved machine would now and then be
// sent down a closed one.
func (a *app) connect(t testing.TB, count int) {
	t.Helper()
	const atOnce = 50 // more would themselves wait too long to be written
	var (
		opening sync.WaitGroup
		slots   = make(chan struct{}, atOnce)
		answers = make([]*http.Response, count)
	)
	for n := range answers {
		slots <- struct{}{}
		opening.Go(func() {
			defer func() { <-slots }()
			var err error
			if answers[n], err = a.Client.Get(a.URL + "/livez"); err != nil { //nolint:bodyclose // below
				t.Errorf("connection %d: %v", n, err)
			}
		})
	}
	opening.Wait()
	for _, answer := range answers {
		if answer == nil {
			continue
		}
		// Only now is the connection free for another request: all are there.
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
}

// asyncOnServers is onServers with orders that are queued in the NATS server the tests share.
func asyncOnServers(t *testing.T) settings {
	t.Helper()
	return onServers(t).with(settings{
		"SECKILL_ORDER_MODE": "async",
		"SECKILL_NATS_URL":   testserver.SharedNATS(t),
	})
}

// modes are deployments in both order modes.
func modes() map[string]func(*testing.T) settings {
	return map[string]func(*testing.T) settings{"sync": onServers, "async": asyncOnServers}
}

// servers are a deployment's own, to be killed.
type servers struct {
	database, redis, nats *testserver.Server
}

// asyncOnOwnServers is a deployment whose servers no other test has.
func asyncOnOwnServers(t testing.TB) (servers, settings) {
	t.Helper()
	own := servers{database: testserver.MariaDB(t), redis: testserver.Redis(t), nats: testserver.NATS(t)}
	return own, base().with(settings{
		"SECKILL_DATABASE_DSN": own.database.DSN(testserver.DefaultSchema), "SECKILL_REDIS_URL": own.redis.URL(),
		"SECKILL_NATS_URL": own.nats.URL(), "SECKILL_ORDER_MODE": "async",
	})
}

// asyncOnOwnRedis is a deployment of which no other test has the Redis.
func asyncOnOwnRedis(t *testing.T) (*testserver.Server, settings) {
	t.Helper()
	own := testserver.Redis(t)
	return own, asyncOnServers(t).with(settings{"SECKILL_REDIS_URL": own.URL()})
}

// asyncOnOwnDatabase is one of which no other test has the database.
func asyncOnOwnDatabase(t *testing.T) (*testserver.Server, settings) {
	t.Helper()
	own := testserver.MariaDB(t)
	return own, asyncOnServers(t).with(settings{"SECKILL_DATABASE_DSN": own.DSN(testserver.DefaultSchema)})
}

// asyncOnOwnNATS is one of which no other test has the queue.
func asyncOnOwnNATS(t *testing.T, config ...string) (*testserver.Server, settings) {
	t.Helper()
	own := testserver.NATS(t, config...)
	return own, asyncOnServers(t).with(settings{"SECKILL_NATS_URL": own.URL()})
}

// role is a deployment's instances of one role.
func (s settings) role(name string) settings { return s.with(settings{"SECKILL_ROLE": name}) }

// refuses demands that a user is told to come again.
func (a *app) refuses(t testing.TB, voucherID, user string) {
	t.Helper()
	got, err := a.Place(t, voucherID, user)
	check.That(t, err == nil && got.Code() == model.CodeUnavailable && got.Header.Get("Retry-After") != "",
		"%s buys: %d %s %v, want UNAVAILABLE", user, got.Status, got.Body, err)
}

// accepted buys one unit, and fails the test when that is not promised in the end.
func (a *app) accepted(t testing.TB, voucherID, user string) model.Order {
	t.Helper()
	got := remote.Insist(t, user, func(int) (api.Answer, error) { return a.Place(t, voucherID, user) })
	switch {
	case got.Status == http.StatusAccepted:
		return remote.Decode[model.Order](t, got)
	case got.Code() == model.CodeAlreadyOrdered: // an earlier answer said that it was not known
		return model.Order{ID: remote.Decode[api.Problem](t, got).OrderID, VoucherID: voucherID, UserID: user}
	}
	t.Fatalf("%s buys: %d %s, want 202", user, got.Status, got.Body)
	return model.Order{}
}

// buysAll has so many users buy one unit each, and returns the orders with their users.
func (a *app) buysAll(t testing.TB, voucherID string, users []string) map[string]string {
	t.Helper()
	promised := map[string]string{}
	for _, user := range users {
		promised[a.accepted(t, voucherID, user).ID] = user
	}
	return promised
}

// stores is buysAll of n users from one on, and waits until each order has its row.
func (a *app) stores(t testing.TB, voucherID string, from, n int) map[string]string {
	t.Helper()
	bought := a.buysAll(t, voucherID, users(a, from, n))
	for id, user := range bought {
		a.becomes(t, model.Order{ID: id, UserID: user}, model.OrderUnpaid)
	}
	return bought
}

// becomes waits for what becomes of an order; the answer comes when it does.
func (a *app) becomes(t testing.TB, order model.Order, want model.OrderStatus) (became model.Order) {
	t.Helper()
	token := a.as(t, order.UserID)
	check.Eventually(t, "order "+order.ID+" is more than a promise", func() bool {
		got := a.Insist(t, http.MethodGet, "/orders/"+order.ID+"?wait=25s", token, nil)
		check.Need(t, got.Status == http.StatusOK, "order %s: %d %s", order.ID, got.Status, got.Body)
		became = remote.Decode[model.Order](t, got)
		return became.Status != model.OrderProcessing
	})
	check.That(t, became.Status == want, "order %s is %s (%s), want %s", order.ID, became.Status, became.Reason, want)
	return became
}

// cancels gives an order's unit back.
func (a *app) cancels(t testing.TB, order model.Order) {
	t.Helper()
	got := a.Insist(t, http.MethodPost, "/orders/"+order.ID+"/cancel", a.as(t, order.UserID), nil)
	check.That(t, got.Status == http.StatusOK && remote.Decode[model.Order](t, got).Status == model.OrderCanceled,
		"cancel %s: %d %s", order.ID, got.Status, got.Body)
}

// quiet waits until nothing is under way for a voucher any more and everything about it agrees.
func (a *app) quiet(t testing.TB, voucherID string) (audit model.Audit) {
	t.Helper()
	check.Patiently(t, "the audit of "+voucherID+" is balanced and quiet", func() bool {
		audit = a.Audit(t, voucherID)
		return settled(audit)
	})
	return audit
}

// settled reports whether everything agrees and nothing is under way: what is younger than 5 s, and thus left out of
// the balance, too.
func settled(audit model.Audit) bool {
	return audit.Balanced && (audit.Queue == nil || audit.Queue.Pending == 0) &&
		(audit.Redis == nil || audit.Redis.State == string(model.CopyOpen) && audit.Redis.Reserved == 0 &&
			audit.Redis.Remaining == audit.Database.Remaining && audit.Redis.Buyers == audit.Database.LiveOrders)
}

// conserved waits until a voucher is quiet, checks invariants 1 to 4 by id, and returns every order. The promised
// orders, and their users, must be among them.
func (a *app) conserved(t testing.TB, voucherID string, promised map[string]string) map[string]model.Order {
	t.Helper()
	audit := a.quiet(t, voucherID)
	orders := a.orders(t, voucherID)
	live := map[string]string{}
	for id, order := range orders {
		if !order.Live() {
			continue
		}
		other, twice := live[order.UserID]
		check.That(t, !twice, "%s has two live orders: %s and %s", order.UserID, id, other)
		live[order.UserID] = id
	}
	d := audit.Database
	check.That(t, d.LiveOrders == int64(len(live)) && d.Stock == d.Remaining+d.LiveOrders,
		"%d live orders, and the audit says %+v", len(live), d)
	for id, user := range promised {
		if order, ok := orders[id]; !ok || order.UserID != user || order.Status == model.OrderProcessing {
			t.Errorf("%s was promised order %s, and it is %+v", user, id, order)
		}
	}
	return orders
}

// unbroken checks that every promise became an order that can be paid.
func unbroken(t testing.TB, orders map[string]model.Order, promised map[string]string) {
	t.Helper()
	for id := range promised {
		if order := orders[id]; order.Status != model.OrderUnpaid {
			t.Errorf("order %s was promised and is %q (%s)", id, order.Status, order.Reason)
		}
	}
}

// kept waits until a voucher is quiet, and checks that it is conserved and every promise is kept.
func (a *app) kept(t testing.TB, voucherID string, promised map[string]string) map[string]model.Order {
	t.Helper()
	orders := a.conserved(t, voucherID, promised)
	unbroken(t, orders, promised)
	return orders
}

// sellsOn lets new users buy what is left, to the last unit, and checks that everything was sold exactly. It returns
// what was promised meanwhile.
func (a *app) sellsOn(t testing.TB, voucherID string, from int) map[string]string {
	t.Helper()
	promised, n := map[string]string{}, from
	check.Eventually(t, "voucher "+voucherID+" sells to the last unit", func() bool {
		for ; ; n++ {
			user := a.user(n)
			got := remote.Insist(t, user, func(int) (api.Answer, error) { return a.Place(t, voucherID, user) })
			switch {
			case got.Sells():
				promised[remote.Decode[model.Order](t, got).ID] = user
			case got.Code() == model.CodeAlreadyOrdered: // an earlier answer said that it was not known
				promised[remote.Decode[api.Problem](t, got).OrderID] = user
			case got.Code() == model.CodeSoldOut:
				return a.Audit(t, voucherID).Database.Remaining == 0 // a local copy may say so for a second
			default:
				t.Fatalf("it does not sell on: %d %s, %+v", got.Status, got.Body, a.Audit(t, voucherID))
			}
		}
	})
	a.kept(t, voucherID, promised)
	d := a.Audit(t, voucherID).Database
	check.That(t, d.Remaining == 0 && d.LiveOrders == d.Stock, "stock was lost: %+v", d)
	return promised
}

// sellsOut lowers a large stock, so that only some units are left, and lets new users buy them.
func (a *app) sellsOut(t testing.TB, voucherID string) {
	t.Helper()
	const more = 5
	stock := map[string]any{"stock": a.Audit(t, voucherID).Database.LiveOrders + more}
	got := a.does(t, "POST /admin/vouchers/"+voucherID+"/stock", a.Admin(t), stock)
	check.Need(t, got.Status == http.StatusOK, "lower the stock: %d %s", got.Status, got.Body)
	check.Equal(t, "units sold to the last", len(a.sellsOn(t, voucherID, 900_000_000)), more)
}

// sorted are the keys in order, so that a seed gives the same test again.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// runs a command of the real program, and returns what it said.
func runs(t testing.TB, s settings, args ...string) (output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(check.Context(t), testserver.Program(t), args...)
	cmd.Env = append(os.Environ(), s.environ()...)
	said, err := cmd.CombinedOutput()
	if err != nil {
		return string(said), fmt.Errorf("seckill %v: %w\n%s", args, err, said)
	}
	return string(said), nil
}

// later makes a request in the background.
func (a *app) later(t *testing.T, method, path, token string) <-chan api.Answer {
	t.Helper()
	done := make(chan api.Answer, 1)
	go func() {
		got, err := a.Send(method, path, token, nil)
		if err != nil {
			t.Error(err)
		}
		done <- got
	}()
	return done
}

// owners are the users with live orders, and these.
func owners(orders map[string]model.Order) map[string][]string {
	owns := map[string][]string{}
	for _, id := range sorted(orders) {
		if order := orders[id]; order.Live() {
			owns[order.UserID] = append(owns[order.UserID], id)
		}
	}
	return owns
}

func stats(t *testing.T, a *app, voucherID string) model.Stats {
	t.Helper()
	got := a.Insist(t, http.MethodGet, "/admin/vouchers/"+voucherID+"/stats", a.Admin(t), nil)
	check.Need(t, got.Status == http.StatusOK, "stats: %d %s", got.Status, got.Body)
	return remote.Decode[model.Stats](t, got)
}
