// Package demo is a flash sale from start to finish, against a running service over real HTTP: `seckill demo`. Read
// Sale.Run first, the order of events; then who press the button, and what counts what they bought.
package demo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
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

const waitOfBuyers = "10s" // of one call for an order: below api.CallTimeout

type answer struct {
	user    string
	client  api.Client    // of the user
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
	answers := make([]answer, s.Buyers)
	for i := range answers {
		var err error
		answers[i].user = strconv.Itoa(i + 1)
		if answers[i].client, err = s.client(answers[i].user, model.RoleUser); err != nil {
			return nil, 0, err
		}
	}
	if err := warmUp(ctx, s); err != nil {
		return nil, 0, err
	}
	shown := &progress{out: s.Out, buyers: s.Buyers}
	gun := make(chan struct{})
	var start time.Time
	var crowd sync.WaitGroup
	for i := range answers {
		a := &answers[i]
		crowd.Go(func() {
			<-gun
			a.buy(ctx, s.voucher)
			a.latency = time.Since(start)
			shown.answered(*a)
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
func (a *answer) buy(ctx context.Context, voucher string) {
	ctx, cancel := context.WithTimeout(ctx, budget.Settled)
	defer cancel()
	for pause := a.press(ctx, voucher); pause > 0; pause = a.press(ctx, voucher) {
		// A random part more, so that buyers who were refused together do not come back together.
		poll.Pause(ctx, pause+rand.N(pause)) //nolint:gosec // no secret
		if ctx.Err() != nil {
			return
		}
		a.repeats++
	}
}

// press presses the button once. A pause says that it should be pressed again.
func (a *answer) press(ctx context.Context, voucher string) (pause time.Duration) {
	heard, err := a.client.Ask(ctx, http.MethodPost, "/vouchers/"+voucher+"/seckill", nil)
	refusal, refused := errors.AsType[*api.Problem](err)
	a.status, a.code, a.order, a.err = heard.Status, "", model.Order{}, err
	switch {
	case refused:
		a.status, a.code = refusal.Status, string(refusal.Code)
		a.order = model.Order{ID: refusal.OrderID, Status: refusal.OrderStatus}
		if a.code != "" {
			a.err = nil
		}
		if api.Again(refusal) {
			pause = cmp.Or(refusal.RetryAfter, budget.Glance)
		}
	case err != nil:
		pause = budget.Glance
	default:
		a.err = json.Unmarshal(heard.Body, &a.order)
	}
	return pause
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
		waiting++
		crowd.Go(func() { a.order, a.err = awaitOrder(ctx, a.client, a.order) })
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

func printAnswers(out io.Writer, answers []answer, took time.Duration) {
	latencies := make(map[string][]time.Duration)
	repeats := 0
	for _, a := range answers {
		latencies[a.name()] = append(latencies[a.name()], a.latency)
		repeats += a.repeats
	}
	fmt.Fprintf(out, "\n%d answers in %s (%.0f a second); latencies count from the start gun\n\n",
		len(answers), round(took), float64(len(answers))/took.Seconds())
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "ANSWER\tCOUNT\tMEDIAN\tP99\t")
	for _, name := range slices.Sorted(maps.Keys(latencies)) {
		all := latencies[name]
		slices.Sort(all)
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t\n", name, len(all), round(quantile(all, 0.5)), round(quantile(all, 0.99)))
	}
	_ = table.Flush() // the exit code does not depend on whether it was read
	if repeats > 0 {
		fmt.Fprintf(out, "%d calls were repeated after a 429, a 503 or no answer\n", repeats)
	}
}

// quantile is the smallest of the sorted values that a share of them does not exceed (nearest rank).
func quantile(sorted []time.Duration, share float64) time.Duration {
	rank := int(math.Ceil(share * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

type saleCount struct {
	answers int64 // the 201 and 202 that buyers heard
	rows    int64 // live orders that the server exports
	audit   model.Audit

	faults []string // found while counting
}

func countSale(ctx context.Context, admin api.Client, s Sale, answers []answer) (saleCount, error) {
	var c saleCount
	told := make(map[string]string) // order id → user
	for _, a := range answers {
		switch {
		case a.err != nil:
			c.fault("user %s got no answer: %v", a.user, a.err)
		case a.won():
			c.answers++
			if other, again := told[a.order.ID]; again {
				c.fault("users %s and %s were told of the same order %s", other, a.user, a.order.ID)
			}
			told[a.order.ID] = a.user
			if a.order.UserID != a.user || a.order.VoucherID != s.voucher || a.order.Status != model.OrderUnpaid {
				c.fault("user %s was told of an order of somebody else, or of one that is not unpaid: %+v", a.user,
					a.order)
			}
		case a.code == string(model.CodeSoldOut):
		case a.code == string(model.CodeAlreadyOrdered) && a.repeats > 0:
			c.answers++ // the first answer was lost; the order is counted by its row
		default:
			c.fault("user %s got an answer that nobody expected: %s", a.user, a.name())
		}
	}
	rows, err := exported(ctx, admin, s.voucher)
	if err != nil {
		return c, err
	}
	c.countRows(rows, told)
	c.audit, err = admin.Audit(ctx, s.voucher)
	return c, err
}

// countRows counts the orders that the service exports; told are the orders that buyers know.
func (c *saleCount) countRows(rows []model.Order, told map[string]string) {
	owner := make(map[string]bool)
	for _, o := range rows {
		if !o.Live() {
			c.fault("order %s is %s", o.ID, o.Status)
			continue
		}
		c.rows++
		delete(told, o.ID)
		if owner[o.UserID] {
			c.fault("user %s has two orders", o.UserID)
		}
		owner[o.UserID] = true
	}
	for order, user := range told {
		c.fault("user %s was told of order %s, which does not exist", user, order)
	}
}

func exported(ctx context.Context, admin api.Client, voucher string) ([]model.Order, error) {
	body, err := admin.Export(ctx, voucher)
	if err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(bytes.NewReader(body)).ReadAll()
	if err != nil || len(rows) == 0 {
		return nil, fmt.Errorf("read the export: %w", cmp.Or(err, io.ErrUnexpectedEOF))
	}
	id, user, status := slices.Index(rows[0], "id"), slices.Index(rows[0], "user_id"), slices.Index(rows[0], "status")
	if min(id, user, status) < 0 {
		return nil, fmt.Errorf("the export has the columns %q", rows[0])
	}
	var orders []model.Order
	for _, row := range rows[1:] {
		orders = append(orders, model.Order{ID: row[id], UserID: row[user], Status: model.OrderStatus(row[status])})
	}
	return orders, nil
}

func (c *saleCount) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func (c *saleCount) print(out io.Writer) {
	verdict := "balanced"
	if !c.audit.Balanced {
		verdict = "NOT balanced"
	}
	d := c.audit.Database
	fmt.Fprintf(out, "\nsold, counted three times:\n"+
		"  by the buyers' answers   %d\n"+
		"  by the orders exported   %d\n"+
		"  by the audit             %d   (stock %d, remaining %d, %s)\n",
		c.answers, c.rows, d.LiveOrders, d.Stock, d.Remaining, verdict)
}

const maxFaults = 10 // listed: more say nothing new

func (c *saleCount) wrong(s Sale) []string {
	wrong := slices.Clone(c.faults)
	if n := len(wrong); n > maxFaults {
		wrong = append(wrong[:maxFaults], fmt.Sprintf("and %d more of that kind", n-maxFaults))
	}
	expected := min(int64(s.Buyers), s.Stock)
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	d := c.audit.Database
	check(c.answers == expected, "%d buyers won and %d should have", c.answers, expected)
	check(c.rows == expected, "%d orders exist and %d should", c.rows, expected)
	check(d.LiveOrders == expected, "the audit counts %d orders and should count %d", d.LiveOrders, expected)
	check(d.Stock == s.Stock, "the stock is %d and was %d", d.Stock, s.Stock)
	check(d.Remaining == s.Stock-expected, "%d units remain and %d should", d.Remaining, s.Stock-expected)
	check(c.audit.Balanced, "the audit does not balance")
	return wrong
}

// progress tells how a sale goes on: a line for each quarter of the answers; the last one is all of them.
type progress struct {
	out    io.Writer
	buyers int

	mu             sync.Mutex // one line at a time
	answers, sales int
}

func (p *progress) answered(a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers++
	if a.won() {
		p.sales++
	}
	if p.answers*4/p.buyers > (p.answers-1)*4/p.buyers {
		fmt.Fprintf(p.out, "  %d of %d answered, %d sold\n", p.answers, p.buyers, p.sales)
	}
}
