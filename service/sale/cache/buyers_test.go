package cache

import (
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/budget"
	"seckill/model"
	"seckill/service/servicetest"
)

// One buyer's unit came back and another one has it: nothing remained at either reading, and only the version tells
// that the buyers are not the same any more. The user who has an order now may have lost the answer, and must hear of
// that order.
func TestBuyersOfAnotherVersionAreReadAnew(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, db *servicetest.Table, c *Vouchers) {
		sellTo := func(user string) {
			db.With(func(db *servicetest.Table) { db.Users = []string{user} })
			db.Change(func(v *model.Voucher) { v.Remaining = 0 })
		}
		sellTo("early")
		hears(t, c, "sold out", "late", model.CodeSoldOut)
		hears(t, c, "sold out", "early", "")
		<-time.After(budget.Look)
		sellTo("late")
		<-time.After(time.Second)
		synctest.Wait()
		hears(t, c, "sold to another one", "late", "")
		hears(t, c, "sold to another one", "nobody", model.CodeSoldOut)
	})
}
