//part:races
//part:databases
//part:mysql8

package e2e_test

import (
	"net/http"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
)

// TestDatabaseTroubleIsLater: whatever the database's error, it is 503 while it lasts; no order fails or doubles.
func TestDatabaseTroubleIsLater(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	a := start(t, s)
	voucher := a.onSale(t, 20)
	run := func(statement string) { t.Helper(); execute(t, s, statement) }
	const healed = "DROP TRIGGER refusing"
	buyers := 0
	for name, trouble := range map[string]struct{ begin, end string }{
		"1146, no table":       {"RENAME TABLE orders TO gone", "RENAME TABLE gone TO orders"},
		"1054, no column":      {"ALTER TABLE orders RENAME COLUMN price TO cost", "ALTER TABLE orders RENAME COLUMN cost TO price"},
		"1364, a new column":   {"ALTER TABLE orders ADD COLUMN tax INT NOT NULL", "ALTER TABLE orders DROP COLUMN tax"},
		"1644, a trigger":      {refusing("refusing", voucher.ID, "SIGNAL SQLSTATE '45000'"), healed},
		"1644, of class 23":    {refusing("refusing", voucher.ID, "SIGNAL SQLSTATE '23000'"), healed},
		"60000, never heard":   {refusing("refusing", voucher.ID, "SIGNAL SQLSTATE 'XX999' SET MYSQL_ERRNO = 60000"), healed},
		"1026, the disk":       {refusing("refusing", voucher.ID, "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1026"), healed},
		"1820, a new password": {refusing("refusing", voucher.ID, "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1820"), healed},
	} {
		buyers++
		user := a.user(buyers)
		run(trouble.begin)
		a.refuses(t, voucher.ID, user)
		run(trouble.end)
		got := remote.Insist(t, "after "+name, func(int) (api.Answer, error) { return a.Place(t, voucher.ID, user) })
		check.Equal(t, "after "+name, got.Status, http.StatusCreated)
	}

	audit := a.Audit(t, voucher.ID)
	check.That(t, audit.Balanced && audit.Database.LiveOrders == int64(buyers), "audit %+v, want %d live orders", audit,
		buyers)
}
