package queue_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/queue"
)

func TestPoisonTakesNobodyDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	good := text("fine-1.v1", "u1")
	cases := []struct {
		body, reason string
		persisted    int // good orders in it
		letters      int
	}{
		{`{"v":1,"orders":[` + good + `,{"id":7},` + text("fine-2.v1", "u2") + `]}`, "cannot be read", 2, 1},
		{`{"v":1,"orders":[` + text("fine-3.v1", "u3") + `,` + text("no-voucher", "u4") + `,` + text("x.v1", "u 5") + `]}`, "names no voucher", 1, 2},
		{`{"v":1,"orders":[` + text(strings.Repeat("x", 80)+".v1", "u") + `]}`, "names no voucher", 0, 1},
		{`{"v":1,"orders":[{"id":"a.v1","user":"u","epoch":1,"price":1,"currency":"CNY"}]}`, "lacks its epoch, time", 0, 1},
		{`{"v":0,"orders":[` + good + `]}`, "version 0, known is 1", 0, 1},
		{`{"v":1,"orders":[]}`, "no orders", 0, 1},
		{`{"v":1,"orders":null}`, "no orders", 0, 1},
		{`not JSON at all`, "cannot be read", 0, 1},
		{"", "cannot be read", 0, 1},
		{"null", "version 0", 0, 1},
	}
	persisted, buried := 0, 0
	check.Must(t, f.Publish(t.Context(), some("before", 500)))
	for _, c := range cases {
		check.Must(t, check.ErrorOf(f.js.Publish(t.Context(), f.subject, []byte(c.body))))
		persisted, buried = persisted+c.persisted, buried+c.letters
	}
	check.Must(t, f.Publish(t.Context(), some("after", 500)))
	handOut(t, f.Queue).handedOut(t, persisted+1000)
	all := letters(t, f.Queue)
	check.Equal(t, "dead letters", len(all), buried)
	for _, c := range cases {
		found := false
		for _, letter := range all {
			found = found || letter.Reservation == nil && strings.Contains(letter.Reason, c.reason) &&
				(strings.Contains(c.body, string(letter.Raw)) || c.body == string(letter.Raw))
		}
		check.That(t, found, "no letter says %q about %q", c.reason, c.body)
	}
	check.That(t, f.log.Has("level=ERROR", "dead letters"), "a dead letter is not an error in the log")
}

// A message of a later version is left for a worker that knows it, and holds up no other.
func TestMessageOfALaterVersionWaitsForANewerWorker(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	check.Must(t, check.ErrorOf(f.js.Publish(t.Context(), f.subject+".=v1",
		[]byte(`{"v":3,"orders":"in another way"}`))))
	var l ledger
	stop := consume(t, f.Queue, l.persist, queue.ConsumeOptions{Workers: 1})
	check.Must(t, f.Publish(t.Context(), some("a", 3)))
	check.Eventually(t, "the others are persisted", func() bool { return len(l.seen()) == 3 })
	check.Eventually(t, "the log says so", func() bool { return f.log.Has("level=WARN", "later version") })
	stop()
	wantLetters(t, f.Queue, 0)
	b := f.backlogOf(t, "v1")
	check.That(t, b.Messages == 1 && b.AckFloor < b.LastSequence-1, "the backlog of its voucher: %+v", b)
}

func TestWhatCannotBeBuriedStays(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	check.Must(t, f.js.DeleteStream(t.Context(), f.dead))
	check.Must(t, check.ErrorOf(f.js.Publish(t.Context(), f.subject, []byte("garbage"))))
	var l ledger
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{})
	drained(t, f.Queue) // the worker has put the stream back
	all := letters(t, f.Queue)
	check.That(t, len(all) == 1 && string(all[0].Raw) == "garbage", "letters: %+v", all)
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	ctx := t.Context()
	// An operator may delete their stream: there are none then, and they are stored all the same.
	check.Must(t, f.js.DeleteStream(ctx, f.dead))
	wantLetters(t, f.Queue, 0)
	check.Must(t, f.js.DeleteStream(ctx, f.dead))
	all := some("a", 3)
	all[1].ID, all[1].VoucherID = "x..odd.id.", ".odd.id." // dots where a subject must not have them
	for i := range all {
		all[i].Sequence = uint64(40 + i)
		for _, reason := range []string{"UNPROCESSABLE", "again"} {
			check.Must(t, f.Bury(ctx, model.DeadLetter{Reason: reason, Reservation: &all[i]}))
		}
	}
	raw := bytes.Repeat([]byte{0xff}, 3000)
	check.Must(t, f.Bury(ctx, model.DeadLetter{Reason: "raw", Raw: raw}))
	check.Must(t, f.Bury(ctx, model.DeadLetter{Reason: "raw", Raw: raw}))

	found := letters(t, f.Queue)
	check.Need(t, len(found) == 4, "%d letters, want 4: what is buried again is one letter", len(found))
	for i, letter := range found[:3] {
		if letter.Reason != "UNPROCESSABLE" || letter.Reservation == nil || *letter.Reservation != all[i] ||
			letter.At.IsZero() {
			t.Errorf("letter %d: %+v, want %+v", i, letter, all[i])
		}
	}
	check.That(t, bytes.Equal(found[3].Raw, raw) && found[3].Reservation == nil, "the raw letter: %+v", found[3])

	buried, err := f.Buried(ctx)
	if check.Must(t, err); !maps.Equal(buried, map[string]bool{all[0].ID: true, all[1].ID: true, all[2].ID: true}) {
		t.Errorf("buried: %v", buried)
	}

	one, err := f.DeadLetter(ctx, found[1].Sequence)
	check.That(t, err == nil && one.Reservation.ID == all[1].ID, "DeadLetter: %+v, %v", one, err)
	check.Must(t, f.RemoveDeadLetter(ctx, found[1].Sequence))
	wantLetters(t, f.Queue, 3)
	for name, call := range map[string]func(uint64) error{
		"show":   func(n uint64) error { _, err := f.DeadLetter(ctx, n); return err },
		"remove": func(n uint64) error { return f.RemoveDeadLetter(ctx, n) },
	} {
		for _, sequence := range []uint64{found[1].Sequence, 0, 4711} {
			if err := call(sequence); model.CodeOf(err) != model.CodeNotFound {
				t.Errorf("%s %d: %v, want NOT_FOUND", name, sequence, err)
			}
		}
	}
	// A replayed order that fails again is a letter again.
	check.Must(t, f.Bury(ctx, model.DeadLetter{Reason: "once more", Reservation: &all[1]}))
	wantLetters(t, f.Queue, 4)
	stop := errors.New("enough")
	if err := f.DeadLetters(ctx, func(model.DeadLetter) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("DeadLetters: %v, want the error of yield", err)
	}
	// What is not ours is shown as it is.
	check.Must(t, check.ErrorOf(f.js.Publish(ctx, "seckill."+f.options.Deployment+".dead.x", []byte("scribble"))))
	if all := letters(t, f.Queue); len(all) != 5 || string(all[4].Raw) != "scribble" {
		t.Errorf("letters: %+v", all)
	}
}

// The layout is a promise to instances of another version and to what waits in the stream during an upgrade.
func TestLayout(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	all := some("a", 2)
	all[1].Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	check.Must(t, f.Publish(t.Context(), all))
	stream := check.Value(f.js.Stream(t.Context(), f.orders))(t)
	raw := check.Value(stream.GetMsg(t.Context(), stream.CachedInfo().State.LastSeq))(t)
	want := `{"v":1,"orders":[{"id":"a-000000.v0","user":"u:a.0","epoch":1,"created":1700000000000000,"price":1000,"currency":"CNY"},` +
		`{"id":"a-000001.v0","user":"u:a.1","epoch":2,"created":1700000000000001,"price":1001,"currency":"CNY",` +
		`"trace":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}]}`
	check.That(t, json.Valid(raw.Data) && string(raw.Data) == want, "a message is\n%s, want\n%s", raw.Data, want)
}

// Whatever lies in the stream, decoding answers for all of it: with orders that make sense, and the rest as it is.
func FuzzDecode(f *testing.F) {
	order := text("a.v1", "u")
	for _, seed := range []string{
		"", "null", "{}", "[]", `{"v":1}`, `{"v":1,"orders":[]}`, `{"v":1,"orders":[` + order + `]}`,
		`{"v":1,"orders":[` + order + `,null,7,{}]}`, `{"v":1,"orders":{}}`, `{"v":"1","orders":[` + order + `]}`,
		`{"v":1,"orders":[` + order + `]} trailing`, `{"v":1e0,"orders":[` + order + `]}`, strings.Repeat("[", 20_000),
		`{"v":1,"orders":[{"id":"a.v1","user":"u","epoch":1e400,"created":1,"price":1,"currency":"CNY"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		good, flaws := queue.Decode(body, 7)
		check.Need(t, len(good)+flaws > 0, "nothing is said about %q", body)
		for _, r := range good {
			voucher, ok := model.VoucherOf(r.ID)
			if !ok || voucher != r.VoucherID || !model.ValidUserID(r.UserID) || r.Sequence != 7 || r.Price < 0 ||
				r.Status != model.OrderProcessing || r.CreatedAt.Unix() < 0 {
				t.Fatalf("%q became %+v", body, r)
			}
		}
	})
}

func TestOversizeIsNotRead(t *testing.T) {
	t.Parallel()
	body := `{"v":1,"orders":[` + text("a.v1", "u") + `]` + strings.Repeat(" ", 600<<10) + `}`
	good, flaws := queue.Decode([]byte(body), 1)
	check.That(t, len(good) == 0 && flaws == 1, "%d orders, %d flaws", len(good), flaws)
}
