package repository

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// orderCode is a row of order_codes.
type orderCode struct {
	CodeHash []byte
	OrderID  string
}

// TableName implements gorm's Tabler.
func (orderCode) TableName() string { return "order_codes" }

// Redeem uses the code with a keyed hash, once: its order was paid and is redeemed from
// now on. NOT_FOUND when no order has that code, ILLEGAL_STATE with the order's status
// when it is not paid any more, or its payment is disputed. The administrators' log has it.
func (o *Orders) Redeem(ctx context.Context, hash []byte, adminID string) (model.Order, error) {
	var order model.Order
	var sent time.Time // goes out with a COMMIT that may not be answered
	err := o.db.WriteRepeatable(ctx, "redeem a code", func(tx *gorm.DB, doubtful bool) error {
		var code orderCode
		if err := tx.Where("code_hash = ?", hash).Take(&code).Error; err != nil {
			return notFound(err, "code")
		}
		before, err := lockOrder(tx, code.OrderID) // no dispute of its payment comes in between
		if err != nil {
			return fmt.Errorf("read order %s: %w", code.OrderID, err)
		}
		if doubtful && before.RedeemedAt != nil && before.RedeemedAt.Equal(sent) {
			order = before // it was this call
			return sqldb.ErrNothingToWrite
		}
		move, err := model.Move(before.Status, model.OrderRedeemed, model.MoverAdmin)
		if err != nil {
			return usedBefore(tx, before, err)
		}
		var disputed []string
		if err := tx.Table("payments").Where("order_id = ? AND disputed = ?", before.ID, true).Limit(1).Pluck("id", &disputed).Error; err != nil {
			return fmt.Errorf("look for disputes of order %s: %w", before.ID, err)
		}
		if len(disputed) > 0 {
			return &model.Error{
				Code: model.CodeIllegalState, OrderStatus: before.Status,
				Detail: "The buyer disputes the payment of this order: its code rests until that is decided.",
			}
		}
		moved, err := moveOrders(tx, o.db, []statusChange{{order: before, move: move, actor: adminID}})
		if err != nil {
			return err
		}
		order, sent = moved[0], *moved[0].RedeemedAt
		return logChange(o.db, tx, adminChange{
			at: sent, actor: adminID, action: model.ActionOrderRedeem, subject: order.ID, before: before, after: order,
		})
	})
	if err != nil {
		return model.Order{}, err
	}
	return order, nil
}

// usedBefore adds to the refusal of a code when it was used, and by whom.
func usedBefore(tx *gorm.DB, order model.Order, err error) error {
	refusal, ok := errors.AsType[*model.Error](err)
	if !ok || order.RedeemedAt == nil {
		return err
	}
	err = tx.Raw("SELECT COALESCE(accounts.username, moves.actor) FROM order_history AS moves LEFT JOIN accounts ON accounts.id = moves.actor"+
		" WHERE moves.order_id = ? AND moves.to_status = ?", order.ID, model.OrderRedeemed).Scan(&refusal.RedeemedBy).Error
	if err != nil {
		return fmt.Errorf("find who redeemed order %s: %w", order.ID, err)
	}
	refusal.RedeemedAt, refusal.Detail = *order.RedeemedAt, "This code was used already."
	return refusal
}

// errCodeTaken says that two orders were given codes with one hash, which chance does
// not do: the codes are not random.
var errCodeTaken = errors.New("a new code has the hash of another one")

// keepCode makes the code of an order that is paid in this transaction one that can be found.
func keepCode(tx *gorm.DB, orderID string, code model.SealedCode) error {
	err := tx.Create(&orderCode{CodeHash: code.Hash, OrderID: orderID}).Error
	if sqldb.Duplicate(err) {
		return fmt.Errorf("order %s: %w", orderID, errCodeTaken)
	}
	return err
}
