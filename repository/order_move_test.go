package repository_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

type life struct {
	*fixture

	payments *repository.Payments
	refunds  *repository.Refunds
	log      *repository.AdminLog
}

func lifeOf(f *fixture) life {
	return life{f, &repository.Payments{DB: f.db}, &repository.Refunds{DB: f.db}, &repository.AdminLog{DB: f.db}}
}

func overModes(t *testing.T, test func(t *testing.T, l life, mode model.OrderMode)) {
	t.Helper()
	for mode, open := range map[model.OrderMode]func(testing.TB, store) *fixture{model.ModeSync: newFixture, model.ModeAsync: newAsync} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			over(t, dialects(), open, func(t *testing.T, f *fixture) { test(t, lifeOf(f), mode) })
		})
	}
}

func (l life) bought(t testing.TB, voucherID, userID string) model.Order {
	t.Helper()
	outcome := l.place(t, order(t, voucherID, userID))
	check.Must(t, outcome.Err)
	return outcome.Order
}

func (l life) started(t testing.TB, o model.Order) model.Payment {
	t.Helper()
	payment, _, err := l.payments.Start(t.Context(), o.ID, o.UserID, newID(t))
	check.Must(t, err)
	return payment
}

// money is the notice that a payment has succeeded, with new ids and a new code.
func money(t testing.TB, p model.Payment) model.PaymentNotice {
	t.Helper()
	return model.PaymentNotice{
		PaymentID: p.ID, OrderID: p.OrderID, Succeeded: true, Amount: p.Amount, Currency: p.Currency,
		Code: newCode(t), RefundID: newID(t),
	}
}

func webhook(t testing.TB, n model.PaymentNotice, id string) model.PaymentNotice {
	t.Helper()
	digest := sha256.Sum256(fmt.Appendf(nil, "%s %v %d", n.PaymentID, n.Succeeded, n.Amount))
	n.Message = &model.WebhookMessage{ID: id, Digest: digest[:]}
	return n
}

func newCode(t testing.TB) model.SealedCode {
	t.Helper()
	hash := sha256.Sum256([]byte(rand.Text()))
	return model.SealedCode{Hash: hash[:], Sealed: []byte("sealed " + rand.Text())}
}

func (l life) paid(t testing.TB, voucherID, userID string) (model.Order, model.SealedCode) {
	t.Helper()
	o := l.bought(t, voucherID, userID)
	notice := money(t, l.started(t, o))
	return check.Value(l.payments.Settle(t.Context(), notice))(t).Order, notice.Code
}

func (l life) refunded(t testing.TB, orderID string) model.Refund {
	t.Helper()
	refund, _, err := l.refunds.Request(t.Context(), orderID, newID(t), "boss", model.RefundAsk{})
	check.Must(t, err)
	return refund
}

func (l life) lapse(t testing.TB, orders ...model.Order) {
	t.Helper()
	for _, o := range orders {
		l.exec(t, "UPDATE orders SET expires_at = created_at WHERE id = ?", o.ID)
	}
}

// steps is an order's history in short. Each move must begin where the last one ended, be legal, and be no earlier.
func (l life) steps(t testing.TB, orderID string) []string {
	t.Helper()
	detail := check.Value(l.orders.Detail(t.Context(), orderID))(t)
	var told []string
	for i, move := range detail.History {
		if i > 0 {
			before := detail.History[i-1]
			legal := slices.ContainsFunc(model.Transitions(),
				func(m model.Transition) bool { return m.From == before.To && m.To == move.To })
			check.That(t, move.From != nil && *move.From == before.To && legal && !move.At.Before(before.At),
				"order %s: %+v after %+v", orderID, move, before)
		}
		told = append(told, fmt.Sprintf("%s by %s", move.To, move.By))
	}
	last := detail.History[len(detail.History)-1]
	check.That(t, last.To == detail.Status, "order %s is %s, its history ends with %+v", orderID, detail.Status, last)
	return told
}

func wantIllegal(t testing.TB, err error, status model.OrderStatus) {
	t.Helper()
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeIllegalState || e.OrderStatus != status {
		t.Errorf("error %v, want ILLEGAL_STATE of an order that is %s", err, status)
	}
}

// A paid order gets its code, is used once and holds its unit; the history and the administrators' log have it all.
func TestPaidAndRedeemed(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		v := l.onSale(t, 2)
		o := l.bought(t, v.ID, "alice")
		payment := l.started(t, o)
		check.That(t, payment.Amount == o.Price && payment.Currency == o.Currency && payment.OrderID == o.ID,
			"payment %+v", payment)
		check.Equal(t, "the payment that is started again", l.started(t, o).ID, payment.ID)
		wantCode(t, errorOf2(l.payments.Start(t.Context(), o.ID, "bob", newID(t))), model.CodeNotFound)
		check.Must(t, l.payments.SetURL(t.Context(), payment.ID, "https://pay.example/1"))
		check.Equal(t, "its page", check.Value(l.payments.Get(t.Context(), payment.ID))(t).URL, "https://pay.example/1")

		notice := money(t, payment)
		got := check.Value(l.payments.Settle(t.Context(), notice))(t)
		check.That(t, got.Changed && got.Refund == nil && got.Order.Status == model.OrderPaid &&
			got.Order.PaidAt != nil && got.Order.SealedCode == string(notice.Code.Sealed), "receipt %+v", got)
		row := check.Value(l.orders.Get(t.Context(), o.ID))(t)
		check.That(t, row.PaidAt.Equal(*got.Order.PaidAt) && row.SealedCode == string(notice.Code.Sealed),
			"row %+v", row)
		wantCode(t, check.ErrorOf(l.orders.Redeem(t.Context(), newCode(t).Hash, atTill("boss"))), model.CodeNotFound)
		used := check.Value(l.orders.Redeem(t.Context(), notice.Code.Hash, atTill("boss")))(t)
		check.That(t, used.ID == o.ID && used.Status == model.OrderRedeemed && used.RedeemedAt != nil && used.Live(),
			"redeemed %+v", used)
		boss := model.Account{ID: "boss", Username: "The.Boss", Role: model.RoleAdmin, PasswordHash: "$x"}
		for _, by := range []string{"boss", "The.Boss"} {
			err := check.ErrorOf(l.orders.Redeem(t.Context(), notice.Code.Hash, atTill("other")))
			wantIllegal(t, err, model.OrderRedeemed)
			if told, ok := errors.AsType[*model.Error](err); !ok || told.RedeemedBy != by ||
				!told.RedeemedAt.Equal(*used.RedeemedAt) {
				t.Errorf("used before by %s: %+v", by, told)
			}
			if by == "boss" { // an account is told by its name
				check.Must(t, l.accounts.Create(t.Context(), boss))
			}
		}
		wantIllegal(t, errorOf2(l.refunds.Request(t.Context(), o.ID, newID(t), "boss", model.RefundAsk{})), model.OrderRedeemed)
		if got := l.place(t, order(t, v.ID, "alice")); model.CodeOf(got.Err) != model.CodeAlreadyOrdered {
			t.Errorf("a user who has redeemed an order bought again: %+v", got)
		}
		l.balanced(t, v.ID, 1)
		if told, want := l.steps(t, o.ID), []string{
			"unpaid by alice", "paid by provider",
			"redeemed by boss",
		}; !slices.Equal(told, want) {
			t.Errorf("history %v, want %v", told, want)
		}
		entry := check.Value(l.log.List(t.Context(), model.AdminLogQuery{Actor: "boss"}))(t).Items
		check.Need(t, len(entry) == 1 && entry[0].Action == model.ActionOrderRedeem && entry[0].Subject == o.ID,
			"log %+v", entry)
		var before, after model.Order
		check.Must(t, json.Unmarshal(entry[0].Before, &before))
		check.Must(t, json.Unmarshal(entry[0].After, &after))
		check.That(t, before.Status == model.OrderPaid && after.Status == model.OrderRedeemed && after.Code == "",
			"logged %+v, %+v", before, after)
	})
}

func atTill(by string) model.Till { return model.Till{By: by, Everywhere: true} }

// A code is good in its time, which grows but does not shrink once an order is paid, for tills of its redeemers alone.
func TestTimesAndPlacesOfCodes(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		now := time.Now().UTC().Truncate(time.Second)
		soon, early := now.Add(time.Hour), now.Add(-time.Hour)
		v := l.voucher(t, model.VoucherFields{Stock: 2, ValidFrom: &soon, ValidFor: model.Window(2 * time.Hour), Redeemers: model.Groups{"north", "south"}})
		patch := func(p model.VoucherPatch) error { return check.ErrorOf(l.vouchers.Patch(t.Context(), v.ID, p)) }
		check.Must(t, patch(model.VoucherPatch{ValidFor: new(model.Window(time.Hour))})) // nobody has paid
		o, code := l.paid(t, v.ID, "alice")
		redeem := func(groups model.Groups, place string) error {
			return check.ErrorOf(l.orders.Redeem(t.Context(), code.Hash, model.Till{By: "till", Groups: groups, Place: place}))
		}
		south := model.Groups{"east", "south"}
		wantCode(t, redeem(model.Groups{"east"}, ""), model.CodeNotEligible)
		wantCode(t, redeem(nil, "north"), model.CodeNotEligible)
		wantCode(t, redeem(south, "north"), model.CodeValidation)
		err := redeem(south, "")
		wantCode(t, err, model.CodeNotYetValid)
		refused, _ := errors.AsType[*model.Error](err)
		check.That(t, refused.ValidFrom.Equal(soon) && refused.ValidUntil.Equal(o.PaidAt.Add(time.Hour)), "%+v", refused.Validity)
		for _, shorter := range []model.VoucherPatch{
			{ValidFrom: new(new(soon.Add(time.Second)))}, {ValidUntil: new(new(soon.Add(time.Second)))}, {ValidFor: new(model.Window(time.Minute))},
		} {
			wantCode(t, patch(shorter), model.CodeConflict)
		}
		check.Must(t, patch(model.VoucherPatch{ValidFrom: new(&early), ValidFor: new(model.Window(3 * time.Hour))}))
		check.Must(t, redeem(south, ""))
		check.Equal(t, "its place", check.Value(l.orders.Detail(t.Context(), o.ID))(t).Uses[0].Place, "south")
		check.Must(t, check.ErrorOf(l.orders.Unredeem(t.Context(), model.Undo{OrderID: o.ID, By: "boss", Reason: "x", Anytime: true})))
		l.exec(t, "UPDATE vouchers SET valid_until = valid_from WHERE id = ?", v.ID)
		wantCode(t, redeem(south, ""), model.CodeExpired)
		check.Must(t, patch(model.VoucherPatch{ValidUntil: new((*time.Time)(nil))}))
		check.Must(t, redeem(model.Groups{"south", "north"}, "south"))
		wantCode(t, patch(model.VoucherPatch{ValidUntil: new(&soon)}), model.CodeConflict) // a used one may come back
	})
}

// A payment whose COMMIT is under way counts: the time that its buyer was told is not made shorter.
func TestAShorterTimeWaitsForPayments(t *testing.T) {
	t.Parallel()
	l := lifeOf(newFixture(t, stores()[0]))
	v := l.onSale(t, 1)
	o := l.bought(t, v.ID, "alice")
	payment := check.Value(l.db.SQL().BeginTx(t.Context(), nil))(t)
	check.Must(t, check.ErrorOf(payment.ExecContext(t.Context(), "UPDATE orders SET status = 'paid', paid_at = unpaid_at WHERE id = ?", o.ID)))
	patched := make(chan error, 1)
	go func() {
		patched <- check.ErrorOf(l.vouchers.Patch(t.Context(), v.ID, model.VoucherPatch{ValidFor: new(model.Window(time.Hour))}))
	}()
	check.Patiently(t, "the change waits, or is made", func() bool {
		return len(patched) > 0 || l.number(t, "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'") > 0
	})
	check.Must(t, payment.Commit())
	wantCode(t, <-patched, model.CodeConflict)
}

// A use is undone by who made it, for a while, or by an operator; the database has one live use of an order at the most. A
// used order is refunded only if that is said, and its unit leaves the stock.
func TestUses(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, mode model.OrderMode) {
		v := l.onSale(t, 2)
		o, code := l.paid(t, v.ID, "alice")
		undo := func(by, reason string, anytime bool) error {
			return check.ErrorOf(l.orders.Unredeem(t.Context(), model.Undo{OrderID: o.ID, By: by, Reason: reason, Anytime: anytime}))
		}
		redeem := func() { check.Must(t, check.ErrorOf(l.orders.Redeem(t.Context(), code.Hash, atTill("till")))) }
		wantIllegal(t, undo("till", "x", true), model.OrderPaid)
		redeem()
		use := "INSERT INTO uses (order_id, used_at, used_by) VALUES (?, (SELECT redeemed_at FROM orders WHERE id = ?), 'other')"
		check.That(t, sqldb.Duplicate(l.db.SQL().QueryRow(use, o.ID, o.ID).Err()), "a second live use is stored")
		for _, reason := range []string{"", " ", strings.Repeat("语", 201), "a\nb"} {
			wantCode(t, undo("till", reason, true), model.CodeValidation)
		}
		wantCode(t, undo("other", "not mine", false), model.CodeForbidden)
		check.Must(t, undo("till", strings.Repeat("语", 200), false))
		wantIllegal(t, undo("till", "x", false), model.OrderPaid)
		now := check.Value(l.orders.Get(t.Context(), o.ID))(t)
		check.That(t, now.Status == model.OrderPaid && now.RedeemedAt == nil && now.PaidAt.Equal(*o.PaidAt), "undone: %+v", now)
		redeem()
		if l.db.Dialect.Name == sqldb.SQLite {
			l.exec(t, "UPDATE uses SET used_at = used_at - 900000000")
		} else {
			l.exec(t, "UPDATE uses SET used_at = used_at - INTERVAL 15 MINUTE")
		}
		wantCode(t, undo("till", "too late", false), model.CodeForbidden)
		check.Must(t, undo("boss", "the wrong voucher", true))
		redeem()
		detail := check.Value(l.orders.Detail(t.Context(), o.ID))(t)
		check.Equal(t, "history", strings.Join(l.steps(t, o.ID)[2:], ", "),
			"redeemed by till, paid by till, redeemed by till, paid by boss, redeemed by till")
		check.Equal(t, "the reason", detail.History[5].Reason, "the wrong voucher")
		check.That(t, len(detail.Uses) == 3 && detail.Uses[0].UndoneBy == "till" && detail.Uses[1].UndoneAt != nil &&
			detail.Uses[1].Reason == "the wrong voucher" && detail.Uses[2].UndoneAt == nil && detail.Uses[2].By == "till", "uses %+v", detail.Uses)
		wantCode(t, undo("nobody", "x", false), model.CodeForbidden)

		_, refunded, err := l.refunds.Request(t.Context(), o.ID, newID(t), "boss", model.RefundAsk{Used: true})
		check.Must(t, err)
		check.That(t, refunded.WrittenOff(), "refunded %+v", refunded)
		wantIllegal(t, undo("boss", "x", true), model.OrderRefunded)
		l.balanced(t, v.ID, 0)
		after := check.Value(l.vouchers.Get(t.Context(), v.ID))(t)
		check.That(t, after.Stock == 1 && after.Remaining == 1 && after.WrittenOff == 1, "voucher %+v", after)
		check.Equal(t, "units of the outbox", l.number(t, "SELECT COUNT(*) FROM releases WHERE written_off"),
			map[model.OrderMode]int64{model.ModeAsync: 1}[mode])
		l.bought(t, v.ID, "alice")
		l.balanced(t, v.ID, 1)
	})
}

func TestRefundRequested(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, mode model.OrderMode) {
		v := l.onSale(t, 1)
		o, code := l.paid(t, v.ID, "alice")
		refund, refunded, err := l.refunds.Request(t.Context(), o.ID, newID(t), "boss", model.RefundAsk{})
		check.Must(t, err)
		if refund.Amount != o.Price || refund.Status != model.RefundPending || refund.Reason != model.RefundByAdmin ||
			refund.Actor != "boss" ||
			refunded.Status != model.OrderRefunded || refunded.ClosedAt == nil {
			t.Errorf("%+v, %+v", refund, refunded)
		}
		wantIllegal(t, errorOf2(l.refunds.Request(t.Context(), o.ID, newID(t), "boss", model.RefundAsk{})), model.OrderRefunded)
		wantIllegal(t, check.ErrorOf(l.orders.Redeem(t.Context(), code.Hash, atTill("boss"))), model.OrderRefunded)
		wantCode(t, errorOf2(l.refunds.Request(t.Context(), "1."+v.ID, newID(t), "boss", model.RefundAsk{})), model.CodeNotFound)
		l.balanced(t, v.ID, 0)
		list := l.outbox(t)
		check.That(t, (len(list) == 1) == (mode == model.ModeAsync) && len(list) <= 1, "outbox %v", list)
		again := l.bought(t, v.ID, "alice")
		wantIllegal(t, errorOf2(l.refunds.Request(t.Context(), again.ID, newID(t), "boss", model.RefundAsk{})), model.OrderUnpaid)

		due := check.Value(l.refunds.Due(t.Context(), 10))(t)
		check.Need(t, len(due) == 1 && due[0].ID == refund.ID && due[0].PaymentID == refund.PaymentID, "due %+v", due)
		check.Must(t, l.refunds.Retry(t.Context(), refund.ID, "the provider is away", time.Hour))
		check.Equal(t, "refunds due after a failed attempt", len(check.Value(l.refunds.Due(t.Context(), 10))(t)), 0)
		check.Must(t, l.refunds.Done(t.Context(), refund.ID))
		check.Must(t, l.refunds.GiveUp(t.Context(), refund.ID, "too late: it is done"))
		page := check.Value(l.refunds.List(t.Context(), model.RefundQuery{Status: model.RefundDone}))(t)
		check.That(t, len(page.Items) == 1 && page.Items[0].Attempts == 2 && page.Items[0].Error == "" &&
			page.Items[0].ClosedAt != nil, "done %+v", page.Items)
		// One that the provider has refused for good can be tried again.
		l.exec(t, "UPDATE refunds SET status = 'failed' WHERE id = ?", refund.ID)
		revived := l.refunded(t, o.ID)
		check.That(t, revived.ID == refund.ID && revived.Status == model.RefundPending &&
			len(check.Value(l.refunds.Due(t.Context(), 10))(t)) == 1, "tried again: %+v", revived)
		wantIllegal(t, errorOf2(l.refunds.Request(t.Context(), o.ID, newID(t), "boss", model.RefundAsk{})), model.OrderRefunded)
		check.Equal(t, "refunds given up", len(check.Value(l.refunds.List(t.Context(),
			model.RefundQuery{Status: model.RefundFailed}))(t).Items), 0)
	})
}

// TestWithdrawn: a buyer gives a paid order back within its voucher's time for that. No cool-down follows.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, mode model.OrderMode) {
		v := l.voucher(t, model.VoucherFields{
			Stock: 4, Withdrawal: model.Window(time.Hour), Cooldown: model.Window(time.Hour),
		})
		withdraw := func(o model.Order, user string) (bool, error) {
			return l.refunds.Withdraw(t.Context(), o.ID, newID(t), user)
		}
		o, code := l.paid(t, v.ID, "alice")
		wantCode(t, check.ErrorOf(withdraw(o, "bob")), model.CodeNotFound)
		for _, changes := range []bool{true, false} {
			check.Equal(t, "whether it is this call", check.Value(withdraw(o, "alice"))(t), changes)
		}
		wantIllegal(t, check.ErrorOf(l.orders.Redeem(t.Context(), code.Hash, atTill("boss"))), model.OrderRefunded)
		l.balanced(t, v.ID, 0)
		check.Equal(t, "units for the hot copy", len(l.outbox(t)), map[model.OrderMode]int{model.ModeAsync: 1}[mode])
		refunds := check.Value(l.refunds.List(t.Context(), model.RefundQuery{OrderID: o.ID}))(t).Items
		check.That(t, len(refunds) == 1 && refunds[0].Status == model.RefundPending && refunds[0].Amount == o.Price &&
			refunds[0].Reason == model.RefundWithdrawn && refunds[0].Actor == "alice", "%+v", refunds)
		check.Equal(t, "the log", len(check.Value(l.log.List(t.Context(), model.AdminLogQuery{Subject: o.ID}))(t).Items), 0)
		wantIllegal(t, check.ErrorOf(withdraw(l.bought(t, v.ID, "alice"), "alice")), model.OrderUnpaid)

		used, code := l.paid(t, v.ID, "bob")
		check.Must(t, check.ErrorOf(l.orders.Redeem(t.Context(), code.Hash, atTill("boss"))))
		wantIllegal(t, check.ErrorOf(withdraw(used, "bob")), model.OrderRedeemed)
		dealt, _ := l.paid(t, v.ID, "carl")
		l.refunded(t, dealt.ID)
		wantIllegal(t, check.ErrorOf(withdraw(dealt, "carl")), model.OrderRefunded)

		late, _ := l.paid(t, v.ID, "dora")
		never, _ := l.paid(t, l.onSale(t, 1).ID, "dora")
		for _, one := range []struct {
			model.Order
			until time.Time
		}{{late, *late.PaidAt}, {never, time.Time{}}} {
			l.exec(t, "UPDATE orders SET paid_at = ? WHERE id = ?", one.PaidAt.Add(-time.Hour), one.ID)
			refused, _ := errors.AsType[*model.Error](check.ErrorOf(withdraw(one.Order, "dora")))
			check.That(t, refused != nil && refused.Code == model.CodeWithdrawalOver && refused.Until.Equal(one.until),
				"%+v, want WITHDRAWAL_OVER with %s", refused, one.until)
		}
	})
}

// While the provider refuses a refund for good, the order says so and nothing else, whatever its status.
func TestMoneyThatIsNotBack(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		v := l.onSale(t, 2)
		reason := func(o model.Order) string { return check.Value(l.orders.Get(t.Context(), o.ID))(t).Reason }
		o, _ := l.paid(t, v.ID, "alice")
		refund := l.refunded(t, o.ID)
		check.Must(t, l.refunds.Retry(t.Context(), refund.ID, "the provider is away", time.Hour))
		check.Equal(t, "while it is tried", reason(o), "")
		for range 2 { // as when the answer was lost
			check.Must(t, l.refunds.GiveUp(t.Context(), refund.ID, "the account is closed"))
			check.Equal(t, "refused for good", reason(o), model.ReasonRefundFailed)
		}
		check.Must(t, errorOf2(l.refunds.Request(t.Context(), o.ID, newID(t), "boss", model.RefundAsk{})))
		check.Equal(t, "while it is tried again", reason(o), "")
		check.Must(t, l.refunds.GiveUp(t.Context(), refund.ID, "still"))
		check.Equal(t, "refused again", reason(o), model.ReasonRefundFailed)
		history := check.Value(l.orders.Detail(t.Context(), o.ID))(t).History
		check.Equal(t, "its last move", history[len(history)-1].Reason, model.RefundByAdmin)
		check.Must(t, errorOf2(l.refunds.Request(t.Context(), o.ID, newID(t), "boss", model.RefundAsk{})))
		check.Must(t, l.refunds.Done(t.Context(), refund.ID))
		check.Equal(t, "the money is back", reason(o), "")

		// What was paid twice is as much the buyer's.
		twice := l.bought(t, v.ID, "bob")
		first := l.started(t, twice)
		failed := money(t, first)
		failed.Succeeded = false
		check.Must(t, check.ErrorOf(l.payments.Settle(t.Context(), failed)))
		check.Must(t, check.ErrorOf(l.payments.Settle(t.Context(), money(t, l.started(t, twice)))))
		tooMany := check.Value(l.payments.Settle(t.Context(), money(t, first)))(t)
		check.Must(t, l.refunds.GiveUp(t.Context(), tooMany.Refund.ID, "the account is closed"))
		check.Equal(t, "paid twice, and not back", reason(twice), model.ReasonRefundFailed)
		check.Equal(t, "the order", check.Value(l.orders.Get(t.Context(), twice.ID))(t).Status, model.OrderPaid)
		again := l.refunded(t, twice.ID) // refunds the order, whose own money goes back
		check.Must(t, l.refunds.Done(t.Context(), again.ID))
		check.Equal(t, "the other money is not back", reason(twice), model.ReasonRefundFailed)
		check.Must(t, errorOf2(l.refunds.Request(t.Context(), twice.ID, newID(t), "boss", model.RefundAsk{})))
		check.Equal(t, "the other one is tried again", reason(twice), "")
	})
}

// elsewhere is the notice that so much of a payment went back by now, at the provider.
func elsewhere(t testing.TB, p model.Payment, refunded int64, disputed *bool) model.PaymentNotice {
	t.Helper()
	n := money(t, p)
	n.Moved, n.Refunded, n.Disputed = true, refunded, disputed
	return n
}

// What the provider gives back by itself belongs to the order that it paid, once, whoever reports it first.
func TestMoneyGoesBackElsewhere(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		v := l.onSale(t, 3)
		settle := func(n model.PaymentNotice) model.Receipt {
			t.Helper()
			return check.Value(l.payments.Settle(t.Context(), n))(t)
		}
		now := func(o model.Order) model.Order { return check.Value(l.orders.Get(t.Context(), o.ID))(t) }
		paying := func(o model.Order) model.Payment { return check.Value(l.payments.OfOrder(t.Context(), o.ID))(t)[0] }

		// A crowd tells of it, and an administrator asks for it: one refund, one unit.
		o, _ := l.paid(t, v.ID, "alice")
		whole := elsewhere(t, paying(o), o.Price, nil)
		check.Volley(8, func(n int) {
			notice, asked := whole, n == 0
			notice.RefundID = newID(t)
			var err error
			if asked {
				_, _, err = l.refunds.Request(t.Context(), o.ID, notice.RefundID, "boss", model.RefundAsk{})
			} else {
				_, err = l.payments.Settle(t.Context(), webhook(t, notice, fmt.Sprint("crowd ", n)))
			}
			check.That(t, err == nil || asked && model.CodeOf(err) == model.CodeIllegalState, "%d: %v", n, err)
		})
		check.Equal(t, "all is back", now(o).Status, model.OrderRefunded)
		check.Equal(t, "refunds of it", len(check.Value(l.refunds.List(t.Context(),
			model.RefundQuery{OrderID: o.ID}))(t).Items), 1)
		l.balanced(t, v.ID, 0)
		check.Equal(t, "asked again", paying(o).NextAt == nil, true)

		// A part is noted, an older message changes nothing, and the rest can be given back.
		o, _ = l.paid(t, v.ID, "bob")
		part := paying(o)
		check.Equal(t, "a part", settle(webhook(t, elsewhere(t, part, 500, nil), "part")).Order.Reason,
			model.ReasonPart)
		check.Equal(t, "an older message", settle(webhook(t, elsewhere(t, part, 300, nil), "older")).Payment.Refunded,
			500)
		check.Equal(t, "the answer", settle(elsewhere(t, part, 400, new(false))).Payment.Refunded, 400)
		refund := l.refunded(t, o.ID)
		check.Equal(t, "the rest", refund.Amount, o.Price-400)
		// What the service gives back itself is told too, and is nothing new.
		told := settle(webhook(t, elsewhere(t, part, o.Price, nil), "our own"))
		check.That(t, !told.Changed && !told.UsedUnpaid && told.Refund != nil && told.Refund.ID == refund.ID,
			"our own refund: %+v", told)

		// The money of a second payment, which goes back, is not that of the order.
		twice := l.bought(t, v.ID, "carol")
		first := l.started(t, twice)
		failed := money(t, first)
		failed.Succeeded = false
		settle(failed)
		second := l.started(t, twice)
		settle(money(t, second))
		settle(money(t, first))
		settle(webhook(t, elsewhere(t, first, first.Amount, nil), "the double one"))
		check.Equal(t, "paid twice", now(twice).Status, model.OrderPaid)

		// The code rests while the payment is disputed, also where other money is owed to its buyer.
		code := newCode(t)
		settled := l.bought(t, v.ID, "dora")
		notice := money(t, l.started(t, settled))
		notice.Code = code
		settle(notice)
		disputed := settle(webhook(t, elsewhere(t, paying(settled), 0, new(true)), "disputed"))
		check.Equal(t, "disputed", disputed.Order.Reason, model.ReasonDisputed)
		l.exec(t, "UPDATE orders SET reason = 'REFUND_FAILED' WHERE id = ?", settled.ID)
		wantIllegal(t, check.ErrorOf(l.orders.Redeem(t.Context(), code.Hash, atTill("boss"))), model.OrderPaid)
		l.exec(t, "UPDATE orders SET reason = 'DISPUTED' WHERE id = ?", settled.ID)
		check.Equal(t, "won", settle(webhook(t, elsewhere(t, paying(settled), 0, new(false)), "won")).Order.Reason, "")
		check.Must(t, check.ErrorOf(l.orders.Redeem(t.Context(), code.Hash, atTill("boss"))))
		used := settle(webhook(t, elsewhere(t, paying(settled), settled.Price, nil), "after its use"))
		check.That(t, !used.Changed && used.UsedUnpaid && used.Order.Status == model.OrderRedeemed &&
			used.Refund != nil && used.Refund.Reason == model.RefundOfUsed, "a used one: %+v", used)
		undone := check.Value(l.orders.Unredeem(t.Context(), model.Undo{OrderID: settled.ID, By: "boss", Reason: "x", Anytime: true}))(t)
		history := l.steps(t, settled.ID)
		check.That(t, undone.Status == model.OrderRefunded && undone.Reason == "" && history[len(history)-1] == "refunded by provider",
			"its use is undone: %+v, %v", undone, history)
		wrong := elsewhere(t, paying(twice), 10, nil)
		wrong.Amount++
		wantCode(t, check.ErrorOf(l.payments.Settle(t.Context(), wrong)), model.CodeValidation)
	})
}

// TestLateMoney: money for an order that is closed, or paid already, goes back; it never takes a unit.
func TestLateMoney(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		v := l.onSale(t, 5)
		canceled, expired := l.bought(t, v.ID, "alice"), l.bought(t, v.ID, "bob")
		late := []model.Payment{l.started(t, canceled), l.started(t, expired)}
		l.cancels(t, "alice", canceled.ID)
		l.lapse(t, expired)
		check.Equal(t, "orders expired", len(check.Value(l.orders.Expire(t.Context(), []string{expired.ID}))(t)), 1)
		for i, payment := range late {
			got := check.Value(l.payments.Settle(t.Context(), money(t, payment)))(t)
			if got.Refund == nil || got.Refund.Reason != model.RefundLate || got.Refund.Amount != payment.Amount ||
				got.Order.Status != model.OrderRefunded || !got.Changed {
				t.Errorf("%d: %+v", i, got)
			}
			again := check.Value(l.payments.Settle(t.Context(), money(t, payment)))(t)
			check.That(t, !again.Changed && again.Refund != nil && again.Refund.ID == got.Refund.ID,
				"%d, again: %+v", i, again)
		}
		// No call can start a payment of a failed order; the row of a payment suffices for its money to go back.
		failed := l.bought(t, v.ID, "dave")
		payment := l.started(t, failed)
		l.exec(t, "UPDATE orders SET status = 'failed', reason = 'SOLD_OUT', expires_at = NULL, closed_at = created_at WHERE id = ?", failed.ID)
		l.exec(t, "UPDATE vouchers SET remaining = remaining + 1 WHERE id = ?", v.ID)
		back := check.Value(l.payments.Settle(t.Context(), money(t, payment)))(t)
		if back.Refund == nil || back.Refund.Reason != model.RefundLate || back.Refund.Amount != payment.Amount ||
			back.Order.Status != model.OrderRefunded {
			t.Errorf("money for an order that has failed: %+v", back)
		}
		l.balanced(t, v.ID, 0)
		if told, want := l.steps(t, expired.ID),
			[]string{"unpaid by bob", "expired by system", "refunded by system"}; !slices.Equal(told, want) {
			t.Errorf("history %v, want %v", told, want)
		}

		twice := l.bought(t, v.ID, "carol")
		first := l.started(t, twice)
		refused := check.Value(l.payments.Settle(t.Context(), model.PaymentNotice{
			PaymentID: first.ID, OrderID: twice.ID, Amount: first.Amount, Currency: first.Currency,
		}))(t)
		check.That(t, !refused.Changed && refused.Order.Status == model.OrderUnpaid &&
			refused.Payment.Status == model.PaymentFailed, "a payment that failed: %+v", refused)
		second := l.started(t, twice)
		check.That(t, second.ID != first.ID, "a payment that failed is started again")
		check.Must(t, check.ErrorOf(l.payments.Settle(t.Context(), money(t, second))))
		got := check.Value(l.payments.Settle(t.Context(), money(t, first)))(t) // it had not failed after all
		check.That(t, got.Refund != nil && got.Refund.Reason == model.RefundDuplicate &&
			got.Refund.PaymentID == first.ID && got.Order.Status == model.OrderPaid, "money that came twice: %+v", got)
		refund := l.refunded(t, twice.ID)
		check.Equal(t, "the payment that is refunded", refund.PaymentID, second.ID)
		l.balanced(t, v.ID, 0)
	})
}

// One id is one message once it was applied. A refused one is kept to be looked at, and may come again corrected.
func TestWebhookMessages(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		v := l.onSale(t, 2)
		o := l.bought(t, v.ID, "alice")
		payment := l.started(t, o)
		wrong := money(t, payment)
		wrong.Amount++
		for range 2 {
			wantCode(t, check.ErrorOf(l.payments.Settle(t.Context(), webhook(t, wrong, "msg_1"))), model.CodeValidation)
		}
		check.Equal(t, "messages that were refused",
			l.number(t, "SELECT COUNT(*) FROM webhook_messages WHERE refusal <> ''"), int64(1))
		for _, bad := range []func(*model.PaymentNotice){
			func(n *model.PaymentNotice) { n.OrderID = "absent.v" },
			func(n *model.PaymentNotice) { n.OrderID = l.bought(t, v.ID, "bob").ID },
			func(n *model.PaymentNotice) { n.PaymentID = "absent" },
			func(n *model.PaymentNotice) { n.Currency = "EUR" },
		} {
			notice := money(t, payment)
			bad(&notice)
			wantCode(t, check.ErrorOf(l.payments.Settle(t.Context(), webhook(t, notice, "msg_2"))),
				model.CodeValidation)
		}
		check.Equal(t, "the order's status", check.Value(l.orders.Get(t.Context(), o.ID))(t).Status, model.OrderUnpaid)
		for n := range 2 {
			got := check.Value(l.payments.Settle(t.Context(), webhook(t, money(t, payment), "msg_2")))(t)
			check.That(t, got.Changed == (n == 0) && got.Order.Status == model.OrderPaid, "%d: %+v", n, got)
		}
		bobs := l.started(t, l.owns(t, v.ID, "bob")) // whose message has an id that is taken now
		wantCode(t, check.ErrorOf(l.payments.Settle(t.Context(), webhook(t, money(t, bobs), "msg_2"))),
			model.CodeValidation)
		check.Equal(t, "the other payment", check.Value(l.payments.Get(t.Context(), bobs.ID))(t).Status,
			model.PaymentStarted)
		failed := money(t, payment) // messages come in any order, and what has paid stays so
		failed.Succeeded = false
		check.Equal(t, "a late failure changes the order",
			check.Value(l.payments.Settle(t.Context(), failed))(t).Changed, false)
		check.Equal(t, "the payment", check.Value(l.payments.Get(t.Context(), payment.ID))(t).Status,
			model.PaymentSucceeded)
		check.Equal(t, "the order", check.Value(l.orders.Get(t.Context(), o.ID))(t).Status, model.OrderPaid)
		check.Equal(t, "messages that were refused",
			l.number(t, "SELECT COUNT(*) FROM webhook_messages WHERE refusal <> ''"), int64(1))
		l.balanced(t, v.ID, 2)

		// Old messages are forgotten, and their payments are not paid again.
		l.exec(t, "UPDATE webhook_messages SET received_at = ? WHERE id = ?", time.Now().Add(-2*time.Hour).UTC(),
			[]byte("msg_2"))
		check.Equal(t, "messages purged", check.Value((&repository.Purges{DB: l.db}).PurgeMessages(t.Context(),
			time.Hour))(t), int64(1))
		if again := check.Value(l.payments.Settle(t.Context(),
			webhook(t, money(t, payment), "msg_2")))(t); again.Changed || again.Refund != nil {
			t.Errorf("%+v", again)
		}
	})
}

// TestExpire: only what is unpaid and overdue, and its unit is on sale again.
func TestExpire(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, mode model.OrderMode) {
		one, two := l.onSale(t, 4), l.onSale(t, 1)
		due, other, young := l.bought(t, one.ID, "alice"), l.bought(t, two.ID, "alice"), l.bought(t, one.ID, "bob")
		paying := l.bought(t, one.ID, "carol")
		l.started(t, paying)
		paid, _ := l.paid(t, one.ID, "dave")
		l.lapse(t, due, other, paying, paid)

		// The order is that of their creation.
		for paying, want := range map[bool][]string{false: {due.ID, other.ID}, true: {paying.ID}} {
			var ids []string
			for last := (model.OverdueOrder{}); ; {
				page := check.Value(l.orders.Overdue(t.Context(), paying, last, 1))(t)
				if len(page) == 0 {
					break
				}
				last = page[0]
				ids = append(ids, last.ID)
				check.That(t, last.VoucherID != "" && last.Overdue > 0 && last.Overdue <= time.Minute, "%+v", last)
			}
			check.That(t, slices.Equal(ids, want), "overdue %v, want %v", ids, want)
		}
		ids := []string{due.ID, other.ID, young.ID, paid.ID, "absent.v", "no id!"}
		for n := range 2 {
			expired := check.Value(l.orders.Expire(t.Context(), ids))(t)
			if want := 2 * (1 - n); len(expired) != want {
				t.Errorf("%d: %d expired, want %d", n, len(expired), want)
			}
			for _, o := range expired {
				check.That(t, o.Status == model.OrderExpired && o.ClosedAt != nil &&
					(o.ID == due.ID || o.ID == other.ID), "%+v", o)
			}
		}
		l.balanced(t, one.ID, 3)
		l.balanced(t, two.ID, 0)
		if back := l.outbox(t); mode == model.ModeAsync && len(back) != 2 || mode == model.ModeSync && len(back) != 0 {
			t.Errorf("outbox %v", back)
		}
		l.bought(t, one.ID, "alice")
		_, _, err := l.cancel(t.Context(), "alice", due.ID)
		wantIllegal(t, err, model.OrderExpired)
		wantIllegal(t, errorOf2(l.payments.Start(t.Context(), due.ID, "alice", newID(t))), model.OrderExpired)
	})
}

// TestPaymentWindow: a voucher's own wins over that of the settings.
func TestPaymentWindow(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		own := f.voucher(t, model.VoucherFields{Stock: 1, PaymentWindow: model.Window(90 * time.Second)})
		for id, want := range map[string]time.Duration{own.ID: 90 * time.Second, f.onSale(t, 1).ID: paymentWindow} {
			o := f.place(t, order(t, id, "alice")).Order
			row := check.Value(f.orders.Get(t.Context(), o.ID))(t)
			check.That(t, row.ExpiresAt != nil && row.ExpiresAt.Sub(*row.UnpaidAt) == want,
				"expires %v after %v, want %s", row.ExpiresAt, row.UnpaidAt, want)
		}
	})
}

func TestAdminLog(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, mode model.OrderMode) {
		asked := model.VoucherFields{Title: "x", Stock: 5, BeginAt: time.Now(), EndAt: time.Now().Add(time.Hour)}
		once := model.Idempotency{Scope: "s", Key: "k", Fingerprint: "f"}
		id := newID(t)
		for range 2 { // a repeated call changes nothing, and is not logged
			check.Must(t, check.ErrorOf(l.vouchers.Create(t.Context(), id, asked, "boss", once)))
		}
		check.Must(t, check.ErrorOf(l.vouchers.Patch(t.Context(), id, model.VoucherPatch{Title: new("y"), By: "boss"})))
		stock := model.StockChange{Delta: new(int64(3)), By: "clerk"}
		check.Must(t, check.ErrorOf(l.vouchers.ChangeStock(t.Context(), id, stock, model.Idempotency{})))
		less := model.StockChange{Stock: new(int64(-1))}
		wantCode(t, check.ErrorOf(l.vouchers.ChangeStock(t.Context(), id, less, model.Idempotency{})),
			model.CodeValidation)

		page := check.Value(l.log.List(t.Context(), model.AdminLogQuery{Limit: 2}))(t)
		rest := check.Value(l.log.List(t.Context(), model.AdminLogQuery{Limit: 2, Cursor: page.NextCursor}))(t)
		all := slices.Concat(page.Items, rest.Items)
		want := []struct{ actor, action string }{
			{"clerk", model.ActionStockChange},
			{"boss", model.ActionVoucherChange},
			{"boss", model.ActionVoucherCreate},
		}
		check.Need(t, len(all) == len(want) && len(page.Items) == 2 && rest.NextCursor == "", "%s: %+v", mode, all)
		for i, entry := range all {
			check.That(t, entry.Actor == want[i].actor && entry.Action == want[i].action && entry.Subject == id &&
				aboutNow(entry.At), "%d: %+v", i, entry)
			check.That(t, (entry.Before == nil) == (i == 2), "%d: before %s", i, entry.Before)
		}
		for _, member := range []struct {
			document json.RawMessage
			want     any
		}{{all[0].Before, 5.0}, {all[0].After, 8.0}} {
			var v map[string]any
			check.Must(t, json.Unmarshal(member.document, &v))
			check.Equal(t, "logged stock", v["stock"], member.want)
		}
		check.Equal(t, "entries of one", len(check.Value(l.log.List(t.Context(),
			model.AdminLogQuery{Actor: "clerk"}))(t).Items), 1)
		check.Equal(t, "entries of nobody", len(check.Value(l.log.List(t.Context(),
			model.AdminLogQuery{Actor: "no body"}))(t).Items), 0)
		wantCode(t, check.ErrorOf(l.log.List(t.Context(), model.AdminLogQuery{Cursor: "x"})), model.CodeValidation)
	})
}

func errorOf2[T, U any](_ T, _ U, err error) error { return err }

// An administrator of the database may have set a status that no history has. The order is shown all the same, at once.
func TestDetailOfARepairedOrder(t *testing.T) {
	t.Parallel()
	over(t, dialects(), newFixture, func(t *testing.T, f *fixture) {
		l := lifeOf(f)
		o := l.bought(t, l.onSale(t, 1).ID, "alice")
		check.Must(t, check.ErrorOf(l.payments.Settle(t.Context(), money(t, l.started(t, o)))))
		f.exec(t, "UPDATE orders SET status = 'redeemed' WHERE id = ?", o.ID)
		detail := check.Value(l.orders.Detail(t.Context(), o.ID))(t)
		check.Equal(t, "status", detail.Status, model.OrderRedeemed)
		check.Equal(t, "moves that are told", len(detail.History), 2)
	})
}

// TestARefundWhoseErrorIsNoText: whatever a provider answers, the attempt is noted, and the next one waits.
func TestARefundWhoseErrorIsNoText(t *testing.T) {
	t.Parallel()
	over(t, dialects(), newFixture, func(t *testing.T, f *fixture) {
		l := lifeOf(f)
		o := l.bought(t, l.onSale(t, 1).ID, "alice")
		check.Must(t, check.ErrorOf(l.payments.Settle(t.Context(), money(t, l.started(t, o)))))
		refund := l.refunded(t, o.ID)
		check.Must(t, l.refunds.Retry(t.Context(), refund.ID, "the answer is 500 \xff\xfe", time.Hour))
		check.Equal(t, "due", len(check.Value(l.refunds.Due(t.Context(), 10))(t)), 0)
		page := check.Value(l.refunds.List(t.Context(), model.RefundQuery{}))(t)
		check.Equal(t, "attempts", page.Items[0].Attempts, 1)
	})
}

// What was paid elsewhere is paid once for its reference, is found by it, and is paid back by a person, once.
func TestPaidElsewhere(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, mode model.OrderMode) {
		v := l.onSale(t, 3)
		o := l.bought(t, v.ID, "alice")
		pending := l.started(t, o)
		code := newCode(t)
		pays := func(orderID, reference string) (model.Order, error) {
			return l.payments.Elsewhere(t.Context(), orderID, newID(t), "boss", model.Elsewhere{Reference: reference, Method: "cash"}, code)
		}
		const reference = "till 7 / 回执 42"
		paid := check.Value(pays(o.ID, reference))(t)
		check.That(t, paid.Status == model.OrderPaid && paid.PaidAt != nil && paid.PaidReference == reference &&
			paid.SealedCode == string(code.Sealed), "%+v", paid)
		row := check.Value(l.orders.Get(t.Context(), o.ID))(t)
		check.Equal(t, "the row", fmt.Sprint(row), fmt.Sprint(paid))
		check.Equal(t, "the same reference again", fmt.Sprint(check.Value(pays(o.ID, reference))(t)), fmt.Sprint(row))
		err := check.ErrorOf(pays(o.ID, "till 8"))
		if refused, ok := errors.AsType[*model.Error](err); !ok || refused.Code != model.CodeAlreadyPaid || refused.Reference != reference {
			t.Errorf("another reference: %v", err)
		}
		wantCode(t, check.ErrorOf(pays("1."+v.ID, reference)), model.CodeNotFound)
		other, _ := l.paid(t, v.ID, "bob")
		wantIllegal(t, check.ErrorOf(pays(other.ID, reference)), model.OrderPaid)
		history := check.Value(l.orders.Detail(t.Context(), o.ID))(t).History
		check.That(t, len(history) == 2 && history[1].By == "boss" && history[1].Reason == reference, "%+v", history)
		found := check.Value(l.orders.List(t.Context(), model.OrderQuery{Words: " " + reference}))(t).Items
		check.That(t, len(found) == 1 && found[0].ID == o.ID, "found by the reference: %+v", found)
		check.Equal(t, "payments to ask for", len(check.Value(l.payments.Due(t.Context(), 9))(t)), 0)

		// The provider's money comes late, and a notice of what it cannot know is of nothing.
		late := check.Value(l.payments.Settle(t.Context(), money(t, pending)))(t)
		check.That(t, late.Refund != nil && late.Refund.Reason == model.RefundDuplicate && !late.Refund.Outside, "%+v", late)
		forged := check.Value(l.payments.OfOrder(t.Context(), o.ID))(t)
		at := slices.IndexFunc(forged, func(p model.Payment) bool { return p.Reference == reference && p.Method == "cash" })
		wantCode(t, check.ErrorOf(l.payments.Settle(t.Context(), money(t, forged[at]))), model.CodeValidation)

		wantIllegal(t, check.ErrorOf(l.refunds.PaidBack(t.Context(), o.ID, "boss")), model.OrderPaid)
		refund := l.refunded(t, o.ID)
		check.That(t, refund.Outside && refund.Status == model.RefundOutside && refund.NextAt == nil && refund.Amount == o.Price, "%+v", refund)
		due := check.Value(l.refunds.Due(t.Context(), 9))(t)
		check.That(t, len(due) == 1 && due[0].ID == late.Refund.ID, "a provider is asked for %+v", due)
		list := check.Value(l.refunds.List(t.Context(), model.RefundQuery{Status: model.RefundOutside}))(t).Items
		check.That(t, len(list) == 1 && list[0].ID == refund.ID && list[0].Outside, "%+v", list)
		check.Equal(t, "units back", len(l.outbox(t)), map[model.OrderMode]int{model.ModeAsync: 1}[mode])
		done := check.Value(l.refunds.PaidBack(t.Context(), o.ID, "boss"))(t)
		check.That(t, done.Status == model.RefundDone && !done.Outside && done.ClosedAt != nil, "%+v", done)
		check.Equal(t, "again", fmt.Sprint(check.Value(l.refunds.PaidBack(t.Context(), o.ID, "boss"))(t)), fmt.Sprint(done))
		wantIllegal(t, check.ErrorOf(l.refunds.PaidBack(t.Context(), other.ID, "boss")), model.OrderPaid)
		var sold []model.BookedOrder
		check.Must(t, l.orders.Sold(t.Context(), v.ID, func(o model.BookedOrder) error { sold = append(sold, o); return nil }))
		check.That(t, sold[0].PaidReference != "" && sold[0].Price == o.Price && sold[0].Received == 2*o.Price && sold[1].PaidReference == "", "%+v", sold)
		l.balanced(t, v.ID, 1)
	})
}
