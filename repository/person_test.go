package repository_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

// whereIs is the tables that have a text anywhere.
func (f *fixture) whereIs(t testing.TB, text string) (tables []string) {
	t.Helper()
	names := "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name"
	if f.db.Dialect.Name != "mysql" {
		names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"
	}
	for _, name := range list(t, f.db.SQL(), names) {
		rows := check.Value(f.db.SQL().QueryContext(t.Context(), "SELECT * FROM "+name))(t)
		columns := check.Value(rows.Columns())(t)
		for rows.Next() {
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			check.Must(t, rows.Scan(into...))
			for _, value := range values {
				if of, ok := value.([]byte); ok {
					value = string(of)
				}
				if strings.Contains(fmt.Sprint(value), text) && (len(tables) == 0 || tables[len(tables)-1] != name) {
					tables = append(tables, name)
				}
			}
		}
		check.Must(t, rows.Err())
		check.Must(t, rows.Close()) //nolint:sqlclosecheck // of one table before the next
	}
	return tables
}

// No table has the id of a user who was erased, but an account that nobody can use, as long as its tokens could last.
// What adds up does so still, an old message brings nothing back, and proofs hold.
func TestErase(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, mode model.OrderMode) {
		d, people := lotteryOf(l), &repository.People{DB: l.db}
		const eve = "eve|1@example.org"
		account := model.Account{ID: newID(t), Username: "Eve", Role: model.RoleUser, PasswordHash: "$x"}
		check.Must(t, l.accounts.Create(t.Context(), account))
		for _, user := range []string{eve, account.ID} {
			v, waits, drawn := l.onSale(t, 9), l.withWaitlist(t, 1), d.toDraw(t, 1)
			check.Must(t, check.ErrorOf(d.enters(t, drawn.ID, user)))
			_, err := people.Erase(t.Context(), user, "boss")
			wantCode(t, err, model.CodeConflict) // it is not drawn yet
			d.over(t, drawn.ID)
			leaves := d.drawn(t, drawn.ID, 10, 9)
			won := l.owns(t, drawn.ID, user)
			_, err = people.Erase(t.Context(), user, "boss")
			refusal, ok := errors.AsType[*model.Error](err)
			check.That(t, ok && fmt.Sprint(refusal.OrderIDs) == fmt.Sprint([]string{won.ID}), "%v, live is %s", err, won.ID)
			l.cancels(t, user, won.ID)
			first := l.bought(t, waits.ID, "first")
			l.joins(t, waits.ID, user)
			l.cancels(t, "first", first.ID)
			l.cancels(t, user, l.owns(t, waits.ID, user).ID)
			used, code := l.paid(t, v.ID, user)
			check.Value(l.orders.Redeem(t.Context(), code.Hash, atTill(user)))(t) // as if an administrator
			check.Value(l.orders.Cancel(t.Context(), []model.Cancellation{{OrderID: l.bought(t, v.ID, "b"+user[:3]).ID, UserID: "b" + user[:3], By: user}}))(t)
			check.Must(t, check.ErrorOf(people.Erase(t.Context(), "nobody", "boss")))

			l.exec(t, "INSERT INTO events (type, subject, happened_at, data) VALUES ('order.redeemed', ?, ?, ?)", used.ID, time.Now().UTC(),
				`{"id":"`+used.ID+`","user_id":"`+user+`"}`)
			l.exec(t, "INSERT INTO erasures (user_id, pseudonym) VALUES (?, 'erased-before')", user) // a call was killed
			l.exec(t, "UPDATE orders SET user_id = 'erased-before' WHERE id = ?", won.ID)
			l.exec(t, "UPDATE order_history SET actor = 'erased-before' WHERE order_id = ? AND actor = ?", won.ID, user)
			l.exec(t, "DELETE FROM releases")
			ended := check.Value(people.Erase(t.Context(), user, "boss"))(t)
			left := []string{}
			if user == account.ID {
				check.That(t, ended != nil && ended.Disabled && ended.Version > 1, "the account: %+v", ended)
				wantCode(t, check.ErrorOf(l.accounts.ByUsername(t.Context(), "eve")), model.CodeNotFound)
				left = []string{"accounts"}
			}
			found := l.whereIs(t, user)
			if mode == model.ModeAsync { // its mark in the hot copy becomes the pseudonym's
				check.Equal(t, "marks to be changed", l.number(t, "SELECT COUNT(*) FROM releases WHERE order_id = heir_id AND order_id = ? AND heir_user_id = 'erased-before'", used.ID), 1)
				l.exec(t, "DELETE FROM releases")
				found = l.whereIs(t, user)
			}
			check.Equal(t, "the tables with the id", fmt.Sprint(found), fmt.Sprint(left))
			check.Equal(t, "its orders", len(check.Value(l.orders.List(t.Context(), model.OrderQuery{UserID: "erased-before"}))(t).Items), 3)
			old := used
			old.UserID, old.CreatedAt = user, used.CreatedAt
			again := check.Value(l.orders.Persist(t.Context(), []model.Reservation{{Order: old, Epoch: 1}}))(t)[0]
			check.That(t, again.Err == nil && !again.Created && again.Order.UserID == "erased-before", "an old message: %+v", again)
			l.exec(t, "UPDATE orders SET user_id = CONCAT('erased-', id) WHERE user_id = 'erased-before'")
			for _, id := range []string{v.ID, waits.ID, drawn.ID} {
				audit := check.Value(l.vouchers.Audit(t.Context(), id))(t)
				check.That(t, audit.Balanced && len(audit.Wrong) == 0, "%+v", audit)
			}
			check.Equal(t, "the leaves", fmt.Sprint(check.Value(d.draws.Leaves(t.Context(), drawn.ID, true, "", 10))(t).Items[0]), fmt.Sprintf("%x", leaves[0].Leaf))
			check.Must(t, check.ErrorOf(people.Erase(t.Context(), user, "boss")))
		}
		check.Equal(t, "erasures that are not done", l.number(t, "SELECT COUNT(*) FROM erasures"), 0)
		purges := &repository.Purges{DB: l.db}
		check.Equal(t, "accounts purged at once", check.Value(purges.PurgeAccounts(t.Context(), time.Hour))(t), 0)
		check.Equal(t, "accounts purged later", check.Value(purges.PurgeAccounts(t.Context(), -time.Hour))(t), 1)
	})
}
