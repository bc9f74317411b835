package service

import (
	"context"
	"fmt"
	"log/slog"

	"seckill/model"
)

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
		if err := a.deps.Rebuilds.Rebuild(ctx, voucherID); err != nil {
			return audit, fmt.Errorf("repair voucher %s: %w", voucherID, err)
		}
	}
	audit, _, err = a.audit(ctx, voucherID)
	return audit, err
}

// repairEach repairs by order id and tells whether a rebuild is needed besides.
func (a *Auditor) repairEach(ctx context.Context, found []drifted) (rebuild bool, err error) {
	var decided []finishedOrder
	var lost []model.Reservation
	for _, d := range found {
		a.deps.Log.InfoContext(ctx, "repairing an order", slog.String("order_id", d.orderID), slog.String("found", d.found))
		switch d.remedy {
		case remedySettle:
			decided = append(decided, d.order)
		case remedyRepublish:
			lost = append(lost, d.order.reservation)
		case remedyRebuild:
			rebuild = true
		}
	}
	if len(decided) > 0 {
		if err := a.deps.Settler.settle(ctx, decided); err != nil {
			return rebuild, err
		}
	}
	if len(lost) > 0 {
		if err := a.deps.Queue.Publish(ctx, lost); err != nil {
			return rebuild, fmt.Errorf("publish %d orders again: %w", len(lost), err)
		}
	}
	return rebuild, nil
}
