package demo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"

	"seckill/internal/api"
	"seckill/internal/payment"
	"seckill/model"
)

// ProviderLedger opens the ledger of the provider that signs its webhooks with a secret.
func ProviderLedger(base, secret string) (Ledger, error) {
	key, err := payment.Key(secret)
	if err != nil {
		return nil, err
	}
	return payment.NewClient(base, key)
}

// money is what was paid and what went back, in minor units.
type money struct{ received, returned int64 }

func (m money) kept() int64 { return m.received - m.returned }

func (m money) add(more money) money {
	return money{m.received + more.received, m.returned + more.returned}
}

// moneyOf is what the status of an order says of its price.
func moneyOf(status model.OrderStatus, price int64) money {
	switch status {
	case model.OrderPaid, model.OrderRedeemed:
		return money{received: price}
	case model.OrderRefunded:
		return money{received: price, returned: price}
	case model.OrderProcessing, model.OrderUnpaid, model.OrderCanceled, model.OrderExpired, model.OrderFailed:
	}
	return money{}
}

// ledgerCount compares our orders with the provider's ledger.
type ledgerCount struct {
	orders   map[model.OrderStatus]int64
	byStatus map[model.OrderStatus]money
	ours     money
	theirs   money
	payments int // that the provider knows
	stock    int64
	audit    model.Audit

	faults []string
}

func (c *ledgerCount) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

// count reads both ledgers, order by order.
func (a *aftermath) count(ctx context.Context) (*ledgerCount, error) {
	c := &ledgerCount{
		orders: make(map[model.OrderStatus]int64), byStatus: make(map[model.OrderStatus]money), stock: a.Stock,
	}
	provider, err := a.OpenLedger(a.provider)
	if err != nil {
		return nil, err
	}
	defer provider.Close()
	theirs := make(map[string]money) // by the order's id
	for _, b := range a.paying {
		for _, id := range b.payments {
			p, err := provider.LookUp(ctx, id)
			if err != nil {
				return nil, err
			}
			theirs[b.order] = theirs[b.order].add(c.take(b, p))
		}
	}
	rows, err := exported(ctx, a.admin, a.voucher)
	if err != nil {
		return nil, err
	}
	c.compare(rows, theirs, a.want)
	c.audit, err = a.admin.Audit(ctx, a.voucher)
	return c, err
}

// take counts one payment of the provider's ledger.
func (c *ledgerCount) take(b *purchase, p payment.Payment) money {
	if p.OrderID != b.order || p.Currency != b.currency {
		c.fault("payment %s is of order %s in %s, and the provider has it for %s in %s", p.ID, b.order, b.currency, p.OrderID, p.Currency)
	}
	if p.Status == payment.Pending {
		c.fault("payment %s of order %s was decided, and the provider has it pending", p.ID, b.order)
	}
	c.payments++
	m := money{returned: p.Refunded}
	if p.Status == payment.Succeeded {
		m.received = p.Amount
	}
	c.theirs = c.theirs.add(m)
	return m
}

// compare goes through our orders: what is wanted of each, and what the provider has of each.
func (c *ledgerCount) compare(rows []model.Order, theirs map[string]money, want map[string]model.OrderStatus) {
	seen := make(map[string]bool)
	owner := make(map[string]bool)
	for _, o := range rows {
		seen[o.ID] = true
		if o.Status != want[o.ID] {
			c.fault("order %s is %s and should be %s", o.ID, o.Status, cmp.Or(want[o.ID], "unknown"))
		}
		if o.Live() && owner[o.UserID] {
			c.fault("user %s has two orders", o.UserID)
		}
		owner[o.UserID] = owner[o.UserID] || o.Live()
		m := moneyOf(o.Status, o.Price)
		c.orders[o.Status]++
		c.byStatus[o.Status] = c.byStatus[o.Status].add(m)
		c.ours = c.ours.add(m)
		if other := theirs[o.ID]; other != m {
			c.fault("order %s is %s, which is %s received and %s returned; the provider has %s and %s", o.ID, o.Status,
				price(m.received), price(m.returned), price(other.received), price(other.returned))
		}
	}
	for id := range want {
		if !seen[id] {
			c.fault("order %s does not exist", id)
		}
	}
}

// wrong lists everything that does not agree.
func (c *ledgerCount) wrong() []string {
	wrong := slices.Clone(c.faults)
	slices.Sort(wrong)
	if n := len(wrong); n > maxFaults {
		wrong = append(wrong[:maxFaults], fmt.Sprintf("and %d more of that kind", n-maxFaults))
	}
	if c.ours != c.theirs {
		wrong = append(wrong, fmt.Sprintf("our orders kept %s and the provider %s", price(c.ours.kept()), price(c.theirs.kept())))
	}
	live := c.orders[model.OrderUnpaid] + c.orders[model.OrderPaid] + c.orders[model.OrderRedeemed]
	d := c.audit.Database
	if d.LiveOrders != live || d.Stock != c.stock || d.Remaining != c.stock-live {
		wrong = append(wrong, fmt.Sprintf("the audit has stock %d, remaining %d and %d orders, and should have %d, %d and %d",
			d.Stock, d.Remaining, d.LiveOrders, c.stock, c.stock-live, live))
	}
	if !c.audit.Balanced {
		wrong = append(wrong, "the audit does not balance")
	}
	return wrong
}

// print prints both ledgers in one table.
func (c *ledgerCount) print(out io.Writer) {
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(name string, count int64, m money) {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t\n", name, count, price(m.received), price(m.returned), price(m.kept()))
	}
	fmt.Fprintln(table, "ORDERS\tCOUNT\tRECEIVED\tRETURNED\tKEPT\t")
	total := int64(0)
	for _, status := range slices.Sorted(maps.Keys(c.orders)) {
		total += c.orders[status]
		row(string(status), c.orders[status], c.byStatus[status])
	}
	row("by our orders", total, c.ours)
	row("by the provider's payments", int64(c.payments), c.theirs)
	_ = table.Flush() // the exit code does not depend on whether it was read
	verdict := "balanced"
	if !c.audit.Balanced {
		verdict = "NOT balanced"
	}
	d := c.audit.Database
	fmt.Fprintf(out, "the audit: %d orders hold a unit (stock %d, remaining %d, %s)\n", d.LiveOrders, d.Stock, d.Remaining, verdict)
}

// price writes minor units as people do; the demo's currency has two decimals.
func price(amount int64) string { return fmt.Sprintf("%d.%02d", amount/100, amount%100) }

// exported is what the counts need of the orders that the service exports.
func exported(ctx context.Context, admin api.Client, voucher string) ([]model.Order, error) {
	body, err := admin.Export(ctx, voucher)
	if err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(bytes.NewReader(body)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read the export: %w", err)
	}
	columns := make(map[string]int)
	for n, name := range slices.Concat(rows[:min(len(rows), 1)]...) {
		columns[name] = n + 1
	}
	for _, name := range []string{"id", "user_id", "status", "price"} {
		if columns[name] == 0 {
			return nil, fmt.Errorf("the export has no column %s", name)
		}
	}
	var orders []model.Order
	for _, row := range rows[1:] {
		cell := func(name string) string { return row[columns[name]-1] }
		amount, err := strconv.ParseInt(cell("price"), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the price of order %s: %w", cell("id"), err)
		}
		orders = append(orders, model.Order{
			ID: cell("id"), UserID: cell("user_id"), Status: model.OrderStatus(cell("status")), Price: amount,
		})
	}
	return orders, nil
}
