package repair

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"seckill/internal/telemetry"
	"seckill/model"
	"seckill/service/persist"
)

const (
	auditTimeout = time.Minute // 100,000 orders take a few seconds
	auditTries   = 3           // as long as orders move, which they always do in a rush
)

// Auditor checks that the database, the hot copy and the queue agree about every single order.
type Auditor struct {
	deps Deps

	settler  *persist.Settler
	rebuilds *Rebuilder
}

// Audit compares by order id. Balanced: the database adds up, no order drifts and, while nothing moves, the open hot
// copy agrees; none is needed after a sale, or over an hour before. UNAVAILABLE: no answer of Redis or queue.
func (a *Auditor) Audit(ctx context.Context, voucherID string) (model.Audit, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	audit, _, err := a.audit(ctx, voucherID)
	return audit, err
}

func (a *Auditor) audit(ctx context.Context, voucherID string) (model.Audit, []drifted, error) {
	for n := 1; ; n++ {
		audit, found, moved, err := a.once(ctx, voucherID)
		if err != nil || !moved || n == auditTries {
			return audit, found, err
		}
	}
}

func (a *Auditor) once(
	ctx context.Context, voucherID string,
) (audit model.Audit, found []drifted, moved bool, err error) {
	audit, err = a.deps.Database.Audit(ctx, voucherID)
	if err != nil || audit.Mode != model.ModeAsync || audit.Draw {
		return audit, nil, false, err
	}
	c, err := a.compare(ctx, voucherID)
	if err != nil {
		return audit, nil, false, err
	}
	hot, v := c.hot, c.voucher
	audit.Queue = &model.AuditQueue{Pending: c.backlog.Messages, OldestAgeMS: c.backlog.Age.Milliseconds()}
	audit.Redis = &model.AuditHotCopy{
		State: string(hot.State), Remaining: hot.Voucher.Remaining, Reserved: hot.Reserved, Buyers: hot.Buyers,
	}
	if hot.State != model.CopyOpen {
		audit.Balanced = audit.Balanced && !v.NeedsCopy()
		return audit, nil, false, nil
	}
	for _, d := range c.found[:min(len(c.found), maxDriftListed)] {
		audit.Drift = append(audit.Drift, model.DriftedOrder{OrderID: d.orderID, Found: d.found})
	}
	// What is reserved and not noted as due is looked for by nobody, however young it is.
	audit.Balanced = audit.Balanced && len(c.found) == 0 && hot.Due == hot.Reserved
	if moved, err = a.moved(ctx, hot, v, audit); err == nil && !moved && !c.leftOut {
		audit.Balanced = audit.Balanced && hot.Voucher.Stock == v.Stock &&
			hot.Voucher.Remaining+hot.Reserved == v.Remaining
	}
	return audit, c.found, moved, err
}

func (a *Auditor) read(ctx context.Context, voucherID string) (model.HotCopy, model.Voucher, error) {
	found, err := a.deps.Hot.Read(ctx, []string{voucherID})
	if err != nil {
		return model.HotCopy{}, model.Voucher{}, unreachable("The hot copy could not be asked.", err)
	}
	vouchers, err := a.deps.Database.GetMany(ctx, []string{voucherID})
	if err != nil {
		return model.HotCopy{}, model.Voucher{}, fmt.Errorf("read voucher %s: %w", voucherID, err)
	}
	v, ok := vouchers[voucherID]
	if !ok {
		return model.HotCopy{}, model.Voucher{}, model.NotFound("voucher")
	}
	hot, ok := found[voucherID]
	if !ok {
		hot.State = model.CopyClosed
	}
	hot.Voucher.ID = voucherID
	return hot, v, nil
}

// moved reports whether either side has changed since it was read: their counts must not be compared then.
func (a *Auditor) moved(ctx context.Context, hot model.HotCopy, v model.Voucher, audit model.Audit) (bool, error) {
	hotNow, now, err := a.read(ctx, v.ID)
	if err != nil {
		return false, err
	}
	return hotNow.Voucher.Version != hot.Voucher.Version || hotNow.Reserved != hot.Reserved ||
		now.Version != v.Version ||
		v.Remaining != audit.Database.Remaining || v.Stock != audit.Database.Stock ||
		hot.Voucher.Revision < v.Revision, nil
}

func unreachable(detail string, err error) error {
	if err == nil || model.CodeOf(err) != model.CodeInternal {
		return err
	}
	return model.Unavailable(detail, err)
}

// Repair settles an audit's findings by order id or a rebuild, adjusts no count, and audits again. No adminID: nobody.
func (a *Auditor) Repair(ctx context.Context, voucherID, adminID string) (model.Audit, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	audit, found, err := a.audit(ctx, voucherID)
	if err != nil || audit.Balanced || audit.Mode != model.ModeAsync || audit.Draw {
		return audit, err
	}
	if err := a.deps.record(ctx, adminID, model.ActionRepair, voucherID,
		map[string]int{"orders_that_disagree": len(found)}); err != nil {
		return audit, err
	}
	rebuild, err := a.repairEach(ctx, found)
	if err != nil {
		return audit, fmt.Errorf("repair voucher %s: %w", voucherID, err)
	}
	// Without a drifted order, the hot copy is closed or only its counts are wrong.
	if rebuild || len(found) == 0 {
		if err := a.rebuilds.Do(ctx, voucherID, model.AnyEpoch); err != nil {
			return audit, fmt.Errorf("repair voucher %s: %w", voucherID, err)
		}
	}
	audit, _, err = a.audit(ctx, voucherID)
	return audit, err
}

func (a *Auditor) repairEach(ctx context.Context, found []drifted) (rebuild bool, err error) {
	for _, d := range found {
		a.deps.Log.InfoContext(ctx, "repairing an order", slog.String("order_id", d.orderID),
			slog.String("found", d.found))
	}
	_, lost, rebuild, err := a.settleDrift(ctx, found)
	if err == nil && len(lost) > 0 {
		if err = a.deps.Queue.Publish(ctx, lost); err != nil {
			err = fmt.Errorf("publish %d orders again: %w", len(lost), err)
		}
	}
	return rebuild, err
}

// sampleEvery is between samples, sampleRound the least of a round: dozens of vouchers have a turn within a minute.
const (
	sampleEvery = time.Second
	sampleRound = 10 * sampleEvery
)

// Samples counts one voucher after the other in the database, in both modes: an order that both sides lost.
type Samples struct {
	Store interface {
		IDs(ctx context.Context) ([]string, error)
		Audit(ctx context.Context, voucherID string) (model.Audit, error)
	}
	Metrics *telemetry.OffVouchers

	left  []string  // of this round
	round time.Time // when it began
}

// Run samples while this instance is elected, or nobody can be, until ctx ends.
func (s *Samples) Run(ctx context.Context, by Elector) {
	e := election{Elector: by, job: "samples", alone: true, term: func(bool) { s.Metrics.Reset() }, looks: []*look{
		// A voucher of a million orders takes tenths of a second.
		{do: s.look, pause: sampleEvery, rest: sampleEvery, share: driftShare, what: "vouchers", done: "counted"},
	}}
	e.run(ctx)
}

func (s *Samples) look(ctx context.Context) (err error) {
	if len(s.left) == 0 {
		if time.Since(s.round) < sampleRound {
			return nil
		}
		if s.left, err = s.Store.IDs(ctx); err != nil {
			return err
		}
		if s.round = time.Now(); len(s.left) == 0 {
			return nil
		}
	}
	id := s.left[0]
	s.left = s.left[1:]
	audit, err := s.Store.Audit(ctx, id)
	if err == nil {
		s.Metrics.Set(id, audit.Database.Stock-audit.Database.Remaining-audit.Database.LiveOrders)
	}
	return err
}
