package command

import (
	"os"
	"strings"
	"testing"
	"time"

	"seckill/internal/app"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// inAsync names a data directory and nothing but the order mode.
func inAsync(dir string) []string { return append(in(dir), "SECKILL_ORDER_MODE=async") }

// A repair, and the replay of an embedded server's letter, need the place of the server. The replay
// leaves an order that its next start knows.
func TestEmbeddedReplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	instance, cfg := started(t, "SECKILL_DATA_DIR="+dir, "SECKILL_ORDER_MODE=async")
	s := counterOf(t, instance, cfg)
	voucher := s.putUp(t, 1)
	if got := call(t, inAsync(dir), "", "audit", "--repair", "--stock", "--voucher", voucher); got.code != exitError || !strings.Contains(got.stderr, "stopped first") {
		t.Errorf("a repair beside the server: %+v", got)
	}
	halt(instance)
	lost := model.Reservation{Epoch: 1, Sequence: 1, Order: model.Order{
		ID: "lost." + voucher, VoucherID: voucher, UserID: "alice", Status: model.OrderProcessing,
		Price: 1000, Currency: "CNY", CreatedAt: time.Now(),
	}}
	p := Process{Stderr: os.Stderr}
	check.Must(t, p.withAsyncParts(t.Context(), cfg, func(a *app.AsyncParts) error {
		return a.Queue.Bury(t.Context(), model.DeadLetter{Reason: "lost", Reservation: &lost})
	}))
	got := call(t, inAsync(dir), "", "deadletters", "replay", "--all")
	if got.code != 0 || !strings.Contains(got.stdout, "1 of 1 dead letters were replayed") {
		t.Fatalf("replay: %+v", got)
	}
	if got := call(t, inAsync(dir), "", "audit"); got.code != 0 || !strings.Contains(words(got.stdout), voucher+" 1 0 1 yes") {
		t.Errorf("the replayed order: %+v", got)
	}
}
