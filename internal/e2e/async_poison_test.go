package e2e_test

import (
	"database/sql"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// poison is a way in which an order cannot be stored.
type poison struct {
	spoil func(t *testing.T, s settings, order *model.Reservation)
	cure  func(t *testing.T, s settings) // what an operator does before he replays it
	shown string                         // what he finds among the dead letters
}

func poisons() map[string]poison {
	return map[string]poison{
		"that cannot exist": {
			spoil: func(_ *testing.T, _ settings, order *model.Reservation) { order.Currency = impossible },
			cure:  func(*testing.T, settings) {},
			shown: impossible,
		},
		// Only the database knows: the batch is halved until it is found.
		"that the database refuses": {
			spoil: func(t *testing.T, s settings, order *model.Reservation) {
				t.Helper()
				execute(t, s, "CREATE TRIGGER venom BEFORE INSERT ON orders FOR EACH ROW IF NEW.user_id = '"+order.UserID+
					"' AND NEW.status = 'unpaid' THEN SIGNAL SQLSTATE '22001' SET MYSQL_ERRNO = 1406, MESSAGE_TEXT = 'venom'; END IF")
			},
			cure:  func(t *testing.T, s settings) { t.Helper(); execute(t, s, "DROP TRIGGER venom") },
			shown: "venom",
		},
	}
}

// behind is a way to change a database behind everybody's back.
func behind(t *testing.T, s settings) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", s["SECKILL_DATABASE_DSN"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// execute makes such a change.
func execute(t *testing.T, s settings, statement string) {
	t.Helper()
	if _, err := behind(t, s).ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// Of 500 orders in one message one cannot be stored. The others are persisted,
// and that one waits among the dead letters until an operator replays it, as a
// new reservation.
func TestPoisonedOrderIsSetAside(t *testing.T) {
	t.Parallel()
	for name, p := range poisons() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setAside(t, p)
		})
	}
}

func setAside(t *testing.T, p poison) {
	t.Helper()
	s := asyncOnServers(t)
	api := start(t, s.with(settings{"SECKILL_ROLE": "api"}))
	const batch, stock = 500, 510
	voucher := api.onSale(t, stock)
	c := newCounterfeiter(t, s)
	until(t, 10*time.Second, "the hot copy is open", func() bool { return api.audit(t, voucher.ID).Redis.State == string(model.CopyOpen) })
	var message []model.Reservation
	for chunk := range slices.Chunk(users(api, 0, batch), 100) {
		message = append(message, c.reserveAll(t, voucher.ID, chunk)...)
	}
	poisoned := &message[batch/3]
	p.spoil(t, s, poisoned)
	c.publish(t, message...)
	promised := map[string]string{}
	for _, order := range message {
		promised[order.ID] = order.UserID
	}

	worker := start(t, s.with(settings{"SECKILL_ROLE": "worker"}))
	if got, err := worker.place(t, voucher.ID, worker.user(1)); err != nil || got.status != http.StatusNotFound {
		t.Errorf("a worker sells: %d %s %v", got.status, got.body, err)
	}
	orders := api.conserved(t, voucher.ID, promised)
	if len(orders) != batch {
		t.Errorf("%d orders, want %d", len(orders), batch)
	}
	failed := orders[poisoned.ID]
	if failed.Status != model.OrderFailed || failed.Reason != model.ReasonUnprocessable {
		t.Errorf("the poisoned order is %+v", failed)
	}
	delete(promised, poisoned.ID)
	unbroken(t, orders, promised)

	listed, err := runs(t, s, "deadletters", "list")
	if err != nil || len(linesNaming(listed, poisoned.ID)) != 1 || slices.ContainsFunc(sorted(promised), func(id string) bool { return strings.Contains(listed, id) }) {
		t.Fatalf("deadletters list: %v\n%s", err, listed)
	}
	sequence := strings.Fields(linesNaming(listed, poisoned.ID)[0])[0]
	shown, err := runs(t, s, "deadletters", "show", sequence)
	if err != nil || !strings.Contains(shown, poisoned.UserID) || !strings.Contains(shown, p.shown) {
		t.Errorf("deadletters show %s: %v\n%s", sequence, err, shown)
	}
	p.cure(t, s)
	if replayed, err := runs(t, s, "deadletters", "replay", sequence); err != nil {
		t.Fatalf("%v\n%s", err, replayed)
	}
	if listed, err := runs(t, s, "deadletters", "list"); err != nil || strings.Contains(listed, poisoned.ID) {
		t.Errorf("deadletters list after the replay: %v\n%s", err, listed)
	}
	replayed := func() model.Order {
		for _, order := range api.orders(t, voucher.ID) {
			if order.UserID == poisoned.UserID && order.ID != poisoned.ID {
				return order
			}
		}
		return model.Order{}
	}
	until(t, settlement, "the replayed order is there", func() bool { return replayed().Status == model.OrderUnpaid })
	if order := replayed(); order.Currency != voucher.Currency || order.Price != voucher.Price {
		t.Errorf("the replayed order is %+v", order)
	}
	promised[replayed().ID] = poisoned.UserID
	maps.Copy(promised, api.sellsOn(t, voucher.ID, batch))
	unbroken(t, api.conserved(t, voucher.ID, promised), promised)
	if len(promised) != stock {
		t.Errorf("%d were sold, want %d", len(promised), stock)
	}
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

// A voucher's row may be away for a moment, while its table is loaded from a dump. What was accepted before and what was
// reserved meanwhile becomes orders when it is back, and nothing is promised of a voucher that the database does not know.
func TestOrdersWaitForTheRowOfTheirVoucher(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	a := start(t, s)
	voucher, other := a.onSale(t, 100), a.onSale(t, 100)
	before := a.accepted(t, voucher.ID, a.user(1))
	back, err := hideVoucher(t.Context(), behind(t, s), voucher.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := a.place(t, voucher.ID, a.user(2)); err != nil || got.code() != model.CodeUnavailable {
		t.Errorf("an order of a voucher without a row: %d %s, %v", got.status, got.body, err)
	}
	a.becomes(t, a.accepted(t, other.ID, a.user(1)), model.OrderUnpaid)
	if err := back(); err != nil {
		t.Fatal(err)
	}
	a.becomes(t, before, model.OrderUnpaid)
	until(t, settlement, "what was reserved meanwhile is an order", func() bool {
		got, err := a.place(t, voucher.ID, a.user(2))
		return err == nil && got.code() == model.CodeAlreadyOrdered && decode[problem](t, got).OrderStatus == model.OrderUnpaid
	})
	if listed, err := runs(t, s, "deadletters", "list"); err != nil || len(linesNaming(listed, voucher.ID)) != 0 {
		t.Errorf("deadletters list: %v\n%s", err, listed)
	}
	a.sellsOn(t, voucher.ID, 100)
}

// A voucher is not deleted. So a row that is away says nothing about one that was
// there, also when no hot copy can be asked.
func TestAVoucherWhoseRowIsAwayIsNotMissing(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			own, s := asyncOnOwnServers(t)
			s = s.with(settings{"SECKILL_ORDER_MODE": mode})
			a := start(t, s)
			voucher := a.onSale(t, 100)
			sold := func(user int) bool {
				got, err := a.place(t, voucher.ID, a.user(user))
				return err == nil && (got.status == http.StatusCreated || got.status == http.StatusAccepted)
			}
			if !sold(1) {
				t.Fatal("the voucher does not sell")
			}
			back := check.Value(hideVoucher(t.Context(), behind(t, s), voucher.ID))(t)
			if mode == "async" {
				onRedis(t, own.redis, "", "CONFIG", "SET", "requirepass", redisSecret)
				onRedis(t, own.redis, redisSecret, "CLIENT", "KILL", "TYPE", "normal")
			}
			// The instance's own entry is forgotten in this time.
			for ran := testserver.Stopwatch(); ran() < 2*time.Second; {
				got, err := a.place(t, voucher.ID, a.user(2))
				if err != nil || got.code() != model.CodeUnavailable {
					t.Fatalf("an order of a voucher without a row: %d %s, %v", got.status, got.body, err)
				}
			}
			if mode == "async" {
				onRedis(t, own.redis, redisSecret, "CONFIG", "SET", "requirepass", "")
			}
			check.Must(t, back())
			until(t, settlement, "the voucher sells again", func() bool { return sold(3) })
		})
	}
}
