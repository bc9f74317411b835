package console_test

import (
	"context"
	"encoding/json"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/repair"
)

type view struct {
	template string // in pages/
	path     string // empty: the page is there already
}

func (s *site) views(t *testing.T) []view {
	t.Helper()
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	for _, changes := range []map[string]any{
		{"begin_at": in(time.Hour)},
		{"end_at": in(-time.Minute)},
		{"stock": 0},
		{"state": "draft"},
		{"state": "paused"},
		{"title": strings.Repeat("Donaudampfschifffahrtsgesellschaft", 5)},
	} {
		s.onSale(t, changes)
	}
	id := s.onSale(t, map[string]any{"description": "A table\nat the window."})
	paid := s.paid(t, "views-1", id)
	refunded := s.paid(t, "views-3", id)
	s.call(t, "POST", "/admin/orders/"+refunded+"/refund", s.token(t, "admin", model.RoleAdmin), nil)
	s.exec(t, "UPDATE refunds SET status = 'failed', attempts = 3, next_at = NULL, error = 'the provider has refused it: the card is closed' WHERE order_id = ?", refunded)
	s.buy(t, "views-2", id)
	path := "/console/vouchers/" + id
	drawn, waitlist := s.fair(t)
	used, ended := s.used(t), s.onSale(t, map[string]any{"end_at": in(-time.Minute), "public_report": true})
	invited := check.Value(s.database(t).Administrators().Invite(t.Context(), "views-7", model.LevelCashier))(t)
	tokens := check.Value(token.New([]token.Key{{ID: "1", Secret: secret}}, "seckill", "seckill"))(t)
	invitation := check.Value(tokens.Invite(invited.ID, 1))(t)
	return []view{
		{"invite", "/console/invite/" + invitation},
		{"overview", "/console"},
		{"vouchers", "/console/vouchers"},
		{"vouchers", "/console/vouchers?phase=live"},
		{"redeem", "/console/redeem"},
		{"voucher_form", "/console/vouchers/new"},
		{"voucher", path},
		{"voucher_form", path + "/edit"},
		{"audit", path + "/audit"},
		{"report", path + "/report"},
		{"voucher", drawn},
		{"report", drawn + "/report"},
		{"voucher", waitlist},
		{"report", waitlist + "/report"},
		{"report", used + "/report"},
		{"orders", "/console/orders?of=redeemed&from=2026-01-01"},
		{"orders", "/console/orders"},
		{"orders", "/console/orders?voucher=" + id},
		{"order", "/console/orders/" + paid},
		{"order", "/console/orders/" + refunded},
		{"order", "/console/orders/" + s.orderOf(t, "views-2", id)},
		{"refunds", "/console/refunds?status="},
		{"account", "/console/accounts"},
		{"account", "/console/accounts?q=nobody"},
		{"account", "/console/accounts/" + s.account(t, "ada")},
		{"orders", "/console/orders?user=views-1"},
		{"log", "/console/log"},
		{"colleagues", "/console/colleagues"},
		{"system", "/console/system"},
		{"dead_letters", "/console/dead-letters"},
		{"events", "/console/events"},
		{"failure", "/console/vouchers/unknown"},
		{"shop", "/shop"},
		{"shop", "/shop/" + ended},
		{"replay", "/shop/" + ended + "/replay"},
		{"replay", waitlist + "/replay"},
		{"replay", drawn + "/replay"},
	}
}

// used makes a voucher of which one order is used at a place and one has lapsed, and returns the path of its page.
func (s *site) used(t *testing.T) string {
	t.Helper()
	id := s.onSale(t, map[string]any{"redeemers": []string{"north", "south"}, "valid_for": "1h", "withdrawal": "24h"})
	lapsed := s.paid(t, "views-4", id)
	s.exec(t, "UPDATE orders SET paid_at = created_at - 7200000000 WHERE id = ?", lapsed)
	_, order := s.call(t, http.MethodGet, "/orders/"+s.paid(t, "views-5", id), s.token(t, "views-5", model.RoleUser), nil)
	status, _ := s.call(t, http.MethodPost, "/admin/redemptions", s.token(t, "admin", model.RoleAdmin),
		map[string]any{"code": order["code"], "place": "south"})
	check.Equal(t, "used in the south", status, http.StatusOK)
	return "/console/vouchers/" + id
}

// fair makes a drawn voucher and a sold-out one for which somebody waits, and returns the paths of their pages.
func (s *site) fair(t *testing.T) (drawn, waitlist string) {
	t.Helper()
	admin, user := s.token(t, "admin", model.RoleAdmin), s.token(t, "views-2", model.RoleUser)
	draw := s.onSale(t, map[string]any{
		"allocation": "draw",
		"early":      map[string]any{"groups": []string{"xxxxxxxxx"}, "begin_at": time.Now().Add(-2 * time.Hour).UTC().Format(time.RFC3339)},
	})
	waits := s.onSale(t, map[string]any{"waitlist": true, "cooldown": "10m", "stock": 1})
	s.paid(t, "views-1", waits)
	s.call(t, http.MethodPost, "/vouchers/"+draw+"/seckill", user, nil)
	s.call(t, http.MethodPost, "/vouchers/"+waits+"/waitlist", user, nil)
	s.call(t, http.MethodPatch, "/admin/vouchers/"+draw, admin,
		map[string]any{"end_at": time.Now().Add(-time.Second).UTC().Format(time.RFC3339Nano)})
	check.Eventually(t, "it is drawn", func() bool {
		_, proof := s.call(t, http.MethodGet, "/vouchers/"+draw+"/draw", user, nil)
		return proof["drawn_at"] != nil
	})
	return "/console/vouchers/" + draw, "/console/vouchers/" + waits
}

func damagedViews() []view {
	return []view{
		{"audit", "/console/vouchers/v1/audit"},
		{"dead_letters", "/console/dead-letters"},
		{"dead_letter", "/console/dead-letters/1"},
		{"dead_letter", "/console/dead-letters/2"},
	}
}

type behind struct {
	*repair.Auditor
	*repair.Replayer
}

func (behind) letters() []model.DeadLetter {
	return []model.DeadLetter{
		{
			Sequence: 1, Reason: "the voucher is gone",
			Reservation: &model.Reservation{Order: model.Order{ID: "o1", VoucherID: "v1", UserID: "u1"}},
		},
		{Sequence: 2, Reason: "it cannot be read", Raw: []byte(`{"v":99,"order":"` + strings.Repeat("x", 200) + `"}`)},
	}
}

func (b behind) DeadLetters(_ context.Context, yield func(model.DeadLetter) error) error {
	for _, letter := range b.letters() {
		if err := yield(letter); err != nil {
			return err
		}
	}
	return nil
}

func (b behind) DeadLetter(_ context.Context, sequence uint64) (model.DeadLetter, error) {
	return b.letters()[sequence-1], nil
}

// data are what people and other programs have written, and names: they are the same in each language.
var data = regexp.MustCompile(`seckill [a-z ]+(--[a-z]+ ?(网址 )?)+(NAME)?|Coffee for two|A table\s+at the window\.|(Donaudampfschifffahrtsgesellschaft)+|views-\d|the provider has refused it: the card is closed|` +
	`the voucher is gone|it cannot be read|reserved, and in no queue|x{9,}|中文|English|(Typed|Changed) by \S+|Coffee <script>[^\n]*|Tea for two|north|south|dial tcp [^\n]*|` +
	// Settings, names of other programs and words of code.
	`\b(ada|eve|admin|sync|async|all|commit \w+|seckill|Ctrl K|Redis|CSV|UTC|MultiLock|RedLock|Redisson|finally|remaining)\b|` +
	`…\w{8}|\(devel\)|go1\S+|\b\S*\d\S*\b`)

func foreign(language, text string) []string {
	text = data.ReplaceAllString(text, " ")
	if language == "en" {
		return regexp.MustCompile(`\p{Han}+`).FindAllString(text, -1)
	}
	return regexp.MustCompile(`[A-Za-z][a-z]{2,}( [a-z]+)*`).FindAllString(text, -1)
}

// saying is what a page says to people: its texts, and the attributes that are read out or shown.
func saying(page string) string {
	page = regexp.MustCompile(`(?s)<(script|svg|style|code|pre)\b.*?</(script|svg|style|code|pre)>`).ReplaceAllString(page, " ")
	var said []string
	for _, attribute := range regexp.MustCompile(`\b(?:title|aria-label|placeholder|alt|data-words|data-label|data-lost|data-trouble|data-ago|data-live-word)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		said = append(said, attribute[1])
	}
	said = append(said, regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, "\n"))
	return html.UnescapeString(strings.Join(said, "\n"))
}

// No page says anything in the other language: not of a full shop, nor of a damaged one, nor in what is refused.
func TestPagesSpeakOneLanguage(t *testing.T) {
	t.Parallel()
	s := start(t, unheard()...)
	b := s.signedIn(t, "ada")
	broken := (&shop{queued: true}).browser(t)
	stranger := s.browser(t)
	look := func(name, language, page string) {
		found := foreign(language, saying(page))
		check.That(t, len(found) == 0, "%s in %s says %q", name, language, found)
	}
	views := s.views(t)
	for _, language := range []string{"en", "zh"} {
		for _, of := range []struct {
			b     *browser
			views []view
		}{{b, views}, {broken, damagedViews()}, {stranger, []view{{"sign_in", "/console/sign-in"}}}} {
			for _, v := range of.views {
				look(v.path, language, of.b.get(t, v.path, "Accept-Language", language).body)
			}
		}
		look("a wrong password", language, stranger.signIn(t, "nobody", "a wrong password", "Accept-Language",
			language).body)
		look("a wrong form", language, b.post(t, "/console/vouchers/new",
			onSale("title", "", "price", "x", "stock", "-1", "end_at", "x", "zone", "UTC"), "Accept-Language",
			language).body)
		look("wrong groups", language, b.post(t, "/console/accounts/"+s.account(t, "ada")+"/groups",
			map[string][]string{"groups": {"xxxxxxxxx\nxxxxxxxxx"}}, "Accept-Language", language).body)
		look("a wrong code", language, b.post(t, "/console/redemptions", map[string][]string{"code": {"x"}},
			"Accept-Language", language).body)
	}
	check.That(t, len(foreign("zh", "这是 an English sentence 中")) == 1 && len(foreign("en", "This is 中国.")) == 1 &&
		strings.Contains(saying(`<a title="a b">c</a>`), "a b"), "nothing foreign is ever found")
}

// Watched or not, the charts of a live sale are kept for an hour: what all instances count, and the orders.
func TestChartsAreKeptForAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sold := &shop{live: true}
		b := sold.browser(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go sold.console.Record(ctx)
		time.Sleep(90 * time.Minute) // of the bubble
		event, data := b.events(t, "v1")()
		check.Equal(t, "the first event", event, "history")
		var kept struct{ Readings []reading }
		check.Must(t, json.Unmarshal([]byte(data), &kept))
		n := len(kept.Readings)
		check.Need(t, n >= 715 && n <= 722, "after 90 minutes %d points are kept", n)
		last := kept.Readings[n-1]
		check.Equal(t, "what is left", last.Remaining, 4)
		check.Equal(t, "attempts a second at two instances", last.PerSecond["OK"], 8)
		check.That(t, last.Latency.P99 > 1 && last.Latency.P99 <= 2.5, "of 100 attempts 99 took %v ms", last.Latency)
		check.Equal(t, "orders, and their money", last.Counts.Paid+last.Counts.Revenue, 2+3000)
	})
}
