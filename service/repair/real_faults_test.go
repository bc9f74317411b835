//go:build faults

//part:stores

package repair_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// Leftovers become orders, or units for sale, also when a rebuild carries more than it reads at once.
func TestLeftoversOnRealServers(t *testing.T) {
	t.Parallel()
	const left = 1500 // never published
	b := newBackstage(t, testserver.SharedRedis(t))
	v := b.voucher(t, left+100)
	b.buy(t, v.ID, 0, 50)
	for from := 50; from < 50+left; from += 500 {
		for _, answer := range check.Value(b.hot.Reserve(t.Context(), admissions(v.ID, from, from+500)))(t) {
			check.Must(t, answer.Err)
		}
	}
	check.Must(t, b.Rebuilder.Do(t.Context(), v.ID, model.AnyEpoch))
	// Its process dies.
	canceled := []model.Cancellation{{OrderID: admissions(v.ID, 3, 4)[0].OrderID, UserID: "user3"}}
	check.Must(t, check.ErrorOf(b.orders.Cancel(t.Context(), canceled)))
	check.Patiently(t, "what is left is settled", b.quiet(t, v.ID))
	b.balanced(t, v.ID, 49+left)
	check.Equal(t, "what remains in Redis",
		check.Value(b.hot.Read(t.Context(), []string{v.ID}))(t)[v.ID].Voucher.Remaining, 51)
}

// The database takes no order of one voucher. The other one sells on and is rebuilt, and nothing of either is lost.
func TestOneVouchersTroubleHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := newBackstage(t, testserver.SharedRedis(t))
	db := check.Value(sql.Open("mysql", b.dsn))(t)
	defer db.Close()
	bad, good := b.voucher(t, 2000), b.voucher(t, 2000)
	ill := []string{bad.ID}
	for len(ill) <= 4 { // more than are rebuilt at once
		ill = append(ill, b.voucher(t, 10).ID)
	}
	check.Must(t, check.ErrorOf(db.ExecContext(t.Context(),
		"CREATE TRIGGER trouble BEFORE INSERT ON orders FOR EACH ROW IF NEW.voucher_id IN ('"+strings.Join(ill, "','")+
			"') THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'the table is full'; END IF")))
	for i := range 40 { // many messages, whose orders come again and again
		b.buy(t, bad.ID, i*25, (i+1)*25)
	}
	for _, id := range ill { // and rebuilds that wait for them, more than work at once
		if id != bad.ID {
			b.buy(t, id, 0, 5)
		}
		b.Rebuilder.Ask(id, model.AnyEpoch)
	}
	check.Patiently(t, "the others are closed", func() bool {
		copies, err := b.hot.Read(t.Context(), ill)
		return err == nil && !slices.ContainsFunc(ill,
			func(id string) bool { return copies[id].State == model.CopyOpen })
	})
	for i := range 5 {
		b.buy(t, good.ID, i*100, (i+1)*100)
		check.Patiently(t, "its orders are persisted", func() bool {
			backlog, err := b.queue.BacklogOf(t.Context(), good.ID)
			return err == nil && backlog.Messages == 0
		})
		check.Must(t, b.Rebuilder.Do(check.Context(t), good.ID, model.AnyEpoch))
		copies := check.Value(b.hot.Read(t.Context(), []string{good.ID}))(t)
		check.Equal(t, "its hot copy", copies[good.ID].State, model.CopyOpen)
	}
	backlog := check.Value(b.queue.BacklogOf(t.Context(), bad.ID))(t)
	check.That(t, backlog.Messages > 0 && backlog.AckFloor == 0, "the voucher in trouble: %+v", backlog)
	check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), "DROP TRIGGER trouble")))
	for _, id := range ill {
		check.Patiently(t, "everything is persisted", b.quiet(t, id))
	}
	b.balanced(t, bad.ID, 1000)
	b.balanced(t, good.ID, 500)
}
