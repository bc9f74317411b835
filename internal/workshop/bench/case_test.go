package bench

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// work is what is sent, and what has to become of it.
type work struct {
	head    string // every request begins so
	records *records
	voucher string // empty: all that there are
	sold    int    // units that are sold already

	sells bool       // every answer is an accepted order of a user of its own
	code  model.Code // every answer is this refusal; neither: every answer is good
}

// on is the same work with other records.
func (w work) on(r *records) work {
	w.records = r
	return w
}

// workCase is one kind of request, and the service that it is sent to.
type workCase struct {
	name, says string
	settings   []string
	mode       model.OrderMode
	ownProcess bool // the worker is a process of its own, which is away while it is measured
	locks      bool // the lock lies on instances of its own
	sells      bool // orders are made, so that each measurement needs a voucher of its own
	prepare    func(*session) work
}

// cases are what is measured, in the order of the table.
func cases() []workCase {
	return []workCase{
		{name: "async", says: "an order, persisted by the same process meanwhile", mode: model.ModeAsync, sells: true, prepare: (*session).selling},
		{name: "async-api", says: "an order, the worker stopped", mode: model.ModeAsync, ownProcess: true, sells: true, prepare: (*session).selling},
		{name: "sync", says: "an order, committed under the user's lock", mode: model.ModeSync, sells: true, prepare: (*session).selling},
		{
			name: "sync-none", says: "an order without a lock: the difference is what the lock costs", mode: model.ModeSync,
			settings: []string{"SECKILL_LOCK_MODE=none"}, sells: true, prepare: (*session).selling,
		},
		{
			name: "multilock", says: "an order, async, under a lock on three instances", mode: model.ModeAsync, locks: true,
			settings: []string{"SECKILL_LOCK_MODE=multilock"}, sells: true, prepare: (*session).selling,
		},
		{name: "sold-out", says: "refused, async", mode: model.ModeAsync, prepare: (*session).soldOut},
		{name: "sold-out-sync", says: "refused, sync", mode: model.ModeSync, prepare: (*session).soldOut},
		{name: "duplicate", says: "refused, async: the same users again", mode: model.ModeAsync, prepare: (*session).duplicate},
		{name: "not-started", says: "refused, async: before the sale", mode: model.ModeAsync, prepare: (*session).notStarted},
		{name: "voucher", says: "GET of a voucher on sale, async", mode: model.ModeAsync, prepare: (*session).voucherRead},
		{name: "order-wait", says: "GET of one's order with wait, async, decided already", mode: model.ModeAsync, prepare: (*session).orderRead},
	}
}

func find(name string) workCase {
	return cases()[slices.IndexFunc(cases(), func(c workCase) bool { return c.name == name })]
}

// chosen are the cases that were asked for.
func (h *harness) chosen() []workCase {
	h.Helper()
	var out []workCase
	for _, name := range h.cases {
		i := slices.IndexFunc(cases(), func(c workCase) bool { return c.name == name })
		if i < 0 {
			h.Fatalf("there is no case %q", name)
		}
		out = append(out, cases()[i])
	}
	return out
}

// purchase is the beginning of a request to buy, whose end is a token.
func purchase(voucher string) string {
	return "POST /api/v1/vouchers/" + voucher + "/seckill HTTP/1.1\r\nHost: seckill\r\nContent-Length: 0\r\nAuthorization: Bearer "
}

// never is a stock that is never sold out.
const never = 10_000_000

func (s *session) selling() work {
	s.Helper()
	id := s.onSale(never, -time.Hour)
	return work{head: purchase(id), records: s.tokens, voucher: id, sells: true}
}

func (s *session) soldOut() work {
	s.Helper()
	const few = 10
	id := s.onSale(few, -time.Hour)
	for n := range few {
		s.buy(id, fmt.Sprintf("early%d", n))
	}
	s.drained()
	w := work{head: purchase(id), records: s.tokens, voucher: id, code: model.CodeSoldOut}
	s.hears(w)
	return w
}

func (s *session) duplicate() work {
	s.Helper()
	w := s.filled()
	w.code = model.CodeAlreadyOrdered
	return w
}

func (s *session) notStarted() work {
	s.Helper()
	id := s.onSale(never, time.Hour)
	w := work{head: purchase(id), records: s.tokens, voucher: id, code: model.CodeNotStarted}
	s.hears(w)
	return w
}

func (s *session) voucherRead() work {
	s.Helper()
	id := s.onSale(never, -time.Hour)
	return work{head: "GET /api/v1/vouchers/" + id + " HTTP/1.1\r\nHost: seckill\r\n\r\n", voucher: id}
}

func (s *session) orderRead() work {
	s.Helper()
	w := s.filled()
	rows := check.Value(s.db.QueryContext(s.Context(), "SELECT id, user_id FROM "+s.schema+".orders WHERE voucher_id = ?", w.voucher))(s)
	defer rows.Close()
	endings, write, done := newRecords(s.T, "orders")
	for rows.Next() {
		var id, user string
		check.Must(s, rows.Scan(&id, &user))
		write(id + "?wait=1s HTTP/1.1\r\nHost: seckill\r\nAuthorization: Bearer " + bearer(s.T, s.authority, user) + "\r\n\r\n")
	}
	check.Must(s, rows.Err())
	done()
	return work{head: "GET /api/v1/orders/", records: endings, voucher: w.voucher}
}

// filled is a voucher that the first users have bought, and those users.
func (s *session) filled() work {
	s.Helper()
	w := s.selling()
	s.buy(w.voucher, userName(0)) // wrk makes its first request to look at it, and does not send it
	closed(s.T, s.urls(), s.connections[0], 1, w)
	s.drained()
	rows := check.Value(s.db.QueryContext(s.Context(), "SELECT user_id FROM "+s.schema+".orders WHERE voucher_id = ? ORDER BY user_id", w.voucher))(s)
	defer rows.Close()
	count := 0
	for user := ""; rows.Next(); count++ {
		check.Must(s, rows.Scan(&user))
		if user != userName(count) {
			break // of those that were under way at the end, one was not sent
		}
	}
	check.Must(s, rows.Err())
	if count < s.connections[0] {
		s.Fatalf("only %d users have bought", count)
	}
	w.sells, w.records = false, &records{path: w.records.path, width: w.records.width, count: count}
	return w
}

// hears waits until a buyer hears what all are to hear.
func (s *session) hears(w work) {
	s.Helper()
	check.Eventually(s, "a buyer hears "+string(w.code), func() bool {
		got, err := s.instances[0].Place(s, w.voucher, userName(0))
		return err == nil && got.Status == http.StatusConflict && got.Code() == w.code
	})
}
