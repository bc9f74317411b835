package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"seckill/model"
)

const (
	// auditTimeout bounds an audit: 100,000 orders take a few seconds.
	auditTimeout = time.Minute
	// auditTries is how often an audit during which something moved is taken
	// again, so that the numbers it shows are of one instant where possible. In
	// a rush something always moves.
	auditTries = 3
)

// Auditor checks that the database, the hot copy and the queue agree about every
// single order.
type Auditor struct {
	Parts

	settler  *Settler
	rebuilds *Rebuilder
}

// Audit compares by order id, not only by count. Balanced says that the database
// adds up, that no order drifts, and, while nothing moves, that the hot copy
// counts the same units. While the hot copy is closed or being rebuilt nothing
// can be said of it, and the audit is not balanced: a wait for a balanced one is a
// wait for the sale, too. Only while the voucher needs no copy, an hour before its
// sale and an hour after it, the database alone decides. UNAVAILABLE when Redis or
// the queue cannot be asked.
func (a *Auditor) Audit(ctx context.Context, voucherID string) (model.Audit, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	audit, _, err := a.audit(ctx, voucherID)
	return audit, err
}

// audit compares until nothing moved meanwhile, or often enough.
func (a *Auditor) audit(ctx context.Context, voucherID string) (model.Audit, []drifted, error) {
	for n := 1; ; n++ {
		audit, found, moved, err := a.once(ctx, voucherID)
		if err != nil || !moved || n == auditTries {
			return audit, found, err
		}
	}
}

// once compares once, and tells whether anything moved meanwhile.
func (a *Auditor) once(ctx context.Context, voucherID string) (audit model.Audit, found []drifted, moved bool, err error) {
	audit, err = a.Database.Audit(ctx, voucherID)
	if err != nil || audit.Mode != model.ModeAsync {
		return audit, nil, false, err
	}
	backlog, err := a.Queue.BacklogOf(ctx, voucherID) // before the rows: see comparison
	if err != nil {
		return audit, nil, false, unreachable("The queue could not be asked.", err)
	}
	hot, v, err := a.read(ctx, voucherID)
	if err != nil {
		return audit, nil, false, err
	}
	audit.Queue = &model.AuditQueue{Pending: backlog.Messages, OldestAgeMS: backlog.Age.Milliseconds()}
	audit.Redis = hotAudit(hot)
	if hot.State != model.CopyOpen {
		audit.Balanced = audit.Balanced && !v.NeedsCopy()
		return audit, nil, false, nil
	}
	found, leftOut, err := a.compare(ctx, hot, v, backlog)
	if err != nil {
		return audit, nil, false, err
	}
	for _, d := range found[:min(len(found), maxDriftListed)] {
		audit.Drift = append(audit.Drift, model.DriftedOrder{OrderID: d.orderID, Found: d.found})
	}
	audit.Balanced = audit.Balanced && len(found) == 0
	if moved, err = a.moved(ctx, hot, v, audit); err == nil && !moved && !leftOut {
		audit.Balanced = audit.Balanced && hot.Voucher.Stock == v.Stock && hot.Voucher.Remaining+hot.Reserved == v.Remaining
	}
	return audit, found, moved, err
}

// read reads a voucher's hot copy, and the voucher as the database has it.
func (a *Auditor) read(ctx context.Context, voucherID string) (model.HotCopy, model.Voucher, error) {
	copies, err := a.Hot.Read(ctx, []string{voucherID})
	if err != nil {
		return model.HotCopy{}, model.Voucher{}, unreachable("The hot copy could not be asked.", err)
	}
	vouchers, err := a.Database.GetMany(ctx, []string{voucherID})
	if err != nil {
		return model.HotCopy{}, model.Voucher{}, fmt.Errorf("read voucher %s: %w", voucherID, err)
	}
	v, ok := vouchers[voucherID]
	if !ok {
		return model.HotCopy{}, model.Voucher{}, model.NotFound("voucher")
	}
	hot, ok := copies[voucherID]
	if !ok {
		hot.State = model.CopyClosed
	}
	hot.Voucher.ID = voucherID
	return hot, v, nil
}

func hotAudit(hot model.HotCopy) *model.AuditHotCopy {
	return &model.AuditHotCopy{
		State: string(hot.State), Remaining: hot.Voucher.Remaining, Reserved: hot.Reserved, Buyers: hot.Buyers,
	}
}

// moved reports whether either side has changed since it was read: two readings
// of different instants must not be held against each other.
func (a *Auditor) moved(ctx context.Context, hot model.HotCopy, v model.Voucher, audit model.Audit) (bool, error) {
	hotNow, now, err := a.read(ctx, v.ID)
	if err != nil {
		return false, err
	}
	return hotNow.Voucher.Version != hot.Voucher.Version || hotNow.Reserved != hot.Reserved || now.Version != v.Version ||
		v.Remaining != audit.Database.Remaining || v.Stock != audit.Database.Stock ||
		hot.Voucher.Revision < v.Revision, nil
}

// unreachable makes UNAVAILABLE of a server that cannot be asked.
func unreachable(detail string, err error) error {
	if err == nil || model.CodeOf(err) != model.CodeInternal {
		return err
	}
	return model.Unavailable(detail, err)
}

// Repair puts right what an audit finds, by order id where that is enough and
// by a rebuild where it is not, and audits again. It adjusts no count.
func (a *Auditor) Repair(ctx context.Context, voucherID string) (model.Audit, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	audit, found, err := a.audit(ctx, voucherID)
	if err != nil || audit.Balanced || audit.Mode != model.ModeAsync {
		return audit, err
	}
	rebuild, err := a.repairEach(ctx, found)
	if err != nil {
		return audit, fmt.Errorf("repair voucher %s: %w", voucherID, err)
	}
	// A copy that is closed, or whose ids agree while its counts do not.
	if rebuild || len(found) == 0 {
		if err := a.rebuilds.Rebuild(ctx, voucherID); err != nil {
			return audit, fmt.Errorf("repair voucher %s: %w", voucherID, err)
		}
	}
	audit, _, err = a.audit(ctx, voucherID)
	return audit, err
}

// repairEach repairs by order id and tells whether a rebuild is needed besides.
func (a *Auditor) repairEach(ctx context.Context, found []drifted) (rebuild bool, err error) {
	for _, d := range found {
		a.Log.InfoContext(ctx, "repairing an order", slog.String("order_id", d.orderID), slog.String("found", d.found))
	}
	_, lost, rebuild, err := a.settleDrift(ctx, found)
	if err == nil && len(lost) > 0 {
		if err = a.Queue.Publish(ctx, lost); err != nil {
			err = fmt.Errorf("publish %d orders again: %w", len(lost), err)
		}
	}
	return rebuild, err
}
