// Package demo is a flash sale from start to finish, against a running service over real HTTP: `seckill demo`. Read
// demo.go first, the order of events. buyers.go has who press the button; report.go counts what they bought.
package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"seckill/internal/api"
	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/internal/token"
	"seckill/model"
)

// connections are shared by the buyers, as a proxy would keep them: few enough for a machine's limit of open files.
const connections = 200

// Sale is the demo's flash sale.
type Sale struct {
	Buyers int
	Stock  int64

	Base   string // of the service's main listener
	Tokens *token.Authority
	HTTP   *http.Client // nil: one of its own

	Out io.Writer

	voucher string
}

// Run puts a voucher up and sells it. The error says what does not add up.
func (s Sale) Run(ctx context.Context) error {
	if s.HTTP == nil {
		transport := api.Transport(connections)
		defer transport.CloseIdleConnections()
		s.HTTP = &http.Client{Transport: transport}
	}
	admin, err := s.client("admin", model.RoleAdmin)
	if err != nil {
		return err
	}
	if s.voucher, err = s.putUp(ctx, admin); err != nil {
		return fmt.Errorf("put the voucher up: %w", err)
	}
	return s.sell(ctx, admin)
}

func (s Sale) sell(ctx context.Context, admin api.Client) error {
	fmt.Fprintf(s.Out, "%d buyers, %d vouchers, one server at %s\n", s.Buyers, s.Stock, s.Base)
	answers, took, err := s.open(ctx)
	if err != nil {
		return err
	}
	printAnswers(s.Out, answers, took)
	if err := s.awaitOrders(ctx, answers); err != nil {
		return err
	}
	count, err := countSale(ctx, admin, s, answers)
	if err != nil {
		return fmt.Errorf("count what was sold: %w", err)
	}
	count.print(s.Out)
	if wrong := count.wrong(s); len(wrong) > 0 {
		return errors.New("the sale does not add up:\n  " + strings.Join(wrong, "\n  "))
	}
	fmt.Fprintf(s.Out, "\nIt adds up: %d of %d sold, each to another buyer, and all three counts agree.\n",
		count.answers, s.Stock)
	return nil
}

func (s Sale) client(subject string, role model.Role) (api.Client, error) {
	signed, err := s.Tokens.Issue(token.Claims{Subject: subject, Role: role}, budget.Hour)
	return api.Client{Base: s.Base, Token: signed, HTTP: s.HTTP}, err
}

func (s Sale) putUp(ctx context.Context, admin api.Client) (id string, err error) {
	now := time.Now().UTC()
	var voucher model.Voucher
	err = admin.Call(ctx, http.MethodPost, "/admin/vouchers", map[string]any{
		"title": "Coffee for two", "price": 1000, "face_value": 2500, "stock": s.Stock,
		"begin_at": now.Add(-time.Minute), "end_at": now.Add(budget.Hour),
		"payment_window": budget.Hour.String(), // nothing expires before it is counted
	}, &voucher)
	return voucher.ID, err
}

func userID(buyer int) string { return strconv.Itoa(buyer + 1) }

const waitOfBuyers = "10s" // of one call for an order: below api.CallTimeout

type answer struct {
	user    string
	status  int           // 0: no answer
	code    string        // of a problem document
	order   model.Order   // the buyer's, also of ALREADY_ORDERED
	latency time.Duration // from the start gun to the answer
	repeats int           // of calls answered 429, 503 or not at all
	err     error         // of an answer that could not be read
}

func (a answer) won() bool { return a.status == http.StatusCreated || a.status == http.StatusAccepted }

func (a answer) name() string {
	switch {
	case a.err != nil:
		return "no answer"
	case a.won():
		return strconv.Itoa(a.status) + " " + strings.ToUpper(http.StatusText(a.status))
	default:
		return strconv.Itoa(a.status) + " " + a.code
	}
}

// open lets every buyer press the button at the same instant, and returns what they heard, and how long all of it took.
func (s Sale) open(ctx context.Context) ([]answer, time.Duration, error) {
	clients := make([]api.Client, s.Buyers)
	for i := range clients {
		var err error
		if clients[i], err = s.client(userID(i), model.RoleUser); err != nil {
			return nil, 0, err
		}
	}
	if err := warmUp(ctx, s); err != nil {
		return nil, 0, err
	}
	shown := &progress{out: s.Out, buyers: s.Buyers}
	answers := make([]answer, s.Buyers)
	gun := make(chan struct{})
	var start time.Time
	var crowd sync.WaitGroup
	for i, client := range clients {
		crowd.Go(func() {
			<-gun
			a := buy(ctx, client, s.voucher)
			a.user, a.latency = userID(i), time.Since(start)
			answers[i] = a
			shown.answered(a)
		})
	}
	start = time.Now()
	close(gun)
	crowd.Wait()
	took := time.Since(start)
	if err := ctx.Err(); err != nil {
		return nil, 0, fmt.Errorf("the sale was interrupted: %w", err)
	}
	return answers, took, nil
}

// warmUp opens the connections, so that the sale does not measure how long the machine takes to open them.
func warmUp(ctx context.Context, s Sale) error {
	var opening errgroup.Group
	for range min(s.Buyers, connections) {
		opening.Go(func() error {
			_, err := api.Send(ctx, s.HTTP, http.MethodGet, s.Base+"/livez", "", nil)
			return err
		})
	}
	if err := opening.Wait(); err != nil {
		return fmt.Errorf("connect to the server: %w", err)
	}
	return nil
}

// buy presses the button, and again as the contract says: after a 429, a 503 or no answer, when Retry-After says so.
func buy(ctx context.Context, client api.Client, voucher string) answer {
	ctx, cancel := context.WithTimeout(ctx, budget.Settled)
	defer cancel()
	for repeats := 0; ; repeats++ {
		a, pause := press(ctx, client, voucher)
		a.repeats = repeats
		if pause == 0 {
			return a
		}
		// A random part more, so that buyers who were refused together do not come back together.
		poll.Pause(ctx, pause+rand.N(pause)) //nolint:gosec // no secret
		if ctx.Err() != nil {
			return a
		}
	}
}

// press presses the button once. A pause says that it should be pressed again.
func press(ctx context.Context, client api.Client, voucher string) (a answer, pause time.Duration) {
	heard, err := client.Ask(ctx, http.MethodPost, "/vouchers/"+voucher+"/seckill", nil)
	if refusal, ok := errors.AsType[*api.Problem](err); ok {
		a.status, a.code = refusal.Status, string(refusal.Code)
		a.order = model.Order{ID: refusal.OrderID, Status: refusal.OrderStatus}
		if refusal.Code == "" {
			a.err = refusal
		}
		if api.Again(refusal) {
			pause = cmp.Or(refusal.RetryAfter, budget.Glance)
		}
		return a, pause
	}
	if err != nil {
		return answer{err: err}, budget.Glance
	}
	a.status = heard.Status
	a.err = json.Unmarshal(heard.Body, &a.order)
	return a, 0
}

// awaitOrders waits until no order is processing any more, and notes in the answers what became of each.
func (s Sale) awaitOrders(ctx context.Context, answers []answer) error {
	start := time.Now()
	var crowd sync.WaitGroup
	waiting := 0
	for i := range answers {
		a := &answers[i]
		if a.err != nil || a.order.Status != model.OrderProcessing {
			continue
		}
		client, err := s.client(a.user, model.RoleUser)
		if err != nil {
			return err
		}
		waiting++
		crowd.Go(func() { a.order, a.err = awaitOrder(ctx, client, a.order) })
	}
	crowd.Wait()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the wait for the orders was interrupted: %w", err)
	}
	if waiting > 0 {
		fmt.Fprintf(s.Out, "\n%d orders were processing; the last of them was persisted %s after the last answer\n",
			waiting, round(time.Since(start)))
	}
	return nil
}

// awaitOrder waits for one order. A server that is away for a moment is asked again.
func awaitOrder(ctx context.Context, client api.Client, order model.Order) (model.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, budget.Settled)
	defer cancel()
	path := "/orders/" + url.PathEscape(order.ID) + "?wait=" + waitOfBuyers
	now, last := order, error(nil)
	err := poll.Until(ctx, budget.Glance, func() (bool, error) {
		last = client.Call(ctx, http.MethodGet, path, nil, &now)
		if last != nil && ctx.Err() == nil && !api.Again(last) {
			return false, fmt.Errorf("look at order %s: %w", order.ID, last)
		}
		return last == nil && now.Status != model.OrderProcessing, nil
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("order %s is still processing: %w", order.ID, errors.Join(ctx.Err(), last))
	}
	if err != nil {
		return order, err
	}
	return now, nil
}
