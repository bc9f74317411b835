package repository_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

func (f *fixture) mode(t testing.TB, want model.OrderMode) {
	t.Helper()
	check.Equal(t, "the order mode", check.Value(f.modes.Read(t.Context()))(t).Mode, want)
}

// TestAdopt: an instance decides how a new database is sold from, and nobody does once there is a voucher.
func TestAdopt(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		f.mode(t, model.ModeSync)
		for _, mode := range []model.OrderMode{model.ModeAsync, model.ModeAsync, model.ModeSync, model.ModeAsync} {
			got := check.Value(f.modes.Adopt(t.Context(), mode))(t)
			check.That(t, got.Mode == mode && regexp.MustCompile(`^[a-z0-9]{16}$`).MatchString(got.Deployment),
				"adopted %+v, want %s", got, mode)
		}
		f.switchTo(t, model.ModeSync)
		f.onSale(t, 1)
		got := check.Value(f.modes.Adopt(t.Context(), model.ModeAsync))(t)
		check.Equal(t, "the mode adopted with a voucher", got.Mode, model.ModeSync)
		f.mode(t, model.ModeSync)
		wantCode(t, check.ErrorOf(f.modes.Adopt(t.Context(), "semisync")), model.CodeValidation)
	})
}

func TestAdoptWaitsForTheFirstVoucher(t *testing.T) {
	t.Parallel()
	near := newFixture(t, stores()[0])
	done := make(chan model.ModeRecord, 1)
	far := near.through(t, onceOn("COMMIT", func(*wire) verdict {
		go func() {
			got, err := near.modes.Adopt(t.Context(), model.ModeAsync)
			check.That(t, err == nil, "%v", err)
			done <- got
		}()
		check.Eventually(t, "adoption waits", func() bool { return near.blocked(t, "order_mode") })
		return pass
	}))
	far.onSale(t, 1)
	check.Equal(t, "the mode adopted while a voucher was being made", (<-done).Mode, model.ModeSync)
}

// An open hot copy is closed, whenever its sale was: its mode may come back. One that was never made begins no epoch.
func TestModeChange(t *testing.T) {
	t.Parallel()
	overAsyncDialects(t, func(t *testing.T, f *fixture) {
		v, over, never := f.onSale(t, 1), f.onSale(t, 1), f.onSale(t, 1)
		f.opened(t, v.ID)
		f.opened(t, over.ID)
		check.Must(t, check.ErrorOf(f.vouchers.Patch(t.Context(), over.ID,
			model.VoucherPatch{
				BeginAt: new(time.Now().Add(-72 * time.Hour)),
				EndAt:   new(time.Now().Add(-48 * time.Hour)),
			})))
		before := map[string]model.EpochRecord{v.ID: f.record(t, v.ID), over.ID: f.record(t, over.ID)}
		for range 2 {
			check.Must(t, f.modes.Change(t.Context(), model.ModeSync))
			f.mode(t, model.ModeSync)
			for id, was := range before {
				if r := f.record(t, id); r.Open() || r.Epoch != was.Epoch+1 || r.OpenEpoch != was.OpenEpoch ||
					r.Progress != nil || r.Revision <= was.Revision {
					t.Errorf("%+v became %+v", was, r)
				}
			}
			check.Equal(t, "the epoch of a voucher without a hot copy", f.record(t, never.ID).Epoch, 0)
		}
		f.asIn(t, model.ModeSync)
		check.Must(t, f.place(t, order(t, v.ID, "alice")).Err)
		check.Must(t, f.modes.Change(t.Context(), model.ModeAsync))
		f.mode(t, model.ModeAsync)
		wantCode(t, f.place(t, order(t, never.ID, "alice")).Err, model.CodeUnavailable)
		wantCode(t, f.modes.Change(t.Context(), ""), model.CodeValidation)
		audit := check.Value(f.vouchers.Audit(t.Context(), v.ID))(t)
		check.Equal(t, "the mode that the audit names", audit.Mode, model.ModeAsync)
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		limits := &repository.Limits{DB: f.db}
		settings := model.Limits{
			User: model.Rate{Events: 20, Per: time.Second},
			Addr: model.Rate{Events: 1000, Per: time.Second},
		}
		holds := func(want model.Limits) {
			t.Helper()
			record := check.Value(limits.Read(t.Context()))(t)
			got := record.Set.Of(settings)
			check.That(t, got == want && record.Deployment != "", "%v of %q, want %v", got, record.Deployment, want)
		}
		holds(settings)
		hourly, off := model.Rate{Events: 1_000_000_000, Per: time.Hour}, model.Rate{}
		for _, step := range []struct {
			patch model.LimitsPatch
			want  model.Limits
		}{
			{model.LimitsPatch{User: &hourly}, model.Limits{User: hourly, Addr: settings.Addr}},
			{model.LimitsPatch{Addr: &off}, model.Limits{User: hourly}},
			{model.LimitsPatch{}, model.Limits{User: hourly}},
			{model.LimitsPatch{User: &off, Addr: &hourly}, model.Limits{Addr: hourly}},
		} {
			record := check.Value(limits.Change(t.Context(), step.patch))(t)
			check.Equal(t, "changed to", record.Set.Of(settings), step.want)
			holds(step.want)
		}
	})
}

// However much buyers write beside purchases, they hold few connections at once, and purchases have the rest.
func TestBuyersShareFewConnections(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		share := map[string]int32{sqldb.MySQL: 4, sqldb.SQLite: 1}[f.store.dialect]
		var inside, done atomic.Int32
		entered, end := make(chan struct{}, 100), make(chan struct{})
		var flood sync.WaitGroup
		for n := range cap(entered) {
			ctx := model.OfBuyers(t.Context(), true)
			work := func(*gorm.DB) error {
				inside.Add(1)
				entered <- struct{}{}
				<-end
				done.Add(1)
				return nil
			}
			flood.Go(func() {
				switch {
				case n%3 == 0 || f.store.dialect == sqldb.SQLite: // whose one writer the others would keep
					_ = f.db.Read(ctx, "read for a buyer", work)
				case n%3 == 1:
					_ = f.db.Write(ctx, "write for a buyer", work)
				default:
					_ = f.db.WriteRepeatable(ctx, "write for a buyer",
						func(tx *gorm.DB, _ bool) error { return work(tx) })
				}
			})
		}
		for range share {
			check.Receive(t, "a buyer's connection", entered)
		}
		var together, purchases sync.WaitGroup
		others := map[string]int{sqldb.MySQL: 8, sqldb.SQLite: 4}[f.store.dialect]
		together.Add(others)
		for range others { // all at once
			purchases.Go(func() {
				check.Must(t, f.db.Read(t.Context(), "purchase",
					func(db *gorm.DB) error { together.Done(); together.Wait(); return db.Exec("SELECT 1").Error }))
			})
		}
		purchases.Wait()
		check.Equal(t, "of buyers are inside", inside.Load(), share)
		impatient, leave := context.WithCancel(model.OfBuyers(t.Context(), false))
		time.AfterFunc(time.Millisecond, leave)
		wantCode(t, f.db.Write(impatient, "write for a buyer",
			func(*gorm.DB) error { t.Error("it has found a connection"); return nil }), model.CodeUnavailable)
		close(end)
		flood.Wait()
		check.Equal(t, "of the patient ones came to their turn", done.Load(), int32(cap(entered)))
	})
}

// A vain or repeated request is answered while the voucher's row, the order's and the place's are locked.
func TestWhatChangesNothingWaitsForNoRow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, stores()[0])
	l := lifeOf(f)
	v := f.withWaitlist(t, 2)
	owned, closed := l.bought(t, v.ID, "owner"), l.bought(t, v.ID, "former")
	started := l.started(t, owned)
	l.cancels(t, "former", closed.ID)
	tx := f.begin(t)
	for _, table := range []string{"vouchers", "orders", "waitlist"} {
		execTx(t, tx, "SELECT * FROM "+table+" FOR UPDATE")
	}
	ctx, enough := context.WithTimeout(t.Context(), check.Deadline)
	defer enough()
	for name, c := range map[string]struct {
		do   func() error
		want model.Code
	}{
		"leave without a place":      {func() error { return l.leave(ctx, v.ID, "nobody") }, model.CodeNotFound},
		"leave with an order":        {func() error { return l.leave(ctx, v.ID, "owner") }, model.CodeAlreadyOrdered},
		"cancel another one's order": {func() error { _, _, err := l.cancel(ctx, "nobody", owned.ID); return err }, model.CodeNotFound},
		"cancel again":               {func() error { _, _, err := l.cancel(ctx, "former", closed.ID); return err }, ""},
		"pay another one's order":    {func() error { _, _, err := l.payments.Start(ctx, owned.ID, "nobody", newID(t)); return err }, model.CodeNotFound},
		"pay what is closed":         {func() error { _, _, err := l.payments.Start(ctx, closed.ID, "former", newID(t)); return err }, model.CodeIllegalState},
	} {
		if err := c.do(); c.want == "" {
			check.Must(t, err)
		} else {
			check.Equal(t, name, model.CodeOf(err), c.want)
		}
	}
	check.Equal(t, "the payment that is under way", l.started(t, owned).ID, started.ID)
}

// Each change writes its event in its own transaction, in order; a refused one, or one without listeners, writes none.
func TestEvents(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, deaf *fixture) {
		l, events := listened(t, deaf)
		silent := deaf.onSale(t, 1)
		check.Must(t, deaf.place(t, order(t, silent.ID, "zoe")).Err)

		v := l.onSale(t, 2)
		check.Must(t, check.ErrorOf(l.vouchers.Patch(t.Context(), v.ID, model.VoucherPatch{Title: new("y")})))
		check.Must(t, check.ErrorOf(l.vouchers.ChangeStock(t.Context(), v.ID, model.StockChange{Stock: new(int64(3))},
			model.Idempotency{})))
		paid, code := l.paid(t, v.ID, "alice")
		check.Must(t, check.ErrorOf(l.orders.Redeem(t.Context(), code.Hash, atTill("boss"))))
		lapsed := l.bought(t, v.ID, "bob")
		late := l.started(t, lapsed)
		l.lapse(t, lapsed)
		check.Must(t, check.ErrorOf(l.orders.Expire(t.Context(), []string{lapsed.ID})))
		check.Must(t, check.ErrorOf(l.payments.Settle(t.Context(), money(t, late))))
		canceled := l.bought(t, v.ID, "carol")
		for range 2 { // the second changes nothing
			l.cancels(t, "carol", canceled.ID)
		}
		wantIllegal(t, errorOf2(l.refunds.Request(t.Context(), canceled.ID, newID(t), "boss", model.RefundAsk{})), model.OrderCanceled)
		failed := check.Value(l.orders.Fail(t.Context(), reservation(t, v.ID, "dave", 1, 1),
			model.ReasonUnprocessable))(t)

		told := map[string][]string{}
		at, none, err := events.After(t.Context(), "nats:S", 100)
		check.That(t, err == nil && len(none) == 0, "without positions there are %d events, %v", len(none), err)
		all := lined(t, events, "nats:S")
		for _, event := range all {
			told[event.Subject] = append(told[event.Subject], event.Type)
			var data map[string]any
			check.Must(t, json.Unmarshal([]byte(event.Data), &data))
			if status, ok := data["status"].(string); ok && "order."+status != event.Type || data["code"] != nil ||
				!aboutNow(event.HappenedAt) {
				t.Errorf("%+v", event)
			}
		}
		for subject, want := range map[string][]string{
			v.ID:        {"voucher.create", "voucher.change", "voucher.stock"},
			paid.ID:     {"order.unpaid", "order.paid", "order.redeemed"},
			lapsed.ID:   {"order.unpaid", "order.expired", "order.refunded"},
			canceled.ID: {"order.unpaid", "order.canceled"},
			failed.ID:   {"order.failed"},
			silent.ID:   nil,
		} {
			check.That(t, slices.Equal(told[subject], want), "of %s it tells %v, want %v", subject, told[subject], want)
		}
		check.Equal(t, "subjects", len(told), 5)
		is := at
		is.Position = all[1].Position
		check.Must(t, events.Advance(t.Context(), at, is))
		for range 2 { // again: nothing
			check.Must(t, check.ErrorOf(events.Forget(t.Context())))
			check.Equal(t, "events left", l.number(t, "SELECT COUNT(*) FROM events"), int64(len(all)-2))
		}
	})
}

// A code whose time ends unused is told of once, and again where its time was made longer and has ended too.
func TestLapsesAreToldOnce(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		l, events := listened(t, f)
		hour := model.Window(time.Hour)
		v := l.voucher(t, model.VoucherFields{Stock: 9, ValidFor: hour})
		forGood := l.onSale(t, 1)
		unused, _ := l.paid(t, v.ID, "alice")
		fresh, _ := l.paid(t, v.ID, "bob")
		used, code := l.paid(t, v.ID, "carol")
		old, _ := l.paid(t, v.ID, "dave")
		check.Must(t, check.ErrorOf(l.orders.Redeem(t.Context(), code.Hash, atTill("boss"))))
		l.paid(t, forGood.ID, "alice")
		ago := func(age time.Duration, orders ...model.Order) {
			for _, o := range orders {
				at := time.Now().UTC().Add(-age)
				l.exec(t, "UPDATE orders SET paid_at = ? WHERE id = ?", at, o.ID)
				l.exec(t, "UPDATE order_instants SET at = ? WHERE instant = 'paid' AND order_id = ?", at, o.ID)
			}
		}
		told := func(what string, want ...string) {
			t.Helper()
			check.Must(t, l.orders.Lapse(t.Context()))
			check.Must(t, l.orders.Lapse(t.Context())) // again: nothing
			var got []string
			for _, event := range lined(t, events, "nats:S") {
				if event.Type == "order.lapsed" {
					got = append(got, event.Subject)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			check.That(t, slices.Equal(got, want), "%s: it tells of %v, want %v", what, got, want)
		}
		told("nothing has lapsed")
		ago(2*time.Hour, unused, used)
		ago(9*24*time.Hour, old)
		told("one has lapsed", unused.ID)
		check.Must(t, check.ErrorOf(l.orders.Unredeem(t.Context(), model.Undo{OrderID: used.ID, By: "boss", Reason: "x", Anytime: true})))
		told("a use that is undone too late", unused.ID, used.ID)
		l.exec(t, "UPDATE vouchers SET valid_for = ? WHERE id = ?", 3*int64(hour), v.ID)
		told("made longer", unused.ID, used.ID)
		l.exec(t, "UPDATE vouchers SET valid_for = 0, valid_until = ? WHERE id = ?", time.Now().UTC().Add(-time.Second), v.ID)
		told("made longer, and over", unused.ID, used.ID, unused.ID, fresh.ID, used.ID, old.ID)
	})
}

// listened is one more instance, whose events a stream gets from now on.
func listened(t testing.TB, f *fixture) (life, *repository.Events) {
	t.Helper()
	options := f.options
	options.Events = true
	l := lifeOf(openFixture(t, f.store, options))
	events := &repository.Events{DB: l.db, Stream: "nats:S"}
	check.Must(t, check.ErrorOf(events.Line(t.Context())))
	return l, events
}

// lined are the events that a receiver has not got.
func lined(t testing.TB, events *repository.Events, receiver string) []model.Event {
	t.Helper()
	check.Must(t, check.ErrorOf(events.Line(t.Context())))
	_, all, err := events.After(t.Context(), receiver, 1000)
	check.Must(t, err)
	return all
}

// A receiver gets what was committed since it was named, also what a slower transaction had begun before. A replay goes
// back and never ahead, and what was under way before it is not noted. Events last a week, and until the stream has them.
func TestEventsStandInLine(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		const one, other = "https://one.example/", "https://other.example/"
		insert := "INSERT INTO events (type, subject, happened_at, data) VALUES ('order.paid', ?, " + f.db.Dialect.Now + ", '{}')"
		early := &repository.Events{DB: f.db, URLs: []string{one}}
		check.Must(t, check.ErrorOf(early.Line(t.Context())))
		f.exec(t, insert, "a")
		check.Equal(t, "events for the first", len(lined(t, early, one)), 1)
		events := &repository.Events{DB: f.db, URLs: []string{one, other}, Stream: "nats:S"}
		if f.db.Dialect.Name == sqldb.MySQL {
			slow := f.begin(t)
			execTx(t, slow, insert, "b")
			f.exec(t, insert, "c")
			check.Equal(t, "events for one, while a transaction is open", len(lined(t, events, one)), 2)
			check.Must(t, slow.Commit())
		} else {
			f.exec(t, insert, "c")
			f.exec(t, insert, "b")
		}
		subjects := ""
		all := lined(t, events, one)
		for _, event := range all {
			subjects += event.Subject
		}
		check.Equal(t, "what one gets", subjects, "acb")
		check.Equal(t, "events for one that was named later", len(lined(t, events, other)), 2)
		was, _, err := events.After(t.Context(), one, 1)
		check.Must(t, err)
		is := was
		is.Position, is.Delivered, is.Stopped, is.LastAnswer = all[1].Position, 2, true, "410 Gone"
		check.Must(t, events.Advance(t.Context(), was, is))
		shown := func() (of [2]model.EventReceiver) {
			copy(of[:], check.Value(events.Receivers(t.Context()))(t).Items)
			return of
		}
		first := shown()[0]
		check.That(t, first.URL == one && first.Waiting == 1 && first.Delivered == 2 && first.Stopped &&
			first.LastAnswer == is.LastAnswer && aboutNow(*first.OldestAt), "of one it shows %+v", first)

		check.Equal(t, "a replay for nobody", model.CodeOf(events.Replay(t.Context(), "boss", time.Now(), "https://x/")),
			model.CodeValidation)
		check.Must(t, events.Replay(t.Context(), "boss", time.Now().Add(time.Hour), one)) // it only restarts
		check.That(t, !shown()[0].Stopped && shown()[0].Waiting == 1, "a restarted receiver is %+v", shown()[0])
		check.Must(t, events.Advance(t.Context(), is, was)) // of before the replay
		check.Equal(t, "events for one after it", len(lined(t, events, one)), 1)
		check.Must(t, events.Replay(t.Context(), "boss", time.Now().Add(-time.Hour), ""))
		check.Equal(t, "events for one again", len(lined(t, events, one)), 3)
		check.Equal(t, "events for the other again", len(lined(t, events, other)), 3)
		check.Equal(t, "replays that are logged", f.number(t, "SELECT COUNT(*) FROM admin_log WHERE action = 'events.replay'"), int64(2))

		f.exec(t, "UPDATE events SET happened_at = happened_at - "+map[string]string{
			sqldb.MySQL: "INTERVAL 8 DAY", sqldb.SQLite: "691200000000",
		}[f.db.Dialect.Name]+" WHERE subject <> 'b'")
		left := func(of *repository.Events, want int64) {
			t.Helper()
			check.Must(t, check.ErrorOf(of.Forget(t.Context())))
			check.Equal(t, "events left", f.number(t, "SELECT COUNT(*) FROM events"), want)
		}
		left(events, 2) // the stream, which was named later, has not got the other one that is old
		left(early, 1)  // without the stream a week is enough
	})
}

// TestIdempotencyKey: the first answer again, whatever happened since; another question under the key is a CONFLICT.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		asked := model.VoucherFields{
			Title: "T", Price: 1, Stock: 5, BeginAt: time.Now().Add(-time.Hour),
			EndAt: time.Now().Add(time.Hour),
		}
		key := model.Idempotency{Scope: "admin create", Key: "k 1 ", Fingerprint: "f"}
		first := check.Value(f.vouchers.Create(t.Context(), newID(t), asked, "", key))(t)
		second := check.Value(f.vouchers.Create(t.Context(), newID(t), asked, "", key))(t)
		same(t, first, second)
		for _, other := range []model.Idempotency{
			{Scope: key.Scope, Key: "k 1", Fingerprint: "f"}, // a blank makes a difference
			{Scope: key.Scope, Key: "K 1 ", Fingerprint: "f"},
			{Scope: "somebody else", Key: key.Key, Fingerprint: "f"},
			{},
		} {
			v := check.Value(f.vouchers.Create(t.Context(), newID(t), asked, "", other))(t)
			check.That(t, v.ID != first.ID, "%+v met %+v", other, key)
		}
		another := model.Idempotency{Scope: key.Scope, Key: key.Key, Fingerprint: "g"}
		wantCode(t, check.ErrorOf(f.vouchers.Create(t.Context(), newID(t), asked, "", another)), model.CodeConflict)
		check.Equal(t, "vouchers", f.number(t, "SELECT COUNT(*) FROM vouchers"), 5)

		// Stock: applied once, also by its answer.
		add := model.Idempotency{Scope: "stock", Key: "add", Fingerprint: "+2"}
		two := int64(2)
		changed := check.Value(f.vouchers.ChangeStock(t.Context(), first.ID, model.StockChange{Delta: &two}, add))(t)
		check.Must(t, f.place(t, order(t, first.ID, "alice")).Err)
		again := check.Value(f.vouchers.ChangeStock(t.Context(), first.ID, model.StockChange{Delta: &two}, add))(t)
		same(t, changed, again)
		// A CONFLICT is an answer, too: it stays even when the change would be possible by now.
		none := model.Idempotency{Scope: "stock", Key: "none", Fingerprint: "0"}
		for range 2 {
			wantCode(t, check.ErrorOf(f.vouchers.ChangeStock(t.Context(), first.ID,
				model.StockChange{Stock: new(int64(0))}, none)), model.CodeConflict)
			f.exec(t, "UPDATE orders SET status = 'canceled'")
			f.exec(t, "UPDATE vouchers SET remaining = stock WHERE id = ?", first.ID)
		}
		// What was refused for its form was not answered: it may be asked better.
		bad := model.Idempotency{Scope: "stock", Key: "bad", Fingerprint: "x"}
		wantCode(t, check.ErrorOf(f.vouchers.ChangeStock(t.Context(), first.ID,
			model.StockChange{Stock: new(int64(-1))}, bad)), model.CodeValidation)
		check.Must(t, check.ErrorOf(f.vouchers.ChangeStock(t.Context(), first.ID, model.StockChange{Stock: &two}, bad)))
	})
}

func same(t *testing.T, a, b model.Voucher) {
	t.Helper()
	one := check.Value(json.Marshal(a))(t)
	two := check.Value(json.Marshal(b))(t)
	check.That(t, string(one) == string(two) && a.Version == b.Version && a.CreatedAt.Equal(b.CreatedAt),
		"answers differ:\n%s\n%s", one, two)
}

func TestIdempotencyRace(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		other := openFixture(t, f.store, f.options)
		asked := model.VoucherFields{
			Title: "T", Price: 1, Stock: 5, BeginAt: time.Now().Add(-time.Hour),
			EndAt: time.Now().Add(time.Hour),
		}
		var id atomic.Value
		id.Store("")
		check.Volley(12, func(i int) {
			v, err := []*fixture{f, other}[i%2].vouchers.Create(t.Context(), newID(t), asked, "",
				model.Idempotency{Scope: "s", Key: "k", Fingerprint: "f"})
			if err != nil {
				t.Errorf("create: %v", err)
			} else if !id.CompareAndSwap("", v.ID) && id.Load() != v.ID {
				t.Errorf("created %s and %s", id.Load(), v.ID)
			}
		})
		n := f.number(t, "SELECT COUNT(*) FROM vouchers")
		check.Need(t, n == 1, "%d vouchers", n)
		made, _ := id.Load().(string)
		check.Volley(12, func(i int) {
			one := int64(1)
			v, err := []*fixture{f, other}[i%2].vouchers.ChangeStock(t.Context(), made, model.StockChange{Delta: &one},
				model.Idempotency{Scope: "s", Key: "k2", Fingerprint: "f"})
			check.That(t, err == nil && v.Stock == 6, "change: %+v, %v", v, err)
		})
		var won atomic.Int32
		check.Volley(6, func(i int) {
			_, err := f.vouchers.ChangeStock(t.Context(), made, model.StockChange{Stock: new(int64(10 + i))},
				model.Idempotency{Scope: "s", Key: "k3", Fingerprint: user(i)})
			if err == nil {
				won.Add(1)
			} else if model.CodeOf(err) != model.CodeConflict {
				t.Errorf("change: %v", err)
			}
		})
		check.Equal(t, "changes under one key", won.Load(), 1)
	})
}

func TestPurgeIdempotency(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		const age = 7 * 24 * time.Hour
		now := time.Now().UTC()
		asked := model.VoucherFields{Title: "T", Price: 1, Stock: 5, BeginAt: now.Add(-time.Hour), EndAt: now.Add(time.Hour)}
		create := func(key string) model.Voucher {
			v := check.Value(f.vouchers.Create(t.Context(), newID(t), asked, "",
				model.Idempotency{Scope: "s", Key: key, Fingerprint: "f"}))(t)
			return v
		}
		purge := func(want int64) {
			t.Helper()
			n, err := (&repository.Purges{DB: f.db}).PurgeIdempotency(t.Context(), age)
			check.That(t, n == want && err == nil, "%d purged, want %d: %v", n, want, err)
		}
		old, young, fresh := create("old"), create("young"), create("fresh")
		backdate := func(key string, by time.Duration) {
			f.exec(t, "UPDATE idempotency_keys SET created_at = ? WHERE idempotency_key = ?", now.Add(-by), []byte(key))
		}
		backdate("old", age+time.Minute)
		backdate("young", age-time.Minute)
		purge(1)
		purge(0)
		check.That(t, create("young").ID == young.ID && create("fresh").ID == fresh.ID,
			"a key that is not old was forgotten")
		check.That(t, create("old").ID != old.ID, "an old key is still there")

		// A CONFLICT is kept for as long.
		f.place(t, order(t, fresh.ID, "alice"))
		none, once := model.StockChange{Stock: new(int64(0))},
			model.Idempotency{Scope: "s", Key: "none", Fingerprint: "f"}
		wantCode(t, check.ErrorOf(f.vouchers.ChangeStock(t.Context(), fresh.ID, none, once)), model.CodeConflict)
		purge(0)

		const many = 2500
		var rows []string
		var times []any
		for i := range many {
			rows = append(rows, fmt.Sprintf("('many', 'k%d', 'f', '{}', ?)", i))
			times = append(times, now.Add(-age-time.Hour))
		}
		f.exec(t, "INSERT INTO idempotency_keys (scope, idempotency_key, fingerprint, answer, created_at) VALUES "+
			strings.Join(rows, ", "), times...)
		purge(many)
		check.Equal(t, "keys that are left", f.number(t, "SELECT COUNT(*) FROM idempotency_keys"), 4)

		indexes := "SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()" +
			" AND table_name = 'idempotency_keys' AND column_name = 'created_at' AND seq_in_index = 1"
		if f.store.dialect == "sqlite" {
			indexes = "SELECT COUNT(*) FROM pragma_index_list('idempotency_keys') AS list, pragma_index_info(list.name) AS part" +
				" WHERE part.name = 'created_at' AND part.seqno = 0"
		}
		check.Equal(t, "indexes of created_at, without which a purge reads the whole table", f.number(t, indexes), 1)
	})
}
