package e2e_test

import (
	"database/sql"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/model"
)

// The answer to a COMMIT is lost with the connection: the orders are there, and
// are persisted again without a second row.
func TestConnectionResetDuringCommit(t *testing.T) {
	t.Parallel()
	for name, lost := range directions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := asyncOnServers(t)
			w, throughWire := throughDatabase(t, s.with(settings{"SECKILL_ROLE": "worker"}))
			a := start(t, s.with(settings{"SECKILL_ROLE": "api"}))
			start(t, throughWire)
			voucher := a.onSale(t, 5)
			came, _ := w.holdAt(lost, a.user(1), "COMMIT")
			order := a.accepted(t, voucher.ID, a.user(1))
			happens(t, "the COMMIT", came)
			w.cut()
			a.becomes(t, order, model.OrderUnpaid)
			if orders := a.conserved(t, voucher.ID, map[string]string{order.ID: order.UserID}); len(orders) != 1 {
				t.Errorf("%d orders, want 1", len(orders))
			}
			a.sellsOn(t, voucher.ID, 10)
		})
	}
}

// absence is a database that cannot be written for a while.
type absence struct {
	name       string
	begin, end func(t *testing.T)
}

func absences(database *testserver.Server) []absence {
	admin := func(t *testing.T, statement string) {
		t.Helper()
		db, err := sql.Open("mysql", database.AdminDSN(""))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return []absence{
		{"killed", func(*testing.T) { database.Kill() }, func(*testing.T) { database.Start() }},
		{"stopped in its tracks", func(*testing.T) { database.Pause() }, func(*testing.T) { database.Resume() }},
		{
			"read-only",
			func(t *testing.T) { t.Helper(); admin(t, "SET GLOBAL read_only = 1") },
			func(t *testing.T) { t.Helper(); admin(t, "SET GLOBAL read_only = 0") },
		},
	}
}

// While the database is away promises go on: that is what the queue is for. When
// it is back everything is persisted, and nothing has been taken for poison.
func TestPromisesGoOnWithoutADatabase(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnServers(t)
	a := launch(t, s)
	for n, away := range absences(own.database) {
		voucher := a.onSale(t, 100)
		promised := map[string]string{}
		buy := func(user string) {
			order := a.accepted(t, voucher.ID, user)
			promised[order.ID] = order.UserID
		}
		buy(a.user(1000 * n))
		a.quiet(t, voucher.ID, settlement)
		away.begin(t)
		until := time.After(3 * time.Second)
		bought := 0
		for going := true; going; bought++ {
			select {
			case <-until:
				going = false
			case <-time.After(50 * time.Millisecond):
				buy(a.user(1000*n + 1 + bought))
			}
		}
		away.end(t)
		unbroken(t, a.conserved(t, voucher.ID, promised), promised)
		a.sellsOn(t, voucher.ID, 1000*n+500)
		t.Logf("%s: %d promises meanwhile", away.name, bought)
	}
	if listed, err := runs(t, s, "deadletters", "list"); err != nil || len(orderIDs(listed)) != 0 {
		t.Errorf("dead letters: %v\n%s", err, listed)
	}
}

// Somebody else's transactions lock the same rows in another order and are the
// heavier ones, so that the database ends the service's each time. Everything is
// persisted.
func TestDeadlocksArePersistedAgain(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnServers(t)
	a := launch(t, s)
	voucher := a.undivided(t, 2000)
	a.becomes(t, a.accepted(t, voucher.ID, a.user(0)), model.OrderUnpaid)
	db, err := sql.Open("mysql", own.database.AdminDSN(testserver.DefaultSchema))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE weight (seq INT)"); err != nil {
		t.Fatal(err)
	}
	c := newCrowd(a.app, voucher.ID)
	var load sync.WaitGroup
	load.Go(func() { c.buy(t, users(a.app, 1000, 1000), 8) })
	victims := 0
	for n := 0; victims < 5; n++ {
		if n == 100 {
			t.Fatalf("the database ended %d transactions, want 5", victims)
		}
		if crosses(t, db, voucher.ID) {
			victims++
		}
	}
	load.Wait()
	unbroken(t, a.conserved(t, voucher.ID, c.promised), c.promised)
	if len(c.promised) != 1000 {
		t.Errorf("%d were promised, want 1000", len(c.promised))
	}
	if listed, err := runs(t, s, "deadletters", "list"); err != nil || len(orderIDs(listed)) != 0 {
		t.Errorf("dead letters: %v\n%s", err, listed)
	}
}

// crosses locks a voucher's orders, so that none can be inserted, and then the
// voucher, and reports whether the database had to end somebody else for that.
func crosses(t *testing.T, db *sql.DB, voucherID string) bool {
	t.Helper()
	before := testserver.Deadlocks(t, db)
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO weight VALUES (0)"+strings.Repeat(", (0)", 2000)); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT id FROM orders WHERE voucher_id = ? FOR UPDATE", voucherID); err != nil {
		return false // it waited too long itself
	}
	<-time.After(30 * time.Millisecond) // somebody comes to hold the voucher and to wait for the orders
	_, err = tx.ExecContext(t.Context(), "UPDATE vouchers SET title = title WHERE id = ?", voucherID)
	return err == nil && testserver.Deadlocks(t, db) > before
}

// orderIDs are the orders that a text names.
func orderIDs(text string) []string {
	return regexp.MustCompile(`[0-9a-v]{26}\.[0-9a-v]{26}`).FindAllString(text, -1)
}
