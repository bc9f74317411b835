package e2e_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/model"
)

// Of 500 orders in one message one cannot be stored. The others are persisted,
// and that one waits among the dead letters until an operator replays it, as a
// new reservation.
func TestPoisonedOrderIsSetAside(t *testing.T) {
	t.Parallel()
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
	poisoned.Currency = impossible
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
	if err != nil || strings.Count(listed, poisoned.ID) != 1 || slices.ContainsFunc(sorted(promised), func(id string) bool { return strings.Contains(listed, id) }) {
		t.Fatalf("deadletters list: %v\n%s", err, listed)
	}
	sequence := letter(t, listed, poisoned.ID)
	shown, err := runs(t, s, "deadletters", "show", sequence)
	if err != nil || !strings.Contains(shown, poisoned.UserID) || !strings.Contains(shown, impossible) {
		t.Errorf("deadletters show %s: %v\n%s", sequence, err, shown)
	}
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

// letter is the first word of the line that names an order: its sequence.
func letter(t *testing.T, listed, orderID string) string {
	t.Helper()
	for line := range strings.Lines(listed) {
		if strings.Contains(line, orderID) {
			return strings.Fields(line)[0]
		}
	}
	t.Fatalf("no line names %s:\n%s", orderID, listed)
	return ""
}
