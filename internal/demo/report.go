package demo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"seckill/internal/api"
	"seckill/model"
)

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
