package service

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

// AuditStore counts the database's side.
type AuditStore interface {
	Audit(ctx context.Context, id string) (model.Audit, error)
}

// AuditedCopies is what an audit reads of hot copies.
type AuditedCopies interface {
	Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error)
	// Marks calls yield for every buyer of an epoch; some may come twice.
	Marks(ctx context.Context, voucherID string, epoch int64, yield func(userID, orderID string) error) error
	Pendings(ctx context.Context, voucherID string, epoch int64, yield func(model.Reservation) error) error
	OrderOf(ctx context.Context, voucherID, userID string) (orderID string, pending *model.Reservation, err error)
	Pending(ctx context.Context, orderID string) (model.Reservation, bool, error)
}

// AuditedOrders reads rows.
type AuditedOrders interface {
	Find(ctx context.Context, ids []string) (map[string]model.Order, error)
	// Live calls yield for every live order of a voucher; of each only the id,
	// voucher and user are given.
	Live(ctx context.Context, voucherID string, yield func(model.Order) error) error
}

// RepairRoads are the two roads of repair: by order id, and the rebuild.
type RepairRoads interface {
	Rebuild(ctx context.Context, voucherID string) error
}

// RepairQueue carries lost orders again.
type RepairQueue interface {
	BacklogOf(ctx context.Context, voucherID string) (model.Backlog, error)
	Publish(ctx context.Context, reservations []model.Reservation) error
}

// Auditor checks that the database, the hot copy and the queue agree about
// every single order.
type Auditor struct{ deps AuditorDeps }

// AuditorDeps is what an Auditor works with.
type AuditorDeps struct {
	Store    AuditStore
	Vouchers VoucherReader
	Orders   AuditedOrders
	Copies   AuditedCopies
	Queue    RepairQueue
	Settler  *Settler
	Rebuilds RepairRoads
	Log      *slog.Logger
}

// NewAuditor makes an Auditor.
func NewAuditor(deps AuditorDeps) *Auditor { return &Auditor{deps: deps} }

// Audit compares by order id, not only by count. Balanced says that the database
// adds up, that no order drifts, and, while nothing moves, that the hot copy
// counts the same units. While the hot copy is closed or being rebuilt nothing
// can be said of it, and the audit is not balanced: who waits for a balanced one
// waits for the sale too. Only while the voucher needs no copy, an hour before its
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
	audit, err = a.deps.Store.Audit(ctx, voucherID)
	if err != nil || audit.Mode != model.ModeAsync {
		return audit, nil, false, err
	}
	backlog, err := a.deps.Queue.BacklogOf(ctx, voucherID) // before the rows: see comparison
	if err != nil {
		return audit, nil, false, away("The queue could not be asked.", err)
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
	copies, err := a.deps.Copies.Read(ctx, []string{voucherID})
	if err != nil {
		return model.HotCopy{}, model.Voucher{}, away("The hot copy could not be asked.", err)
	}
	vouchers, err := a.deps.Vouchers.GetMany(ctx, []string{voucherID})
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

// away makes UNAVAILABLE of a server that cannot be asked.
func away(detail string, err error) error {
	if model.CodeOf(err) != model.CodeInternal {
		return err
	}
	return model.Unavailable(detail, err)
}
