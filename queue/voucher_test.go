package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"seckill/model"
	"seckill/queue"
)

// of are n orders of one voucher.
func of(voucherID, name string, n int) []model.Reservation {
	all := some(name, n)
	for i := range all {
		all[i].ID, all[i].VoucherID = model.OrderID(fmt.Sprintf("%s-%d", name, i), voucherID), voucherID
	}
	return all
}

// backlogOf asks for the backlog of one voucher.
func (f *fixture) backlogOf(t *testing.T, voucherID string) model.Backlog {
	t.Helper()
	b, err := f.BacklogOf(t.Context(), voucherID)
	must(t, err)
	return b
}

// One message that waits is its voucher's: the backlogs of the others say nothing
// of it, whatever their ids look like.
func TestBacklogOfAVoucherIsItsOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	vouchers := []string{"slow", "quick", "a.b", "a.b.c", "a-b", "never"}
	for _, id := range vouchers[:5] {
		must(t, f.Publish(t.Context(), of(id, "first", 3)))
	}
	before, err := f.Backlog(t.Context())
	must(t, err)
	if got := f.backlogOf(t, "never"); got.Messages != 0 || got.AckFloor != before.LastSequence || got.Age != 0 {
		t.Errorf("a voucher without a message: %+v", got)
	}
	if got := f.backlogOf(t, "a.b"); got.Messages != 1 || got.AckFloor != before.LastSequence-3 || got.LastSequence != before.LastSequence {
		t.Errorf("a.b: %+v of %+v", got, before)
	}
	l := ledger{verdict: func(r model.Reservation, _ int) error {
		if r.VoucherID == "slow" {
			return model.Unavailable("not now", nil)
		}
		return nil
	}}
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{})
	for _, id := range vouchers[1:] {
		eventually(t, id+" is done", func() bool { return f.backlogOf(t, id).Messages == 0 })
		if got := f.backlogOf(t, id); got.AckFloor != before.LastSequence || got.Age != 0 {
			t.Errorf("%s: %+v", id, got)
		}
	}
	eventually(t, "the one that waits is old", func() bool {
		got := f.backlogOf(t, "slow")
		if got.Messages != 1 || got.AckFloor != before.LastSequence-5 {
			t.Fatalf("%+v of %+v", got, before)
		}
		return got.Age > 100*time.Millisecond
	})
}

// A floor is told while messages come and go, and never passes one that waits.
func TestFloorOfAVoucherIsNotOverstated(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	var l ledger
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{})
	done := make(chan error, 1)
	go func() {
		var failed error
		for i := range 300 {
			failed = errors.Join(failed, f.Publish(t.Context(), append(of("a", fmt.Sprint("a", i), 1), of("b", fmt.Sprint("b", i), 1)...)))
		}
		done <- failed
	}()
	for running := true; running; {
		select {
		case err := <-done:
			must(t, err)
			running = false
		default:
		}
		b := f.backlogOf(t, "a")
		if b.AckFloor > b.LastSequence {
			t.Fatalf("the floor is beyond the end: %+v", b)
		}
		stream, err := f.js.Stream(t.Context(), orders)
		must(t, err)
		raw, err := stream.GetMsg(t.Context(), 1, jetstream.WithGetMsgSubject(subject+".a"))
		if err == nil && raw.Sequence <= b.AckFloor {
			t.Fatalf("message %d waits below the floor of %+v", raw.Sequence, b)
		}
	}
	drained(t, f.Queue)
}

// What an instance of the older layout has published, or publishes still, is
// consumed, and counts for every voucher: nobody sees whose orders it carries.
func TestMessagesOfTheOlderLayoutCountForEveryVoucher(t *testing.T) {
	t.Parallel()
	f := bare(t)
	_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: orders, Subjects: []string{subject}, Storage: jetstream.FileStorage, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
	})
	must(t, err)
	old := `{"v":1,"orders":[` + text("old-1.v1", "u1") + `,` + text("old-2.v2", "u2") + `]}`
	_, err = f.js.Publish(t.Context(), subject, []byte(old))
	must(t, err)
	f.Queue = f.open(t, nil)
	stream, err := f.js.Stream(t.Context(), orders)
	must(t, err)
	if got := stream.CachedInfo().Config.Subjects; !slices.Equal(got, []string{subject, subject + ".*"}) {
		t.Errorf("the stream takes %v", got)
	}
	_, err = f.js.Publish(t.Context(), subject, []byte(old))
	must(t, err)
	must(t, f.Publish(t.Context(), of("v1", "new", 1)))
	last := stream.CachedInfo().State.LastSeq + 2
	for id, messages := range map[string]int64{"v1": 3, "v2": 2, "other": 2} {
		if got := f.backlogOf(t, id); got.Messages != messages || got.AckFloor != last-3 || got.LastSequence != last {
			t.Errorf("%s: %+v, want %d messages behind %d", id, got, messages, last-3)
		}
	}
	var l ledger
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{})
	drained(t, f.Queue)
	if len(l.seen()) != 3 {
		t.Errorf("%v were handed out", l.seen())
	}
	if got := f.backlogOf(t, "v2"); got.AckFloor != last {
		t.Errorf("behind them: %+v", got)
	}
}
