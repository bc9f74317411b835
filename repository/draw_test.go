package repository_test

import (
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/draw"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

type lottery struct {
	life

	draws *repository.Draws
}

func lotteryOf(l life) lottery { return lottery{l, repository.NewDraws(l.db, paymentWindow)} }

func (l lottery) toDraw(t testing.TB, stock int64) model.Voucher {
	t.Helper()
	return l.voucher(t, model.VoucherFields{Stock: stock, Allocation: model.ByDraw})
}

func (l lottery) enters(t testing.TB, voucherID, userID string) (model.Entry, error) {
	t.Helper()
	answer := check.Value(l.draws.Enter(t.Context(), []model.Entering{{VoucherID: voucherID, UserID: userID}}))(t)[0]
	return answer.Entry, answer.Err
}

func (l lottery) over(t testing.TB, voucherID string) {
	t.Helper()
	begin := time.Now().UTC().Add(-2 * time.Hour)
	l.exec(t, "UPDATE vouchers SET begin_at = ?, end_at = ?, revision = revision + 1 WHERE id = ?", begin,
		begin.Add(time.Hour), voucherID)
}

// drawn takes the steps of a draw that are left, up to so many servings of that size each, and returns the order.
func (l lottery) drawn(t testing.TB, voucherID string, size, servings int) (order []model.Drawn) {
	t.Helper()
	state := check.Value(l.draws.Close(t.Context(), voucherID))(t)
	var users []string
	var leaves []draw.Hash
	check.Must(t, l.draws.Entries(t.Context(), voucherID, func(userID string, nonce []byte) error {
		users, leaves = append(users, userID), append(leaves, draw.Leaf(voucherID, nonce, userID))
		return nil
	}))
	check.Equal(t, "entries", int64(len(users)), state.Entries)
	root := draw.Root(voucherID, leaves)
	check.Must(t, l.draws.SetRoot(t.Context(), voucherID, root[:]))
	seed, _ := draw.Seed(state.Secret, state.Beacon, state.Value)
	for _, i := range draw.Order(seed, root, leaves) {
		order = append(order, model.Drawn{UserID: users[i], Leaf: leaves[i]})
	}
	from := int(state.Position)
	for range servings {
		next := order[from:min(from+size, len(order))]
		served := int(check.Value(l.draws.Serve(t.Context(), voucherID, int64(from), next))(t))
		check.Equal(t, "served", served, from+len(next))
		again := check.Value(l.draws.Serve(t.Context(), voucherID, int64(from), next))(t)
		check.Equal(t, "served again", int(again), served)
		if from = served; from == len(order) {
			break
		}
	}
	return order
}

// A user has one entry until the sale is over; none is taken too early, or of a voucher that is paused or absent.
func TestEntries(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, life life, _ model.OrderMode) {
		l := lotteryOf(life)
		v := l.toDraw(t, 1)
		first := check.Value(l.enters(t, v.ID, "alice"))(t)
		again := check.Value(l.enters(t, v.ID, "alice"))(t)
		check.That(t, first == again && first.Status == model.EntryEntered && aboutNow(first.EnteredAt), "%+v and %+v",
			first, again)
		leaf := draw.Leaf(v.ID, check.Value(hex.DecodeString(first.Nonce))(t), "alice")
		check.Equal(t, "the leaf", first.Leaf, hex.EncodeToString(leaf[:]))
		check.Equal(t, "looked at", check.Value(l.draws.Entry(t.Context(), v.ID, "alice"))(t), first)
		wantCode(t, check.ErrorOf(l.draws.Entry(t.Context(), v.ID, "bob")), model.CodeNotFound)
		proof := check.Value(l.draws.Proof(t.Context(), v.ID, false))(t)
		check.That(t, proof.Entries == 1 && len(proof.Commitment) == 64 && proof.Secret == "" && proof.Root == "" &&
			proof.ClosedAt == nil, "%+v", proof)
		check.Equal(t, "what remains", check.Value(l.vouchers.Get(t.Context(), v.ID))(t).Remaining, 1)

		soon := l.voucher(t, model.VoucherFields{
			Stock: 1, BeginAt: time.Now().Add(time.Hour),
			EndAt: time.Now().Add(2 * time.Hour), Allocation: model.ByDraw,
		})
		plain := l.onSale(t, 1)
		paused := l.toDraw(t, 1)
		check.Value(l.vouchers.Patch(t.Context(), paused.ID, model.VoucherPatch{State: new(model.VoucherPaused)}))(t)
		answers := check.Value(l.draws.Enter(t.Context(), []model.Entering{
			{VoucherID: soon.ID, UserID: "bob"},
			{VoucherID: soon.ID, UserID: "carl", Early: true},
			{VoucherID: "none", UserID: "bob"},
			{VoucherID: plain.ID, UserID: "bob"},
			{VoucherID: paused.ID, UserID: "bob"},
			{VoucherID: v.ID, UserID: "bob"},
			{VoucherID: v.ID, UserID: "bob"},
		}))(t)
		for i, want := range []model.Code{
			model.CodeNotStarted, model.CodeNotStarted, model.CodeNotFound, model.CodeUnavailable, model.CodePaused, "",
			"",
		} {
			if want == "" {
				check.That(t, answers[i].Err == nil && answers[i].Entry == answers[5].Entry, "%d: %+v", i, answers[i])
			} else {
				wantCode(t, answers[i].Err, want)
			}
		}
		wantCode(t, check.ErrorOf(l.draws.Close(t.Context(), v.ID)), model.CodeInternal) // it is not over
		l.over(t, v.ID)
		wantCode(t, check.ErrorOf(l.enters(t, v.ID, "carl")), model.CodeEnded)
		check.Value(l.draws.Close(t.Context(), v.ID))(t)
		l.exec(t, "UPDATE vouchers SET end_at = ? WHERE id = ?", time.Now().UTC().Add(time.Hour), v.ID)
		wantCode(t, check.ErrorOf(l.enters(t, v.ID, "carl")), model.CodeEnded) // by whatever clock: it is closed
		check.Equal(t, "entries", check.Value(l.draws.Proof(t.Context(), v.ID, false))(t).Entries, 2)
	})
}

// As many as there are units get an order in the drawn order, once, wherever the drawing stops and goes on.
func TestDraw(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, life life, _ model.OrderMode) {
		l := lotteryOf(life)
		for name, stock := range map[string]int64{"more entries": 3, "as many": 8, "more units": 20, "none": 0} {
			v := l.toDraw(t, stock)
			for n := range 8 {
				check.Must(t, check.ErrorOf(l.enters(t, v.ID, user(n))))
			}
			wantCode(t, check.ErrorOf(l.draws.Leaves(t.Context(), v.ID, false, "", 3)), model.CodeConflict)
			l.over(t, v.ID)
			order := l.drawn(t, v.ID, 2, 2)
			check.Equal(t, "the order of another instance", fmt.Sprint(l.drawn(t, v.ID, 3, 9)), fmt.Sprint(order))
			winners := int(min(stock, 8))
			l.balanced(t, v.ID, int64(winners))
			for place, one := range order {
				entry := check.Value(l.draws.Entry(t.Context(), v.ID, one.UserID))(t)
				want, position := model.EntryWon, 0
				if place >= winners {
					want, position = model.EntryWaiting, place-winners+1
				}
				check.Equal(t, fmt.Sprint(name, ": place ", place), fmt.Sprint(entry.Status, entry.Position),
					fmt.Sprint(want, position))
				if want == model.EntryWon {
					made := check.Value(l.orders.Get(t.Context(), entry.OrderID))(t)
					check.That(t, made.Status == model.OrderUnpaid && made.UserID == one.UserID &&
						made.ExpiresAt.Sub(*made.UnpaidAt) == paymentWindow, "%+v", made)
				}
			}
			if winners == 3 { // a unit that comes back is for who is next, and who leaves has lost
				last := order[7].UserID
				check.Must(t, l.leave(t.Context(), v.ID, last))
				check.Equal(t, "who left", check.Value(l.draws.Entry(t.Context(), v.ID, last))(t).Status,
					model.EntryLost)
				won := check.Value(l.draws.Entry(t.Context(), v.ID, order[0].UserID))(t)
				l.cancels(t, order[0].UserID, won.OrderID)
				check.Equal(t, "who is next", check.Value(l.draws.Entry(t.Context(), v.ID, order[3].UserID))(t).Status,
					model.EntryWon)
				l.balanced(t, v.ID, 3)
				kept := func() bool { return check.Value(l.draws.Report(t.Context(), v.ID))(t).OrderKept }
				check.Equal(t, "the order was kept", kept(), true)
				l.exec(t, "UPDATE draw_places SET user_id = 'nobody' WHERE voucher_id = ? AND place = 3", v.ID)
				check.Equal(t, "the order was kept, but for a winner who was not drawn", kept(), false)
				l.exec(t, "UPDATE draw_places SET user_id = ? WHERE voucher_id = ? AND place = 3", order[2].UserID,
					v.ID)
				l.exec(t, "UPDATE orders SET created_at = ? WHERE voucher_id = ? AND user_id = ?",
					time.Now().UTC().Add(time.Hour), v.ID, order[1].UserID)
				check.Equal(t, "the order was kept, but for one who came later", kept(), false)
			}
			proof := check.Value(l.draws.Proof(t.Context(), v.ID, false))(t)
			var list []string
			page := check.Value(l.draws.Leaves(t.Context(), v.ID, false, "", 3))(t)
			for list = page.Items; page.NextCursor != ""; list = append(list, page.Items...) {
				page = check.Value(l.draws.Leaves(t.Context(), v.ID, false, page.NextCursor, 3))(t)
			}
			check.Must(t, draw.Verify(proof, list))
			check.Equal(t, "winners", proof.Winners, int64(winners))
			for _, due := range check.Value(l.draws.Due(t.Context()))(t) {
				check.That(t, due.VoucherID != v.ID, "it is to be drawn again")
			}
		}
	})
}

// What is closed, or was entered, has its rules; what was not may become a draw, and none.
func TestChangesOfADraw(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		l := lotteryOf(lifeOf(f))
		v := f.onSale(t, 1)
		patch := func(p model.VoucherPatch) error { return check.ErrorOf(f.vouchers.Patch(t.Context(), v.ID, p)) }
		wantCode(t, check.ErrorOf(l.draws.Proof(t.Context(), v.ID, true)), model.CodeNotFound)
		check.Must(t, patch(model.VoucherPatch{Allocation: new(model.ByDraw)}))
		before := check.Value(l.draws.Proof(t.Context(), v.ID, false))(t)
		check.Must(t, patch(model.VoucherPatch{Allocation: new(model.FirstCome)}))
		wantCode(t, check.ErrorOf(l.draws.Proof(t.Context(), v.ID, true)), model.CodeNotFound)
		check.Must(t, patch(model.VoucherPatch{Allocation: new(model.ByDraw)}))
		check.Equal(t, "the proof", check.Value(l.draws.Proof(t.Context(), v.ID, false))(t), before)
		check.Must(t, check.ErrorOf(l.enters(t, v.ID, "alice")))
		wantCode(t, patch(model.VoucherPatch{Allocation: new(model.FirstCome)}), model.CodeConflict)
		wantCode(t, patch(model.VoucherPatch{Groups: &model.Groups{"gold"}}), model.CodeConflict)
		later := time.Now().Add(5 * time.Hour)
		check.Must(t, patch(model.VoucherPatch{EndAt: &later}))
		l.over(t, v.ID)
		check.Value(l.draws.Close(t.Context(), v.ID))(t)
		wantCode(t, patch(model.VoucherPatch{EndAt: &later}), model.CodeConflict)
		check.Must(t, patch(model.VoucherPatch{Title: new("still drawn"), State: new(model.VoucherArchived)}))
		for _, admin := range []bool{false, true} { // it is not drawn yet, and what was public stays public
			wantCode(t, check.ErrorOf(l.draws.Leaves(t.Context(), v.ID, admin, "", 1)), model.CodeConflict)
		}
		check.Equal(t, "the commitment of an archived one",
			check.Value(l.draws.Proof(t.Context(), v.ID, false))(t).Commitment, before.Commitment)
		check.Equal(t, "due, although archived", len(check.Value(l.draws.Due(t.Context()))(t)), 1)
		check.Equal(t, "balanced", check.Value(f.vouchers.Audit(t.Context(), v.ID))(t).Balanced, true)
		f.exec(t, "DELETE FROM draw_entries WHERE voucher_id = ?", v.ID)
		check.Equal(t, "balanced without an entry", check.Value(f.vouchers.Audit(t.Context(), v.ID))(t).Balanced, false)
		f.exec(t, "UPDATE vouchers SET state = 'draft' WHERE id = ?", v.ID)
		wantCode(t, check.ErrorOf(l.draws.Proof(t.Context(), v.ID, false)), model.CodeNotFound)
	})
}

// TestValueOfABeacon: it is entered once, behind the published root, and until then the draw waits and is not due.
func TestValueOfABeacon(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		l := lotteryOf(lifeOf(f))
		v := l.voucher(t, model.VoucherFields{Stock: 1, Allocation: model.ByDraw, Beacon: "lottery"})
		enter := func(voucherID, value string, want model.Code) string {
			t.Helper()
			proof, err := l.draws.SetValue(t.Context(), voucherID, value, "boss")
			check.That(t, (err == nil) == (want == "") && (err == nil || model.CodeOf(err) == want), "%q: %v, want %q",
				value, err, want)
			return proof.Value
		}
		due := func() []model.DrawState { return check.Value(l.draws.Due(t.Context()))(t) }
		enter("none", "7", model.CodeNotFound)
		enter(l.onSale(t, 1).ID, "7", model.CodeNotFound)
		enter(l.toDraw(t, 1).ID, "7", model.CodeConflict)
		for _, user := range []string{"alice", "bob", "carl"} {
			check.Must(t, check.ErrorOf(l.enters(t, v.ID, user)))
		}
		wantCode(t, check.ErrorOf(f.vouchers.Patch(t.Context(), v.ID, model.VoucherPatch{Beacon: new("another")})),
			model.CodeConflict)
		enter(v.ID, "7", model.CodeConflict)
		l.over(t, v.ID)
		check.Equal(t, "due until its root is published", len(due()), 1)
		check.Value(l.draws.Close(t.Context(), v.ID))(t)
		enter(v.ID, "7", model.CodeConflict)
		l.drawn(t, v.ID, 0, 0)
		check.Equal(t, "due while it waits", len(due()), 0)
		for _, none := range []string{"", "  ", "7\n11"} {
			enter(v.ID, none, model.CodeValidation)
		}
		for range 2 {
			check.Equal(t, "the value", enter(v.ID, " 7 11 ", ""), "7 11")
		}
		enter(v.ID, "7 12", model.CodeConflict)
		check.That(t, len(due()) == 1 && due()[0].Overdue < 30*time.Minute, "due from its value on: %+v", due())
		entries := check.Value(l.log.List(t.Context(), model.AdminLogQuery{Actor: "boss"}))(t).Items
		check.That(t, len(entries) == 1 && entries[0].Action == model.ActionBeacon && entries[0].Subject == v.ID,
			"log %+v", entries)
		l.drawn(t, v.ID, 9, 9)
		leaves := check.Value(l.draws.Leaves(t.Context(), v.ID, false, "", 9))(t).Items
		proof := check.Value(l.draws.Proof(t.Context(), v.ID, false))(t)
		check.Must(t, draw.Verify(proof, leaves))
		check.That(t, proof.Algorithm == draw.WithBeacon && proof.Beacon == "lottery" && proof.Value == "7 11", "%+v", proof)
	})
}

// An entry that was promised is in the closed list, whoever closes it when.
func TestNoEntryIsForgotten(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		l := lotteryOf(lifeOf(f))
		v := l.toDraw(t, 3)
		var promised sync.Map
		var entered atomic.Int64
		closed := make(chan model.DrawState, 1)
		check.Volley(40, func(n int) {
			if n == 20 {
				l.over(t, v.ID)
				closed <- check.Value(l.draws.Close(t.Context(), v.ID))(t)
				return
			}
			if _, err := l.enters(t, v.ID, user(n)); err == nil {
				promised.Store(user(n), true)
				entered.Add(1)
			} else {
				wantCode(t, err, model.CodeEnded)
			}
		})
		state := <-closed
		check.Equal(t, "entries", state.Entries, entered.Load())
		check.Must(t, l.draws.Entries(t.Context(), v.ID, func(userID string, _ []byte) error {
			_, ok := promised.LoadAndDelete(userID)
			check.That(t, ok, "%s is in the list and was refused", userID)
			return nil
		}))
		promised.Range(func(user, _ any) bool { t.Errorf("%v was forgotten", user); return true })
	})
}

// Who bought in the instant in which a voucher became a draw keeps that order, and wins no second one.
func TestAnOwnerWinsNoSecondOrder(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		l := lotteryOf(lifeOf(f))
		v := f.onSale(t, 5)
		bought := l.bought(t, v.ID, "owner")
		f.exec(t, "UPDATE orders SET created_at = ? WHERE id = ?", time.Now().UTC().Add(-time.Hour), bought.ID)
		f.exec(t, "UPDATE vouchers SET allocation = 'draw' WHERE id = ?", v.ID)
		f.exec(t, "INSERT INTO draws (voucher_id, secret) VALUES (?, ?)", v.ID, draw.Random(draw.SecretSize))
		wantCode(t, check.ErrorOf(l.enters(t, v.ID, "owner")), model.CodeAlreadyOrdered)
		f.exec(t, "INSERT INTO draw_entries (voucher_id, user_id, nonce, entered_at) VALUES (?, 'owner', ?, ?)", v.ID,
			draw.Random(draw.NonceSize), time.Now().UTC())
		f.exec(t, "UPDATE draws SET entries = 1 WHERE voucher_id = ?", v.ID)
		check.Must(t, check.ErrorOf(l.enters(t, v.ID, "other")))
		l.over(t, v.ID)
		l.drawn(t, v.ID, 9, 9)
		f.balanced(t, v.ID, 2)
		check.Equal(t, "the owner's order", check.Value(l.draws.Entry(t.Context(), v.ID, "owner"))(t).OrderID,
			bought.ID)
	})
}

// An order of a place has the instant at which the voucher's row was had, so that orders have the places' order.
func TestOrdersOfPlacesAreInTheirOrder(t *testing.T) {
	t.Parallel()
	// In SQLite nobody waits within a transaction.
	f := newFixture(t, store{dialect: "mysql", strategy: model.StockConditional})
	l := lotteryOf(lifeOf(f))
	sold := f.withWaitlist(t, 2)
	first, second := l.bought(t, sold.ID, "owner"), l.bought(t, sold.ID, "another")
	l.lapse(t, first, second)
	l.joins(t, sold.ID, "alice", "bob")
	drawn := l.toDraw(t, 2)
	for _, user := range []string{"alice", "bob"} {
		check.Must(t, check.ErrorOf(l.enters(t, drawn.ID, user)))
	}
	l.over(t, drawn.ID)
	last := l.drawn(t, drawn.ID, 1, 1)[1:]
	for _, row := range []struct {
		name, voucherID, userID string
		serve                   func(hold func()) error // while a transaction of others has the voucher's row
	}{
		{"a place on a waitlist", sold.ID, "alice", func(hold func()) error {
			hold()
			return check.ErrorOf(l.orders.Expire(t.Context(), []string{first.ID}))
		}},
		// An UPDATE that finds nothing to change lets the row go, and the reading after it waits.
		{"a place of an expiry that finds users waiting", sold.ID, "bob", func(hold func()) error {
			far := f.wired(t, onceOn("SELECT vouchers.*", func(*wire) verdict { hold(); return pass }))
			return check.ErrorOf(far.orders.Expire(t.Context(), []string{second.ID}))
		}},
		{"a place in a draw", drawn.ID, last[0].UserID, func(hold func()) error {
			hold()
			return check.ErrorOf(l.draws.Serve(t.Context(), drawn.ID, 1, last))
		}},
	} {
		tx := f.begin(t)
		hold := func() { execTx(t, tx, "UPDATE vouchers SET version = version + 1 WHERE id = ?", row.voucherID) }
		served := make(chan error, 1)
		go func() { served <- row.serve(hold) }()
		check.Eventually(t, "it waits for the row", func() bool { return f.blocked(t, row.voucherID) })
		var had time.Time
		check.Must(t, tx.QueryRowContext(t.Context(), "SELECT NOW(6)").Scan(&had))
		check.Must(t, tx.Commit())
		check.Must(t, <-served)
		made := l.owns(t, row.voucherID, row.userID)
		check.That(t, made.CreatedAt.After(had), "%s: the order is of %s, and the row was had at %s", row.name,
			made.CreatedAt, had)
	}
}
