package console

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"seckill/model"
)

const pageSize = 20 // lines of a list

const latestLines = 8 // orders and changes on the page of a voucher

type voucherList struct {
	filter
	pager
	model.Shelf

	Phases []model.Phase
	States []model.VoucherState // of those in no phase
}

func (c *console) listVouchers(r *http.Request, v *visit) (any, error) {
	list := voucherList{
		filter: filterOf(r, Path+"/vouchers", "q", "phase", "state", "by", "from", "to"), Phases: model.Phases(),
		States: []model.VoucherState{model.VoucherDraft, model.VoucherArchived},
	}
	query := model.VoucherQuery{
		Phase: model.Phase(list.Get("phase")), State: model.VoucherState(list.Get("state")), Words: list.Get("q"),
		By: list.Get("by"), Cursor: r.URL.Query().Get("cursor"), Limit: pageSize,
	}
	var err error
	if query.From, query.To, err = list.days(v.zone); err == nil {
		list.Shelf, err = c.Vouchers.Shelf(r.Context(), query)
	}
	list.pager = turn(r.URL, list.NextCursor)
	return list, err
}

// changeMany pauses or archives the vouchers that were chosen. Only what is published can be paused.
func (c *console) changeMany(w http.ResponseWriter, r *http.Request, v *visit) error {
	state := model.VoucherState(r.PostForm.Get("to"))
	if state != model.VoucherPaused && state != model.VoucherArchived {
		return model.Invalid("body.state", "is no state of a voucher")
	}
	for _, id := range r.PostForm["voucher"] {
		found, err := c.Vouchers.Get(r.Context(), id, true)
		if err == nil && found.State != state && (state == model.VoucherArchived || found.State == model.VoucherPublished) {
			_, err = c.Vouchers.Patch(r.Context(), id, model.VoucherPatch{State: &state, By: v.claims.Subject})
		}
		if err != nil {
			return err
		}
	}
	return done(w, r, below(r.PostForm.Get("back")), "all-"+string(state))
}

// filter is what a list was asked for, but the page.
type filter struct {
	path  string
	asked url.Values
}

// Get is a parameter; empty: it was not asked for.
func (f filter) Get(name string) string { return f.asked.Get(name) }

// days are a span of whole days of a zone, both included; zero where none was asked for.
func (f filter) days(zone *time.Location) (from, to time.Time, err error) {
	for name, at := range map[string]*time.Time{"from": &from, "to": &to} {
		if text := f.Get(name); text != "" {
			day, wrong := time.ParseInLocation(time.DateOnly, text, zone)
			if *at = day; wrong != nil {
				err = model.Invalid("query."+name, "must be a date")
			}
			if name == "to" {
				*at = day.AddDate(0, 0, 1)
			}
		}
	}
	return from, to, err
}

// filterOf keeps some of the parameters of a request: those that are not empty.
func filterOf(r *http.Request, path string, names ...string) filter {
	f := filter{path, url.Values{}}
	for _, name := range names {
		if value := strings.TrimSpace(r.URL.Query().Get(name)); value != "" {
			f.asked.Set(name, value)
		}
	}
	return f
}

// With is where the same list is with another value of a parameter; an empty one is without any.
func (f filter) With(name string, value any) string {
	query := maps.Clone(f.asked)
	if query.Del(name); name == "phase" || name == "state" {
		query.Del("phase")
		query.Del("state")
	}
	if text := fmt.Sprint(value); text != "" {
		query.Set(name, text)
	}
	return strings.TrimSuffix(f.path+"?"+query.Encode(), "?")
}

// pager leads to the pages beside one; empty: there is none. A list is read forwards: links keep the cursors before.
type pager struct{ Back, Next string }

func turn(here *url.URL, next string) (p pager) {
	query := here.Query()
	at := func(cursor string, trail []string) string {
		query.Set("cursor", cursor)
		query.Set("trail", strings.Join(trail[max(0, len(trail)-maxTrail):], " "))
		maps.DeleteFunc(query, func(_ string, values []string) bool { return values[0] == "" })
		return strings.TrimSuffix(here.Path+"?"+query.Encode(), "?")
	}
	now, trail := query.Get("cursor"), strings.Fields(query.Get("trail"))
	if now != "" {
		before := max(len(trail)-1, 0)
		p.Back = at(strings.Join(trail[before:], ""), trail[:before])
		trail = append(trail, now)
	}
	if next != "" {
		p.Next = at(next, trail)
	}
	return p
}

const maxTrail = 40 // cursors, which a URL has room for

type voucherPage struct {
	model.Voucher

	Orders  []model.Order // the latest
	Changes []logEntry    // the latest
	Behind  bool          // there is a queue, and so there are units that are reserved
	Proof   *model.Draw   // of a draw

	Once    string // makes a change of the stock happen once, however often it is sent
	Local   string // EndAt as it is typed
	Open    string // the action that was tried: state, stock, end or beacon
	Refusal string // why it was refused; empty: it was not
	Typed   string // what was typed there
}

func (p voucherPage) Taken() int64 { return p.Stock - p.Remaining }

func (p voucherPage) Sold() int64 { return p.Taken() - p.Reserved }

// Phases are the words that a script may have to show.
func (voucherPage) Phases() []string {
	return append([]string{string(model.VoucherDraft), string(model.VoucherArchived)}, texts(model.Phases())...)
}

// Marks are what charts mark, see mark.
func (voucherPage) Marks() []string {
	return []string{"published", "paused", "draft", "archived", "stock", "end", "rebuild"}
}

func texts[T ~string](words []T) []string {
	made := make([]string, len(words))
	for n, word := range words {
		made[n] = string(word)
	}
	return made
}

// phase is where a voucher stands for people: in its sale, or as a draft or in the archive outside of every sale.
func phase(v model.Voucher) string {
	if !v.Buyable() {
		return string(v.State)
	}
	return string(v.Phase)
}

// Outcomes are what an attempt to buy may hear, as the metrics name it.
func (voucherPage) Outcomes() []string {
	return append([]string{"OK"}, texts([]model.Code{
		model.CodeSoldOut, model.CodeAlreadyOrdered, model.CodeCoolingDown, model.CodeNotStarted, model.CodePaused,
		model.CodeEnded,
		model.CodeLockBusy, model.CodeUnavailable, model.CodeNotFound, model.CodeInternal,
	})...)
}

func (c *console) showVoucher(w http.ResponseWriter, r *http.Request, v *visit) error {
	return c.voucherPage(w, r, v, http.StatusOK, voucherPage{})
}

func (c *console) voucherPage(w http.ResponseWriter, r *http.Request, v *visit, status int, page voucherPage) error {
	var err error
	if page.Voucher, err = c.Vouchers.Get(r.Context(), r.PathValue("id"), true); err != nil {
		return err
	}
	v.zone = zoneOf(&page.VoucherFields, v.zone)
	orders, err := c.ListOrders(r.Context(), model.OrderQuery{VoucherID: page.ID, Limit: latestLines})
	if err != nil {
		return err
	}
	changes, err := c.AdminLog(r.Context(), model.AdminLogQuery{Subject: page.ID, Limit: latestLines})
	if err != nil {
		return err
	}
	page.Orders, page.Changes, page.Behind = orders.Items, c.entries(v, changes.Items), c.Behind != nil
	page.Once, page.Local = rand.Text(), local(page.EndAt, v.zone)
	if page.Allocation == model.ByDraw {
		proof, err := c.Proof(r.Context(), page.ID, true)
		if err != nil {
			return err
		}
		page.Proof = &proof
	}
	return c.show(w, r, v, status, "voucher", page)
}

// results are what actions have done, by the word for it in a query: no text of a link is shown.
func results() map[string]string {
	return map[string]string{
		"created":    "The voucher was created. Look at what will happen, and publish it.",
		"changed":    "The changes are saved. Every instance obeys them within a second.",
		"published":  "The voucher is published: it is sold from its beginning to its end while any are left.",
		"paused":     "The sale is paused. Buyers hear so from now on.",
		"archived":   "The voucher is archived. Buyers do not see it any more.",
		"draft":      "The voucher is a draft. Buyers do not see it.",
		"all-paused": "The sales that were chosen are paused.", "all-archived": "The vouchers that were chosen are archived.",
		"groups":     "The groups are saved. Every instance obeys them within a second.",
		"stock":      "The stock was changed. The numbers below are those after the change.",
		"end":        "The end of the sale was moved.",
		"beacon":     "The value is entered, and the draw goes on with it.",
		"canceled":   "The order is canceled, and its unit is on sale again.",
		"refunding":  "The refund is under way: the money goes back soon, and a unit that was not used is on sale again.",
		"paid":       "The order is paid, and has its code.",
		"paid-back":  "The money is noted as paid back.",
		"redeemed":   "The code is used up.",
		"unredeemed": "The use is undone. The code is good again.",
		"repaired":   "What disagreed was repaired. This is the audit after it.",
		"rebuilding": "The hot copy is being rebuilt. Audit again until it is open.",
		"colleague":  "The account is changed, on every instance within a second.",
		"accepted":   "The password is set. Sign in.",
		"replayed":   "The letter was replayed as this order.",
		"dropped":    "The letter was removed.",
		"replaying":  "The events are sent again. A receiver that had stopped goes on.",
		"ended":      "The session had ended. Nothing was changed.",
		"signed-out": "You have signed out. Every token of the account has ended.",
	}
}

func voucherPath(id string) string { return Path + "/vouchers/" + url.PathEscape(id) }

// refused shows the page of a voucher again, with what was typed and why it was refused.
func (c *console) refused(w http.ResponseWriter, r *http.Request, v *visit, action, typed string, err error) error {
	if hasOwnPage(err) {
		return err
	}
	page := voucherPage{Open: action, Typed: typed, Refusal: explainField(v.language, err)}
	return c.voucherPage(w, r, v, statusOf(err), page)
}

func (c *console) changeState(w http.ResponseWriter, r *http.Request, v *visit) error {
	id, state := r.PathValue("id"), model.VoucherState(r.PostForm.Get("to"))
	if !slices.Contains(model.VoucherStates(), state) {
		return model.Invalid("body.state", "is no state of a voucher")
	}
	if _, err := c.Vouchers.Patch(r.Context(), id,
		model.VoucherPatch{State: &state, By: v.claims.Subject}); err != nil {
		return c.refused(w, r, v, "state", "", err)
	}
	return done(w, r, voucherPath(id), string(state))
}

// change does with one of a sale's dialogs what was typed there.
func (c *console) change(dialog, field string, do func(r *http.Request, by, id, typed string) error) handle {
	return func(w http.ResponseWriter, r *http.Request, v *visit) error {
		id, typed := r.PathValue("id"), r.PostForm.Get(field)
		if toShowAgain(r) {
			return c.voucherPage(w, r, v, http.StatusOK, voucherPage{Open: dialog, Typed: typed})
		}
		if err := do(r, v.claims.Subject, id, typed); err != nil {
			return c.refused(w, r, v, dialog, typed, err)
		}
		return done(w, r, voucherPath(id), dialog)
	}
}

func (c *console) changeStock(r *http.Request, by, id, typed string) error {
	delta, err := parseWhole("body.delta", typed)
	if err == nil {
		_, err = c.Vouchers.ChangeStock(r.Context(), id, model.StockChange{Delta: &delta, By: by},
			once(by, "stock", r.PostForm.Get("once"), id, typed))
	}
	return err
}

func (c *console) moveEnd(r *http.Request, by, id, typed string) error {
	zone, err := loadZone(r.PostForm.Get("zone"))
	if err != nil {
		return model.Invalid("body.zone", "is no time zone")
	}
	end, err := parseLocal("body.end_at", typed, zone)
	if err == nil {
		_, err = c.Vouchers.Patch(r.Context(), id, model.VoucherPatch{EndAt: &end, By: by})
	}
	return err
}

func (c *console) enterBeacon(r *http.Request, by, id, typed string) error {
	_, err := c.Beacon(r.Context(), id, typed, by)
	return err
}
