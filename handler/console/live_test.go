package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/handler/console"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service"
)

// reading is what a page is told of a sale.
type reading struct {
	State     string
	Phase     string
	Stock     int64
	Remaining int64
	Reserved  int64
	Sold      int64
	PerSecond map[string]float64 `json:"per_second"`
	Latency   *struct{ Median, P99 float64 }
	Counts    struct {
		At                    time.Time
		Unpaid, Paid, Revenue int64
	}
}

// watch opens the stream of a sale; next is its next event, and the name of that.
func (b *browser) watch(t testing.TB, voucherID string) (next func() (event, data string)) {
	t.Helper()
	request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, b.site.url+"/console/vouchers/"+voucherID+"/events", nil))(t)
	response, err := b.client.Do(request)
	check.Must(t, err)
	t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("the stream: %d %s", response.StatusCode, response.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(response.Body)
	return func() (event, data string) {
		t.Helper()
		for lines.Scan() {
			switch name, value, _ := strings.Cut(lines.Text(), ": "); {
			case name == "event":
				event = value
			case name == "data":
				data = value
			case lines.Text() == "" && event == "history": // of the charts, before the first reading
				event = ""
			case lines.Text() == "":
				return event, data
			}
		}
		return "closed", ""
	}
}

// await reads a stream until a reading is as wanted.
func await(t testing.TB, next func() (string, string), what string, wanted func(reading) bool) {
	t.Helper()
	for r := (reading{}); ; {
		event, data := next()
		if event != "" {
			t.Fatalf("%s: the stream says %s; the latest reading is %+v", what, event, r)
		}
		r = reading{}
		check.Must(t, json.Unmarshal([]byte(data), &r))
		if wanted(r) {
			return
		}
	}
}

// What buyers and other administrators do shows on a page that is open, without a reload.
func TestTheSaleIsLive(t *testing.T) {
	s := shared(t)
	t.Parallel()
	ada, eve := s.signedIn(t, "ada"), s.signedIn(t, "eve")
	id := ada.create(t, "stock", "3")
	want(t, ada.page(t, "/console/vouchers/"+id), `data-events="/console/vouchers/`+id+`/events"`, "/console/static/live.js", `data-series="SOLD_OUT"`)
	next := ada.watch(t, id)
	await(t, next, "at first", func(r reading) bool { return r.Remaining == 3 && r.Stock == 3 && r.Phase == "live" })
	for n := range 3 {
		check.Equal(t, fmt.Sprint("what is heard by buyer ", n), s.buy(t, "buyer-"+strconv.Itoa(n), id), "OK")
	}
	await(t, next, "sold out", func(r reading) bool {
		return r.Remaining == 0 && r.Phase == "sold_out" && r.Sold == 3 && r.Reserved == 0
	})
	await(t, next, "refusals a second", func(r reading) bool {
		s.buy(t, "somebody", id) // until a reading has seen it
		return r.PerSecond["SOLD_OUT"] > 0 && r.Latency != nil && r.Latency.Median > 0 && r.Latency.P99 >= r.Latency.Median
	})
	eve.act(t, "/console/vouchers/"+id+"/state", url.Values{"to": {"paused"}})
	await(t, next, "paused by another administrator", func(r reading) bool { return r.State == "paused" && r.Phase == "paused" })
	eve.act(t, "/console/vouchers/"+id+"/state", url.Values{"to": {"archived"}})
	await(t, next, "archived", func(r reading) bool { return r.State == "archived" && r.Phase == "archived" })
}

// What has no row yet is shown separately from what is sold.
func TestReservedIsShownApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queued := &shop{reserved: 4}
		await(t, queued.browser(t).watch(t, "v1"), "reserved", func(r reading) bool { return r.Remaining == 5 && r.Reserved == 4 && r.Sold == 1 })
	})
}

// A session that ends takes its streams along, also those that are open.
func TestTheStreamEndsWithItsSession(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "who-leaves")
	id := b.create(t)
	next := b.watch(t, id)
	await(t, next, "at first", func(reading) bool { return true })
	b.post(t, "/console/sign-out", nil)
	for {
		event, _ := next()
		if event == "ended" {
			break
		}
		if event != "" {
			t.Fatalf("the stream says %q", event)
		}
	}
	if event, _ := next(); event != "closed" {
		t.Errorf("it goes on with %q", event)
	}
	b.get(t, "/console/vouchers/"+id+"/events").is(t, http.StatusSeeOther)
}

// The server's time limits for an answer are for clients that are slow; a stream outlives them.
func TestTheStreamGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		next := (&shop{}).browser(t).watch(t, "v1")
		for began := time.Now(); time.Since(began) < 2*answerLasts; {
			if event, _ := next(); event != "" {
				t.Fatalf("after %s the stream says %q", time.Since(began), event)
			}
		}
	})
}

func TestAStreamOfNothingEnds(t *testing.T) {
	t.Parallel()
	nothing := &shop{err: model.NotFound("voucher")}
	if event, _ := nothing.browser(t).watch(t, "unknown")(); event != "ended" {
		t.Errorf("it says %q", event)
	}
}

// shop counts what watchers cost.
type shop struct {
	console.Options

	console  *console.Console
	err      error
	reserved int64
	gets     atomic.Int64
	asked    atomic.Int64 // how often an account was
	from     string       // where the latest login came from
}

func (s *shop) Get(_ context.Context, id string, _ bool) (model.Voucher, error) {
	s.gets.Add(1)
	return model.Voucher{ID: id, VoucherView: model.VoucherView{Reserved: s.reserved}, VoucherFields: model.VoucherFields{
		Title: "Coffee for two", Stock: 10, Remaining: 10 - s.gets.Load()%10, State: model.VoucherPublished,
	}}, s.err
}

func (*shop) List(context.Context, model.VoucherQuery) (model.VoucherPage, error) {
	return model.VoucherPage{}, nil
}

func (*shop) Create(context.Context, model.VoucherFields, string, model.Idempotency) (model.Voucher, error) {
	return model.Voucher{}, nil
}

func (*shop) Patch(context.Context, string, model.VoucherPatch) (model.Voucher, error) {
	return model.Voucher{}, nil
}

func (*shop) ChangeStock(context.Context, string, model.StockChange, model.Idempotency) (model.Voucher, error) {
	return model.Voucher{}, nil
}

func (*shop) Audit(context.Context, string) (model.Audit, error) { return model.Audit{}, nil }

func (*shop) Rebuild(context.Context, string, string) error { return nil }

func (*shop) Takings(context.Context, string) (model.Takings, error) {
	return model.Takings{ByStatus: map[model.OrderStatus]model.Taking{model.OrderPaid: {Orders: 2, Amount: 2000}, model.OrderRedeemed: {Orders: 1, Amount: 1000}}}, nil
}

func (*shop) Since(context.Context, time.Time) (model.Day, error) {
	return model.Day{Orders: 7, Received: 3000, Returned: 1000}, nil
}

// counting is a shop of two instances, at which somebody tries to buy: thrice and five times a second.
type counting struct{ began time.Time }

func (c counting) Read(context.Context, string) (map[string]model.Tally, error) {
	seconds := uint64(time.Since(c.began) / time.Second)
	tally := func(rate uint64) model.Tally {
		took := make([]uint64, len(model.TallyBounds())+1)
		took[4] = rate * seconds
		return model.Tally{At: c.began.Add(time.Duration(seconds) * time.Second), Placed: map[string]uint64{"OK": rate * seconds}, Took: took}
	}
	return map[string]model.Tally{"a": tally(3), "b": tally(5)}, nil
}

// records has no entry, and nobody's name.
type records struct{}

func (records) List(context.Context, model.AdminLogQuery) (model.AdminLogPage, error) {
	return model.AdminLogPage{}, nil
}

// returns has no refund.
type returns struct{}

func (returns) Request(context.Context, string, string) (model.Refund, error) {
	return model.Refund{}, nil
}

func (returns) List(context.Context, model.RefundQuery) (model.RefundPage, error) {
	return model.RefundPage{}, nil
}

type nobody struct{}

func (nobody) List(context.Context) ([]model.Account, error)   { return nil, nil }
func (nobody) Alive(context.Context) ([]model.Instance, error) { return nil, nil }

// gate admits everybody.
type gate struct{ *shop }

func (g gate) Login(_ context.Context, from, _, _ string) (service.Session, error) {
	g.from = from
	return service.Session{}, g.err
}

func (g gate) Admit(_ context.Context, claims token.Claims, asAdmin bool) (token.Claims, error) {
	if asAdmin { // which reads the account
		g.asked.Add(1)
	}
	return claims, nil
}

func (gate) Renew(token.Claims) (service.Session, bool, error) { return service.Session{}, false, nil }
func (gate) SignOut(context.Context, token.Claims) error       { return nil }

// Check has nothing to ask.
func (gate) Check(context.Context) []service.Check { return nil }

func (gate) SetGroups(context.Context, string, string, model.Groups) (model.Account, error) {
	return model.Account{}, nil
}

// Draining is that of a server that stays.
func (gate) Draining() bool { return false }

// answerLasts is how long an answer of a shop's server may take, as of the service's own.
const answerLasts = 21 * time.Second

// browser is that of an administrator who has signed in to a console of this shop, or of the vouchers that it was
// given.
func (s *shop) browser(t *testing.T) *browser {
	t.Helper()
	if s.Vouchers == nil {
		s.Vouchers = s
	}
	tokens := check.Value(token.New([]token.Key{{ID: "1", Secret: secret}}, "seckill", "seckill"))(t)
	if s.Instances == nil {
		s.Instances = nobody{}
	}
	s.Options = console.Options{
		Vouchers: s.Vouchers, Refunds: returns{}, Instances: s.Instances, Tallies: counting{time.Now()}, AdminLog: records{}, Administrators: nobody{}, Accounts: gate{s}, Health: gate{s}, Tokens: tokens, Metrics: prometheus.NewRegistry(), Currency: "CNY",
		Log: slog.New(slog.DiscardHandler),
	}
	handler := check.Value(console.New(s.Options))(t)
	s.console = handler
	network := check.NewNetwork()
	server := httptest.Server{Listener: network, Config: &http.Server{Handler: handler, WriteTimeout: answerLasts, ReadHeaderTimeout: answerLasts}}
	server.Start()
	t.Cleanup(server.Close)
	signed := check.Value(tokens.Issue(token.Claims{Subject: "ada", Role: model.RoleAdmin, Version: 1}, 2*time.Hour))(t)
	b := (&site{url: server.URL, dial: network.Dial}).browser(t)
	b.client.Jar.SetCookies(check.Value(url.Parse(server.URL))(t), []*http.Cookie{{Name: "seckill-console", Value: signed, Path: "/"}})
	return b
}

// What breaks underneath is nobody's business but the log's.
func TestAFailureShowsNoInternals(t *testing.T) {
	t.Parallel()
	for text, test := range map[string]struct {
		err    error
		status int
	}{
		"Something went wrong on our side.": {errors.New("dial tcp 10.0.0.1: password=hunter2"), http.StatusInternalServerError},
		"The answer was not known in time.": {fmt.Errorf("read: password=hunter2: %w", context.DeadlineExceeded), http.StatusServiceUnavailable},
		"The database cannot be reached.":   {model.Unavailable("The database cannot be reached.", errors.New("password=hunter2")), http.StatusServiceUnavailable},
	} {
		broken := &shop{err: test.err}
		got := broken.browser(t).get(t, "/console/vouchers/v1")
		if got.status != test.status || strings.Contains(got.body, "hunter2") {
			t.Errorf("%v is %d %s", test.err, got.status, got.body)
		}
		want(t, got.body, text)
	}
}

// Fifty who watch one sale cost its database what one does: a reading each half second. Whether they may still watch is
// asked of no database.
func TestWatchersShareOneReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sold := &shop{}
		b := sold.browser(t)
		const watchers, readings = 50, 6
		var streams [watchers]func() (string, string)
		for n := range streams {
			streams[n] = b.watch(t, "v1")
		}
		before := sold.gets.Load()
		check.Volley(watchers, func(n int) {
			for range readings {
				streams[n]()
			}
		})
		if gets := sold.gets.Load() - before; gets < readings-1 || gets > readings {
			t.Errorf("%d watchers of %d readings cost %d", watchers, readings, gets)
		}
		check.Equal(t, "questions to the accounts", sold.asked.Load(), watchers)
	})
}
