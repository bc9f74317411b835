package console_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/grafana/sobek"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// wordsOfThePage stands for what shop.js and the page have: a text is its key and its values, and all that is said is kept.
const wordsOfThePage = `
const said = new Set();
const word = (key) => { said.add(key); return key; };
const fill = (key, ...values) => [word(key), ...values].join(' ');
const list = (names) => names.join('+');
const when = (at) => at.slice(11, 16);
const left = (at) => 'T' + when(at);
const now = () => Date.parse('2026-01-01T12:00:00Z');
const ask = (voucher, mine) => { const { says, does, why } = offer(JSON.parse(voucher), JSON.parse(mine)); return [says, does, why].join(' | '); };`

// TestOffer: what the button of each kind of voucher says to each kind of visitor, what it does, and why it does nothing. The
// vouchers are as the API shows them to the visitor.
func TestOffer(t *testing.T) {
	t.Parallel()
	vm := sobek.New()
	script := string(check.Value(os.ReadFile("static/offer.js"))(t))
	check.Value(vm.RunString(script + wordsOfThePage))(t)
	var ask func(voucher, mine string) string
	check.Must(t, vm.ExportTo(vm.Get("ask"), &ask))

	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(hour int) time.Time { return time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC) }
	on := model.Voucher{VoucherFields: model.VoucherFields{State: model.VoucherPublished, Stock: 5, Remaining: 5, BeginAt: at(10), EndAt: at(20)}}
	with := func(change func(*model.Voucher)) model.Voucher { v := on; change(&v); return v }
	gold := with(func(v *model.Voucher) { v.Groups = model.Groups{"gold", "staff"} })
	early := with(func(v *model.Voucher) {
		v.BeginAt, v.Early = at(16), model.Early{For: model.Groups{"gold"}, From: new(at(11))}
	})
	later := with(func(v *model.Voucher) {
		v.BeginAt, v.Early = at(16), model.Early{For: model.Groups{"gold"}, From: new(at(14))}
	})
	soldOut := with(func(v *model.Voucher) { v.Remaining = 0 })
	waitlist := with(func(v *model.Voucher) { v.Remaining, v.Waitlist = 0, true })
	goldWaits := with(func(v *model.Voucher) { v.Remaining, v.Waitlist, v.Groups = 0, true, model.Groups{"gold"} })
	draw := with(func(v *model.Voucher) { v.Allocation = model.ByDraw })
	upcoming := with(func(v *model.Voucher) { v.BeginAt = at(14) })
	ended := with(func(v *model.Voucher) { v.EndAt = at(11) })
	endedWaitlist := with(func(v *model.Voucher) { v.EndAt, v.Waitlist = at(11), true })
	endedDraw := with(func(v *model.Voucher) { v.EndAt, v.Allocation = at(11), model.ByDraw })
	paused := with(func(v *model.Voucher) { v.State = model.VoucherPaused })
	pausedGold := with(func(v *model.Voucher) { v.State, v.Groups = model.VoucherPaused, model.Groups{"gold"} })

	const anonymous, buyer, member = "", `"signedIn": true`, `"signedIn": true, "groups": ["gold"]`
	for _, row := range []struct {
		name    string
		voucher model.Voucher
		visitor string
		want    string // says | does | why
	}{
		{"on sale, anonymous", on, anonymous, "sign in to buy | sign-in | "},
		{"on sale", on, buyer, "buy | buy | "},
		{"on sale, being bought", on, buyer + `, "busy": true`, "buying |  | "},
		{"on sale, cooling down", on, buyer + `, "coolsUntil": "2026-01-01T12:05:00Z"`, "cools T12:05 |  | ended unpaid"},
		{"on sale, cooled down", on, buyer + `, "coolsUntil": "2026-01-01T12:00:00Z"`, "buy | buy | "},
		{"on sale, order in the queue", on, buyer + `, "order": {"status": "processing"}`, "in the queue | orders | "},
		{"sold out, order to pay", soldOut, buyer + `, "order": {"status": "unpaid"}`, "yours unpaid | orders | "},
		{"ended, paid", ended, buyer + `, "order": {"status": "paid"}`, "yours paid | orders | "},
		{"ended, used", ended, buyer + `, "order": {"status": "redeemed"}`, "yours | orders | "},
		{"upcoming, anonymous", upcoming, anonymous, "waits T14:00 |  | "},
		{"upcoming", upcoming, buyer, "waits T14:00 |  | "},
		{"paused", paused, buyer, "paused |  | "},
		{"ended", ended, buyer, "ended |  | "},
		{"ended, cooling down", ended, buyer + `, "coolsUntil": "2026-01-01T12:05:00Z"`, "ended |  | "},
		{"sold out, anonymous", soldOut, anonymous, "sold_out |  | "},
		{"sold out", soldOut, buyer, "sold_out |  | "},
		{"sold out, cooling down", soldOut, buyer + `, "coolsUntil": "2026-01-01T12:05:00Z"`, "sold_out |  | "},

		{"for groups, anonymous", gold, anonymous, "sign in to buy | sign-in | for groups gold+staff"},
		{"for groups, not in them", gold, buyer, "not for you |  | in no group gold+staff"},
		{"for groups, in one", gold, member, "buy | buy | "},
		{"for groups, not in them any more, with an order", gold, buyer + `, "order": {"status": "unpaid"}`, "yours unpaid | orders | "},
		{"for groups and paused, anonymous", pausedGold, anonymous, "paused |  | for groups gold"},
		{"for groups and paused, not in them", pausedGold, buyer, "not for you |  | in no group gold"},

		{"early for some, anonymous", later, anonymous, "waits T16:00 |  | others before gold 14:00"},
		{"early for others", later, buyer, "waits T16:00 |  | others before gold 14:00"},
		{"early for me, not yet", later, member, "waits T14:00 |  | before others 16:00"},
		{"early for others, who buy already", early, buyer, "waits T16:00 |  | others before gold 11:00"},
		{"early for me, already", early, member, "buy | buy | "},

		{"waitlist, anonymous", waitlist, anonymous, "sign in to wait | sign-in | who waits"},
		{"waitlist", waitlist, buyer, "wait | wait | who waits"},
		{"waitlist, cooling down", waitlist, buyer + `, "coolsUntil": "2026-01-01T12:05:00Z"`, "cools T12:05 |  | ended unpaid"},
		{"waitlist for groups, anonymous", goldWaits, anonymous, "sign in to wait | sign-in | for groups gold"},
		{"waitlist for groups, not in them", goldWaits, buyer, "not for you |  | in no group gold"},
		{"waiting", waitlist, buyer + `, "place": {"position": 3}`, "place 3 | give up | your turn"},
		{"waiting, after the end", endedWaitlist, buyer + `, "place": {"position": 3}`, "place 3 | give up | your turn"},
		{"waited, and the order is over", waitlist, buyer + `, "place": {"position": 0, "order_id": "o1"}`, "wait | wait | who waits"},

		{"draw, anonymous", draw, anonymous, "sign in to enter | sign-in | chance"},
		{"draw", draw, buyer, "enter | buy | chance"},
		{"entered", draw, buyer + `, "entry": {"status": "entered"}`, "entered |  | if drawn"},
		{"being drawn", endedDraw, buyer + `, "entry": {"status": "entered"}`, "drawing |  | if drawn"},
		{"drawn", endedDraw, buyer + `, "entry": {"status": "won"}, "order": {"status": "unpaid"}`, "yours unpaid | orders | "},
		{"drawn, and the order is over", endedDraw, buyer + `, "entry": {"status": "won"}`, "yours | orders | "},
		{"drawn behind the winners", endedDraw, buyer + `, "entry": {"status": "waiting", "position": 7}`, "place 7 | give up | your turn"},
		{"not drawn", endedDraw, buyer + `, "entry": {"status": "lost"}`, "lost the draw |  | "},
		{"drawn, never entered", endedDraw, buyer, "ended |  | "},
	} {
		shown := row.voucher.At(noon)
		var visitor struct {
			SignedIn bool
			Groups   []string
		}
		check.Must(t, json.Unmarshal([]byte("{"+row.visitor+"}"), &visitor))
		if visitor.SignedIn {
			shown = shown.ShownTo(visitor.Groups)
		}
		mine := strings.TrimSuffix(`{"groups": [], `+row.visitor, ", ") + "}" // the last of a name counts
		check.Equal(t, row.name, ask(string(check.Value(json.Marshal(shown))(t)), mine), row.want)
	}

	page := string(check.Value(os.ReadFile("pages/shop.html"))(t))
	phases := fmt.Sprint(model.Phases())
	for _, key := range vm.Get("said").Export().([]any) {
		if !strings.Contains(page, fmt.Sprintf(`data-word=%q`, key)) && !strings.Contains(phases, fmt.Sprint(key)) {
			t.Errorf("the page has no words for %q", key)
		}
	}
	// Each word of the rule was said above, so that no state is left out.
	for _, key := range regexp.MustCompile(`(?:word|fill)\('([^']+)'`).FindAllStringSubmatch(script, -1) {
		check.Equal(t, key[1]+" was said", check.Value(vm.RunString(fmt.Sprintf("said.has(%q)", key[1])))(t).ToBoolean(), true)
	}
}
