package worker_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// The database takes no order of one voucher for a while, whatever the reason is.
// The other one sells on and is rebuilt meanwhile, and behind that nothing of
// either is lost.
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
	must(t, check.ErrorOf(db.ExecContext(t.Context(), "CREATE TRIGGER trouble BEFORE INSERT ON orders FOR EACH ROW IF NEW.voucher_id IN ('"+strings.Join(ill, "','")+
		"') THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'the table is full'; END IF")))
	for i := range 40 { // many messages, which come again and again
		b.buy(t, bad.ID, i*25, (i+1)*25)
	}
	for _, id := range ill { // and rebuilds that wait for them, more than work at once
		if id != bad.ID {
			b.buy(t, id, 0, 5)
		}
		b.Rebuilder.Demand(id)
	}
	await(t, "the others are closed", 10*time.Second, func() bool {
		copies, err := b.hot.Read(t.Context(), ill)
		return err == nil && !slices.ContainsFunc(ill, func(id string) bool { return copies[id].State == model.CopyOpen })
	})
	for i := range 5 {
		b.buy(t, good.ID, i*100, (i+1)*100)
		await(t, "its orders are persisted", 10*time.Second, func() bool {
			backlog, err := b.queue.BacklogOf(t.Context(), good.ID)
			return err == nil && backlog.Messages == 0
		})
		took := time.Now()
		must(t, rebuilt(t, b, good.ID))
		t.Logf("round %d: rebuilt within %v", i, time.Since(took))
	}
	backlog, err := b.queue.BacklogOf(t.Context(), bad.ID)
	if must(t, err); backlog.Messages != 40 || backlog.AckFloor >= backlog.LastSequence-40 {
		t.Errorf("the voucher in trouble: %+v", backlog)
	}
	must(t, check.ErrorOf(db.ExecContext(t.Context(), "DROP TRIGGER trouble")))
	for _, id := range ill {
		await(t, "everything is persisted", 15*time.Second, b.quiet(t, id))
	}
	b.balanced(t, bad.ID, 1000)
	b.balanced(t, good.ID, 500)
}

// rebuilt rebuilds a voucher, in seconds.
func rebuilt(t *testing.T, b *backstage, voucherID string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := b.Rebuilder.Rebuild(ctx, voucherID); err != nil {
		return fmt.Errorf("rebuild voucher %s: %w", voucherID, err)
	}
	copies, err := b.hot.Read(ctx, []string{voucherID})
	if err == nil && copies[voucherID].State != model.CopyOpen {
		err = fmt.Errorf("its copy is %s", copies[voucherID].State)
	}
	return err
}
