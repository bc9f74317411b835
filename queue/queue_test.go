package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/queue"
)

func TestOrdersArriveAsTheyWerePublished(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	check.Must(t, f.Publish(t.Context(), nil)) // is no message
	published := some("a", 2*queue.MaxOrders+201)
	check.Must(t, f.Publish(t.Context(), published))
	backlog := check.Value(f.Backlog(t.Context()))(t)
	check.Equal(t, "messages of all orders", backlog.Messages, 3)
	l := handOut(t, f.Queue)

	arrived := map[string]model.Reservation{}
	for _, call := range l.calls {
		check.That(t, len(call) <= queue.MaxOrders, "a call has %d orders", len(call))
		for _, r := range call {
			arrived[r.ID] = r
		}
	}
	for i, want := range published {
		got := arrived[want.ID]
		want.Sequence = arrived[published[i-i%queue.MaxOrders].ID].Sequence // that of its message
		if !reflect.DeepEqual(got, want) || got.Sequence+2 < backlog.LastSequence ||
			got.Sequence > backlog.LastSequence {
			t.Fatalf("order %d arrived as\n%+v, want\n%+v", i, got, want)
		}
	}
	check.Equal(t, "orders that arrived", len(arrived), len(published))
}

// An order that nobody could read is a bug, and is not sent. The error names it, and it holds up no other order.
func TestOneOrderThatCannotBeEncodedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	orders := append(of("v1", "a", 5), of("v2", "b", 2)...)
	orders[0].ID = "names-no-voucher"
	orders[1].UserID = "no user"
	orders[3].Price = -1
	orders[5].CreatedAt = orders[5].CreatedAt.AddDate(-3000, 0, 0)
	err := f.Publish(t.Context(), orders)
	check.Is(t, "the error", err, model.ErrUnknownOutcome)
	want := map[string]int{}
	for i, o := range orders {
		refused := i == 0 || i == 1 || i == 3 || i == 5
		named := strings.Contains(fmt.Sprint(err), o.ID)
		check.That(t, named == refused, "order %d: refused %v, the error is %v", i, refused, err)
		if !refused {
			want[o.ID] = 1
		}
	}
	seen := handOut(t, f.Queue).seen()
	check.That(t, maps.Equal(seen, want), "%v arrived, want %v", seen, want)
}

func TestDeploymentsShareAServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	other := f.open(t, func(o *queue.Options) { o.Deployment += "x" })
	t.Cleanup(func() {
		_, _ = f.js.DeleteStream(context.Background(), f.orders+"X"),
			f.js.DeleteStream(context.Background(), f.dead+"X")
	})
	check.Must(t, f.Publish(t.Context(), some("a", 1)))
	check.Must(t, other.Publish(t.Context(), some("b", 1)))
	l := handOut(t, other)
	seen := slices.Collect(maps.Keys(l.seen()))
	check.That(t, slices.Equal(seen, []string{some("b", 1)[0].ID}), "the other deployment was given %v", seen)
	waiting(t, f.Queue, 1)
	if _, err := f.tryOpen(t, func(o *queue.Options) { o.Deployment = "a.b" }); err == nil {
		t.Error("a deployment that would make another subject was accepted")
	}
}

// The age is the server's: the message's time is when the server stored it.
func TestBacklogTellsTheAgeOfTheOldest(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	empty := check.Value(f.Backlog(t.Context()))(t)
	check.That(t, empty.Messages == 0 && empty.Age == 0 && empty.AckFloor == empty.LastSequence,
		"an empty queue: %+v", empty)
	check.Must(t, f.Publish(t.Context(), some("a", 1)))
	check.Must(t, f.Publish(t.Context(), some("b", 1)))
	check.Eventually(t, "the oldest is 200 ms old", func() bool {
		backlog := check.Value(f.Backlog(t.Context()))(t)
		if backlog.Messages != 2 || backlog.LastSequence != empty.LastSequence+2 ||
			backlog.AckFloor != empty.LastSequence {
			t.Fatalf("two messages wait: %+v, before: %+v", backlog, empty)
		}
		return backlog.Age >= 200*time.Millisecond
	})
}

// This machine's clock has no say, and what the stream has dropped is acknowledged even when the consumer's floor lags.
func TestBacklogGoesByTheServersClock(t *testing.T) {
	t.Parallel()
	server := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	info := &jetstream.StreamInfo{TimeStamp: server, State: jetstream.StreamState{
		Msgs: 3, FirstSeq: 8, LastSeq: 12, FirstTime: server.Add(-4 * time.Second),
	}}
	for floor, want := range map[uint64]uint64{0: 7, 5: 7, 7: 7} {
		got := queue.BacklogFrom(floor, info)
		check.That(t, got == (model.Backlog{Messages: 3, Age: 4 * time.Second, LastSequence: 12, AckFloor: want}),
			"floor %d: %+v", floor, got)
	}
	info.State = jetstream.StreamState{FirstSeq: 13, LastSeq: 12}
	if got := queue.BacklogFrom(3, info); got != (model.Backlog{LastSequence: 12, AckFloor: 12}) {
		t.Errorf("empty: %+v", got)
	}
}

// A later message that is done must not hide an earlier one that is not.
func TestAckFloorIsNotOverstated(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	release := make(chan struct{})
	l := ledger{verdict: func(r model.Reservation, _ int) error {
		select {
		case <-release:
			return nil
		default:
		}
		if r.ID[0] == 'b' {
			return outage()
		}
		return nil
	}}
	for _, name := range []string{"a", "b", "c", "d"} {
		check.Must(t, f.Publish(t.Context(), some(name, 1)))
	}
	before := check.Value(f.Backlog(t.Context()))(t)
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{MaxOrders: 1})
	check.Eventually(t, "only b is left", func() bool {
		backlog := check.Value(f.Backlog(t.Context()))(t)
		check.Need(t, backlog.AckFloor <= before.LastSequence-3,
			"the floor passed an order that waits: %+v, before: %+v", backlog, before)
		return backlog.Messages == 1 && backlog.AckFloor == before.LastSequence-3
	})
	close(release)
	if after := drained(t, f.Queue); after.AckFloor != before.LastSequence ||
		after.LastSequence != before.LastSequence || after.Age != 0 {
		t.Errorf("all is done: %+v, before: %+v", after, before)
	}
}

func TestUseAfterClose(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	check.Must(t, f.Ping(t.Context()))
	for range 2 {
		f.Close(t.Context())
	}
	if err := f.Ping(t.Context()); model.CodeOf(err) != model.CodeUnavailable {
		t.Errorf("Ping: %v", err)
	}
	check.Is(t, "Publish", f.Publish(t.Context(), some("a", 1)), model.ErrUnknownOutcome)
	if err := f.Consume(t.Context(), (&ledger{}).persist, queue.ConsumeOptions{}); err == nil {
		t.Error("Consume: no error")
	}
	if stream, err := f.js.Stream(t.Context(), f.orders); err != nil || stream.CachedInfo().State.Msgs != 0 {
		t.Errorf("stream: %v", err)
	}
}

// An order is published under two ids: both messages are handed out (the database recognises it) and acknowledged.
func TestRepeatedMessageIsHandedOutAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *queue.Options) { o.Duplicates = 100 * time.Millisecond })
	check.Must(t, f.Publish(t.Context(), some("a", 3)))
	stream := check.Value(f.js.Stream(t.Context(), f.orders))(t)
	raw := check.Value(stream.GetMsg(t.Context(), stream.CachedInfo().State.LastSeq))(t)
	id := raw.Header.Get(jetstream.MsgIDHeader)
	check.Need(t, id != "", "the message has no id")
	// Within the window nothing happens, after it the message is there twice.
	check.Eventually(t, "the window is over", func() bool {
		ack := check.Value(f.js.Publish(t.Context(), f.subject, raw.Data, jetstream.WithMsgID(id)))(t)
		return !ack.Duplicate
	})
	l := handOut(t, f.Queue)
	for id, times := range l.seen() {
		check.Equal(t, "times that order "+id+" was handed out", times, 2)
	}
}

// An order that cannot be stored leaves the message that it shares: it is its voucher's backlog alone.
func TestWhatCannotBeStoredIsSetApart(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	var all []model.Reservation
	for _, id := range []string{"slow", "quick", "a.b", "a.b.c", "a-b"} {
		all = append(all, of(id, "first", 3)...)
	}
	all[1].Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	check.Must(t, f.Publish(t.Context(), all))
	before := f.backlogOf(t, "never")
	check.That(t, before.Messages == 1 && before.AckFloor == before.LastSequence-1,
		"the message may carry orders of any voucher: %+v", before)
	check.Equal(t, "likewise", f.backlogOf(t, "a.b").AckFloor, before.AckFloor)

	var ill atomic.Bool
	ill.Store(true)
	l := ledger{verdict: func(r model.Reservation, _ int) error {
		if r.VoucherID == "slow" && ill.Load() {
			return model.Unavailable("not now", nil)
		}
		return nil
	}}
	var moved atomic.Int64
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{Observe: func(d queue.Delivery) { moved.Add(int64(d.Moved)) }})
	for _, id := range []string{"quick", "a.b", "never", model.AnyVoucher} {
		check.Eventually(t, id+" has no backlog", func() bool { return f.backlogOf(t, id).Messages == 0 })
		if got := f.backlogOf(t, id); got.AckFloor < before.LastSequence || got.Age != 0 {
			t.Errorf("%s: %+v", id, got)
		}
	}
	check.Eventually(t, "the one that waits is old", func() bool {
		got := f.backlogOf(t, "slow")
		check.Need(t, got.Messages == 1 && got.AckFloor == 0, "%+v", got)
		return got.Age > 100*time.Millisecond
	})
	f.lie(t, map[string]uint64{".=slow": 1})
	if got := check.Value(f.Waiting(t.Context()))(t); !maps.Equal(got, map[string]int64{"slow": 1}) {
		t.Errorf("%v wait", got)
	}
	ill.Store(false)
	drained(t, f.Queue)
	check.Equal(t, "messages whose orders were moved", moved.Load(), 1)
	for i, want := range all {
		want.Sequence = before.LastSequence // though it came again in another message
		got := slices.DeleteFunc(slices.Concat(l.calls...), func(r model.Reservation) bool { return r.ID != want.ID })
		check.That(t, len(got) > 0 && len(got) == 1 == (want.VoucherID != "slow"), "order %d was handed out %d times",
			i, len(got))
		for _, r := range got {
			check.That(t, reflect.DeepEqual(r, want), "order %d arrived as %+v, want %+v", i, r, want)
		}
	}
}

// An order from behind a rebuild's barrier waits for it: it goes to the end, with a new sequence, wherever it lies.
func TestWhatWaitsForARebuildKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	check.Must(t, f.Publish(t.Context(), append(of("v1", "behind", 2), of("v2", "beside", 1)...)))
	check.Must(t, f.Publish(t.Context(), of("v1", "ill", 1)))
	second := check.Value(f.Backlog(t.Context()))(t).LastSequence
	var ill atomic.Bool
	ill.Store(true)
	l := ledger{verdict: func(r model.Reservation, times int) error {
		switch {
		case strings.HasPrefix(r.ID, "ill") && ill.Load():
			return model.Unavailable("not now", nil)
		case r.VoucherID == "v1" && r.Sequence <= second:
			return model.Unavailable("a rebuild is under way", model.ErrCopyReplaced)
		}
		return nil
	}}
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{})
	check.Eventually(t, "the shared messages are consumed", func() bool {
		return f.backlogOf(t, "v2").Messages == 0
	})
	f.lie(t, map[string]uint64{".=v1": 1})
	ill.Store(false)
	drained(t, f.Queue)
	l.handedOut(t, 4)
}

func TestWhatCannotBeMovedComesAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	stream := check.Value(f.js.Stream(t.Context(), f.orders))(t)
	full := stream.CachedInfo().Config
	full.MaxMsgs = 2
	check.Must(t, check.ErrorOf(f.js.UpdateStream(t.Context(), full)))
	for _, id := range []string{"v1", "v2"} {
		check.Must(t, f.Publish(t.Context(), of(id, "first", 1)))
	}
	var ill atomic.Bool
	ill.Store(true)
	l := ledger{verdict: func(model.Reservation, int) error {
		if ill.Load() {
			return model.Unavailable("not now", nil)
		}
		return nil
	}}
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{})
	check.Eventually(t, "it is tried", func() bool { return f.log.Has("level=WARN", "cannot be moved") })
	f.lie(t, map[string]uint64{"": 2})
	ill.Store(false)
	drained(t, f.Queue)
	l.handedOut(t, 2)
}

// One question names every voucher that has messages of its own, and counts apart those that all share.
func TestVouchersThatWaitAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	named := func(want map[string]int64) {
		t.Helper()
		if got := check.Value(f.Waiting(t.Context()))(t); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	named(map[string]int64{})
	for _, below := range []string{".=slow", ".=a~b", ".=a~b", ".=a~b~c", ".=a-b", ".=~~~", ""} {
		f.stored(t, below, text(model.OrderID("x", "slow"), "u"))
	}
	named(map[string]int64{"slow": 1, "a.b": 2, "a.b.c": 1, "a-b": 1, "...": 1, model.AnyVoucher: 1})
	if got := f.backlogOf(t, model.AnyVoucher); got.Messages != 1 || got.AckFloor != got.LastSequence-1 || got.Age < 0 {
		t.Errorf("what all share: %+v", got)
	}
	for id, want := range map[string]model.Backlog{"a.b": {Messages: 3}, "a.b.c": {Messages: 2}, "never": {Messages: 1, AckFloor: 6}} {
		got := f.backlogOf(t, id)
		if want.AckFloor > 0 {
			want.AckFloor += got.LastSequence - 7
		}
		check.That(t, got.Messages == want.Messages && got.AckFloor == want.AckFloor, "%s: %+v, want %+v", id, got,
			want)
	}
}

// A floor is told while orders come, are isolated and go, and never passes one that waits.
func TestFloorOfAVoucherIsNotOverstated(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	l := ledger{verdict: func(r model.Reservation, times int) error {
		if r.VoucherID == "a" && r.Sequence%2 == 0 && times < 3 {
			return model.Unavailable("not now", nil)
		}
		return nil
	}}
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{})
	done := make(chan error, 1)
	go func() {
		var failed error
		for i := range 150 {
			failed = errors.Join(failed, f.Publish(t.Context(),
				append(of("a", fmt.Sprint("a", i), 1), of("b", fmt.Sprint("b", i), 1)...)))
		}
		done <- failed
	}()
	stream := check.Value(f.js.Stream(t.Context(), f.orders))(t)
	for running := true; running; {
		select {
		case err := <-done:
			check.Must(t, err)
			running = false
		default:
		}
		b := f.backlogOf(t, "a")
		check.Need(t, b.AckFloor <= b.LastSequence, "the floor is beyond the end: %+v", b)
		for _, subject := range []string{f.subject, f.subject + ".=a"} {
			raw, err := stream.GetMsg(t.Context(), 1, jetstream.WithGetMsgSubject(subject))
			if err != nil {
				continue
			}
			waiting, _ := queue.Decode(raw.Data, raw.Sequence)
			for _, r := range waiting {
				check.That(t, r.Sequence > b.AckFloor, "an order of message %d waits in %s below the floor of %+v",
					r.Sequence, subject, b)
			}
		}
	}
	drained(t, f.Queue)
	l.handedOut(t, 300)
}

// What a dead worker had in hand goes to another after AckWait. The others go on with all else at once.
func TestNobodyWaitsForADeadWorker(t *testing.T) {
	t.Parallel()
	for wait, left := range map[time.Duration]int64{300 * time.Millisecond: 0, time.Hour: 1} {
		f := newFixture(t, func(o *queue.Options) { o.AckWait = wait })
		check.Must(t, f.Publish(t.Context(), some("a", 2)))
		worker := check.Value(f.js.Consumer(t.Context(), f.orders, "worker"))(t)
		check.Must(t, check.ErrorOf(worker.Next(jetstream.FetchMaxWait(check.Deadline)))) // and dies
		check.Must(t, f.Publish(t.Context(), some("b", 3)))
		var l ledger
		var again atomic.Int64
		observe := func(d queue.Delivery) { again.Add(int64(d.Again)) }
		consume(t, f.Queue, l.persist, queue.ConsumeOptions{Observe: observe})
		check.Eventually(t, "what the dead has in hand is left", func() bool {
			return check.Value(f.Backlog(t.Context()))(t).Messages == left
		})
		l.handedOut(t, 5-2*int(left))
		check.Eventually(t, "the redelivery is counted", func() bool { return again.Load() >= 1-left })
	}
}

// While another instance fetches, this one fetches nothing, and gives back nothing; it fetches as soon as it is needed.
func TestAnInstanceRestsWhileAnotherFetches(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	var asked, needed atomic.Int64
	var l ledger
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{Rest: func() bool { asked.Add(1); return needed.Load() == 0 }})
	check.Must(t, f.Publish(t.Context(), some("a", 2)))
	check.Eventually(t, "it was asked again and again", func() bool { return asked.Load() > 5 })
	worker := check.Value(f.js.Consumer(t.Context(), f.orders, "worker"))(t)
	check.Equal(t, "messages that were fetched", check.Value(worker.Info(t.Context()))(t).Delivered.Consumer, 0)
	needed.Store(1)
	drained(t, f.Queue)
	l.handedOut(t, 2)
}

// Acknowledged messages that a full disk kept are neither backlog nor in a floor's way, and one start removes them.
func TestConsumedIsWhatLiesBelowTheFloor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	check.Must(t, f.js.DeleteStream(t.Context(), f.orders))
	// A stream that keeps what is acknowledged stands for one whose removals fail.
	stream := check.Value(f.js.CreateStream(t.Context(),
		jetstream.StreamConfig{Name: f.orders, Subjects: []string{f.subject}}))(t)
	worker := check.Value(stream.CreateConsumer(t.Context(),
		jetstream.ConsumerConfig{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy}))(t)
	for i := range 5 {
		check.Must(t, f.Publish(t.Context(), of("v0", fmt.Sprintf("m%d", i), 1)))
		message := check.Value(worker.Next())(t)
		check.Must(t, message.DoubleAck(t.Context()))
	}
	consumed := model.Backlog{LastSequence: 5, AckFloor: 5}
	check.Equal(t, "everything is consumed: the backlog", check.Value(f.Backlog(t.Context()))(t), consumed)
	check.Equal(t, "that of the voucher", f.backlogOf(t, "v0"), consumed)

	check.Must(t, f.Publish(t.Context(), of("v1", "next", 1)))
	for what, got := range map[string]model.Backlog{"the backlog": check.Value(f.Backlog(t.Context()))(t), "that of its voucher": f.backlogOf(t, "v1")} {
		check.That(t, got.Messages > 0 && got.AckFloor == 5 && got.LastSequence == 6, "one message waits: %s is %+v",
			what, got)
	}

	_, err := f.tryOpen(t, func(o *queue.Options) { o.Alone = true })
	check.That(t, err != nil, "the stream stays as it is: %v", err)
	check.Equal(t, "messages that are left", check.Value(stream.Info(t.Context()))(t).State.Msgs, 1)
}

// What is pending of a voucher are the messages that carry its orders, while other vouchers are sold on.
func TestPendingOfAVoucherIsItsOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	check.Must(t, f.Publish(t.Context(), append(of("a", "a1", 1), of("b", "b1", 1)...)))
	for i := range queue.MaxRead - 1 {
		check.Must(t, f.Publish(t.Context(), of("b", fmt.Sprint("b", i), 1)))
	}
	pending := func(voucherID string, want int64) {
		t.Helper()
		b := check.Value(f.PendingOf(t.Context(), voucherID))(t)
		check.Equal(t, "messages of "+voucherID, b.Messages, want)
		all := f.backlogOf(t, voucherID)
		check.That(t, (b.Age > 0) == (want > 0) && b.AckFloor == all.AckFloor && b.LastSequence == all.LastSequence,
			"%s: %+v, %+v", voucherID, b, all)
	}
	pending("a", 1)
	pending("b", queue.MaxRead)
	pending("c", 0)
	check.Must(t, f.Publish(t.Context(), of("b", "more", 1)))
	pending("c", 1) // which is not read any more, and may carry some
}

// Groups arrive on a server that takes none whole in one message, and what is too large by itself holds up nothing.
func TestWhatIsTooLargeTogetherIsDivided(t *testing.T) {
	t.Parallel()
	url := testserver.NATS(t, "max_payload: 16KB").URL()
	f := onServer(t, queue.Options{URL: url})
	f.js, f.Queue = plain(t, url), f.open(t, nil)
	check.Must(t, f.Publish(t.Context(), some("a", queue.MaxOrders)))
	check.Must(t, f.Ping(t.Context()))
	check.Must(t, check.ErrorOf(f.js.Publish(t.Context(), f.subject, bytes.Repeat([]byte("x"), 16<<10-100))))
	l := ledger{verdict: func(_ model.Reservation, times int) error {
		if times == 1 {
			return model.Unavailable("not now", nil) // it is isolated, with all others of the call
		}
		return nil
	}}
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{})
	drained(t, f.Queue)
	l.handedOut(t, queue.MaxOrders)
	all := letters(t, f.Queue)
	check.That(t, len(all) == 1 && len(all[0].Raw) > 4000 && strings.Contains(all[0].Reason, "of 16284 bytes"),
		"letters: %+v", all)

	events := check.Value(queue.OpenEvents(t.Context(), queue.EventOptions{
		URL: url, Stream: "EVENTS", Deployment: f.options.Deployment, Log: f.log.Logger(),
	}))(t)
	t.Cleanup(events.Close)
	long := `{"description":"` + strings.Repeat("x", 16<<10) + `"}`
	done := check.Value(events.Publish(t.Context(),
		[]model.Event{
			{ID: 1, Type: "voucher.changed", Subject: "v1", Data: long},
			{ID: 2, Type: "order.paid", Subject: "o1", Data: "{}"},
		}))(t)
	check.Equal(t, "events that are published", done, 2)
	check.That(t, f.log.Has("level=ERROR", "without its data"), "nobody says that an event was shortened")
}
