package e2e_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"seckill/config"
	"seckill/internal/api"
	command "seckill/internal/app"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// deployment is one instance that the tests of the contract share. Each of them has users, vouchers and names of its own
// there. It starts for the first of them, and stops with the last.
type deployment struct {
	mode     model.OrderMode
	settings func(*testing.T) settings

	mu       sync.Mutex
	tests    int
	lasting  lasting
	log      *check.Log
	instance *command.Instance
}

// deployments are the two order modes, on the real servers and on the embedded ones: clients are promised the same by all.
var deployments = map[string]*deployment{
	"sync on servers":  {mode: model.ModeSync, settings: onServers},
	"sync embedded":    {mode: model.ModeSync, settings: embeddedSettings},
	"async on servers": {mode: model.ModeAsync, settings: asyncOnServers},
	"async embedded":   {mode: model.ModeAsync, settings: embeddedSettings},
}

// lasting is a testing.TB whose Cleanup runs after the last test that uses what is shared.
type lasting struct {
	testing.TB
	ends []func()
}

func (l *lasting) Cleanup(end func()) { l.ends = append(l.ends, end) }

func (l *lasting) end(t testing.TB) {
	t.Helper()
	l.TB = t
	for ; len(l.ends) > 0; l.ends = l.ends[:len(l.ends)-1] {
		l.ends[len(l.ends)-1]()
	}
}

// origins are those whose pages may buy from the deployments on servers. No page may buy from the embedded ones.
func origins() []string { return []string{"https://shop.example", "http://127.0.0.1:3000"} }

// join keeps the instance running until the test ends.
func (d *deployment) join(t *testing.T) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	t.Cleanup(func() { d.leave(t) })
	if d.tests++; d.tests > 1 {
		return
	}
	dir := check.Value(os.MkdirTemp("", "seckill-shared-"))(t) //nolint:usetesting // it outlives this test
	d.lasting = lasting{TB: t}
	d.lasting.Cleanup(func() { check.Must(&d.lasting, os.RemoveAll(dir)) })
	s := d.settings(t).with(settings{"SECKILL_ORDER_MODE": string(d.mode), "SECKILL_CURRENCY": "EUR", "SECKILL_PAYMENT_WINDOW": "7m"})
	if s["SECKILL_DATA_DIR"] != "" {
		s["SECKILL_DATA_DIR"] = dir
	} else {
		s["SECKILL_DATABASE_DSN"], s["SECKILL_CORS_ORIGINS"] = testserver.Schema(&d.lasting), strings.Join(origins(), ",")
	}
	d.log = &check.Log{}
	log := slog.New(slog.NewTextHandler(d.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	d.instance = check.Value(command.Start(context.Background(), check.Value(config.Load(s.environ()))(t), log))(t)
}

func (d *deployment) leave(t *testing.T) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.Failed() {
		testserver.KeepLog(t, "seckill", d.log.String())
	}
	if d.tests--; d.tests > 0 || d.instance == nil {
		return
	}
	halt(d.instance)
	d.instance = nil
	d.lasting.end(t)
}

// shop is a deployment as one test sees it.
type shop struct {
	*app

	mode     model.OrderMode
	embedded bool
}

// everywhere runs a test of the contract in both order modes, on the real servers and on the embedded ones.
func everywhere(t *testing.T, test func(t *testing.T, a shop)) {
	t.Helper()
	for name := range deployments {
		within(t, name, test)
	}
}

// anywhere runs a test of what has nothing to do with the order mode, on the real servers and on the embedded ones.
func anywhere(t *testing.T, test func(t *testing.T, a shop)) {
	t.Helper()
	within(t, "sync on servers", test)
	within(t, "async embedded", test)
}

func within(t *testing.T, name string, test func(t *testing.T, a shop)) {
	t.Helper()
	d := deployments[name]
	d.join(t) // here, and not in the test below: it runs when all have joined
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t, shop{newApp(t, d.instance.BaseURL(), d.instance.OpsURL()), d.mode, strings.HasSuffix(name, "embedded")})
	})
}

// name is a username that no other test has.
func (a *app) name(name string) string { return name + "." + strings.TrimSuffix(a.prefix, ":") }

// buys makes an unpaid order.
func (a *app) buys(t testing.TB, voucherID, user string) model.Order {
	t.Helper()
	return a.becomes(t, a.bought(t, voucherID, user), model.OrderUnpaid)
}

// bought makes an order, which becomes unpaid if it is not yet, and goes on from there.
func (a *app) bought(t testing.TB, voucherID, user string) model.Order {
	t.Helper()
	got := a.Insist(t, http.MethodPost, "/vouchers/"+voucherID+"/seckill", a.Token(t, user, model.RoleUser), nil)
	order, ok := orderOf(t, got, voucherID, user)
	if !ok {
		t.Fatalf("%s buys: %d %s", user, got.Status, got.Body)
	}
	return order
}

// orderOf is the order that an answer to a purchase promises, or names because an earlier answer said that it was not known.
func orderOf(t testing.TB, got api.Answer, voucherID, user string) (order model.Order, ok bool) {
	t.Helper()
	switch {
	case got.Sells():
		return remote.Decode[model.Order](t, got), true
	case got.Code() == model.CodeAlreadyOrdered:
		return model.Order{ID: remote.Decode[api.Problem](t, got).OrderID, VoucherID: voucherID, UserID: user}, true
	}
	return order, false
}

// addresses are those of this machine that tests have been seen from.
var addresses atomic.Int64

// elsewhere is the program seen from an address that nobody has had.
func (a *app) elsewhere(t testing.TB) *app {
	t.Helper()
	n := addresses.Add(1)
	return a.from(t, "127.2."+strconv.FormatInt(n/250, 10)+"."+strconv.FormatInt(n%250+1, 10))
}

// from is the program seen from another address of this machine.
func (a *app) from(t testing.TB, address string) *app {
	t.Helper()
	elsewhere := *a
	elsewhere.Client = remote.Client(t, address, 100)
	return &elsewhere
}
