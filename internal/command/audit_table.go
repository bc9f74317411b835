package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"seckill/model"
)

// auditAll prints one line per voucher, and fails when one does not add up.
func (p Process) auditAll(ctx context.Context, from auditor, o auditOptions) error {
	ids := []string{o.voucher}
	if o.voucher == "" {
		var err error
		if ids, err = from.voucherIDs(ctx); err != nil {
			return fmt.Errorf("list the vouchers: %w", err)
		}
	}
	ask := from.audit
	if o.repair {
		ask = from.repair
	}
	stock, _ := from.(stockRepairer)
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	wrong := 0
	for i, id := range ids {
		if o.stock {
			found, err := stock.repairStock(ctx, id)
			p.printStockRepair(id, found)
			if err != nil {
				return errors.Join(table.Flush(), err)
			}
		}
		audit, err := ask(ctx, id)
		if err != nil {
			return errors.Join(table.Flush(), err)
		}
		if i == 0 { // not before there is something to put under it
			printAuditHeading(table, audit)
			if o.repair && !o.stock && audit.Mode == model.ModeSync {
				fmt.Fprintln(p.Stderr, "There is nothing to repair in sync mode without --stock: the database is the only copy\n"+
					"of what was sold. The audit follows.")
			}
		}
		if !audit.Balanced {
			wrong++
		}
		printAudit(table, audit)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the audit: %w", err)
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d vouchers do not add up", wrong, len(ids))
	}
	fmt.Fprintf(p.Stdout, "%d of %d vouchers add up\n", len(ids), len(ids))
	return nil
}

func printAuditHeading(table io.Writer, audit model.Audit) {
	hot := ""
	if audit.Redis != nil {
		hot = "HOT COPY\tREMAINING\tRESERVED\tBUYERS\tQUEUED\tOLDEST\t"
	}
	fmt.Fprintf(table, "VOUCHER\tSTOCK\tREMAINING\tLIVE ORDERS\t%sADDS UP\n", hot)
}

// printAudit prints one voucher, and below it the orders that do not add up.
func printAudit(table io.Writer, audit model.Audit) {
	d, hot := audit.Database, ""
	if r := audit.Redis; r != nil {
		hot = fmt.Sprintf("%s\t%d\t%d\t%d\t", r.State, r.Remaining, r.Reserved, r.Buyers)
		if q := audit.Queue; q != nil {
			hot += fmt.Sprintf("%d\t%s\t", q.Pending, time.Duration(q.OldestAgeMS)*time.Millisecond)
		} else {
			hot += "-\t-\t"
		}
	}
	verdict := "yes"
	if !audit.Balanced {
		verdict = "NO"
	}
	fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s%s\n", audit.VoucherID, d.Stock, d.Remaining, d.LiveOrders, hot, verdict)
	if line := databaseDrift(d); line != "" {
		fmt.Fprintf(table, "  the database itself: %s\n", line)
	}
	for _, drift := range audit.Drift {
		fmt.Fprintf(table, "  order %s: %s\n", drift.OrderID, drift.Found)
	}
}

// databaseDrift says how the database itself does not add up; "" when it does.
func databaseDrift(d model.AuditDatabase) string {
	difference := d.Stock - d.Remaining - d.LiveOrders
	numbers := fmt.Sprintf("stock %d, remaining %d, live orders %d, difference %d", d.Stock, d.Remaining, d.LiveOrders, difference)
	switch {
	case difference == 0:
		return ""
	case d.LiveOrders > d.Stock && d.Remaining == 0:
		return fmt.Sprintf("%s; oversold by %d, which only more stock or fewer orders can mend", numbers, -difference)
	default:
		return numbers + "; --repair --stock sets what remains from the live orders"
	}
}

// printStockRepair says what was done to a voucher's row, and why.
func (p Process) printStockRepair(id string, found *model.AuditDatabase) {
	if found == nil {
		return
	}
	d := *found
	remaining := max(d.Stock-d.LiveOrders, 0)
	fmt.Fprintf(p.Stdout, "voucher %s: remaining was %d and is %d now, because of a stock of %d units live orders hold %d\n",
		id, d.Remaining, remaining, d.Stock, d.LiveOrders)
	if oversold := d.LiveOrders - d.Stock; oversold > 0 {
		fmt.Fprintf(p.Stdout, "voucher %s: it is oversold by %d\n", id, oversold)
	}
}
