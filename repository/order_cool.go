package repository

import (
	"fmt"
	"time"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// cooled is a row of order_cooling.sql: until when a user waits before another order, and how often that began.
type cooled struct {
	UserID string
	Until  clock `gorm:"column:ends_at"`
	Times  int64
}

// coolingOf reads who of some users waits, or has waited.
func coolingOf(tx *gorm.DB, d sqldb.Dialect, voucherID string, users []string) (map[string]cooled, error) {
	found := map[string]cooled{}
	err := parted(users, func(some []string) error {
		var rows []cooled
		err := tx.Raw(sqlOf(d, "order_cooling"), voucherID, some).Scan(&rows).Error
		for _, row := range rows {
			found[row.UserID] = row
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read who waits for voucher %s: %w", voucherID, err)
	}
	return found, nil
}

// coolDown finds until when the users of orders wait that end unpaid. A voucher without a cool-down has nothing read. An order of
// a user that ends before this one had ended before this one was made: what is counted does not change meanwhile.
func coolDown(tx *gorm.DB, d sqldb.Dialect, changes []statusChange, rules map[string]saleRules, now time.Time) error {
	users := map[string][]string{} // by voucher
	for _, c := range changes {
		if id := c.order.VoucherID; c.cools && rules[id].Cooldown > 0 {
			users[id] = append(users[id], c.order.UserID)
		}
	}
	for id, some := range users {
		before, err := coolingOf(tx, d, id, some)
		if err != nil {
			return err
		}
		for i := range changes {
			if c := &changes[i]; c.cools && c.order.VoucherID == id {
				c.until = model.CooldownUntil(rules[id].Cooldown, now, before[c.order.UserID].Times)
			}
		}
	}
	return nil
}
