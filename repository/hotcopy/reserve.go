package hotcopy

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/model"
)

// reservePause is the first pause before a call is repeated; budget.Glance the longest, while Redis restarts.
const reservePause = 5 * time.Millisecond

// What a request asks of reserve.lua.
const (
	reserveLook    = 1 // at the lock of the user
	reserveAnytime = 2
	reserveEarly   = 4
)

type reserveCall struct {
	call
	asked []model.ReserveRequest
	place []int // where each of them stands among all
	lost  error // an earlier sending that has no answer
}

// Reserve takes a unit for each request, of any vouchers. A refusal is a result's Err; of two requests of one voucher
// and user the first counts. An order reserved before has its first answer: processing, or no status if it is settled
// and has a row. One without an answer is tried until ctx ends, then Err wraps model.ErrUnknownOutcome. One that Redis
// never got, or refused, is UNAVAILABLE. Reserve itself fails only when nothing else can be said.
func (s *Store) Reserve(ctx context.Context, asked []model.ReserveRequest) (answers []model.ReserveResult, err error) {
	ctx, traced := s.options.Trace.Group(ctx, "reserve", len(asked), func(i int) model.Order {
		return model.Order{ID: asked[i].OrderID, VoucherID: asked[i].VoucherID, Trace: asked[i].Trace}
	})
	defer func() {
		for i := range answers { // a reservation is traced as its request is
			answers[i].Trace = asked[i].Trace
		}
		traced.End(err, func(i int) error { return answers[i].Err })
	}()
	ctx, cancel := context.WithTimeout(ctx, budget.Work+s.options.Slack)
	defer cancel()
	calls := s.reserveCalls(asked)
	s.reserve(ctx, calls)
	answers = make([]model.ReserveResult, len(asked))
	var failed []error
	for _, r := range calls {
		err := r.failure()
		if err != nil {
			failed = append(failed, err)
		}
		for i, place := range r.place {
			answers[place].Reservation = reserved(r.asked[i])
			if answers[place].Err = err; err == nil {
				r.answer(&answers[place], i)
			}
		}
	}
	if len(failed) > 0 && len(failed) == len(calls) {
		return answers, errors.Join(failed...)
	}
	return answers, nil
}

// failure tells why nothing can be said of a call's orders; nil when Redis has answered.
func (r *reserveCall) failure() error {
	if r.lost != nil {
		return r.lost
	}
	if !r.sent {
		return model.Unavailable("There was no time left to ask Redis.", context.DeadlineExceeded)
	}
	return r.fail("reserve orders")
}

func (s *Store) reserve(ctx context.Context, open []*reserveCall) {
	for n := 0; len(open) > 0; n++ {
		if ctx.Err() != nil {
			return
		}
		calls := make([]*call, len(open))
		for i, r := range open {
			calls[i] = &r.call
		}
		s.run(ctx, calls...)
		open = lost(open)
		if len(open) > 0 {
			poll.Pause(ctx, backoff.Doubled(reservePause, budget.Glance, n))
		}
	}
}

// lost returns the calls of unknown outcome, earlier lost ones too: a Redis that refuses now may have worked then.
func lost(tried []*reserveCall) (open []*reserveCall) {
	for _, r := range tried {
		err := r.fail("reserve orders")
		if errors.Is(err, model.ErrUnknownOutcome) {
			r.lost = err
		}
		if r.lost != nil && err != nil && model.CodeOf(err) == model.CodeUnavailable {
			open = append(open, r)
		} else {
			r.lost = nil
		}
	}
	return open
}

func (s *Store) reserveCalls(asked []model.ReserveRequest) []*reserveCall {
	var all []*reserveCall
	for _, places := range split(len(asked), callOrders, func(place int) string { return asked[place].VoucherID }) {
		r := &reserveCall{call: call{script: "reserve", voucher: asked[places[0]].VoucherID, once: true}, place: places}
		for _, place := range places {
			r.asked = append(r.asked, asked[place])
			r.ask(asked[place], s.options.LockKeys)
		}
		all = append(all, r)
	}
	return all
}

func (r *reserveCall) ask(a model.ReserveRequest, lockKeys bool) {
	flags := 0
	if lockKeys && !a.Locked {
		flags += reserveLook
		r.keys = append(r.keys, model.UserLock(a.UserID))
	}
	if a.Anytime {
		flags += reserveAnytime
	}
	if a.Early {
		flags += reserveEarly
	}
	r.args = append(r.args, a.OrderID, a.UserID, flags)
}

// reserveWords is how many words of reserve.lua's reply stand before those of the orders.
const reserveWords = 6

func reserved(a model.ReserveRequest) model.Reservation {
	return model.Reservation{Order: model.Order{ID: a.OrderID, VoucherID: a.VoucherID, UserID: a.UserID}}
}

func (r *reserveCall) answer(a *model.ReserveResult, i int) {
	if r.verdict != verdictDone {
		a.Err = model.ErrCopyClosed
		return
	}
	if len(r.words) != reserveWords+len(r.asked) || r.words[reserveWords+i] == "" {
		a.Err = r.strange("reserve order " + a.ID)
		return
	}
	word := r.words[reserveWords+i]
	a.Epoch = r.head
	switch rest := word[1:]; word[0] {
	case 'r', 's':
		a.Price, a.Currency = number(r.words[1]), r.words[2]
		if word[0] == 'r' {
			a.Status, a.CreatedAt = model.OrderProcessing, microTime(r.words[0])
		}
	case 'p':
		a.Reservation = pendingEntry(a.ID, a.VoucherID, rest)
		// The copy that holds it now is the one in which it is published.
		a.Epoch = r.head
	case 'x':
		a.Err = model.ErrOrderClosed
	case 'w':
		a.Err = r.outside(rest)
	case 'l':
		a.Err = model.ErrUserLocked
	case 'a':
		a.Err = other(rest)
	case 'c':
		a.Err = model.CoolingDown(time.UnixMilli(number(rest)), microTime(r.words[0]))
	case 'o':
		a.Err = model.SoldOut()
	default:
		a.Err = r.strange("reserve order " + a.ID)
	}
}

// outside is the refusal of an order outside the sale's window, which begins early for some.
func (r *reserveCall) outside(early string) error {
	v := model.Voucher{
		VoucherFields: model.VoucherFields{
			State: model.VoucherState(r.words[3]), BeginAt: microTime(cmp.Or(early, r.words[4])),
			EndAt: microTime(r.words[5]),
		},
	}
	if refusal := v.Refusal(microTime(r.words[0])); refusal != nil {
		return refusal
	}
	return r.strange("refuse an order inside the window")
}

// other refuses a user who has an order. Word is 1 if that one is pending or else 0, and its id.
func other(word string) error {
	order := model.Order{ID: word[1:]}
	if word[0] == '1' {
		order.Status = model.OrderProcessing
	}
	return model.AlreadyOrdered(order)
}

func writeEntry(r model.Reservation) string {
	return strings.Join([]string{
		r.UserID, strconv.FormatInt(r.CreatedAt.UnixMicro(), 10), strconv.FormatInt(r.Price, 10), r.Currency,
		strconv.FormatInt(r.Epoch, 10),
	}, " ")
}

func pendingEntry(orderID, voucherID, entry string) model.Reservation {
	words := append(strings.Split(entry, " "), make([]string, 5)...)
	return model.Reservation{
		Order: model.Order{
			ID: orderID, VoucherID: voucherID, UserID: words[0], Status: model.OrderProcessing,
			CreatedAt: microTime(words[1]), Price: number(words[2]), Currency: words[3],
		},
		Epoch: number(words[4]),
	}
}

func microTime(text string) time.Time { return time.UnixMicro(number(text)).UTC() }

// Confirm says if each admitting copy is still open. If so after a publish, the message precedes the next barrier.
func (s *Store) Confirm(ctx context.Context, reservations []model.Reservation) ([]bool, error) {
	groups := split(len(reservations), len(reservations),
		func(place int) string { return reservations[place].VoucherID })
	calls := make([]*call, len(groups))
	for i, some := range groups {
		calls[i] = &call{script: "confirm", voucher: reservations[some[0]].VoucherID}
	}
	s.run(ctx, calls...)
	open := make([]bool, len(reservations))
	var failed error
	for i, c := range calls {
		for _, place := range groups[i] {
			open[place] = c.err == nil && c.verdict == verdictDone && c.head == reservations[place].Epoch
		}
		failed = cmp.Or(failed, c.fail("confirm the epoch"))
	}
	return open, failed
}
