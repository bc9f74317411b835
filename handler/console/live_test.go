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

func (b *browser) events(t testing.TB, voucherID string) (next func() (event, data string)) {
	t.Helper()
	request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet,
		b.site.url+"/console/vouchers/"+voucherID+"/events", nil))(t)
	response, err := b.client.Do(request)
	check.Must(t, err)
	t.Cleanup(func() { response.Body.Close() })
	kind := response.Header.Get("Content-Type")
	check.Need(t, response.StatusCode == http.StatusOK && strings.HasPrefix(kind, "text/event-stream"),
		"the stream: %d %s", response.StatusCode, kind)
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	return func() (event, data string) {
		for lines.Scan() {
			switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
			case "event":
				event = value
			case "data":
				data = value
			case "":
				return event, data
			}
		}
		return "closed", ""
	}
}

// watch opens the stream of a sale behind its first event, which has its charts.
func (b *browser) watch(t testing.TB, voucherID string) (next func() (event, data string)) {
	t.Helper()
	next = b.events(t, voucherID)
	next()
	return next
}

func await(t testing.TB, next func() (string, string), what string, wanted func(reading) bool) {
	t.Helper()
	for r := (reading{}); ; {
		event, data := next()
		check.Need(t, event == "", "%s: the stream says %s; the latest reading is %+v", what, event, r)
		r = reading{}
		check.Must(t, json.Unmarshal([]byte(data), &r))
		if wanted(r) {
			return
		}
	}
}

func TestTheSaleIsLive(t *testing.T) {
	s := shared(t)
	t.Parallel()
	ada, eve := s.signedIn(t, "ada"), s.signedIn(t, "eve")
	id := ada.create(t, "stock", "3")
	want(t, ada.page(t, "/console/vouchers/"+id), `data-events="/console/vouchers/`+id+`/events"`,
		"/console/static/live.js", `data-series="SOLD_OUT"`)
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
		return r.PerSecond["SOLD_OUT"] > 0 && r.Latency != nil && r.Latency.Median > 0 &&
			r.Latency.P99 >= r.Latency.Median
	})
	eve.act(t, "/console/vouchers/"+id+"/state", url.Values{"to": {"paused"}})
	await(t, next, "paused by another administrator",
		func(r reading) bool { return r.State == "paused" && r.Phase == "paused" })
	eve.act(t, "/console/vouchers/"+id+"/state", url.Values{"to": {"archived"}})
	await(t, next, "archived", func(r reading) bool { return r.State == "archived" && r.Phase == "archived" })
}

func TestReservedIsShownApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queued := &shop{voucher: model.Voucher{VoucherView: model.VoucherView{Reserved: 4}}}
		await(t, queued.browser(t).watch(t, "v1"), "reserved",
			func(r reading) bool { return r.Remaining == 5 && r.Reserved == 4 && r.Sold == 1 })
	})
}

func TestTheStreamEndsWithItsSession(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "who-leaves")
	id := b.create(t)
	next := b.watch(t, id)
	await(t, next, "at first", func(reading) bool { return true })
	b.post(t, "/console/sign-out", nil)
	event := ""
	for event == "" {
		event, _ = next()
	}
	closed, _ := next()
	check.Equal(t, "the stream says", event+", "+closed, "ended, closed")
	b.get(t, "/console/vouchers/"+id+"/events").is(t, http.StatusSeeOther)
}

// The server's time limits for an answer are for clients that are slow; a stream outlives them.
func TestTheStreamGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		next := (&shop{}).browser(t).watch(t, "v1")
		for began := time.Now(); time.Since(began) < 2*answerLasts; {
			event, _ := next()
			check.Need(t, event == "", "after %s the stream says %q", time.Since(began), event)
		}
	})
}

func TestAStreamOfNothingEnds(t *testing.T) {
	t.Parallel()
	nothing := &shop{err: model.NotFound("voucher")}
	event, _ := nothing.browser(t).watch(t, "unknown")()
	check.Equal(t, "it says", event, "ended")
}

// shop is a console over fakes, of one voucher. A test sets what is otherwise.
type shop struct {
	*service.Vouchers // what no test asks for

	console *console.Console
	voucher model.Voucher    // zero: each look at it finds one unit less
	live    bool             // it is listed among the sales that are on
	adrift  int64            // units of it that no order holds
	alive   []model.Instance // of the deployment
	queued  bool             // there is a queue, with dead letters
	err     error            // of each look at the voucher, and of each login
	gets    atomic.Int64     // looks at the voucher
	asked   atomic.Int64     // looks at an account
	from    string           // where the latest login came from
	patch   model.VoucherPatch
}

func (s *shop) Get(_ context.Context, id string, _ bool) (model.Voucher, error) {
	gets := s.gets.Add(1)
	if s.voucher.Title != "" {
		return s.voucher, s.err
	}
	return model.Voucher{ID: id, VoucherView: s.voucher.VoucherView, VoucherFields: model.VoucherFields{
		Title: "Coffee for two", Stock: 10, Remaining: 10 - gets%10, State: model.VoucherPublished,
	}}, s.err
}

func (s *shop) List(_ context.Context, query model.VoucherQuery) (page model.VoucherPage, _ error) {
	if s.live && query.Phase == model.PhaseLive {
		page.Items = []model.Voucher{{
			ID: "v1", VoucherFields: model.VoucherFields{Stock: 10, Remaining: 4, State: model.VoucherPublished},
			VoucherView: model.VoucherView{Phase: model.PhaseLive, ServerTime: time.Now()},
		}}
	}
	return page, nil
}

func (s *shop) Shelf(ctx context.Context, query model.VoucherQuery) (shelf model.Shelf, err error) {
	shelf.VoucherPage, err = s.List(ctx, query)
	return shelf, err
}

func (s *shop) Patch(_ context.Context, _ string, patch model.VoucherPatch) (model.Voucher, error) {
	s.patch = patch
	return s.voucher, nil
}

func (*shop) Audit(_ context.Context, id string) (model.Audit, error) {
	return model.Audit{
		VoucherID: id, Mode: model.ModeAsync, Database: model.AuditDatabase{Stock: 10, Remaining: 4, LiveOrders: 5},
		Redis: &model.AuditHotCopy{State: "rebuilding", Remaining: 4, Reserved: 1, Buyers: 5},
		Queue: &model.AuditQueue{Pending: 1, OldestAgeMS: 2000},
		Drift: []model.DriftedOrder{{OrderID: "o1", Found: "reserved, and in no queue"}},
	}, nil
}

func (s *shop) Takings(context.Context, string) (model.Takings, error) {
	return model.Takings{Adrift: s.adrift, ByStatus: map[model.OrderStatus]model.Taking{
		model.OrderPaid: {Orders: 2, Amount: 2000}, model.OrderRedeemed: {Orders: 1, Amount: 1000},
	}}, nil
}

func (*shop) Since(context.Context, time.Time) (model.Day, error) {
	return model.Day{Orders: 7, Received: 3000, Returned: 1000}, nil
}

// tallies are of two instances since an instant, at which somebody tries to buy: thrice and five times a second.
func tallies(began time.Time) map[string]model.Tally {
	passed := time.Since(began).Truncate(time.Second)
	tally := func(rate uint64) model.Tally {
		took, placed := make([]uint64, len(model.TallyBounds())+1), rate*uint64(passed/time.Second)
		took[4] = placed
		return model.Tally{At: began.Add(passed), Placed: map[string]uint64{"OK": placed}, Took: took}
	}
	return map[string]model.Tally{"a": tally(3), "b": tally(5)}
}

type gate struct {
	*service.Accounts

	shop *shop
}

func (g gate) Login(_ context.Context, from, _, _ string) (session service.Session, _ error) {
	g.shop.from = from
	return session, g.shop.err
}

func (g gate) Admit(_ context.Context, claims token.Claims, asAdmin bool) (token.Claims, error) {
	if asAdmin { // which reads the account
		g.shop.asked.Add(1)
	}
	return claims, nil
}

func (gate) Renew(token.Claims) (session service.Session, later bool, err error) {
	return session, false, nil
}

// answerLasts is how long an answer of a shop's server may take, as of the service's own.
const answerLasts = 21 * time.Second

func (s *shop) browser(t *testing.T) *browser {
	t.Helper()
	tokens := check.Value(token.New([]token.Key{{ID: "1", Secret: secret}}, "seckill", "seckill"))(t)
	began := time.Now()
	options := console.Options{
		Vouchers: s, Accounts: gate{shop: s}, Health: service.NewHealth(), Tokens: tokens,
		Metrics: prometheus.NewRegistry(), Currency: "CNY",
		AdminLog: func(context.Context, model.AdminLogQuery) (page model.AdminLogPage, _ error) {
			return page, nil
		},
		AccountByID: func(context.Context, string) (model.Account, error) {
			return model.Account{}, model.NotFound("account")
		},
		ListRefunds: func(context.Context, model.RefundQuery) (page model.RefundPage, _ error) { return page, nil },
		Instances:   func(context.Context) ([]model.Instance, error) { return s.alive, nil },
		Tallies:     func(context.Context, string) (map[string]model.Tally, error) { return tallies(began), nil },
		Log:         slog.New(slog.DiscardHandler),
	}
	if s.queued {
		options.Behind = behind{}
	}
	s.console = check.Value(console.New(options))(t)
	network := check.NewNetwork()
	server := httptest.Server{Listener: network, Config: &http.Server{
		Handler: s.console, WriteTimeout: answerLasts, ReadHeaderTimeout: answerLasts,
	}}
	server.Start()
	t.Cleanup(server.Close)
	signed := check.Value(tokens.Issue(token.Claims{Subject: "ada", Role: model.RoleAdmin, Version: 1}, 2*time.Hour))(t)
	b := (&site{url: server.URL, dial: network.Dial}).browser(t)
	b.client.Jar.SetCookies(check.Value(url.Parse(server.URL))(t),
		[]*http.Cookie{{Name: "seckill-console", Value: signed, Path: "/"}})
	return b
}

func TestAFailureShowsNoInternals(t *testing.T) {
	t.Parallel()
	secret := errors.New("dial tcp 10.0.0.1: password=hunter2")
	for text, err := range map[string]error{
		"Something went wrong on our side.": secret,
		"The answer was not known in time.": fmt.Errorf("%w: %w", secret, context.DeadlineExceeded),
		"The database cannot be reached.":   model.Unavailable("The database cannot be reached.", secret),
	} {
		got := (&shop{err: err}).browser(t).get(t, "/console/vouchers/v1")
		status := http.StatusServiceUnavailable
		if err == secret { //nolint:errorlint // the bare one
			status = http.StatusInternalServerError
		}
		got.is(t, status, text)
		lacks(t, got.body, "hunter2")
	}
}

// Fifty who watch one sale cost its database what one does, and no database is asked whether they may still watch.
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
		gets := sold.gets.Load() - before
		check.That(t, gets == readings-1 || gets == readings, "%d watchers of %d readings cost %d", watchers, readings,
			gets)
		check.Equal(t, "questions to the accounts", sold.asked.Load(), watchers)
	})
}
