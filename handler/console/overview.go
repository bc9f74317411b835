package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/internal/words"
	"seckill/model"
)

// overview is the first page: today's orders and money, the sales now and next, and what needs an administrator.
type overview struct {
	Today      *today           // nil: it is still being counted
	Live, Next []saleCard       // the busiest, and what begins soonest
	Counts     map[string]int64 // of all vouchers, see model.Shelf
	Needs      []need
}

type today struct {
	model.Day

	At time.Time // when it was counted
}

// today counts since the midnight of a zone. Counts of before yesterday are forgotten: zones have many midnights.
func (c *console) today(zone *time.Location) *today {
	now := time.Now().In(zone)
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, zone).UTC()
	c.mu.Lock()
	maps.DeleteFunc(c.days, func(at time.Time, _ *rarely[today]) bool { return time.Since(at) > 2*budget.Day })
	day := c.days[midnight]
	if day == nil {
		day = &rarely[today]{log: c.Log, what: "what has come today", count: func(ctx context.Context) (today, error) {
			at := time.Now()
			found, err := c.Vouchers.Since(ctx, midnight)
			return today{found, at}, err
		}}
		c.days[midnight] = day
	}
	c.mu.Unlock()
	return day.get(budget.Blink)
}

type saleCard struct {
	model.Voucher

	Curve string  // of what is sold, as points in 120 by 32; empty: nothing was kept yet
	pace  float64 // attempts a second, at the latest reading
}

type need struct {
	Words string // with its number
	Path  string
}

const overviewSales, mostBusy = 6, 100

// home is the till for a cashier, and the overview for everybody else.
func (c *console) home(w http.ResponseWriter, r *http.Request, v *visit) error {
	if v.claims.Level == model.LevelCashier {
		http.Redirect(w, r, Path+"/redeem", http.StatusSeeOther)
		return nil
	}
	return c.page("overview", c.overview)(w, r, v)
}

func (c *console) overview(r *http.Request, v *visit) (any, error) {
	page := overview{Today: c.today(v.zone)}
	for _, list := range []struct {
		query model.VoucherQuery
		into  *[]saleCard
	}{
		{model.VoucherQuery{Phase: model.PhaseLive, By: "-taken", Limit: mostBusy}, &page.Live},
		{model.VoucherQuery{Phase: model.PhaseUpcoming, Limit: overviewSales}, &page.Next},
	} {
		found, err := c.Vouchers.Shelf(r.Context(), list.query)
		if err != nil {
			return nil, err
		}
		page.Counts = found.Counts
		for _, voucher := range found.Items {
			*list.into = append(*list.into, c.card(voucher))
		}
	}
	slices.SortStableFunc(page.Live, func(a, b saleCard) int { return cmp.Compare(b.pace, a.pace) })
	page.Live = page.Live[:min(len(page.Live), overviewSales)]
	var err error
	page.Needs, err = c.needs(r, v)
	return page, err
}

// needs finds what an administrator has to look after.
func (c *console) needs(r *http.Request, v *visit) (found []need, err error) {
	for _, some := range []struct {
		status model.RefundStatus
		says   string
	}{
		{model.RefundFailed, "Refunds that the payment provider has refused: %d"},
		{model.RefundOutside, "Refunds that a person pays back: %d"},
	} {
		refunds, err := c.ListRefunds(r.Context(), model.RefundQuery{Status: some.status, Limit: pageSize})
		if err != nil {
			return nil, err
		}
		if n := len(refunds.Items); n > 0 {
			found = append(found, need{v.language.Text(some.says, n), Path + "/refunds?status=" + string(some.status)})
		}
	}
	letters, err := c.letters(r.Context())
	if err != nil {
		return nil, err
	}
	if n := len(letters.Letters); n > 0 {
		found = append(found, need{v.language.Text("Orders that could not be stored: %d", n), Path + "/dead-letters"})
	}
	alive, unready := c.alive(r.Context(), v)
	titles := map[string]string{}
	for _, id := range c.adrift(alive) {
		found = append(found, need{v.language.Text("Units and orders do not add up: %s",
			c.title(r.Context(), titles, id)), auditPath(id)})
	}
	for _, words := range unready {
		found = append(found, need{words, Path + "/system"})
	}
	return found, nil
}

// alive are the instances, and in words those of them that are not ready. Without Redis it is this one that tells.
func (c *console) alive(ctx context.Context, v *visit) (alive []model.Instance, unready []string) {
	look, enough := context.WithTimeout(ctx, budget.Look)
	defer enough()
	alive, err := c.Instances(look)
	for _, instance := range alive {
		if instance.Unready != "" {
			unready = append(unready, v.language.Text("%s is not ready: %s", instance.Name,
				checkWords(v.language, instance.Unready)))
		}
	}
	if err == nil {
		return alive, unready
	}
	for _, check := range c.Health.Check(ctx) {
		if check.Err != nil {
			unready = append(unready, v.language.Text("This instance is not ready: %s", v.language.Text(check.Name)))
		}
	}
	return nil, unready
}

func checkWords(language *words.Language, names string) string {
	list := strings.Split(names, ",")
	for i, name := range list {
		list[i] = language.Text(name)
	}
	return strings.Join(list, ", ")
}

// adrift are the vouchers that do not add up, by id: in the database, as this instance counts the sales that are on, or
// between the database and a hot copy, as the instance that reconciles has found.
func (c *console) adrift(alive []model.Instance) []string {
	found := map[string]bool{}
	for _, instance := range alive {
		for id := range strings.SplitSeq(instance.Drifted, ",") {
			found[id] = true
		}
	}
	delete(found, "") // of those who found none
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, sale := range c.sales {
		if n := len(sale.readings); n > 0 && sale.readings[n-1].Counts != nil && sale.readings[n-1].Counts.Adrift != 0 {
			found[id] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// card has what was sold of a voucher in the time that is kept, as the points of a line, and how busy it is.
func (c *console) card(of model.Voucher) saleCard {
	const width, height = 120.0, 32.0
	c.mu.Lock()
	defer c.mu.Unlock()
	sale := c.sales[of.ID]
	if sale == nil || len(sale.readings) < 2 {
		return saleCard{Voucher: of}
	}
	first, last := sale.readings[0], sale.readings[len(sale.readings)-1]
	most := max(last.Stock, 1)
	var points strings.Builder
	for _, one := range sale.readings {
		x := width * float64(one.Now.Sub(first.Now)) / float64(max(last.Now.Sub(first.Now), 1))
		fmt.Fprintf(&points, "%.1f,%.1f ", x, height-1-(height-2)*float64(one.Sold)/float64(most))
	}
	card := saleCard{of, points.String(), 0}
	for _, rate := range last.PerSecond {
		card.pace += rate
	}
	return card
}

// ShopPath is where the shop window is.
const ShopPath = "/shop"

// shopPage is what the page has before its script has asked the API, so that nothing moves when it has.
type shopPage struct {
	Vouchers []model.Voucher
	Known    string         // the same as JSON, as the API has them
	Only     *model.Voucher // the page is of this one; nil: of all
	Origin   string         // of the page, for those who show a link to it
	Words    []string       // for what the API says

	Report *model.PublicReport // of the one, after its end
}

const maxShown = 20 // of each kind, with which the shop window begins; its script brings more

// shop is a buyer's page: its script uses the public API alone, and the page brings the words for what the API says.
func (c *console) shop(r *http.Request, v *visit) (any, error) {
	page := shopPage{Origin: origin(r), Words: slices.Concat(refusals(), []string{
		model.ReasonRefundFailed, model.ReasonDisputed, model.ReasonPart, model.RefundOfUsed,
	}, texts(model.Phases()), texts(model.OrderStatuses()), texts(model.Codes()))}
	err := c.fillShop(r.Context(), r.PathValue("id"), &page)
	return page, err
}

// origin is that of a page, for links that are sent to somebody.
func origin(r *http.Request) string {
	if encrypted(r) {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// fillShop finds the one voucher of a page, or what is on sale and then what will be, the soonest first.
func (c *console) fillShop(ctx context.Context, id string, page *shopPage) error {
	if id != "" {
		one, err := c.Vouchers.Get(ctx, id, false)
		if err != nil {
			return err
		}
		page.Only, page.Vouchers = &one, []model.Voucher{one}
		if replay, err := c.Reports.Replay(ctx, id, false); err == nil { // otherwise there is none, or none now
			page.Report = &replay.PublicReport
		}
	} else {
		for _, query := range []model.VoucherQuery{{OnSale: true}, {Phase: model.PhasePaused}, {Phase: model.PhaseUpcoming}} {
			query.Limit = maxShown
			found, err := c.Vouchers.List(ctx, query)
			if err != nil {
				return err
			}
			at := func(v model.Voucher) time.Time {
				if query.Phase == model.PhaseUpcoming {
					return v.BeginAt
				}
				return v.EndAt
			}
			slices.SortStableFunc(found.Items, func(a, b model.Voucher) int { return at(a).Compare(at(b)) })
			page.Vouchers = append(page.Vouchers, found.Items...)
		}
	}
	known, err := json.Marshal(page.Vouchers)
	page.Known = string(known)
	return err
}

// refusals are what the API says to buyers in English, and the shop in its language. Anything else is said by its code.
func refusals() []string {
	return []string{
		"The username or the password is wrong.", "The username is taken.",
		"Too many failed logins: wait before you try again.", "Too many registrations from this address.",
		"This voucher is for groups that your token does not name.", "You have an order for this voucher already.",
		"Your last order for this voucher ended unpaid a short time ago.", "Nothing is left of this voucher.",
		"Another request of yours is under way.", "An order that is processing cannot be canceled yet.",
		"This voucher cannot be given back.", "The time to give it back has passed.",
		"The payment provider does not answer.", "The payment provider refuses this payment.",
	}
}

const maxWatchers = 500 // streams of this instance, which hold a connection each

// watch subscribes to a sale, read once for all. A slow watcher misses events; nil: no such voucher. leave ends it.
func (c *console) watch(id string) (events <-chan []byte, leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers >= maxWatchers {
		return nil, nil, model.Unavailable("Too many people are watching.", nil)
	}
	c.watchers++
	sale, told := c.sale(id), make(chan []byte, 1)
	if len(sale.watchers) == 0 {
		var ctx context.Context
		ctx, sale.end = context.WithCancel(context.Background())
		sale.latest = nil
		go c.follow(ctx, sale)
	}
	sale.watchers[told] = true
	if sale.latest != nil {
		told <- sale.latest
	}
	return told, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.watchers--
		if delete(sale.watchers, told); len(sale.watchers) == 0 {
			sale.end()
		}
	}, nil
}

func (c *console) follow(ctx context.Context, sale *sale) {
	watcher := &watcher{console: c, sale: sale}
	for ctx.Err() == nil {
		began := time.Now()
		message, err := watcher.message(ctx)
		switch {
		case err == nil:
			c.tell(ctx, sale, event("", message))
		case model.CodeOf(err) == model.CodeNotFound:
			c.tell(ctx, sale, nil)
			return
		case ctx.Err() == nil:
			c.Log.WarnContext(ctx, "a sale that is watched cannot be read",
				slog.String("voucher_id", sale.id), slog.Any("error", err))
			c.tell(ctx, sale, event("", []byte(`{"trouble":true}`)))
		}
		poll.Pause(ctx, budget.Brief-time.Since(began))
	}
}

// event is a server-sent event (HTML, 9.2.6) of one line of data; without a name it is a message.
func event(name string, data []byte) []byte {
	if name != "" {
		name = "event: " + name + "\n"
	}
	return fmt.Appendf(nil, "%sdata: %s\n\n", name, data)
}

// tell gives an event to each watcher of those who made ctx, in place of an unread one; none ends their subscriptions.
func (c *console) tell(ctx context.Context, sale *sale, event []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return // they have left, and others may have come
	}
	sale.latest = event
	for told := range sale.watchers {
		select {
		case <-told:
		default:
		}
		told <- event // there is room: only tell and watch fill it, under the mutex
	}
	if event == nil {
		clear(sale.watchers)
	}
}

// live streams the readings of a sale as server-sent events (HTML, 9.2) until browser, session or server ends.
func (c *console) live(w http.ResponseWriter, r *http.Request, v *visit) error {
	events, leave, err := c.watch(r.PathValue("id")) //nolint:contextcheck // one reading for all who watch
	if err != nil {
		return err
	}
	defer leave()
	header := w.Header()
	header.Set("Content-Type", "text/event-stream; charset=utf-8")
	header.Set("X-Accel-Buffering", "no") // nginx would keep the readings back
	stream := http.NewResponseController(w)
	kept, err := c.history(r.PathValue("id"))
	if err != nil {
		return err
	}
	if _, err := w.Write(kept); err != nil { //nolint:gosec // JSON, and no page: see the type
		return nil // the browser is gone
	}
	for !c.Health.Draining() {
		select {
		case <-r.Context().Done():
			return nil
		case next := <-events:
			going := next != nil && c.goesOn(r, v)
			if !going {
				next = event("ended", []byte("{}"))
			}
			_ = stream.SetWriteDeadline(time.Now().Add(budget.Step)) // it fails as the write does
			if _, err := w.Write(next); err != nil || stream.Flush() != nil || !going {
				return nil // the browser is gone
			}
		}
	}
	return nil
}

// goesOn reports whether a session has not ended since its request came. It asks no database.
func (c *console) goesOn(r *http.Request, v *visit) bool {
	cookie, err := r.Cookie(sessionCookie(r))
	if err == nil {
		_, err = c.Tokens.Verify(r.Context(), cookie.Value)
	}
	if err == nil {
		_, err = c.Accounts.Admit(r.Context(), v.claims, false)
	}
	return err == nil
}
