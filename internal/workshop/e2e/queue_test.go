//part:queue

package e2e_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// A worker stands still while it holds the voucher's row in a transaction: the database ends that, and another persists
// the orders.
func TestWorkerPausedWithTheHotRowDoesNoHarm(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	w, throughWire := throughDatabase(t, s.role("worker"))
	front := start(t, s.role("api"))
	start(t, throughWire)
	voucher := front.onSale(t, 10)
	came, release := w.holdAt(up, front.user(1), "COMMIT")
	defer release()
	order := front.accepted(t, voucher.ID, front.user(1))
	check.Receive(t, "the COMMIT", came)
	start(t, s.role("worker"))
	front.becomes(t, order, model.OrderUnpaid)
	release() // into a transaction that is over
	check.Equal(t, "orders", len(front.conserved(t, voucher.ID, map[string]string{order.ID: order.UserID})), 1)
	front.sellsOn(t, voucher.ID, 100)
}

// NATS is away for a while. A purchase meanwhile hears 503, and everything that was promised before is kept.
func TestQueueAwayPromisesNothing(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnNATS(t)
	a := start(t, s)
	voucher := a.onSale(t, 10)
	promised := a.buysAll(t, voucher.ID, users(a, 0, 3))
	own.Kill()
	check.Volley(2, func(n int) { a.refuses(t, voucher.ID, a.user(10+n)) })
	a.unready(t)
	own.Start()
	a.ready(t)
	a.kept(t, voucher.ID, promised)
	a.sellsOn(t, voucher.ID, 100)
}

// holdRow keeps a voucher's row locked, so that orders for it are on their way until the returned function lets them
// go.
func holdRow(t *testing.T, s settings, voucherID string) (release func()) {
	t.Helper()
	tx := check.Value(behind(t, s).BeginTx(t.Context(), nil))(t)
	check.Must(t, check.ErrorOf(tx.ExecContext(t.Context(), "SELECT id FROM vouchers WHERE id = ? FOR UPDATE", voucherID)))
	return func() {
		err := tx.Rollback()
		check.That(t, err == nil, "let the row go: %v", err)
	}
}

// absence is a database that cannot be written for a while.
type absence struct {
	name       string
	begin, end func(t *testing.T)
}

func absences(database *testserver.Server) []absence {
	admin := func(t *testing.T, statement string) {
		db := adminOf(t, database, "")
		check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), statement)))
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

// Of 500 orders in one message one cannot be stored, which only the database knows: the batch is halved until it is found.
// The others are persisted, and that one waits among the dead letters until an operator replays it, as a new reservation.
func TestPoisonedOrderIsSetAside(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	front := start(t, s.role("api"))
	const batch, stock = 500, 510
	voucher := front.onSale(t, stock)
	c := newCounterfeiter(t, s)
	front.opens(t, voucher.ID)
	var message []model.Reservation
	promised := map[string]string{}
	for chunk := range slices.Chunk(users(front, 0, batch), 100) {
		message = append(message, c.reserveAll(t, voucher.ID, chunk)...)
	}
	for _, order := range message {
		promised[order.ID] = order.UserID
	}
	poisoned := message[batch/3]
	execute(t, s, "CREATE TRIGGER venom BEFORE INSERT ON orders FOR EACH ROW IF NEW.user_id = '"+poisoned.UserID+
		"' AND NEW.status = 'unpaid' THEN SIGNAL SQLSTATE '22001' SET MYSQL_ERRNO = 1406, MESSAGE_TEXT = 'venom'; END IF")
	c.publish(t, message...)

	worker := start(t, s.role("worker"))
	if got, err := worker.Place(t, voucher.ID, worker.user(1)); err != nil || got.Status != http.StatusNotFound {
		t.Errorf("a worker sells: %d %s %v", got.Status, got.Body, err)
	}
	orders := front.conserved(t, voucher.ID, promised)
	check.Equal(t, "orders", len(orders), batch)
	failed := orders[poisoned.ID]
	check.That(t, failed.Status == model.OrderFailed && failed.Reason == model.ReasonUnprocessable,
		"the poisoned order is %+v", failed)
	delete(promised, poisoned.ID)
	unbroken(t, orders, promised)

	listed, err := runs(t, s, "deadletters", "list")
	if err != nil || len(linesNaming(listed, poisoned.ID)) != 1 || slices.ContainsFunc(sorted(promised), func(id string) bool { return strings.Contains(listed, id) }) {
		t.Fatalf("deadletters list: %v\n%s", err, listed)
	}
	sequence := strings.Fields(linesNaming(listed, poisoned.ID)[0])[0]
	shown, err := runs(t, s, "deadletters", "show", sequence)
	check.That(t, err == nil && strings.Contains(shown, poisoned.UserID) && strings.Contains(shown, "venom"),
		"deadletters show %s: %v\n%s", sequence, err, shown)
	execute(t, s, "DROP TRIGGER venom")
	check.Must(t, check.ErrorOf(runs(t, s, "deadletters", "replay", sequence)))
	listed, err = runs(t, s, "deadletters", "list")
	check.That(t, err == nil && !strings.Contains(listed, poisoned.ID), "deadletters list after the replay: %v\n%s", err, listed)
	replayed := func() model.Order {
		for _, order := range front.orders(t, voucher.ID) {
			if order.UserID == poisoned.UserID && order.ID != poisoned.ID {
				return order
			}
		}
		return model.Order{}
	}
	check.Patiently(t, "the replayed order is there", func() bool { return replayed().Status == model.OrderUnpaid })
	order := replayed()
	check.That(t, order.Currency == voucher.Currency && order.Price == voucher.Price, "the replayed order is %+v", order)
	promised[order.ID] = poisoned.UserID
	maps.Copy(promised, front.sellsOn(t, voucher.ID, batch))
	front.kept(t, voucher.ID, promised)
	check.Equal(t, "sold", len(promised), stock)
}

// opens waits until a voucher's hot copy is open.
func (a *app) opens(t *testing.T, voucherID string) {
	t.Helper()
	check.Patiently(t, "the hot copy is open", func() bool { return a.Audit(t, voucherID).Redis.State == string(model.CopyOpen) })
}

// linesNaming are the lines of a text that name an order.
func linesNaming(text, orderID string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, orderID) {
			lines = append(lines, line)
		}
	}
	return lines
}
