package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"seckill/internal/api"
	"seckill/internal/payment"
	"seckill/internal/poll"
	"seckill/model"
)

const (
	// maxLater is up to how many sold units the demo goes on after the sale: embedded servers take minutes for more.
	maxLater = 500
	// maxPayers bounds how many pay, so that they are done before their time is over.
	maxPayers = 100
	// payersAtOnce is how many pay at the same time: less than the provider takes connections.
	payersAtOnce = 16
	// patienceForLapse is how long after its time an order may expire: the contract's 10 s when very many do.
	patienceForLapse = 10 * time.Second
	// patienceForMoney is how long a webhook or a refund may take.
	patienceForMoney = 30 * time.Second
	// maxPage bounds what is read of a provider's page, in bytes.
	maxPage = 64 << 10
)

// Ledger is what a payment provider tells of its payments.
type Ledger interface {
	LookUp(ctx context.Context, paymentID string) (payment.Payment, error)
	Close()
}

// purchase is an order that a buyer holds after the sale.
type purchase struct {
	user, order string
	currency    string   // empty until a payment is started
	payments    []string // their ids, in the order in which they were started
	code        string   // empty until it is paid
}

// aftermath is the life of the sale's orders after the sale.
type aftermath struct {
	Sale

	admin    api.Client
	paying   []*purchase // the others let it lapse
	lapsing  []*purchase
	provider string                       // the base URL of its API
	want     map[string]model.OrderStatus // of every order, by its id
}

// tooLarge reports whether too much may be sold to go on after the sale.
func (s Sale) tooLarge() bool { return min(int64(s.Buyers), s.Stock) > maxLater }

// afterwards lets about half of the buyers pay, uses one order, refunds one, waits until the others have lapsed, and
// sells again what came back. Then our orders are compared with the provider's ledger.
func (s Sale) afterwards(ctx context.Context, admin api.Client, answers []answer) error {
	if s.tooLarge() {
		fmt.Fprintf(s.Out, "\nWhat comes after a sale is shown for up to %d units.\n", maxLater)
		return nil
	}
	a := &aftermath{Sale: s, admin: admin, want: make(map[string]model.OrderStatus)}
	a.split(answers)
	if len(a.want) == 0 {
		fmt.Fprintln(s.Out, "\nNothing was sold, and so nothing is paid.")
		return nil
	}
	fmt.Fprintf(s.Out, "\nafter the sale (an order has %s to be paid):\n", s.Window)
	for _, act := range []func(context.Context) error{a.pay, a.redeem, a.refund, a.lapse, a.sellAgain} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	count, err := a.count(ctx)
	if err != nil {
		return fmt.Errorf("compare the ledgers: %w", err)
	}
	count.print(s.Out)
	if wrong := count.wrong(); len(wrong) > 0 {
		return errors.New("the ledgers do not agree:\n  " + strings.Join(wrong, "\n  "))
	}
	fmt.Fprintf(s.Out, "\nThe ledgers agree, order by order: %s was kept for %d orders, and no unit is sold twice.\n",
		price(count.ours.kept()), count.orders[model.OrderPaid]+count.orders[model.OrderRedeemed])
	return nil
}

// split decides who pays.
func (a *aftermath) split(answers []answer) {
	var held []*purchase
	for _, heard := range answers {
		if heard.order.ID != "" {
			held = append(held, &purchase{user: heard.user, order: heard.order.ID})
			a.want[heard.order.ID] = model.OrderUnpaid
		}
	}
	paying := min((len(held)+1)/2, maxPayers)
	a.paying, a.lapsing = held[:paying], held[paying:]
}

// insist repeats a call until it is done. A server that is away for a moment is asked again.
func insist(ctx context.Context, patience time.Duration, what string, call func(context.Context) (done bool, err error)) error {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	err := poll.Until(patient, pauseOfBuyers, func() (done bool, err error) {
		done, last = call(patient)
		if done || last != nil && !api.Again(last) {
			return true, last
		}
		return false, nil
	})
	if err != nil && patient.Err() != nil {
		err = errors.Join(patient.Err(), last)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// pay lets the payers pay. The last of them declines at first, and then pays after all.
func (a *aftermath) pay(ctx context.Context) error {
	var payers errgroup.Group
	payers.SetLimit(payersAtOnce)
	var base sync.Once
	for i, b := range a.paying {
		payers.Go(func() error {
			client, err := a.client(b.user, model.RoleUser)
			if err != nil {
				return err
			}
			page, err := a.payOne(ctx, client, b, i == len(a.paying)-1)
			base.Do(func() { a.provider = page })
			return err
		})
	}
	if err := payers.Wait(); err != nil {
		return err
	}
	for _, b := range a.paying {
		a.want[b.order] = model.OrderPaid
	}
	at, err := url.Parse(a.provider)
	if err != nil {
		return fmt.Errorf("read the address of the provider's page: %w", err)
	}
	a.provider = at.Scheme + "://" + at.Host
	fmt.Fprintf(a.Out, "  %d paid on the provider's page, one of them after a declined payment\n", len(a.paying))
	return nil
}

// payOne pays one order on the provider's page, whose address it returns.
func (a *aftermath) payOne(ctx context.Context, client api.Client, b *purchase, declines bool) (page string, err error) {
	if declines {
		if page, err = a.startPayment(ctx, client, b); err == nil {
			err = a.decide(ctx, page, "decline")
		}
		if err != nil {
			return "", err
		}
	}
	if page, err = a.startPayment(ctx, client, b); err == nil {
		err = a.decide(ctx, page, "approve")
	}
	if err != nil {
		return "", err
	}
	return page, insist(ctx, patienceForMoney, "wait until order "+b.order+" is paid", func(ctx context.Context) (bool, error) {
		var now model.Order
		err := client.Call(ctx, http.MethodGet, "/orders/"+url.PathEscape(b.order), nil, &now)
		if err != nil || now.Status == model.OrderUnpaid {
			return false, err
		}
		if b.code = now.Code; now.Status != model.OrderPaid || b.code == "" {
			return true, fmt.Errorf("it is %s; is a --payment-window of %s too short here?", now.Status, a.Window)
		}
		return true, nil
	})
}

// startPayment starts another payment of an order: the same again is answered until the service has heard that the
// one before has failed.
func (a *aftermath) startPayment(ctx context.Context, client api.Client, b *purchase) (page string, err error) {
	var started struct {
		ID    string      `json:"payment_id"`
		URL   string      `json:"payment_url"`
		Order model.Order `json:"order"`
	}
	err = insist(ctx, patienceForMoney, "start to pay order "+b.order, func(ctx context.Context) (bool, error) {
		err := client.Call(ctx, http.MethodPost, "/orders/"+url.PathEscape(b.order)+"/pay", nil, &started)
		return err == nil && (len(b.payments) == 0 || b.payments[len(b.payments)-1] != started.ID), err
	})
	if err == nil {
		b.payments, b.currency = append(b.payments, started.ID), started.Order.Currency
	}
	return started.URL, err
}

// decide presses a button on the provider's page.
func (a *aftermath) decide(ctx context.Context, page, decision string) error {
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	shown, err := a.browse(ctx, http.MethodGet, page, nil)
	if err == nil && !strings.Contains(shown, `value="`+decision+`"`) {
		err = errors.New("the page has no such button")
	}
	if err == nil {
		_, err = a.browse(ctx, http.MethodPost, page, url.Values{"decision": {decision}})
	}
	if err != nil {
		return fmt.Errorf("%s the payment at %s: %w", decision, page, err)
	}
	return nil
}

// browse opens a page, or sends its form, as a browser does.
func (a *aftermath) browse(ctx context.Context, method, page string, form url.Values) (text string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, page, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := a.HTTP.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxPage))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("the answer is %s", response.Status)
	}
	return string(body), err
}

// redeem uses the first payer's code.
func (a *aftermath) redeem(ctx context.Context) error {
	b := a.paying[0]
	err := a.admin.Call(ctx, http.MethodPost, "/admin/redemptions", map[string]string{"code": b.code}, nil)
	if err != nil {
		return fmt.Errorf("redeem order %s: %w", b.order, err)
	}
	a.want[b.order] = model.OrderRedeemed
	fmt.Fprintln(a.Out, "  1 was redeemed with its code")
	return nil
}

// refund gives the second payer's money back, if there is one, and waits until the provider has done it.
func (a *aftermath) refund(ctx context.Context) error {
	if len(a.paying) < 2 {
		return nil
	}
	b := a.paying[1]
	err := a.admin.Call(ctx, http.MethodPost, "/admin/orders/"+url.PathEscape(b.order)+"/refund", nil, nil)
	if err != nil {
		return fmt.Errorf("refund order %s: %w", b.order, err)
	}
	a.want[b.order] = model.OrderRefunded
	fmt.Fprintln(a.Out, "  1 was refunded")
	return insist(ctx, patienceForMoney, "wait for the refund of order "+b.order, func(ctx context.Context) (bool, error) {
		var pending model.RefundPage
		err := a.admin.Call(ctx, http.MethodGet, "/admin/refunds?status=pending", nil, &pending)
		return err == nil && len(pending.Items) == 0, err
	})
}

// discard leaves an answer's body unread: its status says enough.
// lapse waits until every unpaid order is expired.
func (a *aftermath) lapse(ctx context.Context) error {
	for _, b := range a.lapsing {
		a.want[b.order] = model.OrderExpired
	}
	fmt.Fprintf(a.Out, "  %d left to expire\n", len(a.lapsing))
	return a.awaitExpiry(ctx)
}

func (a *aftermath) awaitExpiry(ctx context.Context) error {
	path := "/admin/vouchers/" + url.PathEscape(a.voucher) + "/stats"
	return insist(ctx, a.Window+patienceForLapse, "wait until the unpaid orders expire", func(ctx context.Context) (bool, error) {
		var stats model.Stats
		err := a.admin.Call(ctx, http.MethodGet, path, nil, &stats)
		return err == nil && stats.OrdersByStatus[model.OrderUnpaid] == 0, err
	})
}

// sellAgain has everybody who holds nothing press the button again, until the units that came back are sold. A buyer
// who is told too early that nothing is left, or that there is an order, which has just lapsed, presses once more.
func (a *aftermath) sellAgain(ctx context.Context) error {
	crowd := a.emptyHanded()
	start := time.Now()
	units := min(len(crowd), int(min(a.Stock-int64(a.Buyers-len(crowd)), int64(a.Buyers))))
	var sold []answer
	err := insist(ctx, patienceForOrders, "sell the units again", func(ctx context.Context) (bool, error) {
		left := crowd[:0:0]
		for _, heard := range a.pressAll(ctx, crowd) {
			switch {
			case heard.err != nil:
				return true, fmt.Errorf("user %s got no answer: %w", heard.user, heard.err)
			case heard.won(), heard.code == string(model.CodeAlreadyOrdered) && a.want[heard.order.ID] == "":
				sold = append(sold, heard)
			case heard.code == string(model.CodeSoldOut), heard.code == string(model.CodeAlreadyOrdered):
				left = append(left, heard.user)
			default:
				return true, fmt.Errorf("user %s got an answer that nobody expected: %s", heard.user, heard.name())
			}
		}
		crowd = left
		return len(sold) >= units, nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "  %d sold again, to buyers who had nothing\n", len(sold))
	if err := a.awaitOrders(ctx, sold); err != nil {
		return err
	}
	return a.settle(ctx, sold, time.Since(start))
}

// settle says what is wanted of the orders that were sold again. Where that took so long that they might expire while
// they are counted, they are let lapse first.
func (a *aftermath) settle(ctx context.Context, sold []answer, took time.Duration) error {
	want := model.OrderUnpaid
	if took > a.Window/2 {
		want = model.OrderExpired
	}
	for _, heard := range sold {
		if heard.err != nil {
			return heard.err
		}
		a.want[heard.order.ID] = want
	}
	if want == model.OrderUnpaid {
		return nil
	}
	fmt.Fprintf(a.Out, "  these took %s, and are left to expire as well\n", round(took))
	return a.awaitExpiry(ctx)
}

// emptyHanded are the buyers who hold no unit.
func (a *aftermath) emptyHanded() []string {
	holds := make(map[string]bool)
	for _, b := range a.paying {
		holds[b.user] = a.want[b.order] != model.OrderRefunded
	}
	var users []string
	for i := range a.Buyers {
		if user := userID(i); !holds[user] {
			users = append(users, user)
		}
	}
	return users
}

// pressAll lets users press the button at once.
func (a *aftermath) pressAll(ctx context.Context, users []string) []answer {
	answers := make([]answer, len(users))
	var crowd sync.WaitGroup
	for i, user := range users {
		crowd.Go(func() {
			client, err := a.client(user, model.RoleUser)
			if err == nil {
				answers[i] = buy(ctx, client, a.voucher)
			} else {
				answers[i].err = err
			}
			answers[i].user = user
		})
	}
	crowd.Wait()
	return answers
}
